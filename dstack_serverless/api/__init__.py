"""Every call of the API as a function that describes it: `client.send(runs.get("main", run_name="hello"))`.

A module for each noun. Keys that aren't given aren't sent. Generated: `make docs`.
"""
