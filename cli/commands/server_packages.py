"""What only a server needs, and whether it is installed here."""

from __future__ import annotations

from importlib.util import find_spec

from chalicelib.errors import Refused

# The modules of the packages in the extra `server`; uvloop may be missing.
NEEDED = ("acme", "authlib", "cryptography", "httptools", "paramiko", "requests", "urllib3", "uvicorn")


def check_packages() -> None:
    """Raises Refused if what only the server needs isn't installed."""
    if lacking := [name for name in NEEDED if find_spec(name) is None]:
        raise Refused(
            f"What is installed here is a client. A server also needs {', '.join(lacking)}.",
            hint="Install dstack-serverless again, with its extra `server`: see docs/install.md.",
        )
