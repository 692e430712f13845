"""Training processes and what they leave in their folders."""
