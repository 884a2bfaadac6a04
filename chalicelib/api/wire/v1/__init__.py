"""The JSON of the resources under `/api/v1`, a file for each noun."""
