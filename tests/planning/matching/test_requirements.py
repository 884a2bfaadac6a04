"""Two askings for resources met: both at once, or the name of what can't be met together."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.offers import CONTAINER
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.planning.matching.instance_selectors import selectors
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.requirements import as_placed, combined, idle_seconds, meet_resources, requirements_of
from tests.world import nouns as b


def spec(**fields: Any) -> ResourcesSpec:
    return ResourcesSpec.model_validate(fields)


def met(first: dict[str, Any], second: dict[str, Any]) -> Any:
    return meet_resources(spec(**first), spec(**second))


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        ({"cpu": "2..8"}, {"cpu": "4.."}, {"cpu": "4..8"}),
        ({"cpu": "x86:2.."}, {"cpu": "2..4"}, {"cpu": "x86:2..4"}),
        ({"cpu": "2.."}, {"cpu": "arm:4.."}, {"cpu": "arm:4.."}),
        ({"cpu": "arm:2.."}, {"cpu": "arm:2.."}, {"cpu": "arm:2.."}),
        ({"memory": "8GB.."}, {"memory": "4GB..16GB"}, {"memory": "8GB..16GB"}),
        ({"disk": "100GB.."}, {"disk": "50GB..200GB"}, {"disk": "100GB..200GB"}),
        ({"disk": "70GB.."}, {"disk": None}, {"disk": "70GB.."}),
        ({"disk": None}, {"disk": "70GB.."}, {"disk": "70GB.."}),
        ({"gpu": "A100"}, {}, {"gpu": "A100"}),
        ({"gpu": "A100"}, {"gpu": None}, {"gpu": "A100"}),
        ({"gpu": None}, {"gpu": "A100"}, {"gpu": "A100"}),
        ({"gpu": "A100,H100:1..4"}, {"gpu": "h100:2..8"}, {"gpu": "H100:2..4"}),
        ({"gpu": {"count": 2}}, {"gpu": "A100:1.."}, {"gpu": "A100:2"}),
        ({"gpu": "0.."}, {"gpu": "A100:1.."}, {"gpu": "A100:1.."}),
        ({"gpu": "A100:1.."}, {"gpu": "0.."}, {"gpu": "A100:1.."}),
        (
            {"gpu": {"count": 1, "memory": "40GB..", "vendor": "nvidia"}},
            {"gpu": {"count": "1..", "memory": "..80GB", "total_memory": "40GB.."}},
            {"gpu": {"count": 1, "memory": "40GB..80GB", "vendor": "nvidia", "total_memory": "40GB.."}},
        ),
        (
            {"gpu": {"count": 1, "compute_capability": "7.5"}},
            {"gpu": {"count": 1, "compute_capability": "8.0", "vendor": "nvidia"}},
            {"gpu": {"count": 1, "compute_capability": "8.0", "vendor": "nvidia"}},
        ),
        (
            {"gpu": {"count": 1, "compute_capability": "8.6"}},
            {"gpu": {"count": 1}},
            {"gpu": {"count": 1, "compute_capability": "8.6"}},
        ),
        ({"shm_size": "1GB"}, {"shm_size": "2GB"}, {"shm_size": "1GB"}),
    ],
)
def test_both_at_once(first: dict[str, Any], second: dict[str, Any], want: dict[str, Any]) -> None:
    assert met(first, second) == spec(**want)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"cpu": "x86:2.."}, {"cpu": "arm:2.."}, "CPU architectures"),
        ({"cpu": "2..4"}, {"cpu": "5.."}, "CPU counts"),
        ({"memory": "8GB.."}, {"memory": "..4GB"}, "memory sizes"),
        ({"cpu": "2..4", "memory": "8GB.."}, {"cpu": "5..", "memory": "..4GB"}, "CPU counts"),
        ({"disk": "200GB.."}, {"disk": "..100GB"}, "disk sizes"),
        ({"gpu": "A100"}, {"gpu": "H100"}, "GPUs"),
        ({"gpu": "A100:1"}, {"gpu": "A100:2.."}, "GPUs"),
        ({"gpu": {"count": 1, "vendor": "amd"}}, {"gpu": {"count": 1, "vendor": "nvidia"}}, "GPUs"),
        ({"gpu": {"count": 1, "memory": "80GB.."}}, {"gpu": {"count": 1, "memory": "..40GB"}}, "GPUs"),
        ({"gpu": {"count": 1, "total_memory": "80GB.."}}, {"gpu": {"count": 1, "total_memory": "..40GB"}}, "GPUs"),
    ],
)
def test_what_cant_be_met_together_is_named(first: dict[str, Any], second: dict[str, Any], message: str) -> None:
    assert met(first, second) == message
    assert met(second, first) == message


def test_what_is_the_same_stays_itself() -> None:
    one = spec(cpu="2..8", memory="8GB..", gpu="A100", disk="100GB..")
    assert meet_resources(one, one) == one


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ((), 300),
        ((None, None), 300),
        ((60, None), 60),
        ((60, 30), 30),
        ((0, 30), 0),
        ((-1, 30), 30),
        ((-1, None), None),
    ],
)
def test_how_long_an_instance_may_idle(values: tuple[int | None, ...], want: int | None) -> None:
    assert idle_seconds(values, 300, b.offer()) == want
    assert idle_seconds(values, 300, b.offer(instance_runtime=CONTAINER)) == 0


def test_a_fleet_of_the_run_s_own_project_is_known_by_its_name() -> None:
    spec = b.run_spec(fleets=["main/local", "their/pool", "cloud"])
    named = as_placed(spec, lambda: "main").configuration.fleets or []
    assert [(each.project, each.name) for each in named] == [(None, "local"), ("their", "pool"), (None, "cloud")]


def test_an_instance_of_the_run_s_own_project_is_known_by_its_fleet_s_name() -> None:
    named = [{"fleet": "main/local", "instance": 1}, {"fleet": "their/pool", "instance": 2}, "cloud-3"]
    placed = as_placed(b.run_spec(instances=named), lambda: "main")
    assert [str(each) for each in selectors(placed.configuration.instances)] == [
        "number 1 of fleet local",
        "number 2 of fleet their/pool",
        "cloud-3",
    ]


def test_a_project_is_asked_for_its_name_only_where_a_fleet_is_written_with_one() -> None:
    def name() -> str:
        raise AssertionError("no fleet is written with a project")

    for fleets in (None, ["local", "cloud"]):
        assert as_placed(b.run_spec(**({"fleets": fleets} if fleets else {})), name).configuration.fleets == (
            b.run_spec(**({"fleets": fleets} if fleets else {})).configuration.fleets
        )


@pytest.mark.parametrize(
    ("fleet", "nodes", "want"),
    [
        ({"nodes": 6, "placement": "cluster"}, 1, 6),
        ({"nodes": "0..8", "placement": "cluster"}, 4, 4),
        ({"nodes": {"min": 0, "target": 3, "max": 8}, "placement": "cluster"}, 1, 3),
        ({"nodes": "0..8", "placement": "cluster"}, 1, 1),
        ({"nodes": 6}, 1, 0),
    ],
)
def test_how_many_machines_of_one_cluster_an_offer_must_allow(fleet: dict[str, Any], nodes: int, want: int) -> None:
    """Some take what an account has few of."""
    run = b.run_spec(type="task", commands=["x"], nodes=nodes)
    found = combined(requirements_of(run, b.job_spec(run)), b.view(**fleet))
    assert isinstance(found, Query) and found.nodes == want
