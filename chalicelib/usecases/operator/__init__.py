"""The operator's side: backends, the server's configuration file, its first start, costs, events and metrics."""
