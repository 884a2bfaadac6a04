"""CUDO Compute."""
