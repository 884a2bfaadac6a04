"""The name of an image, as engines read it: `nginx` is `library/nginx` at Docker Hub, and its tag is `latest`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

DOCKER_HUB = "docker.io"
_HUB_NAMES = (DOCKER_HUB, "index.docker.io", "registry-1.docker.io")
_HUB_API = "registry-1.docker.io"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?:(?P<host>{_HOST})/)?(?P<path>{_PART}(?:/{_PART})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class ImageName:
    host: str  # of its registry, with the port
    repository: str
    reference: str  # the tag or the digest

    @property
    def base(self) -> str:
        """The address of the registry's API. Only a registry on this machine is called without TLS."""
        host = _HUB_API if self.host == DOCKER_HUB else self.host
        return f"{'http' if is_local(host) else 'https'}://{host}"


def image_name(text: str) -> ImageName | None:
    """None if no image can have this name."""
    head, slash = text.partition("/")[:2]
    named = bool(slash) and ("." in head or ":" in head or head == "localhost")
    found = _NAME.fullmatch(text if named else f"{DOCKER_HUB}/{text}")
    if found is None or not _is_host(found["host"]):
        return None
    host, path = found["host"], found["path"]
    if host in _HUB_NAMES:
        host, path = DOCKER_HUB, path if "/" in path else f"library/{path}"
    return ImageName(host, path, found["digest"] or found["tag"] or "latest")


def _is_host(host: str) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # no IPv6 address, or no port
        return False


def is_local(host: str) -> bool:
    """Is this the machine itself? `host` may have a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
