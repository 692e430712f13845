"""One small file per stage: what its asset shows."""
