"""Hot Aisle."""
