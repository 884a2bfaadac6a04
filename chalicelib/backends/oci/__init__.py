"""Oracle Cloud Infrastructure."""
