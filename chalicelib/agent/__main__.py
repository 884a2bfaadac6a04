"""`python -m chalicelib.agent …`: the agent from its sources."""

import sys

from .program.main import main

sys.exit(main(sys.argv[1:]))
