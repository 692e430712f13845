"""Measurements on the real path: `make bench` (or python -m benchmarks)."""
