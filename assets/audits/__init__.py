"""What audits answer: chains, attestations, rebuilt artifacts."""
