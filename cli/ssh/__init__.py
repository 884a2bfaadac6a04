"""SSH to jobs: keys, routes, the SSH configuration, forwarded ports."""
