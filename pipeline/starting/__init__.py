"""`bert new`: how much text somebody has, and a recipe of the right size for it."""
