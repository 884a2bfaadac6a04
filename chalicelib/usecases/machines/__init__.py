"""Fleets, hosts, instances and volumes as users meet them, and hosts that projects lend each other."""
