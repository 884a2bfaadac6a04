"""Makes a carrier from its packages."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.carrier import bundle, download
from chalicelib.carrier.packages import Package, packages


def make(architecture: str, fetch: Callable[[Package], bytes] = download.package) -> bytes:
    """The compressed tar for an architecture, x86 or arm. Raises Refused if a package can't be fetched."""
    return bundle.archive(architecture, {each.name: fetch(each) for each in packages(architecture)})
