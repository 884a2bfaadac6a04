"""What first contact with a host showed, by which the host is recognised later."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.noun import Noun


class Contact(Noun):
    """`shown`: the public host keys on the way, outermost first. `tunnel`: the host can't reach the server, so its
    agent's calls are carried over our SSH connection."""

    kind: ClassVar[str] = "contact"

    instance_id: str
    shown: tuple[str, ...]
    tunnel: bool = False

    def place(self) -> keys.Place:
        listed = (keys.TUNNELS, self.instance_id) if self.tunnel else None
        return keys.Place(keys.contact(self.instance_id), listed)
