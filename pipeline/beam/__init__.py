"""Apache Beam: runners, options, and the two pipelines."""
