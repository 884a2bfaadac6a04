"""Input and output: options, tables, progress, problems with their places, and `--json`."""
