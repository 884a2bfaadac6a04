"""Offers that a cluster's nodes give to a request, and why a node gives none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.backends.kubernetes.autoscalers import autoscalers_of, noting_autoscalers
from chalicelib.backends.kubernetes.config import KubernetesContext
from chalicelib.backends.kubernetes.nodes import nodes_of
from chalicelib.backends.kubernetes.offers import Search
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.resources import ResourcesSpec
from tests.backends.kubernetes.bodies import T4, Body, container, node, pod, taint
from tests.backends.kubernetes.fake.selectors import meets

MIB = 1024
GPU_TAINT = taint("nvidia.com/gpu", value="present")


def search(
    resources: dict[str, Any],
    nodes: Sequence[Body],
    pods: Sequence[Body] = (),
    *,
    context: dict[str, Any] | None = None,
    **more: Any,
) -> Search:
    request = OfferRequest(resources=ResourcesSpec.model_validate(resources), **more)
    found = Search("east", request, ("user",))
    there = KubernetesContext.model_validate({"name": "east", **(context or {})})
    found.add(nodes_of(nodes, pods, there))
    return found


def offers(resources: dict[str, Any], *nodes: Body, **more: Any) -> list[Offer]:
    return search(resources, nodes, **more).offers


def lacking(resources: dict[str, Any], *nodes: Body, **more: Any) -> str:
    found = search(resources, nodes, **more)
    assert found.offers == []
    return "; ".join(found.lacking)


def test_an_offer_has_what_is_requested_and_no_more() -> None:
    (offer,) = offers({"cpu": "2..4", "memory": "8GB..16GB", "disk": "50GB.."}, node("n", cpu="64", memory="256Gi"))
    has = offer.instance.resources
    assert (has.cpus, has.memory_mib, has.disk.size_mib, has.gpus) == (2, 8 * MIB, 50 * MIB, ())
    assert (has.cpu_arch, has.spot, offer.price, offer.region) == ("x86", False, 0.0, "east")
    assert offer.is_container and offer.grants == {"user"}
    assert offer.backend_data["pod"]["limits"] == {"cpu": 4, "memory_mib": 16 * MIB, "disk_mib": 0}


def test_what_has_no_least_amount_gets_a_little() -> None:
    (offer,) = offers({"cpu": "..4", "memory": "..2GB", "disk": None, "gpu": None}, node("n", disk="1Gi"))
    has = offer.instance.resources
    assert (has.cpus, has.memory_mib, has.disk.size_mib) == (1, MIB, 0)


def test_nodes_of_one_kind_make_one_offer() -> None:
    found = offers({}, node("a", type="m5"), node("b", type="m5"), node("c", type="r5"), node("d"))
    assert [offer.instance.name for offer in found] == ["amd64-node", "m5", "r5"]
    assert len({offer.key for offer in found}) == 3
    assert ("node.kubernetes.io/instance-type", "In", ("m5",)) in found[1].backend_data["pod"]["where"]


def test_offers_of_one_type_for_different_requests_are_told_apart() -> None:
    small, large = (offers({"cpu": count}, node("n", type="m5"))[0] for count in ("1", "2"))
    assert small.instance.name == large.instance.name and small.key != large.key
    assert small.key == offers({"cpu": "1"}, node("other", type="m5"))[0].key


def test_a_node_that_is_named_is_pinned() -> None:
    nodes = [node("gpu-1", type="m5"), node("gpu-2", type="m5")]
    (offer,) = offers({}, *nodes, instance_types=("gpu-2",))
    assert offer.instance.name == "gpu-2"
    assert ("kubernetes.io/hostname", "In", ("gpu-2",)) in offer.backend_data["pod"]["where"]
    (offer,) = offers({}, *nodes, instance_types=("m5",))
    assert offer.instance.name == "m5"


def test_zones_are_those_of_the_nodes() -> None:
    zone = "topology.kubernetes.io/zone"
    nodes = [node(each, labels={zone: f"z{each}"}) for each in "abc"]
    assert offers({}, *nodes)[0].availability_zones is None, "the scheduler may choose"
    (offer,) = offers({}, *nodes, zones=("za", "zc"))
    assert offer.availability_zones == ("za", "zc")
    assert lacking({}, *nodes, zones=("zz",)) == "a, b, c (not in the requested zones)"


def test_both_architectures_are_offered() -> None:
    found = offers({}, node("a"), node("b", arch="arm64"), node("c", arch="s390x"))
    assert {(offer.instance.name, offer.instance.resources.cpu_arch) for offer in found} == {
        ("amd64-node", "x86"),
        ("arm64-node", "arm"),
    }


# --- GPUs -------------------------------------------------------------------------------------------------------------


def test_a_job_with_gpus_gets_them_and_tolerates_their_taint() -> None:
    nodes = [node("cpu"), node("gpu", labels=T4, taints=[GPU_TAINT], nvidia_com__gpu="4")]
    (offer,) = offers({"gpu": "T4:2..3"}, *nodes)
    assert [(gpu.name, gpu.memory_mib) for gpu in offer.instance.resources.gpus] == [("T4", 16 * MIB)] * 2
    choice = offer.backend_data["pod"]
    assert (choice["resource"], choice["taint"]) == ("nvidia.com/gpu", "nvidia.com/gpu")
    assert ("nvidia.com/gpu.product", "In", ("Tesla-T4",)) in choice["where"]


def test_a_job_without_gpus_stays_off_nodes_that_are_kept_for_them() -> None:
    gpu = node("gpu", labels=T4, nvidia_com__gpu="4")
    kept = node("kept", labels=T4, taints=[GPU_TAINT], nvidia_com__gpu="4")
    assert lacking({}, kept) == "kept (kept for others by the taint nvidia.com/gpu=present:NoSchedule)"
    names = [offer.instance.name for offer in offers({}, gpu, node("a", type="z9"))]
    assert names == ["z9", "amd64-node"], "those without GPUs first"


def test_gpus_of_several_models_are_several_offers() -> None:
    large = {**T4, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    nodes = [node("a", labels=T4, nvidia_com__gpu="1"), node("b", labels=large, nvidia_com__gpu="8")]
    assert [o.instance.resources.gpus[0].name for o in offers({"gpu": 1}, *nodes)] == ["H100", "T4"]
    assert [o.instance.resources.gpus[0].name for o in offers({"gpu": "24GB.."}, *nodes)] == ["H100"]
    assert len(offers({"gpu": {"total_memory": "160GB..", "count": "1..8"}}, *nodes)[0].instance.resources.gpus) == 2
    assert lacking({"gpu": "H100"}, nodes[0]) == "a (only T4)"


def test_only_one_share_of_a_card_is_offered() -> None:
    mig = {"nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.memory": "4864"}
    sliced = node("a", labels=mig, nvidia_com__gpu="7")
    (offer,) = offers({"gpu": "A100-1g.5gb"}, sliced)
    assert [gpu.name for gpu in offer.instance.resources.gpus] == ["A100-1g.5gb"]
    assert lacking({"gpu": "A100-1g.5gb:2"}, sliced)
    assert lacking({"gpu": "A100"}, sliced) == "a (only A100-1g.5gb)"


def test_what_else_gpu_jobs_get_must_be_free() -> None:
    context = {"gpu_resources": {"rdma/ib": 1}}
    bare = node("a", labels=T4, nvidia_com__gpu="1")
    assert lacking({"gpu": 1}, bare, context=context) == "a (only 0 rdma/ib)"
    assert offers({"gpu": 1}, node("a", labels=T4, nvidia_com__gpu="1", rdma__ib="1"), context=context)
    assert offers({}, bare, context=context), "a job without GPUs doesn't need it"


# --- why not ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (node("n", unschedulable=True), "n (cordoned)"),
        (node("n", ready="Unknown"), "n (not ready)"),
        (node("n", arch="s390x"), "n (architecture s390x)"),
        (node("n", system="windows"), "n (operating system windows)"),
        (node("n", taints=[taint("team", value="a")]), "n (taint team=a:NoSchedule)"),
        (node("n", taints=[taint("team", "NoExecute")]), "n (taint team:NoExecute)"),
        (node("n", cpu="1500m"), "n (only 1.5 CPUs)"),
        (node("n", memory="4Gi"), "n (only 4 GB of memory)"),
        (node("n", disk="40Gi"), "n (only 40 GB of disk)"),
        (node("n", pods="0"), "n (only 0 pods)"),
    ],
)
def test_a_node_that_gives_nothing_says_why(body: Body, why: str) -> None:
    assert lacking({}, body) == why


def test_what_others_have_taken_is_told_from_what_was_never_there() -> None:
    busy = [pod("a", "n", container(cpu="7", limits={"nvidia.com/gpu": "2"}))]
    gpu = node("n", labels=T4, nvidia_com__gpu="2")
    assert lacking({}, node("n"), pods=busy) == "n (1 of 8 CPUs free)"
    assert lacking({"cpu": "1", "gpu": 1}, gpu, pods=busy) == "n (0 of 2 T4 free)"
    assert lacking({"gpu": 1}, node("n")) == "n (no GPUs)"
    unknown = node("n", nvidia_com__gpu="1")
    why = "no label says what its nvidia.com/gpu is: describe it in `accelerators`"
    assert lacking({"gpu": 1}, unknown) == f"n ({why})"


def test_many_nodes_with_one_reason_are_one_line() -> None:
    found = lacking({}, *(node(f"n{at}", unschedulable=True) for at in range(7)))
    assert found == "n0, n1, n2, n3, n4 and 2 more (cordoned)"


def test_of_many_reasons_the_most_frequent_are_given() -> None:
    some = [node(f"m{at}", cpu=f"{at + 1}00m") for at in range(8)]
    found = search({}, [*some, node("x1", unschedulable=True), node("x2", unschedulable=True)]).lacking
    assert found[0] == "x1, x2 (cordoned)" and found[1] == "m0 (only 0.1 CPUs)"
    assert len(found) == 6 and found[-1] == "and 4 more nodes"


def test_parts_of_cards_arent_offered_as_cards() -> None:
    labels = {"beta.amd.com/gpu.device-id.74a1": "64", "amd.com/gpu.compute-memory-partition": "cpx_nps4"}
    why = "n (its amd.com/gpu are parts of cards (cpx_nps4): describe them in `accelerators`)"
    assert lacking({"gpu": "MI300X"}, node("n", labels=labels, amd_com__gpu="64")) == why


def test_an_admins_name_may_have_blanks() -> None:
    gaudi = {"resource": "habana.ai/gaudi", "name": "Gaudi 2", "memory": "96GB", "vendor": "intel"}
    there = node("n", habana_ai__gaudi="8")
    assert offers({"gpu": "Gaudi2"}, there, context={"accelerators": [gaudi]})


def test_a_taint_that_is_only_a_wish_or_is_tolerated_keeps_nobody_away() -> None:
    assert offers({}, node("n", taints=[taint("team", "PreferNoSchedule")]))
    kept = node("n", taints=[taint("team", value="a"), taint("night", "NoExecute")])
    for tolerations in (
        [{"operator": "Exists"}],
        [{"key": "team", "value": "a"}, {"key": "night", "operator": "Exists", "effect": "NoExecute"}],
    ):
        assert offers({}, kept, context={"tolerations": tolerations})
    for tolerations in (
        [{"key": "team", "value": "b"}, {"key": "night", "operator": "Exists"}],
        [{"key": "team", "value": "a"}],
        [{"operator": "Exists", "effect": "NoSchedule"}],
    ):
        assert lacking({}, kept, context={"tolerations": tolerations})


def test_only_nodes_with_the_selected_labels_are_used() -> None:
    nodes = [node("a", labels={"pool": "jobs"}), node("b")]
    found = search({}, nodes, context={"node_selector": {"pool": "jobs"}})
    assert len(found.offers) == 1
    assert found.lacking == ["b (without the labels of `node_selector`)"]


@pytest.mark.parametrize(
    ("operator", "values", "kept"),
    [
        ("In", ["old", "older"], "ab"),
        ("NotIn", ["old"], "bcd"),
        ("Exists", [], "abc"),
        ("DoesNotExist", [], "d"),
        ("Gt", ["8"], "c"),
        ("Lt", ["17"], "c"),
    ],
)
def test_only_nodes_within_the_node_affinity_are_used_as_by_the_scheduler(
    operator: str, values: list[str], kept: str
) -> None:
    labelled = {"a": {"pool": "old"}, "b": {"pool": "older"}, "c": {"pool": "16"}, "d": {}}
    requirement = {"key": "pool", "operator": operator, **({"values": values} if values else {})}
    nodes = [node(name, labels=labels) for name, labels in labelled.items()]
    found = search({}, nodes, context={"node_affinity": [requirement]})
    left_out = {name for text in found.lacking for name in re.findall(r"\b[a-d]\b", text.partition(" (")[0])}
    assert labelled.keys() - left_out == set(kept)
    assert {name for name, labels in labelled.items() if meets(requirement, labels)} == set(kept)
    shown = " ".join(["pool", operator, *([", ".join(values)] if values else [])])
    assert all(text.endswith(f" (against `node_affinity`: {shown})") for text in found.lacking)


def test_an_autoscaler_that_shows_isnt_waited_for() -> None:
    image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0"
    pods = [pod("scaler", "a", {**container(), "image": image}), pod("other", "a", container())]
    found = set[str]()
    assert list(noting_autoscalers(pods, found)) == pods and found == {"Cluster Autoscaler"}
    assert list(autoscalers_of([node("a"), node("b", labels={"karpenter.sh/nodepool": "gpu"})])) == ["Karpenter"]
    request = OfferRequest(resources=ResourcesSpec.model_validate({"cpu": "99.."}))
    searched = Search("east", request, (), autoscaler="Karpenter")
    searched.add(nodes_of([node("a")], [], KubernetesContext(name="east")))
    assert searched.offers == []
    assert searched.lacking[-1] == "its autoscaler (Karpenter) isn't waited for: a job needs a node that has room now"


def test_devices_of_dra_are_refused_by_name() -> None:
    request = OfferRequest(resources=ResourcesSpec.model_validate({"gpu": "H100"}))
    searched = Search("east", request, (), drivers={"a": "gpu.nvidia.com"})
    searched.add(nodes_of([node("a"), node("b")], [], KubernetesContext(name="east")))
    assert searched.offers == []
    text = "a (only devices of gpu.nvidia.com, a driver of DRA, which jobs can't have); b (no GPUs)"
    assert "; ".join(searched.lacking) == text
