"""`dstack server`, whose carriers are made of packages that apt fetches."""

from __future__ import annotations

import sys

from tests.e2e.containers.root import run_server

if __name__ == "__main__":
    sys.exit(run_server(sys.argv[1:]))
