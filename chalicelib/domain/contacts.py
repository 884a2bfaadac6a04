"""What the first contact with a host showed, so that the host can be recognised later."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.noun import Noun, Value


class HeadRelay(Value):
    """The relay on a host's head node, which forwards the host's calls to the server."""

    address: str  # `host:port`, where the head node listens for its hosts
    spec_num: int  # the fleet's spec when the relay was set up, which names the head node


class Contact(Noun):
    """How a host was reached. `shown`: the public host keys along the route, outermost first. `tunnel`, `relay`: the
    host can't reach the server, so its agent's calls go through our SSH connection, or through its head node."""

    kind: ClassVar[str] = "contact"

    instance_id: str
    shown: tuple[str, ...]
    tunnel: bool = False
    relay: HeadRelay | None = None

    def place(self) -> keys.Place:
        listed = (keys.TUNNELS, self.instance_id) if self.tunnel else None
        return keys.Place(keys.contact(self.instance_id), listed)
