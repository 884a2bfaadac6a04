"""`python -m chalicelib.carrier ARCHITECTURE FILE`: makes the carrier for x86 or arm, and writes it to a file."""

import sys
from pathlib import Path

from chalicelib.carrier.make import make

if len(sys.argv) != 3:
    sys.exit(f"usage: python -m {__package__} x86|arm FILE")
Path(sys.argv[2]).write_bytes(make(sys.argv[1]))
