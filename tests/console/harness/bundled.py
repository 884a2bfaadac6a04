"""`dstack server` with the console as a wheel has it: bundled, in the folder that the environment names."""

from __future__ import annotations

import os
from pathlib import Path

from chalicelib import console
from cli.main import main

FOLDER = "TESTS_CONSOLE"

if __name__ == "__main__":
    console.BUNDLED = Path(os.environ[FOLDER])
    main()
