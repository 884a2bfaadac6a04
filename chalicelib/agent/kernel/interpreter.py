"""The Python interpreter that runs this agent, and the command that starts it again.

In a container whose image has no Python, the interpreter comes from a *carrier*: a folder with Python, its libraries
and their dynamic loader. Python is started through that loader, because the image's may be missing or unable to load
it. The carrier also has the certificates of the public authorities, which many images lack.
"""

from __future__ import annotations

import os
import sys
from typing import List, MutableMapping

LOADER, AUTHORITIES = "lib/loader", "lib/authorities.pem"  # paths in a carrier


def command() -> List[str]:
    """The command to which a program's path and arguments are appended. Python ignores its environment variables and
    site-packages."""
    folder = carrier()
    if not folder:
        return [sys.executable, "-I", "-S"]
    return [*loading(folder), sys.executable, "-I", "-S"]


def loading(carrier: str) -> List[str]:
    """The command to which the path of one of the carrier's programs is appended."""
    return [os.path.join(carrier, LOADER), "--library-path", os.path.join(carrier, "lib")]


def carrier() -> str:
    """The folder of the carrier that this Python belongs to; empty if the machine has its own Python."""
    folder = os.path.dirname(os.path.dirname(sys.executable))
    return folder if os.path.exists(os.path.join(folder, LOADER)) else ""


def hide_locale(environment: MutableMapping[str, str] = os.environ, given: str = "/proc/self/environ") -> None:
    """Where no locale is chosen, Python chooses one for itself and for whatever it starts (PEP 538). A job shouldn't
    get a variable that neither its image nor its spec has. `given`: the variables that this process started with."""
    if "LC_CTYPE" in environment:
        with open(given, "rb") as file:
            if not any(each.startswith(b"LC_CTYPE=") for each in file.read().split(b"\0")):
                del environment["LC_CTYPE"]


def authorities() -> str:
    """A file of certificates to trust besides the machine's; empty if there is none."""
    folder = carrier()
    return os.path.join(folder, AUTHORITIES) if folder else ""
