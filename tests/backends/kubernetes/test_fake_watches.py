"""The fake's watches: what they say, where they begin and how they end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.clock import Clock
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.objects import pod

HERE = "default"


def follow(core: Any, count: int, **query: Any) -> list[tuple[str, Any]]:
    """So many events."""
    from kubernetes.watch import Watch

    watch, found = Watch(), []
    for each in watch.stream(core.list_namespaced_pod, HERE, timeout_seconds=600, **query):
        found.append((each["type"], each["object"]))
        if len(found) == count:
            watch.stop()
    return found


def names(found: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(kind, each.metadata.name) for kind, each in found]


def version(core: Any) -> str:
    found: str = core.list_namespaced_pod(HERE).metadata.resource_version
    return found


def later(act: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_without_a_version_what_is_there_comes_first(core: Any) -> None:
    for name in "ab":
        core.create_namespaced_pod(HERE, pod(name, nodeSelector={"no": "where"}))
    assert names(follow(core, 2)) == [("ADDED", "a"), ("ADDED", "b")]


def test_from_a_version_every_later_change_comes(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("before"))
    seen = version(core)
    core.create_namespaced_pod(HERE, pod("a"))
    core.delete_namespaced_pod("a", HERE)
    found = follow(core, 6, resource_version=seen)
    assert {each.metadata.name for _, each in found} == {"a"}
    kinds = [kind for kind, _ in found]
    assert kinds[0] == "ADDED" and set(kinds[1:-1]) == {"MODIFIED"}
    versions = [int(each.metadata.resource_version) for _, each in found]
    assert versions == sorted(set(versions))


def test_a_change_reaches_a_watch_that_waits(core: Any) -> None:
    seen = version(core)
    thread = later(
        lambda: (
            core.create_namespaced_config_map(HERE, {"metadata": {"name": "other"}})
            and core.create_namespaced_pod(HERE, pod("a", nodeSelector={"no": "where"}))
        )
    )
    assert names(follow(core, 1, resource_version=seen)) == [("ADDED", "a")]
    thread.join()


def test_leaving_a_selection_is_a_deletion(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("a", labels={"x": "1"}, nodeSelector={"no": "where"}))
    seen = version(core)
    core.patch_namespaced_pod("a", HERE, {"metadata": {"labels": {"x": "2"}}})
    core.patch_namespaced_pod("a", HERE, {"metadata": {"labels": {"x": "1"}}})
    found = follow(core, 2, resource_version=seen, label_selector="x=1")
    assert names(found) == [("DELETED", "a"), ("ADDED", "a")]
    assert found[0][1].metadata.labels == {"x": "1"}


def test_a_version_that_is_forgotten_is_an_error_event(core: Any, cluster: Cluster) -> None:
    from kubernetes.client import ApiException

    seen = version(core)
    core.create_namespaced_pod(HERE, pod("a"))
    cluster.store.compact()
    with pytest.raises(ApiException) as caught:
        follow(core, 1, resource_version=seen)
    assert caught.value.status == 410 and "too old resource version" in caught.value.reason


def begun(core: Any, **query: Any) -> Any:
    """A watch whose answer has begun."""
    return core.list_namespaced_pod(HERE, watch=True, _preload_content=False, **query)


def test_a_watch_ends_in_time_with_a_bookmark(core: Any, clock: Clock) -> None:
    seen = version(core)
    core.create_namespaced_config_map(HERE, {"metadata": {"name": "other"}})
    latest = version(core)
    watch = begun(core, resource_version=seen, timeout_seconds=30, allow_watch_bookmarks=True)
    clock.passes(30)
    only = json.loads(watch.read())
    assert (only["type"], only["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", latest)


def test_watches_that_are_cut_stall_or_repeat_themselves(core: Any, cluster: Cluster) -> None:
    seen = version(core)
    core.create_namespaced_pod(HERE, pod("a", nodeSelector={"no": "where"}))
    cluster.faults.repeats = True
    assert names(follow(core, 2, resource_version=seen)) == [("ADDED", "a")] * 2
    cluster.faults.repeats, cluster.faults.stalled = False, True
    with pytest.raises(Exception, match="timed out"):
        follow(core, 1, resource_version=seen, _request_timeout=(5, 0.2))
    watch = begun(core, resource_version=seen)
    cluster.faults.cut_streams()
    with pytest.raises(Exception, match=r"(?i)incomplete|prematurely|broken|closed|EOF"):
        watch.read()


def test_lists_of_watches_are_refused_as_by_servers_without_them(core: Any) -> None:
    from kubernetes.client import ApiException

    with pytest.raises(ApiException) as caught:
        core.list_namespaced_pod(HERE, watch=True, send_initial_events=True, resource_version_match="NotOlderThan")
    assert caught.value.status == 422
