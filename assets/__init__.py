"""Dagster wiring, one small file per stage, and the `bert` command. Holds no logic of text or models."""
