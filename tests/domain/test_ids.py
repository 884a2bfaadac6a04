"""Derived ids are stored and derived again later, so a change of how they are made would lose things."""

from __future__ import annotations

import uuid

from chalicelib.domain.ids import derive, is_id


def test_an_id_never_changes() -> None:
    assert derive("seed", "kind", 0, "part") == "566ab5c3-202e-4d8c-aec1-ae9fd4f0fefc"
    assert derive("a", "b") == "59b271ae-1bbc-41d3-9d41-929817f4b16f"


def test_every_id_is_of_version_4() -> None:
    for number in range(200):
        found = uuid.UUID(derive("seed", "kind", number))
        assert (found.version, found.variant) == (4, uuid.RFC_4122)
        assert is_id(str(found))
