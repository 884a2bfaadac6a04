"""One watch a context: what it reports, what descriptions take from it, and how it goes on."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import yaml

from chalicelib.backends.kubernetes import kubeconfig
from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.permissions import Rule
from chalicelib.backends.kubernetes.watches import ContextWatches, Slots
from chalicelib.backends.spi import MachineChange, facts_of
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import INSTALL, request_for
from tests.backends.conformance.suite import offers_of
from tests.backends.fakes.script import Answer, Fault
from tests.backends.kubernetes.account import ROLE, TOKEN, USER, add_account
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.faults import unavailable
from tests.backends.kubernetes.fake.schema import of_kind
from tests.backends.kubernetes.fake.scripted import Life
from tests.backends.kubernetes.provider import NAMESPACE, config_of, populate
from tests.backends.kubernetes.test_permissions import without

PATIENCE = 120.0  # of a thread that waits for another


class Followed:
    """A cluster, a backend that watches it, and what the watch has reported."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        config: Any,
        *,
        steady: float = 5.0,
        silence: float = 90.0,
        most: int = 1 << 20,
        slots: Slots | None = None,
    ) -> None:
        clusters = Clusters(kubeconfig.clusters(config), clock.now)
        self.cluster, self.clock, self._earlier = cluster, clock, {*threading.enumerate()}
        limits: dict[str, Any] = {"steady": steady, "silence": silence, "most_bytes": most, "slots": slots or Slots(1)}
        self.watches = ContextWatches(clusters, pause=0.01, **limits)
        self.backend = KubernetesBackend(config, clusters, clock.now, watches=self.watches)
        self.offer = next(each for each in offers_of(self.backend) if not each.instance.resources.gpus)
        self._names: dict[str, str] = {}
        self.reported: queue.Queue[MachineChange] = queue.Queue()
        self.end = self.backend.watch(lambda changes: [self.reported.put(each) for each in changes], INSTALL)
        self.watches.found()

    def make(self, name: str) -> list[Handle]:
        request = request_for(self.offer, name)
        self._names[request.instance_id] = name
        return list(self.backend.create(request))

    def next(self) -> tuple[str, bool]:
        """Whose machine has changed, and whether it is gone."""
        found = self.reported.get(timeout=PATIENCE)
        return self._names[found.instance_id], found.gone

    def calls(self) -> list[str]:
        return [call.operation.name for call in self.cluster.calls]

    def until(self, holds: Callable[[], bool]) -> None:
        """The fake says when anybody has called it."""
        for _ in range(int(PATIENCE / 0.05)):
            if holds():
                return
            with self.cluster.store.changed:
                self.cluster.store.changed.wait(0.05)
        raise AssertionError("it never came about")

    def watched(self, times: int = 1) -> None:
        """Waits until it has begun so many watches, and the last one is what descriptions are taken from."""
        self.until(lambda: self.calls().count("watch pods") >= times)
        self.until(lambda: self.watches.pods(self.cluster.name) is not None)

    def threads(self) -> list[threading.Thread]:
        """Of this one's watches: those of an earlier test may still be ending."""
        here = f"watch of {self.cluster.name}"
        return [each for each in threading.enumerate() if each.name == here and each not in self._earlier]


@pytest.fixture
def here(clock: Clock) -> Iterator[Followed]:
    cluster = Cluster(clock.now, "here")
    populate(cluster)
    cluster.scripted.life = lambda pod, container: Life(pulling=5_000_000) if container["name"] == "job" else None
    with cluster.serving():
        found = Followed(cluster, clock, config_of([cluster]))
        yield found
        found.backend.close()


def remove(cluster: Cluster, handles: Sequence[Handle]) -> None:
    with cluster.store.changed:
        cluster.store.remove(of_kind("Pod"), cluster.pod(handles[0].id, NAMESPACE))


def test_a_pod_is_followed_and_described_without_a_call(here: Followed) -> None:
    assert facts_of(KubernetesBackend).watches and here.threads() == [], "nothing is watched before there is a pod"
    one, two = here.make("one"), here.make("two")
    here.watched()
    here.clock.passes(10)
    assert {here.next(), here.next()} == {("one", False), ("two", False)}, "they run; that they exist is no news"
    before = here.calls()
    found = here.backend.describe_several([one, two])
    assert [each.state for each in found] == ["running", "running"] and here.backend.describe(one) == found[0]
    assert here.calls() == before
    remove(here.cluster, one)
    assert here.next() == ("one", True)
    with pytest.raises(Gone, match="There is no pod"):
        here.backend.describe(one)
    assert here.calls()[len(before) :] == ["get pods"], "only the server itself says that something is gone"
    assert here.reported.empty() and here.calls().count("watch pods") == 1


