"""The web console, in a real browser against a real server with real jobs."""
