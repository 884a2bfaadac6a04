"""Which carrier containers get: made once a version, and an older one rather than none."""

from __future__ import annotations

import hashlib
import logging

import pytest

from chalicelib.carrier.packages import release
from chalicelib.errors import Refused
from chalicelib.runtime.carriers import digest
from chalicelib.usecases.agents import carriers
from tests.world.ports import Blobs


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_it_is_made_when_it_is_first_needed_and_once() -> None:
    made: list[str] = []

    def make(architecture: str) -> bytes:
        made.append(architecture)
        return architecture.encode()

    blobs = Blobs()
    assert [digest(blobs, one, make) for one in ("x86", "arm", "x86")] == [
        sha256(b"x86"),
        sha256(b"arm"),
        sha256(b"x86"),
    ]
    assert made == ["x86", "arm"]
    assert digest(blobs, "x86", None) == sha256(b"x86")


def test_another_release_is_made_anew() -> None:
    blobs = Blobs()
    carriers.publish(blobs, "x86", "earlier", b"old")
    assert digest(blobs, "x86", None) == sha256(b"old"), "where others make them"
    assert digest(blobs, "x86", lambda _: b"new") == sha256(b"new")
    assert carriers.newest(blobs, "x86") == (release(), sha256(b"new"))


def test_without_a_network_an_older_one_is_better_than_none(caplog: pytest.LogCaptureFixture) -> None:
    def away(architecture: str) -> bytes:
        raise Refused("The package libc6 can't be fetched.", hint="Let this machine reach deb.debian.org.")

    blobs = Blobs()
    with caplog.at_level(logging.WARNING):
        assert digest(blobs, "x86", away) == ""
        assert "without Python get none, and won't start: The package libc6 can't be fetched. Let" in caplog.text
        carriers.publish(blobs, "x86", "earlier", b"old")
        assert digest(blobs, "x86", away) == sha256(b"old")
        assert "get an older carrier" in caplog.text
