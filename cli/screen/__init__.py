"""What a user types and sees: options, tables, progress, problems with their places, and `--json`."""
