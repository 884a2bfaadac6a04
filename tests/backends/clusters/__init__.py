"""The guide to clusters, which every cloud has a row in."""
