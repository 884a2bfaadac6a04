"""What a machine is created with."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest

from chalicelib.backends.crusoe.backend import CrusoeBackend
from chalicelib.backends.crusoe.launch import MOST_SCRIPT, launch
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.errors import Unfit
from tests.backends.conformance.requests import request_for

DISK = {"id": "d1", "serial_number": "S 1; reboot"}


def test_the_script_follows_whole_after_the_disks(backend: CrusoeBackend) -> None:
    request = request_for(next(each for each in backend.offers() if each.instance.name == "c1a.2x"))
    assert launch(request, "", None)["startup_script"] == request.user_data
    script = launch(request, "p1", DISK)
    assert script["startup_script"].endswith(request.user_data)
    assert "disk='/dev/disk/by-id/virtio-S 1; reboot'\n" in script["startup_script"]
    assert script["host_channel_adapters"] == [{"transport_partition_id": "p1"}]
    assert script["disks"] == [{"disk_id": "d1", "mode": "read-write", "attachment_type": "data"}]


def test_a_script_that_is_too_long_is_refused(backend: CrusoeBackend) -> None:
    request = replace(request_for(backend.offers()[0]), user_data="x" * (MOST_SCRIPT + 1))
    with pytest.raises(Unfit, match="that Crusoe takes"):
        launch(request, "", None)


def test_nobody_has_the_key() -> None:
    """It is a hash of a text, so nobody chose it."""
    kind, key, _ = NOBODYS_KEY.split()
    point = bytearray(hashlib.sha256(b"dstack: a key that nobody has, 6").digest())
    point[31] &= 0x7F
    assert kind == "ssh-ed25519" and base64.b64decode(key)[-32:] == bytes(point)
