"""Models as others load them, and the cards that go with them."""
