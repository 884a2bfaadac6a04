"""Kubernetes: a fake of its API server, of its scheduler and of its kubelets, and the backend on it, part by part."""
