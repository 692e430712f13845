"""What recipes may say: YAML with line numbers, rules beyond the models' own, comparisons, rehearsals."""
