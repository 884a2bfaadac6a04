"""Fleets, hosts, instances and volumes as users see them, and hosts that projects share."""
