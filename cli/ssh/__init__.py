"""The way to a job over SSH: keys, routes, the SSH configuration, forwarded ports."""