def test_a_watch_that_is_cut_goes_on_where_it_was(here: Followed) -> None:
    one = here.make("one")
    here.watched()
    here.clock.passes(10)
    assert here.next() == ("one", False)
    lists = here.calls().count("list pods")
    here.cluster.faults.cut_streams()
    remove(here.cluster, one)
    assert here.next() == ("one", True)
    here.watched(2)
    assert here.calls().count("list pods") == lists


def test_a_watch_whose_connection_has_died_quietly_is_taken_for_cut(clock: Clock) -> None:
    """The server says something once a minute, even if nothing happens."""
    cluster = Cluster(clock.now, "here")
    populate(cluster)
    cluster.scripted.life = lambda pod, container: Life(pulling=5_000_000) if container["name"] == "job" else None
    with cluster.serving():
        here = Followed(cluster, clock, config_of([cluster]), silence=0.5)
        cluster.faults.stalled = True
        one = here.make("one")
        here.until(lambda: here.calls().count("watch pods") > 1)
        remove(cluster, one)
        cluster.faults.stalled = False
        assert here.next() == ("one", True)
        here.backend.close()


def test_what_was_missed_while_a_version_is_forgotten_is_found_by_a_list(here: Followed) -> None:
    one, two = here.make("one"), here.make("two")
    here.watched()
    here.clock.passes(10)
    assert {here.next(), here.next()} == {("one", False), ("two", False)}
    lists = here.calls().count("list pods")
    with here.cluster.store.changed:  # nobody is told in between
        here.cluster.store.remove(of_kind("Pod"), here.cluster.store.get(of_kind("Pod"), NAMESPACE, one[0].id))
        here.cluster.store.compact()
        here.cluster.faults.cut_streams()
    assert here.next() == ("one", True)
    here.watched(2)
    assert here.calls().count("list pods") == lists + 1 and here.reported.empty()
    assert here.backend.describe(two).state == "running"


def test_pods_that_are_there_already_are_watched_at_once(here: Followed) -> None:
    """As after a restart."""
    one = here.make("one")
    here.clock.passes(10)
    here.backend.close()
    again = Followed(here.cluster, here.clock, config_of([here.cluster]))
    again.watched()
    assert again.reported.get(timeout=PATIENCE).instance_id
    before = again.calls()
    assert again.backend.describe(one).state == "running" and again.calls() == before
    again.backend.close()


def test_a_context_that_doesnt_answer_at_first_is_watched_once_it_has_a_pod(here: Followed) -> None:
    here.backend.close()
    here.cluster.faults.script.faults.append(
        Fault("list pods", unavailable(), fits=lambda call: str(call.query.get("limit")) == "1")
    )
    again = Followed(here.cluster, here.clock, config_of([here.cluster]))
    assert again.threads() == []
    again.make("one")
    again.watched()
    again.backend.close()


def test_pods_of_other_installations_are_nobody_s_business(here: Followed) -> None:
    one = here.make("one")
    here.watched()
    labels = {"dstack-instance": "1", "dstack-project": "2", "dstack-install": "another"}
    spec = {"containers": [{"name": "job", "image": "busybox"}]}
    here.cluster.add("Pod", "theirs", NAMESPACE, metadata={"labels": labels}, spec=spec)
    here.clock.passes(10)
    assert here.next() == ("one", False)
    remove(here.cluster, one)
    assert here.next() == ("one", True), "nothing of the other comes in between"
    assert here.watches.pods("here") == {} and here.reported.empty()


def test_no_more_contexts_are_watched_than_a_process_may(here: Followed) -> None:
    slots = Slots(1)
    assert slots.take("elsewhere")
    other = Followed(here.cluster, here.clock, config_of([here.cluster]), slots=slots)
    one = other.make("one")
    other.clock.passes(10)
    assert other.threads() == [] and other.backend.describe(one).state == "running"
    slots.give_back()
    assert other.backend.describe(one).state == "running", "which begins its watch"
    other.watched()
    other.end()
    other.until(lambda: slots.take("here"))
    other.backend.close()


