"""State machines as tables, one noun per file. `table.apply` is the only way to a new status.

The pictures in `docs/states.md` are generated from these tables.
"""
