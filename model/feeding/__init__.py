"""Rows of shards on their way to the device: order, batches, targets."""
