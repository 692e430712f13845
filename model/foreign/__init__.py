"""Checkpoints made elsewhere."""
