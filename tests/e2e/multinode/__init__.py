"""Tasks on several nodes that compute something together, on this machine as a cluster."""
