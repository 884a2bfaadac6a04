"""Volumes of a cluster: persistent volume claims."""

CLAIM = "claim"  # the kind of their handles
