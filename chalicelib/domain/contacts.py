"""What first contact with a host showed, by which the host is recognised later."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.noun import Noun, Value


class HeadRelay(Value):
    """What the host's head node passes on to the server."""

    address: str  # `host:port`, where the head node listens for its hosts
    spec_num: int  # of the fleet, when it was set up: who the head node was


class Contact(Noun):
    """`shown`: the public host keys on the way, outermost first. `tunnel`, `relay`: the host can't reach the server, so
    its agent's calls are carried over our SSH connection, or by its head node."""

    kind: ClassVar[str] = "contact"

    instance_id: str
    shown: tuple[str, ...]
    tunnel: bool = False
    relay: HeadRelay | None = None

    def place(self) -> keys.Place:
        listed = (keys.TUNNELS, self.instance_id) if self.tunnel else None
        return keys.Place(keys.contact(self.instance_id), listed)
