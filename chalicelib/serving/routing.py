"""Which service a request is for, by its path or its host, and which path is passed on to the replica.

A service has two addresses: `/proxy/services/<project>/<run>/…` on the server's own host, and a host of its own,
`<run>.<project>.<domain>`. Paths are passed on exactly as they were sent, because decoding and encoding would change
them. Only paths with a segment `.` or `..`, in any spelling, are refused: servers disagree about where they lead.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

PREFIX = b"/proxy/services/"
DOMAIN = "localhost"  # browsers take every name under it for this machine
_NAMED = re.compile(rb"/proxy/services/([A-Za-z0-9_-]{1,100})/([A-Za-z0-9_-]{1,100})(/.*)?", re.DOTALL)
_CLIMBS = re.compile(rb"(?:^|/|\\|%2f|%5c)(?:\.|%2e){1,2}(?:$|/|\\|%2f|%5c|;|%3b)", re.IGNORECASE)
_HERE = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?")
_LABEL = re.compile(r"[a-z0-9_-]{1,100}")
_ROUTED = re.compile(rb"/(?:v1/.+|generate|chat/completions|health)", re.DOTALL)


class ServicePath(NamedTuple):
    """A service by its names, and the path: `full_path` as it was sent, `path` without the service's prefix."""

    project: str
    run: str
    full_path: bytes
    path: bytes
    prefix: str = ""  # empty for a host of its own


NOWHERE = ServicePath("", "", b"/", b"/")  # under the prefix of services, but not the path of one


def by_path(path: bytes) -> ServicePath | None:
    """The service of a path; None if it isn't one of a service. An empty `path`: only the final slash is missing."""
    if not path.startswith(PREFIX):
        return None
    found = _NAMED.fullmatch(path)
    if found is None:
        return None
    project, run = found[1].decode(), found[2].decode()
    return ServicePath(project, run, path, found[3] or b"", f"/proxy/services/{project}/{run}")


def by_host(host: str, domain: str, path: bytes) -> ServicePath | None:
    """The service of a `Host` header; None if it isn't the host of a service."""
    name = host.lower().partition(":")[0].removesuffix(".")
    if not name.endswith(domain) or not name.endswith(f".{domain}"):
        return None
    run, dot, project = name[: -len(domain) - 1].partition(".")
    if not dot or not _LABEL.fullmatch(run) or not _LABEL.fullmatch(project):
        return None
    return ServicePath(project, run, path, path)


def own_address(place: ServicePath, path: bytes, host: str, domain: str, proto: str) -> str:
    """The address under a host of its own of what was asked for by path; empty if that host can't be reached from
    there. `host`: the request's. Names under `localhost` lead to this machine alone, so its own callers have them."""
    here = _HERE.fullmatch(host) is not None
    name = f"{place.run}.{place.project}"
    if here != (domain == DOMAIN) or (here and proto != "http") or not all(map(_LABEL.fullmatch, name.split("."))):
        return ""
    port = re.search(r":\d+$", host)
    return f"{proto}://{name}.{domain}{port[0] if port else ''}{path.decode('latin-1')}"


def climbs(path: bytes) -> bool:
    """Whether it has a segment `.` or `..`, in any spelling."""
    return (b"." in path or b"%2" in path) and _CLIMBS.search(path) is not None


def through_router(path: bytes) -> bool:
    """Whether clients may request this path of a service behind a router. The others are for its operator."""
    return _ROUTED.fullmatch(path) is not None


def read(path: bytes) -> bytes:
    """The path as applications read it: decoded, with single slashes. Only for comparing prefixes."""
    decoded = unquote_to_bytes(path) if b"%" in path else path
    return re.sub(rb"/{2,}", b"/", decoded) if b"//" in decoded else decoded
