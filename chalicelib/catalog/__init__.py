"""Offers as snapshots with their age: written by a refresh, read by plans. Markets, which have no lists,
are asked: for a plan, with a deadline, and before a purchase, by an effect whose answer is stored here."""
