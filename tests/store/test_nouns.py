"""Nouns become records and come back; a name is claimed by one commit only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.domain import keys
from chalicelib.domain.tenants import Member, Project
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.port import Store
from chalicelib.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = SqliteStore(tmp_path / "store.db")
    yield store
    store.close()


def member(user_id: str) -> Member:
    return Member.model_validate({"project_id": "p1", "user_id": user_id, "role": "user"})


def test_a_noun_comes_back_at_the_version_it_was_written_as(store: Store) -> None:
    first = member("u1")
    store.commit([nouns.put(first)])
    found = nouns.find(store, Member, nouns.key_of(first))
    assert found is not None and found.version == 1
    assert found.with_(version=0) == first
    store.commit([nouns.put(found)])
    with pytest.raises(Conflict, match="project/p1:member/u1"):
        store.commit([nouns.put(found)])


def test_what_a_noun_has_by_default_takes_no_room() -> None:
    project = Project(id="p1", name="main", owner_id="u1", created_at=1)
    assert set(json.loads(nouns.put(project).record.body)) == {"id", "name", "owner_id", "created_at"}


def test_a_noun_stands_in_its_index(store: Store) -> None:
    store.commit([nouns.put(member("u1")), nouns.put(member("u2"))])
    page = store.query("gsi1", keys.member_of("u2"))
    assert [nouns.read(Member, item).user_id for item in page.records] == ["u2"]


def test_what_is_not_there_is_none(store: Store) -> None:
    store.commit([nouns.put(member("u1"))])
    found = nouns.find_many(store, Member, [keys.member("p1", "u2"), keys.member("p1", "u1")])
    assert [None if item is None else item.user_id for item in found] == [None, "u1"]
    assert nouns.find(store, Project, keys.project("p1")) is None


def test_a_name_is_claimed_once_and_moved_on_by_version(store: Store) -> None:
    name = keys.run_name("p1", "train")
    assert nouns.find_target(store, name) is None
    store.commit([nouns.pointer(name, "run-1")])
    with pytest.raises(Conflict):
        store.commit([nouns.pointer(name, "run-2")])
    assert nouns.find_target(store, name) == ("run-1", 1)
    store.commit([nouns.pointer(name, "run-2", version=1)])
    assert nouns.find_target(store, name) == ("run-2", 2)
