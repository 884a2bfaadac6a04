"""The same file, environment and flags through two clients: what each puts on the wire must be the same."""
