"""The code of a run: its repository and commit, the changes since then, and folders packed as archives."""
