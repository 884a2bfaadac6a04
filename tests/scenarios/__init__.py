"""Scenarios: scripts of commands with the output they must give, run against both composition roots."""
