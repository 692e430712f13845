"""Parts of networks."""
