"""Offers as snapshots with their age: written by a refresh, read by plans. A plan never calls a cloud."""
