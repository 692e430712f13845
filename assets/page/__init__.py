"""Dagster's web page, and what keeps other pages from steering it."""
