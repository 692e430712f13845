"""Where files come from: servers, wheels, Wikimedia's dumps."""
