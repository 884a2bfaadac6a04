"""Quotas: how many slices of a family of types a project may have at once. They say nothing about what is left."""

from __future__ import annotations

import re

from chalicelib.backends.crusoe.client import Body, CrusoeClient
from chalicelib.errors import BackendError


def quotas(client: CrusoeClient) -> list[Body]:
    return list(client.call("GET", "quotas").get("quotas") or ())


def of_type(found: list[Body], name: str) -> Body | None:
    """The one that machines of the type count against: that of its family, or else the nearest, such as `a100` for
    `a100-80gb`."""
    family, counted = _plain(name.partition(".")[0]), dict[str, Body]()
    for each in found:
        if "instance" in str(each.get("category") or "").lower():
            counted[_plain(str(each.get("programmatic_name") or ""))] = each
    wider = [known for known in counted if known and family.startswith(known)]
    longer = [known for known in counted if known.startswith(family)]
    best = max(wider, key=len, default="") or min(longer, key=len, default="")
    return counted.get(best)


def is_used_up(found: list[Body], name: str) -> bool:
    quota = of_type(found, name)
    return quota is not None and int(quota.get("available", 1)) <= 0


def shown(client: CrusoeClient, name: str) -> str:
    """The numbers of the type's quota, to end a message with; empty if they aren't known."""
    try:
        quota = of_type(quotas(client), name)
    except BackendError:
        return ""
    if quota is None:
        return ""
    return f" ({quota['programmatic_name']}: {quota.get('used', '?')} of {quota.get('max', '?')} are used)"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
