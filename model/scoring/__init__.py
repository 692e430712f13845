"""Scores of prediction files, equal to those of the tasks' official scripts: what `bert score` prints.

command.py names the tasks and puts a score together; squad_metrics.py and entities.py score, as pure functions; squad_files.py,
label_files.py and column_files.py read the files.
"""
