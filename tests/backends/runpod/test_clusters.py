"""Clusters: pods for the nodes of one task, which are requested one by one and created in one call."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace

import pytest

from chalicelib.backends.runpod.backend import RunpodBackend
from chalicelib.backends.runpod.client import Client
from chalicelib.backends.spi import ContainerMount, CreateRequest, RegistryLogin
from chalicelib.domain.container_script import HIDDEN
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import AlreadyThere, ContainerFailed, Gone, InsufficientCapacity, NotYet, Transient, Unfit
from tests.backends.clock import Clock
from tests.backends.conformance.requests import BOOT_TOKEN, member_for, volume_request
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Answer, Call, Cut, Fault
from tests.backends.fakes.transport import sender
from tests.backends.runpod.fake import H100, KEY, Runpod, stock
from tests.backends.runpod.provider import CONFIG


def offers(backend: RunpodBackend, nodes: int = 3, gpu: str = "H100:8", spot: bool | None = False) -> Sequence[Offer]:
    resources = ResourcesSpec.model_validate({"gpu": gpu})
    return backend.offers_for(OfferRequest(resources=resources, nodes=nodes, spot=spot))


def members(backend: RunpodBackend, nodes: int = 3, region: str = "US-KS-2") -> list[CreateRequest]:
    (offer,) = (each for each in offers(backend, nodes) if each.region == region)
    return [member_for(offer, "train", rank, nodes) for rank in range(nodes)]


def created(backend: RunpodBackend, requests: Sequence[CreateRequest]) -> list[list[Handle]]:
    """With a call for all. Raises what is wrong with one of them."""
    found: dict[str, list[Handle]] = {each.token: [] for each in requests}
    for each in backend.create_several(requests):
        if each.error is not None:
            raise each.error
        assert each.handle is not None
        found[each.token].append(each.handle)
    return list(found.values())


def existing(fake: Runpod) -> dict[str, int]:
    found = [each.kind for each in fake.books.existing()]
    return {kind: found.count(kind) for kind in sorted(set(found))}


def test_only_what_is_sold_as_clusters_is_offered_for_several_nodes(backend: RunpodBackend, fake: Runpod) -> None:
    fake.script.limits[stock(H100, "EU-SE-1")] = 15
    found = offers(backend)
    assert {(each.instance.name, each.region) for each in found} == {(H100, "US-KS-2"), (H100, "CA-MTL-3")}
    assert {each.terms.grants for each in found} == {("volumes", "multinode")} and found[0].most_nodes == 8
    assert found[0].price == 21.52 and found[0].key not in {each.key for each in offers(backend, 1)}
    assert offers(backend, gpu="H100:4..8") and offers(backend, spot=None)
    for wrong, text in (
        ({"nodes": 9}, "clusters of 2 to 8 pods"),
        ({"spot": True}, "on demand alone"),
        ({"gpu": "H100:4"}, "has 8 GPUs"),
    ):
        with pytest.raises(InsufficientCapacity, match=text):
            offers(backend, **wrong)


def test_its_price_is_that_of_clusters(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    fake.cluster_prices[H100] = 4.31
    wanted = members(backend, 2)
    assert wanted[0].offer.price == 34.48
    made = created(backend, wanted)
    clock.passes(60)
    assert [backend.describe(each).state for each in made] == ["running"] * 2
    fake.cluster_prices[H100] = 0.0
    assert not offers(backend)


def test_one_call_creates_it_and_few_are_made(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    wanted, before = members(backend, 8), len(fake.calls)
    made = created(RunpodBackend(CONFIG, Client(KEY, clock.now, send=sender(fake)), clock.now), wanted)
    assert len(fake.calls) - before <= 30, "as many as an account may make at once"
    (call,) = fake.calls_of("createCluster")
    expected = {"type": "TRAINING", "dataCenterIds": ["US-KS-2"], "ports": [], "startSsh": False}
    assert expected.items() <= call.body.items()
    assert call.body["compute"] == {"gpuTypeId": H100, "gpuCountPerPod": 8, "podCount": 8}
    clock.passes(60)
    found = backend.describe_several(made)
    assert [getattr(each, "internal_ip", each) for each in found] == [f"10.65.10.{rank + 2}" for rank in range(8)]


def test_each_pod_starts_with_the_settings_of_its_rank(backend: RunpodBackend, fake: Runpod) -> None:
    wanted = members(backend)
    created(backend, wanted)
    (cluster,) = fake.books.existing("cluster")
    body = cluster.facts["request"]
    args, env = json.loads(body["args"]), body["env"]
    command = [*args["entrypoint"], *args["cmd"]]
    assert wanted[0].container is not None and command[4:] == list(wanted[0].container.command)
    assert env["NCCL_SOCKET_IFNAME"] == "ens1"
    hidden = env[HIDDEN].split()
    shown = {name: value for name, value in env.items() if name not in hidden}
    assert {"DSTACK_INSTANCE_0", "DSTACK_INSTANCE_2", "RUNPOD_API_KEY", "DSTACK_GANG"} <= set(hidden)
    assert not [name for name, value in shown.items() if value in {each.instance_id for each in wanted}]
    show = [*command[:4], "/bin/sh", "-c", 'echo "$DSTACK_INSTANCE $DSTACK_TOKEN"']
    for rank, request in enumerate(wanted):
        ran = subprocess.run(show, env={**env, "NODE_RANK": str(rank)}, capture_output=True, text=True, check=True)
        assert ran.stdout.split() == [request.instance_id, BOOT_TOKEN]
    without = subprocess.run(show, env=env, capture_output=True, text=True, check=False)
    assert without.returncode == 78 and without.stderr.startswith("dstack: "), "which its description shows"


def test_nothing_of_one_that_has_no_room_is_left(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    wanted = members(backend)
    fake.script.limits[stock(H100, "US-KS-2")] = 23
    with pytest.raises(InsufficientCapacity, match="no cluster of 3 pods"):
        created(backend, wanted)
    assert existing(fake) == {"template": 3}, "none runs"
    for request in wanted:
        end_all(backend, clock.passes, [each.handle for each in backend.list_owned(request.instance_id)])
    assert existing(fake) == {}


def test_one_is_created_although_the_lists_show_its_templates_late(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    fake.script.lag = 5 * SECOND
    made = created(backend, members(backend))
    clock.passes(60)
    assert [backend.describe(each).state for each in made] == ["running"] * 3


def test_what_the_lists_show_late_is_waited_for(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    fake.script.lag = 5 * SECOND
    first, second, last = members(backend)
    created_in_vain = [list(backend.create(first)), [each.error for each in backend.create_several([second, last])]]
    assert isinstance(created_in_vain[1][-1], NotYet)
    with pytest.raises(AlreadyThere):
        list(backend.create(last))
    clock.passes(5)
    list(backend.create(last))
    assert existing(fake)["cluster"] == 1


def test_a_repeated_request_waits_for_what_may_be_late_and_for_nothing_else(
    backend: RunpodBackend, clock: Clock
) -> None:
    first, *_ = members(backend)
    list(backend.create(first))
    with pytest.raises(NotYet, match="1 of the 3 templates"):
        list(backend.create(first))
    clock.passes(60)
    list(backend.create(first))


def test_pods_that_differ_are_refused_and_the_largest_disk_is_everybodys(backend: RunpodBackend, fake: Runpod) -> None:
    one, two = members(backend, 2)
    other = two.offer.with_(instance=two.offer.instance.with_(name="NVIDIA H200"))
    with pytest.raises(Unfit, match="the same GPUs"):
        created(backend, [one, replace(two, offer=other)])
    first, second = (member_for(one.offer, "other", rank, 2) for rank in range(2))
    created(backend, [first, replace(second, disk_mib=500 * 1024)])
    (call,) = fake.calls_of("createCluster")
    assert call.body["disk"] == 500


@pytest.mark.parametrize("operation", ["createTemplate", "createCluster"])
def test_one_whose_answer_is_lost_is_adopted_node_by_node(
    backend: RunpodBackend, fake: Runpod, clock: Clock, operation: str
) -> None:
    wanted = members(backend)
    fake.script.faults.append(Fault(operation, Cut, "after", passing=2 if operation == "createTemplate" else 0))
    with pytest.raises(Transient):
        created(backend, wanted)
    made = [list(backend.create(each)) for each in reversed(wanted)]
    assert existing(fake) == {"cluster": 1, "template": 4, "vm": 3}, "the fourth is the claim"
    clock.passes(60)
    assert len({backend.describe(handles).internal_ip for handles in made}) == 3


def test_one_whose_creation_is_only_seen_later_belongs_to_the_request_that_may_still_have_an_effect(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    """The others of an undone gang may have ended by then."""
    wanted = members(backend)
    fake.script.faults.append(Fault("createCluster", Cut, "after"))
    with pytest.raises(Transient):
        created(backend, wanted)
    clock.passes(60)
    assert [each.handle.kind for each in backend.list_owned(wanted[-1].instance_id)] == ["vm", "cluster"]


def test_of_two_calls_at_the_same_time_one_creates_it(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    """In two processes, which don't know of each other; and whatever the lists show by then."""
    *others, last = members(backend)
    for each in others:
        list(backend.create(each))
    other = RunpodBackend(CONFIG, Client(KEY, clock.now, send=sender(fake), burst=10_000), clock.now)
    fake.place = 0

    def meanwhile(call: Call) -> bool:
        with pytest.raises(NotYet, match="creates the cluster"):
            list(other.create(others[0]))
        return False

    fake.script.faults.append(Fault("createCluster", Cut, fits=meanwhile))
    list(backend.create(last))
    fake.script.faults = [Fault("listClusters", lambda body: {"clusters": []})]  # it shows it late
    with pytest.raises(NotYet, match="creates the cluster"):
        list(other.create(others[0]))
    list(other.create(others[0]))
    assert len(fake.calls_of("createCluster")) == 1 and existing(fake)["cluster"] == 1


