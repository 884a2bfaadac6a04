"""The Python that runs this agent, and how to start it once more.

Where the image of a container has no Python, a *carrier* brings one: a folder with the program, its libraries and their
own dynamic loader, which is started through that loader because the image's can't load it, or isn't there. It has the
certificates of the public authorities, too, which many images lack.
"""

from __future__ import annotations

import os
import sys
from typing import List

LOADER, AUTHORITIES = "lib/loader", "lib/authorities.pem"  # in the folder of a carrier


def command() -> List[str]:
    """What to put before a program's path and its arguments; nothing of the environment or of site-packages counts."""
    folder = carrier()
    if not folder:
        return [sys.executable, "-I", "-S"]
    library = os.path.join(folder, "lib")
    return [os.path.join(folder, LOADER), "--library-path", library, sys.executable, "-I", "-S"]


def carrier() -> str:
    """The folder of the carrier that this Python is from; empty if it is the machine's own."""
    folder = os.path.dirname(os.path.dirname(sys.executable))
    return folder if os.path.exists(os.path.join(folder, LOADER)) else ""


def authorities() -> str:
    """A file of certificates to trust besides the machine's; empty: the machine's are all there are."""
    folder = carrier()
    return os.path.join(folder, AUTHORITIES) if folder else ""
