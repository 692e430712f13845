"""Pairs, masks, and the rows of shards."""
