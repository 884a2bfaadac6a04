"""Watches: what was there, if asked, and then every change, until the client's time is over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from tests.backends.fakes.script import Cut
from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.operations import Place, Query, selection
from tests.backends.kubernetes.fake.schema import Object, Resource
from tests.backends.kubernetes.fake.store import Change

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

PAUSE = 0.05  # of real time, after which a watch checks the clock, which a test moves, and at its client


def lines(cluster: Cluster, at: Place, query: Query, gone: Callable[[], bool]) -> Iterator[bytes]:
    """Raises a Refusal at once; the lines follow as they come."""
    if query.get("sendInitialEvents"):
        cause = errors.forbidden_field("sendInitialEvents", "is forbidden for watch unless WatchList is enabled")
        raise errors.invalid(Resource("meta.k8s.io", "", "", "ListOptions", "", False), "", [cause])
    store, version = cluster.store, int(query.get("resourceVersion") or 0)
    matches, began = selection(at, query), cluster.now()
    started = [each for each in store.all(at.of.plural, at.namespace) if matches(each)] if not version else []
    events = _events(cluster, at, query, gone, matches, (began, version or store.version, cluster.faults.streams))
    every = itertools.chain((("ADDED", each) for each in started), events)
    return (orjson.dumps({"type": kind, "object": given}) + b"\n" for kind, given in every)


def _events(
    cluster: Cluster,
    at: Place,
    query: Query,
    gone: Callable[[], bool],
    matches: Callable[[Object], bool],
    start: tuple[Micros, int, int],
) -> Iterator[tuple[str, Any]]:
    store, faults = cluster.store, cluster.faults
    marked, followed, streams = start
    bookmarks = query.get("allowWatchBookmarks") == "true"
    deadline = marked + int(query.get("timeoutSeconds") or 1800) * SECOND
    while True:
        with store.changed:
            cluster.settle()
            if followed < store.oldest:
                yield "ERROR", errors.status(410, "Expired", f"too old resource version: {followed} ({store.oldest})")
                return
            changes, latest, now = store.since(followed), store.version, cluster.now()
            if faults.streams != streams:
                raise Cut
            if cluster.closing or gone():
                return
            if faults.stalled or (not changes and now < deadline and now < marked + MINUTE):
                store.changed.wait(PAUSE)
                continue
        followed = latest
        for change in changes:
            if change.plural == at.of.plural and (event := _event(change, at, matches)):
                yield event
                if faults.repeats:
                    yield event
        if bookmarks and (now >= deadline or now >= marked + MINUTE):
            meta = {"resourceVersion": str(followed), "creationTimestamp": None}
            yield "BOOKMARK", {"kind": at.of.kind, "apiVersion": at.of.api_version, "metadata": meta}
        marked = now if now >= marked + MINUTE else marked
        if now >= deadline:
            return


def _event(change: Change, at: Place, matches: Callable[[Object], bool]) -> tuple[str, Object] | None:
    """As this watch sees it: what leaves its selection is deleted for it."""
    one = change.new or change.old
    assert one is not None
    if at.namespace not in ("", one["metadata"].get("namespace", "")):
        return None
    before = change.old is not None and matches(change.old)
    if change.new is None:
        return ("DELETED", one) if before else None
    if not matches(change.new):
        return ("DELETED", _at_version(change.old, change.new)) if before and change.old else None
    return ("MODIFIED" if before else "ADDED", change.new)


def _at_version(old: Object, new: Object) -> Object:
    version = new["metadata"]["resourceVersion"]
    return {**old, "metadata": {**old["metadata"], "resourceVersion": version}}
