"""What is said about a released model, from records and manifests alone: docs/attestations.md."""