def test_a_claim_whose_call_was_cut_off_is_given_up_in_time(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    wanted = members(backend)
    fake.script.faults.append(Fault("createCluster", Cut, times=1))
    with pytest.raises(Transient):
        created(backend, wanted)
    with pytest.raises(NotYet):
        list(backend.create(wanted[-1]))  # whose call it was: the cluster may only not show yet
    clock.passes(14)
    for _ in range(2):
        with pytest.raises(NotYet):
            list(backend.create(wanted[0]))
    clock.passes(190)
    with pytest.raises(NotYet):
        list(backend.create(wanted[0]))
    list(backend.create(wanted[0]))
    assert existing(fake)["cluster"] == 1


def test_a_node_that_ends_first_leaves_the_others_alone_and_the_last_takes_the_cluster_with_it(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    wanted = members(backend)
    first, second, last = created(backend, wanted)
    clock.passes(60)
    end_all(backend, clock.passes, first)
    assert [backend.describe(each).state for each in (second, last)] == ["running"] * 2
    assert not list(backend.list_owned(wanted[0].instance_id))
    (rest,) = (each.handle for each in backend.list_owned() if each.handle.kind == "cluster")
    with pytest.raises(NotYet, match="Other nodes still run in the cluster"):
        backend.terminate(rest)
    assert backend.describe(last).state == "running"
    end_all(backend, clock.passes, second)
    end_all(backend, clock.passes, last)
    assert existing(fake) == {}
    with pytest.raises(Gone):
        backend.terminate(rest)


def test_a_cluster_that_somebody_has_deleted_is_gone(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    made = created(backend, members(backend))
    clock.passes(700)
    (cluster,) = (each.handle for each in backend.list_owned() if each.handle.kind == "cluster")
    for pod in fake.books.existing("vm"):
        pod.goes(clock.now(), (0, None))
    for found in backend.describe_several(made):
        assert isinstance(found, Gone) and found.refused is None
    end_all(backend, clock.passes, [cluster, *made[0], *made[1], *made[2]])
    assert existing(fake) == {}


def test_one_that_is_given_up_before_it_runs_is_deleted_with_its_last_node(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    made = created(backend, members(backend))
    clock.passes(6)
    for handles in made:
        assert not fake.calls_of("deleteCluster")
        backend.terminate(*handles)
    assert len(fake.calls_of("deleteCluster")) == 1


def test_a_node_that_ends_early_leaves_the_pods_of_the_others_to_start(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    first, *others = created(backend, members(backend))
    clock.passes(6)
    end_all(backend, clock.passes, first)
    clock.passes(60)
    assert [backend.describe(each).state for each in others] == ["running"] * 2


def test_a_cluster_whose_pods_cant_be_stopped_is_deleted_with_its_last_node(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    made = created(backend, members(backend))
    clock.passes(60)
    fake.script.faults.append(Fault("podAction", Answer(409, {"title": "Refused", "status": 409}), times=1_000))
    for handles in made[:2]:
        with pytest.raises(NotYet):
            backend.terminate(*handles)
    assert backend.describe(made[2]).state == "running"
    end_all(backend, clock.passes, [handle for handles in made for handle in handles])
    assert existing(fake) == {} and fake.billed() == 0.0


def test_a_pod_that_belongs_to_no_node_any_more_keeps_no_cluster(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    """Else it would be billed for ever: for instance, its pod shows only after its node has been given up."""
    *made, lost = created(backend, members(backend))
    clock.passes(60)
    list(fake.books.existing("template"))[2].goes(clock.now(), (0, None))
    for handles in made:
        end_all(backend, clock.passes, handles)
    assert existing(fake) == {} and lost


def test_one_that_nobody_knows_is_swept(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    created(backend, members(backend))
    clock.passes(60)
    found = [each.handle for each in backend.list_owned()]
    assert sorted(each.kind for each in found) == ["claim", "cluster", "vm", "vm", "vm"]
    end_all(backend, clock.passes, found)
    assert existing(fake) == {} and fake.billed() == 0.0
    assert {each.handle.kind for each in backend.list_owned(region="EU-SE-1")} == set()


def test_its_pods_mount_one_volume(backend: RunpodBackend, fake: Runpod, clock: Clock) -> None:
    one, other = (backend.create_volume(volume_request("US-KS-2", name)) for name in ("one", "other"))

    def mounting(*volumes: Handle) -> list[CreateRequest]:
        found = []
        for request, volume in zip(members(backend, 2), volumes, strict=True):
            assert request.container is not None
            container = replace(request.container, mounts=(ContainerMount(volume, "/data"),))
            found.append(replace(request, container=container))
        return found

    made = created(backend, mounting(one, one))
    with pytest.raises(NotYet):
        backend.attach_volume(one, made[0])
    clock.passes(60)
    for handles in made:
        backend.attach_volume(one, handles)
    assert {each for each, _ in backend.describe_volume(one).attached_to} == {each.id for (each,) in made}
    for handles in made:
        end_all(backend, clock.passes, handles)
    with pytest.raises(Unfit, match="one and the same network volume"):
        created(backend, mounting(one, other))


def test_a_login_is_refused_by_name(backend: RunpodBackend, fake: Runpod) -> None:
    first, *_ = members(backend)
    assert first.container is not None
    container = replace(first.container, login=RegistryLogin("team", "pa55-of-the-registry"))
    with pytest.raises(Unfit, match="can't pull an image with a login"):
        list(backend.create(replace(first, container=container)))
    assert existing(fake) == {}


def test_a_pod_that_cant_start_ends_its_node_for_what_its_log_says(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    made = created(backend, members(backend, 2))
    clock.passes(10)
    pod = next(fake.books.existing("vm"))
    pod.goes(clock.now(), (0, "STARTING"))
    pod.facts["log"].append("error pulling image: manifest unknown")
    clock.passes(60)
    with pytest.raises(Gone, match="manifest unknown") as gone:
        backend.describe(made[0])
    assert gone.value.refused is ContainerFailed and backend.describe(made[1]).state == "running"


def test_calls_that_fail_leave_the_lists_complete_or_an_error(backend: RunpodBackend, fake: Runpod) -> None:
    created(backend, members(backend))
    for operation in ("listTemplates", "listClusters"):
        fake.script.faults.append(Fault(operation, Answer(500)))
        with pytest.raises(Transient):
            list(backend.list_owned())
