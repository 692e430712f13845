"""The parts of fine-tuning: job, loop, heads, and what texts look like to them."""
