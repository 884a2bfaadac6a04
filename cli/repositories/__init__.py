"""The code of a run: which repository and commit, what changed since, and folders packed as archives."""
