"""What a user writes, as frozen models. Field names are the wire's; values are canonical (seconds, GB, ranges)."""
