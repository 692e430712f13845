"""The files of tasks, known ones and people's own."""
