"""Objects and their history: one counter for all, which watches follow. What is stored is never changed in place."""

from __future__ import annotations

import random
import threading
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from chalicelib.domain.instants import Micros, iso
from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.schema import Object, Resource, of_kind, resources


class Change(NamedTuple):
    version: int
    plural: str
    old: Object | None
    new: Object | None  # None: it was removed


def copied(given: Any) -> Any:
    return orjson.loads(orjson.dumps(given))


def date(at: Micros) -> str:
    return iso(at)[:19] + "Z"


class Store:
    def __init__(self, now: Callable[[], Micros], name: str) -> None:
        self.now = now
        self._random = random.Random(name)
        self.changed = threading.Condition(threading.RLock())  # held by whoever reads and writes
        self.version = self.oldest = 1000  # changes since `oldest` are remembered
        self._changes: list[Change] = []
        self._objects: dict[str, dict[tuple[str, str], Object]] = {plural: {} for plural in resources()}
        self.uids: dict[str, tuple[str, str, str]] = {}
        self.owned: set[tuple[str, str, str]] = set()  # objects that have or had owners

    # --- reading -----------------------------------------------------------------------------------------------------

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        return self._objects[plural].get((namespace, name))

    def get(self, of: Resource, namespace: str, name: str) -> Object:
        found = self.find(of.plural, namespace, name)
        if found is None:
            raise errors.not_found(of, name)
        return found

    def all(self, plural: str, namespace: str = "") -> list[Object]:
        """In the order of their keys."""
        found = self._objects[plural]
        return [found[key] for key in sorted(found) if namespace in ("", key[0])]

    def in_order(self, plural: str) -> list[Object]:
        """Of their creation."""
        return list(self._objects[plural].values())

    def since(self, version: int) -> list[Change]:
        return self._changes[bisect_right(self._changes, version, key=lambda each: each.version) :]

    # --- writing -----------------------------------------------------------------------------------------------------

    def letters(self, count: int) -> str:
        """As the server completes a name."""
        return "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=count))

    def prepared(self, given: Object) -> Object:
        """With what the server alone says of a new object."""
        own = {
            "uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            "creationTimestamp": date(self.now()),
            "generation": 1,
        }
        dropped = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion")
        remaining = {key: each for key, each in given["metadata"].items() if key not in dropped}
        return {**given, "metadata": {**remaining, **own}}

    def add(self, of: Resource, given: Object) -> Object:
        if self.find(of.plural, *key_of(given)) is not None:
            raise errors.already_exists(of, given["metadata"]["name"])
        return self._write(of, None, given)

    def replace(self, of: Resource, old: Object, given: Object) -> Object:
        """Nothing happens if nothing is new. What waited for its last finalizer goes."""
        meta = dict(old["metadata"])
        remaining = {
            key: meta[key] for key in ("uid", "creationTimestamp", "resourceVersion", "generation") if key in meta
        }
        new = {**given, "metadata": {**given["metadata"], **remaining}}
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = meta.get("generation", 1) + 1
        if finished(new):
            self.remove(of, new)
            return new
        return self._write(of, old, new)

    def change(self, old: Object, **parts: Mapping[str, Any]) -> Object:
        """Some keys of an object's parts, as its controllers write them."""
        merged = {part: {**old.get(part, {}), **values} for part, values in parts.items()}
        return self.replace(of_kind(old["kind"]), old, copied({**old, **merged}))

    def remove(self, of: Resource, old: Object) -> None:
        key = key_of(old)
        if (found := self._objects[of.plural].pop(key, None)) is None:
            return
        del self.uids[old["metadata"]["uid"]]
        self.version += 1
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self._note(Change(self.version, of.plural, found, None), last)

    def _write(self, of: Resource, old: Object | None, new: Object) -> Object:
        self.version += 1
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        key = key_of(new)
        self._objects[of.plural][key] = new
        self.uids[new["metadata"]["uid"]] = (of.plural, *key)
        if new["metadata"].get("ownerReferences"):
            self.owned.add((of.plural, *key))
        self._note(Change(self.version, of.plural, old, new), new)
        return new

    def _note(self, change: Change, last: Object) -> None:
        self._changes.append(change if change.new else change._replace(old=last))
        self.changed.notify_all()

    def compact(self) -> None:
        """Forgets the history so far: who follows from an older version has to list again."""
        with self.changed:
            self.oldest = self.version
            self._changes.clear()


def key_of(given: Object) -> tuple[str, str]:
    return given["metadata"].get("namespace", ""), given["metadata"]["name"]


def finished(given: Object) -> bool:
    """Is it being deleted, with nothing left to wait for?"""
    meta = given["metadata"]
    waits = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
    waits = waits or (given["kind"] == "Namespace" and given["spec"].get("finalizers"))
    return "deletionTimestamp" in meta and not waits


def owners(given: Object) -> Iterator[str]:
    return (each["uid"] for each in given["metadata"].get("ownerReferences", ()))
