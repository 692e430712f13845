"""Recipes, the store, and everything from raw text to shards. Knows neither Dagster nor torch."""
