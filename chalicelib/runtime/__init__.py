"""Composition roots: the only place that names implementations, reads the environment, or starts a thread."""
