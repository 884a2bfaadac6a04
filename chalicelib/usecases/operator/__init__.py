"""The operator's side: backends, the server's file, its first start, costs, events and numbers for Prometheus."""
