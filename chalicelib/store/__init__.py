"""The store: one table behind a small port (`port.py`) with SQLite and DynamoDB adapters, plus blobs and logs."""
