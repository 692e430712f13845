"""Everything from shards to scores: the BERT model, its training, fine-tuning, reports. Knows neither Dagster nor Beam."""
