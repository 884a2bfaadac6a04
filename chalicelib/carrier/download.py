"""Debian's packages over the network, each checked by its digest: a mirror can't change what is run."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Callable
from urllib.error import URLError
from urllib.request import urlopen

from chalicelib.carrier.packages import Package
from chalicelib.errors import Refused

SECONDS = 20.0  # of silence

Open = Callable[[str], bytes]


def read(address: str) -> bytes:
    with urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 - addresses of `packages`
        content: bytes = answer.read()
        return content


def package(wanted: Package, read: Open = read) -> bytes:
    """Its content. Raises Refused, which says what every address answered."""
    problems = []
    for address in wanted.addresses:
        try:
            content = read(address)
        except (URLError, OSError, http.client.HTTPException) as error:
            problems.append(f"{address}: {error}")
            continue
        if hashlib.sha256(content).hexdigest() == wanted.sha256:
            return content
        problems.append(f"{address}: its SHA-256 isn't the pinned one")
    raise Refused(
        f"The package {wanted.name} can't be fetched: {'; '.join(problems)}.",
        hint="Containers of images without Python need it. Let this machine reach deb.debian.org, through https_proxy "
        "if there is a proxy.",
    )
