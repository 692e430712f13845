"""The parts of pretraining: job, loop, guards, budget, what steps cost."""
