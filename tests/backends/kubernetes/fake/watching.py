"""Watches: what was there, if asked, and then every change, until the client's time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from chalicelib.domain.instants import MINUTE, SECOND
from tests.backends.fakes.script import Cut
from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.operations import Place, Query, selection
from tests.backends.kubernetes.fake.schema import Object
from tests.backends.kubernetes.fake.store import Change

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

PAUSE = 0.05  # of real time, after which a watch looks at the clock, which a test moves, and at its client


def lines(cluster: Cluster, at: Place, query: Query, gone: Callable[[], bool]) -> Iterator[bytes]:
    for kind, given in _events(cluster, at, query, gone):
        yield orjson.dumps({"type": kind, "object": given}) + b"\n"


def _events(cluster: Cluster, at: Place, query: Query, gone: Callable[[], bool]) -> Iterator[tuple[str, Any]]:
    store, faults = cluster.store, cluster.faults
    if query.get("sendInitialEvents"):
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        cause = errors.forbidden_field("sendInitialEvents", why.partition(" is ")[2])
        raise errors.invalid(errors.Resource("meta.k8s.io", "", "", "ListOptions", "", False), "", [cause])
    matches, streams = selection(at, query), faults.streams
    bookmarks = query.get("allowWatchBookmarks") == "true"
    seconds = int(query.get("timeoutSeconds") or 1800)
    deadline, marked = cluster.now() + seconds * SECOND, cluster.now()
    version = int(query.get("resourceVersion") or 0)
    with store.changed:
        started = [each for each in store.all(at.of.plural, at.namespace) if matches(each)] if not version else []
        followed = version or store.version
    for each in started:
        yield "ADDED", each
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
        for each in changes:
            if each.plural == at.of.plural and (event := _event(each, at, matches)):
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
    after = matches(change.new)
    if not after:
        assert change.old is not None or not before
        return ("DELETED", _at_version(change.old, change.new)) if before and change.old else None
    return ("MODIFIED" if before else "ADDED", change.new)


def _at_version(old: Object, new: Object) -> Object:
    version = new["metadata"]["resourceVersion"]
    return {**old, "metadata": {**old["metadata"], "resourceVersion": version}}
