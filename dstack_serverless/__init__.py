"""What pip installs is this package and nothing beside it.

The build (`.ci/wheel.py`) adds the repository's folders to it: `cli`, and `chalicelib` as `plane`. Importing it loads
neither.
"""
