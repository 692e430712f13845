"""What the commands of `bert` answer and do, as plain values and as text."""
