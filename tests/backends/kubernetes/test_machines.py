"""What only a cluster does: gates and secrets, names that others have, quotas, drains, lost nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.kubernetes import kubeconfig
from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.machines import LEVEL, SINGLY
from chalicelib.backends.spi import CreateRequest, RegistryLogin
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    ContainerFailed,
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    NotYet,
    QuotaExceeded,
    Transient,
    Unfit,
)
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import offers_of
from tests.backends.fakes.script import Cut, Fault
from tests.backends.kubernetes.fake import faults
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.kubelet import Exit
from tests.backends.kubernetes.fake.operations import ended
from tests.backends.kubernetes.fake.schema import of_kind
from tests.backends.kubernetes.fake.scripted import Life
from tests.backends.kubernetes.provider import NAMESPACE, config_of, populate


@pytest.fixture
def home(clock: Clock) -> Iterator[Cluster]:
    found = Cluster(clock.now, "home")
    populate(found)
    with found.serving():
        yield found


@pytest.fixture
def backend(home: Cluster, clock: Clock) -> Iterator[KubernetesBackend]:
    config = config_of([home])
    found = KubernetesBackend(config, Clusters(kubeconfig.clusters(config), clock.now), clock.now)
    yield found
    found.close()


@pytest.fixture
def wanted(backend: KubernetesBackend) -> CreateRequest:
    return request_for(cpu_offer(backend))


def cpu_offer(backend: KubernetesBackend) -> Offer:
    return next(offer for offer in offers_of(backend) if not offer.instance.resources.gpus)


def calls(cluster: Cluster) -> list[str]:
    return [call.operation.name for call in cluster.calls]


def fault(cluster: Cluster, operation: str, becomes: Any = Cut, **more: Any) -> None:
    cluster.faults.script.faults.append(Fault(operation, becomes, **more))


def pod_of(cluster: Cluster, handles: list[Handle]) -> dict[str, Any]:
    return cluster.pod(handles[0].id, NAMESPACE)


# --- creation ---------------------------------------------------------------------------------------------------------


def test_a_pod_is_scheduled_only_when_its_secret_is_there(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    home.calls.clear()
    making = backend.create(wanted)
    handles = [next(making)]
    clock.passes(60.0)
    assert "nodeName" not in pod_of(home, handles)["spec"] and backend.describe(handles).state == "pending"
    assert home.store.all("secrets", NAMESPACE) == []
    assert list(making) == []
    assert "nodeName" in pod_of(home, handles)["spec"]
    writes = [name for name in calls(home) if name.split()[0] in ("create", "patch", "delete")]
    assert writes == ["create pods", "create secrets", "patch pods"]


@pytest.mark.parametrize("operation", ["create secrets", "patch pods"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_answer_is_lost_the_next_call_goes_on(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, operation: str, when: Any
) -> None:
    fault(home, operation, when=when)
    with pytest.raises(Transient):
        list(backend.create(wanted))
    handles = list(backend.create(wanted))
    assert "nodeName" in pod_of(home, handles)["spec"]
    assert len(home.store.all("pods", NAMESPACE)) == len(home.store.all("secrets", NAMESPACE)) == 1
    done = len(home.calls)
    assert list(backend.create(wanted)) == handles
    assert calls(home)[done:] == ["create pods", "get pods"], "all is done"


def test_the_secret_goes_with_its_pod_and_with_nothing_else(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    handles = list(backend.create(wanted))
    (secret,) = home.store.all("secrets", NAMESPACE)
    assert secret["metadata"]["ownerReferences"][0]["uid"] == handles[0].data["uid"]
    with home.store.changed:
        home.store.remove(of_kind("Pod"), pod_of(home, handles))
    home.settle()
    assert home.store.all("secrets", NAMESPACE) == []


def test_a_secret_of_an_earlier_pod_is_replaced(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest
) -> None:
    """That would go with the earlier pod, from under this one."""
    handles = [next(backend.create(wanted))]
    home.add("Secret", handles[0].id, NAMESPACE, data={}, type="Opaque")
    list(backend.create(wanted))
    (secret,) = home.store.all("secrets", NAMESPACE)
    assert secret["data"] and secret["metadata"]["ownerReferences"][0]["uid"] == handles[0].data["uid"]


def test_a_call_at_the_same_time_takes_no_secret_from_an_open_pod(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest
) -> None:
    slow = backend.create(wanted)
    handles = [next(slow)]
    assert list(backend.create(wanted)) == handles
    (before,) = home.store.all("secrets", NAMESPACE)
    home.calls.clear()
    assert list(slow) == []
    assert [each["metadata"]["uid"] for each in home.store.all("secrets", NAMESPACE)] == [before["metadata"]["uid"]]
    assert "delete secrets" not in calls(home)


def test_a_pod_that_is_there_is_adopted_though_its_quota_is_used_up(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest
) -> None:
    handles = [next(iter(backend.create(wanted)))]
    home.add("ResourceQuota", "most", NAMESPACE, spec={"hard": {"pods": "1"}})
    home.settle()
    assert list(backend.create(wanted)) == handles and "nodeName" in pod_of(home, handles)["spec"]
    with pytest.raises(QuotaExceeded):
        list(backend.create(request_for(wanted.offer, "another")))


def test_while_a_pod_is_ending_its_name_is_taken_and_no_second_one_is_made(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    """The API server calls that a name that is taken, though the pod of this name is about to go."""
    home.scripted.life = lambda pod, container: Life(stops=None) if container["name"] == "job" else None
    first = running(backend, wanted, clock)
    backend.terminate(first[0])
    again = list(backend.create(wanted))
    assert {handle.data["uid"] for handle in again} == {first[0].data["uid"]}
    assert backend.describe(again).interrupted, "so whoever has asked for it asks for another"
    clock.passes(121.0)
    with pytest.raises(Gone):
        backend.describe(again)
    assert home.store.all("pods", NAMESPACE) == []


def test_gates_of_others_are_theirs_to_open(home: Cluster, backend: KubernetesBackend, wanted: CreateRequest) -> None:
    making = backend.create(wanted)
    handles = [next(making)]
    pod = pod_of(home, handles)
    with home.store.changed:
        home.store.change(pod, spec={"schedulingGates": [*pod["spec"]["schedulingGates"], {"name": "team/quota"}]})
    assert list(making) == []
    assert pod_of(home, handles)["spec"]["schedulingGates"] == [{"name": "team/quota"}]
    home.calls.clear()
    assert list(backend.create(wanted)) == handles and calls(home) == ["create pods", "get pods"], (
        "ours is open already"
    )


def test_tags_that_somebody_broke_hide_no_pod(home: Cluster, backend: KubernetesBackend, wanted: CreateRequest) -> None:
    handles = list(backend.create(wanted))
    pod = pod_of(home, handles)
    broken = {**pod["metadata"], "annotations": {"dstack-tags": "{"}}
    with home.store.changed:
        home.store.replace(of_kind("Pod"), pod, {**pod, "metadata": broken})
    assert [each.handle for each in backend.list_owned()] == handles


def test_a_name_that_others_have_is_neither_adopted_nor_touched(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest
) -> None:
    handles = list(backend.create(wanted))
    pod = pod_of(home, handles)
    with home.store.changed:
        home.store.replace(of_kind("Pod"), pod, {**pod, "metadata": {**pod["metadata"], "labels": {"team": "web"}}})
    with pytest.raises(AlreadyThere, match="is taken in home by a pod that dstack didn't create"):
        list(backend.create(wanted))


def test_two_creates_that_change_one_quota_are_repeated(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest
) -> None:
    fault(home, "create pods", faults.quota_race("most"))
    with pytest.raises(NotYet, match="resourcequotas"):
        list(backend.create(wanted))
    assert list(backend.create(wanted))


def test_the_login_is_in_no_error(home: Cluster, backend: KubernetesBackend, wanted: CreateRequest) -> None:
    assert wanted.container is not None
    login = RegistryLogin("me", "pa55-of-mine", secret_username=True)
    refusal = faults.errors.refusal(422, "Invalid", "Secret is invalid: data: pa55-of-mine bWU6cGE1NS1vZi1taW5l").answer
    fault(home, "create secrets", refusal)
    with pytest.raises(Unfit) as refused:
        list(backend.create(replace(wanted, container=replace(wanted.container, login=login))))
    assert "pa55" not in str(refused.value) and "bWU6cGE1" not in str(refused.value)


# --- namespaces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_namespace_that_demands_more_gets_it(home: Cluster, clock: Clock, level: str) -> None:
    home.add_namespace("strict", **{LEVEL: level})
    config = config_of([home], namespace="strict", privileged=True)
    found = KubernetesBackend(config, now=clock.now)
    offer = cpu_offer(found)
    assert offer.grants is not None and "privileged" not in offer.grants
    request = request_for(offer)
    assert request.container is not None
    made = list(found.create(replace(request, container=replace(request.container, user="1000"))))
    assert "nodeName" in home.pod(made[0].id, "strict")["spec"]
    if level == "restricted":
        root = request_for(offer, "root")
        assert root.container is not None
        with pytest.raises(Unfit, match="violates PodSecurity"):
            list(found.create(replace(root, container=replace(root.container, user="0"))))
    found.close()


@pytest.mark.parametrize("privileged", [True, False])
def test_jobs_are_privileged_only_where_an_admin_allows_it(home: Cluster, clock: Clock, privileged: bool) -> None:
    """One could take over its node, and all that others run there."""
    found = KubernetesBackend(config_of([home], privileged=privileged), now=clock.now)
    grants = cpu_offer(found).grants
    assert grants is not None and ("privileged" in grants) is privileged
    found.close()


def test_a_namespace_that_is_gone_is_named(home: Cluster, clock: Clock) -> None:
    config = config_of([home], namespace="nowhere")
    found = KubernetesBackend(config, now=clock.now)
    with pytest.raises(Unfit, match='namespaces "nowhere" not found'):
        list(found.create(request_for(cpu_offer(found))))
    found.close()


# --- what happens to pods ---------------------------------------------------------------------------------------------


def running(backend: KubernetesBackend, wanted: CreateRequest, clock: Clock) -> list[Handle]:
    handles = list(backend.create(wanted))
    clock.passes(10.0)
    assert backend.describe(handles).state == "running"
    return handles


def test_a_drain_is_an_interruption(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    home.scripted.life = lambda pod, container: Life(stops=None) if container["name"] == "job" else None
    handles = running(backend, wanted, clock)
    pod = pod_of(home, handles)
    with home.store.changed:
        ended(home.store, home.disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting"))
    found = backend.describe(handles)
    assert (found.interrupted, found.message) == (True, "Eviction API: evicting")
    clock.passes(121.0)
    with pytest.raises(Gone) as gone:
        backend.describe(handles)
    assert gone.value.refused is None


def test_an_evicted_pod_isnt_its_jobs_fault(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    handles = running(backend, wanted, clock)
    home.kubelet.evict(pod_of(home, handles))
    with pytest.raises(Gone, match="low on resource: memory") as gone:
        backend.describe(handles)
    assert gone.value.refused is None
    assert [each.handle for each in backend.list_owned()] == handles, "until it is terminated"


def test_a_pod_of_a_lost_node_is_taken_back_and_is_never_gone_before_it_is(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    handles = running(backend, wanted, clock)
    home.nodes.lose(pod_of(home, handles)["spec"]["nodeName"])
    for _ in range(8):
        clock.passes(60.0)
        home.settle()
    assert backend.describe(handles).interrupted
    for _ in range(3):
        backend.terminate(handles[0])
        clock.passes(60.0)
    assert [each.handle for each in backend.list_owned()] == handles, "its containers may still run"


def test_a_job_that_used_too_much_memory_is_called_that(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    killed = Life(runs=20 * SECOND, end=Exit(137, "OOMKilled"))
    home.scripted.life = lambda pod, container: killed if container["name"] == "job" else None
    handles = running(backend, wanted, clock)
    clock.passes(20.0)
    with pytest.raises(Gone, match="more memory than it may") as gone:
        backend.describe(handles)
    assert gone.value.refused is ContainerFailed


def test_another_pod_of_the_same_name_is_left_alone(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest
) -> None:
    (handle,) = backend.create(wanted)
    older = handle.with_(data={**handle.data, "uid": "an-earlier-one"})
    with pytest.raises(Gone):
        backend.terminate(older)
    with pytest.raises(Gone):
        backend.describe([older])
    assert backend.describe([handle])


def test_a_context_that_isnt_configured_any_more_proves_nothing(
    backend: KubernetesBackend, wanted: CreateRequest
) -> None:
    (handle,) = backend.create(wanted)
    elsewhere = handle.with_(data={**handle.data, "region": "renamed"})
    with pytest.raises(InvalidCredentials, match="has no context 'renamed'"):
        backend.terminate(elsewhere)
    with pytest.raises(InvalidCredentials):
        backend.describe([elsewhere])


def test_many_pods_are_described_by_one_list(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    made = [list(backend.create(request_for(wanted.offer, f"n{at}"))) for at in range(SINGLY + 1)]
    clock.passes(10.0)
    unknown = [made[0][0].with_(id="nobody")]
    home.calls.clear()
    found = backend.describe_several([*made, unknown])
    assert calls(home) == ["list pods"]
    assert [getattr(each, "state", type(each)) for each in found] == ["running"] * len(made) + [Gone]
    assert list(found[:-1]) == [backend.describe(handles) for handles in made]


def test_a_pod_of_a_namespace_that_jobs_had_before_is_described_there(
    home: Cluster, backend: KubernetesBackend, wanted: CreateRequest, clock: Clock
) -> None:
    made = [running(backend, request_for(wanted.offer, f"n{at}"), clock) for at in range(SINGLY + 1)]
    home.add_namespace("later")
    moved = KubernetesBackend(config_of([home], namespace="later"), now=clock.now)
    assert [getattr(each, "state", each) for each in moved.describe_several(made)] == ["running"] * len(made)
    moved.close()


# --- offers -----------------------------------------------------------------------------------------------------------


def test_what_pods_take_isnt_offered(home: Cluster, backend: KubernetesBackend, wanted: CreateRequest) -> None:
    home.add_namespace("others")
    whole = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "63"}}}]}
    for node in ("home-cpu", "home-gpu"):
        home.add("Pod", f"hog-{node}", "others", spec={**whole, "nodeName": node}, status={"phase": "Running"})
    with pytest.raises(InsufficientCapacity, match=r"home: home-cpu \(1 of 64 CPUs free\); home-gpu \(kept for others"):
        offers_of(backend)


def test_one_cluster_that_doesnt_answer_hides_nothing_of_another(home: Cluster, clock: Clock) -> None:
    other = Cluster(clock.now, "other")
    populate(other)
    with other.serving():
        found = KubernetesBackend(config_of([home, other]), now=clock.now)
        fault(home, "list nodes", faults.unavailable())
        assert {offer.region for offer in offers_of(found)} == {"other"}
        fault(home, "list nodes", faults.unavailable())
        fault(other, "list pods", faults.broken())
        with pytest.raises(BackendError):
            offers_of(found)
        found.close()


def test_a_watch_cache_that_is_behind_fails_a_list(home: Cluster, backend: KubernetesBackend, clock: Clock) -> None:
    """A further page that has expired isn't the end of the list."""
    backend._client.page = 1
    expired = faults.errors.refusal(410, "Expired", "The provided continue parameter is too old").answer
    fault(home, "list nodes", expired, fits=lambda call: "continue" in call.query)
    with pytest.raises(Transient, match="too old"):
        offers_of(backend)
