"""A dump's pages in parts, and the parts of markup → prose."""
