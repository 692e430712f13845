"""What retrains watch, and what they tell people."""
