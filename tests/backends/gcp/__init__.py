"""Google's cloud, and a fake of it."""
