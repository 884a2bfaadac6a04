"""The body of a launch."""

from __future__ import annotations

from typing import Any

from chalicelib.backends.kit.owners import LabelRule, all_tags, labels
from chalicelib.backends.kit.scripts import user_data
from chalicelib.backends.spi import CreateRequest
from chalicelib.errors import Unfit

KEY_NAME = "dstack-no-login"  # of `kit.ssh_key`: Lambda launches nothing without a key of the account
LAUNCHED = "dstack-launched"  # a tag with the time: Lambda doesn't say when an instance was created
LONGEST_SCRIPT = 1 << 20  # bytes
LABELS = LabelRule("[a-z][a-z0-9:-]{1,54}", ".{0,128}", 100)  # how many may be set isn't documented


def launch(request: CreateRequest, launched: str) -> dict[str, Any]:
    """No port is opened: from outside, only SSH is reached, and no firewall rule is read or changed. Rules belong to
    the whole account."""
    kind = request.offer.instance
    if request.disk_mib > kind.resources.disk.size_mib:
        raise Unfit(f"The disk of {kind.name} has {kind.resources.disk.size_mib // 1024} GiB at Lambda, and no more.")
    tags = labels({**all_tags(request), LAUNCHED: launched}, LABELS, "Lambda")
    return {
        "region_name": request.offer.region,
        "instance_type_name": kind.name,
        "ssh_key_names": [KEY_NAME],
        "name": request.name,
        "user_data": user_data(request, LONGEST_SCRIPT, "Lambda"),
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
    }
