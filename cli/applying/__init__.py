"""Configurations: reading, planning, confirming, applying and following them."""
