"""Stands before the real one on the path of every `bert` that a test starts: see tests/assets/bertcli.py."""

raise ImportError("a user's environment does not have it")
