"""Counted words and the merges of a vocabulary."""
