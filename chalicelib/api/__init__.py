"""HTTP. `route.py` says what a route is, `routes/<noun>.py` list them, `wire/<noun>.py` is the JSON clients rely on."""
