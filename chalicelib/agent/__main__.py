"""`python -m chalicelib.agent …`: the agent from its sources."""

import sys

from .main import main

sys.exit(main(sys.argv[1:]))
