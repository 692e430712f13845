"""Whether a retrained model may take the place of the one in use.

decision     the stage: reads both models' artifacts, writes the verdict with its numbers
gates        numbers → gates, pure
in_use       the champion, as far as it can be read
task_scores  scores of tasks, against the champion's
held_out     both models on the same held-out text
same_text    held-out text that both models are asked about, in rows for each
likelihood   what one model makes of such rows
drift        how much the documents changed
"""
