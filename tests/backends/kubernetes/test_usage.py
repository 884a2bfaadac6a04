"""Amounts, and what pods take of their nodes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from chalicelib.backends.kubernetes.quantities import available, parsed, requested
from chalicelib.backends.kubernetes.usage import effective, free
from tests.backends.kubernetes.bodies import container, node, pod

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", "2"),
        (3, "3"),
        ("500m", "0.5"),
        ("7910m", "7.91"),
        (".5", "0.5"),
        ("1.5Gi", str(3 * (1 << 29))),
        ("129M", "129000000"),
        ("129e6", "129000000"),
        ("1E3", "1000"),
        ("1E", "1e18"),
        ("5k", "5000"),
        ("1n", "1e-9"),
        ("32780040Ki", str(32780040 * 1024)),
    ],
)
def test_a_quantity_is_exact(text: str | int, value: str) -> None:
    assert parsed(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "Gi", "1GB", "1 Gi", "x", "1e", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="isn't a quantity"):
        parsed(text)


def test_what_is_there_is_rounded_down_and_what_is_asked_for_up() -> None:
    assert available({"cpu": "1.0005", "memory": "1.5"}) == {"cpu": 1000, "memory": 1}
    assert requested({"cpu": "1.0005", "memory": "1.5"}) == {"cpu": 1001, "memory": 2}


def test_containers_add_up_and_init_containers_do_not() -> None:
    body = pod(
        "p",
        "n",
        container("a", cpu="1", memory="1Gi"),
        container("b", cpu="500m"),
        initContainers=[container("i", cpu="2"), container("j", memory="3Gi", cpu="100m")],
    )
    assert effective(body) == {"cpu": 2000, "memory": 3 * GIB, "pods": 1}


def test_a_sidecar_counts_with_all_that_start_after_it() -> None:
    sidecar = {**container("s", cpu="1"), "restartPolicy": "Always"}
    body = pod("p", "n", container("a", cpu="1"), initContainers=[container("i", cpu="2"), sidecar])
    assert effective(body)["cpu"] == 2000, "the one before it runs alone"
    body = pod("p", "n", container("a", cpu="1"), initContainers=[sidecar, container("i", cpu="2")])
    assert effective(body)["cpu"] == 3000


def test_overhead_limits_and_the_pods_own_resources_count() -> None:
    body = pod("p", "n", container("a", limits={"nvidia.com/gpu": "2"}, cpu="1"), overhead={"cpu": "250m"})
    assert effective(body) == {"cpu": 1250, "nvidia.com/gpu": 2, "pods": 1}
    body["spec"]["resources"] = {"requests": {"cpu": "4"}}
    assert effective(body)["cpu"] == 4250


def test_free_is_what_running_and_ending_pods_leave() -> None:
    ending = pod("ending", "n", container(cpu="1"))
    ending["metadata"]["deletionTimestamp"] = "2026-11-27T10:00:00Z"
    listed = [
        pod("a", "n", container(cpu="2", memory="4Gi")),
        ending,
        pod("done", "n", container(cpu="4"), phase="Succeeded"),
        pod("failed", "n", container(cpu="4"), phase="Failed"),
        pod("pending", "", container(cpu="4"), phase="Pending"),
        pod("elsewhere", "other", container(cpu="4")),
    ]
    found = free([node("n", cpu="8", memory="32Gi")], listed)
    assert found["n"]["cpu"] == 5000 and found["n"]["memory"] == 28 * GIB and found["n"]["pods"] == 108


def test_nothing_is_less_than_nothing() -> None:
    """More is booked than there is, after a node has lost a card."""
    found = free([node("n", nvidia_com__gpu="1")], [pod("a", "n", container(limits={"nvidia.com/gpu": "2"}))])
    assert found["n"]["nvidia.com/gpu"] == 0