def test_a_watch_that_is_late_ends_nothing(here: Followed) -> None:
    here.cluster.scripted.life = lambda pod, container: (
        Life(pulling=600_000_000) if container["name"] == "job" else None
    )
    here.cluster.add_node("later", cpu="1")
    with here.cluster.store.changed:
        for node in here.cluster.store.all("nodes"):
            here.cluster.store.change(node, spec={"unschedulable": True})
    one = here.make("one")
    here.watched()
    here.until(lambda: "Unschedulable" in str(here.watches.pods("here")))
    here.cluster.faults.stalled = True
    with here.cluster.store.changed:
        for node in here.cluster.store.all("nodes"):
            here.cluster.store.change(node, spec={"unschedulable": False})
    here.clock.passes(40)
    here.until(lambda: "nodeName" in here.cluster.pod(one[0].id, NAMESPACE)["spec"])
    assert "Unschedulable" in str(here.watches.pods("here")), "it hasn't seen that there was room in time"
    assert here.backend.describe(one).state == "pending"


def test_without_the_permission_pods_are_listed_and_the_log_says_why(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(clock.now, "there")
    cluster.add_node("one", cpu="64", memory="64Gi", ephemeral_storage="4000Gi")
    add_account(cluster, without(Rule("pods", ("watch",)), "watch"))
    assert without(Rule("pods", ("watch",)), "watch") != ROLE
    with cluster.serving(), caplog.at_level(logging.INFO):
        given = cluster.kubeconfig(token=TOKEN, namespace="dstack-jobs")
        raw = {"type": "kubernetes", "kubeconfig": {"data": yaml.safe_dump(given)}}
        found = Followed(cluster, clock, type(config_of([cluster])).model_validate(raw))
        one = found.make("one")
        found.until(lambda: "they can't be watched" in caplog.text)
        clock.passes(10)
        assert found.backend.describe(one).state == "running"
        cluster.users.grant(USER, ROLE)
        found.watched()
        found.backend.close()
        found.until(lambda: found.threads() == [])
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "the pods of there are listed, because they can't be watched: Kubernetes doesn't allow GET" in warning


def test_what_a_watch_remembers_is_what_descriptions_read(here: Followed) -> None:
    one = here.make("one")
    here.watched()
    here.clock.passes(10)
    here.next()
    found = (here.watches.pods("here") or {})[one[0].id]
    assert (
        found["spec"].keys() <= {"nodeName", "schedulingGates", "volumes"} and "managedFields" not in found["metadata"]
    )
    assert here.backend.describe(one).state == "running"


def test_pods_that_are_too_much_to_remember_are_listed(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(clock.now, "here")
    populate(cluster)
    with cluster.serving():
        found = Followed(cluster, clock, config_of([cluster]), most=1000)
        one = found.make("one")
        found.until(lambda: "can't be watched" in caplog.text)
        clock.passes(10)
        found.until(lambda: found.calls().count("list pods") > 3)
        assert found.backend.describe(one).state == "running"
        assert found.calls().count("watch pods") == 1, "it wouldn't come further than before"
        found.backend.close()
    assert "The pods of dstack in here have more than 1000 bytes." in caplog.text


def test_connections_that_are_cut_now_and_then_are_no_news(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """As by a proxy, before anything has happened."""
    cluster = Cluster(clock.now, "here")
    populate(cluster)
    with cluster.serving():
        found = Followed(cluster, clock, config_of([cluster]), steady=0.0)
        found.make("one")
        for times in (1, 2, 3, 4):
            found.watched(times)
            cluster.faults.cut_streams()
        found.watched(5)
        found.backend.close()
        with pytest.raises(Transient, match="are closed"):
            found.backend.check()
    assert "can't be watched" not in caplog.text


def test_the_end_of_a_watch_waits_for_nobody(here: Followed) -> None:
    here.make("one")
    here.watched()
    (thread,) = here.threads()
    here.end()
    thread.join(PATIENCE)
    assert not thread.is_alive() and here.watches.pods("here") is None and here.threads() == []


def test_a_list_that_no_server_has_is_no_end_of_the_watch(here: Followed, caplog: pytest.LogCaptureFixture) -> None:
    odd = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [{"metadata": 1}]}
    here.cluster.faults.script.faults.append(Fault("list pods", Answer(200, odd), times=2))
    here.make("one")
    here.watched()
    assert "they can't be watched: The watch of here reports what no API server has." in caplog.text
