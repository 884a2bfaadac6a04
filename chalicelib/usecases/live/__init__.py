"""Following what changes: lists whole at first, then only what is new in them."""
