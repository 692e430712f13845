"""Which documents stay: copies, quality, withdrawals, test sets, held-out ones."""
