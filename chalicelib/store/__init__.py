"""The store: one table behind one small port (`port.py`), SQLite and DynamoDB adapters, blobs and logs beside it."""
