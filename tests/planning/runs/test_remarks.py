"""What a plan says beside its offers."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import CONTAINER, Availability, Disk
from chalicelib.domain.specs.gateways import GatewayConfiguration
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.jobs.jobs import effective
from chalicelib.planning.runs.remarks import of_gateway, remarks
from tests.world import gateways
from tests.world import nouns as b
from tests.world.services import service

SMALL = b.resources(disk=Disk(size_mib=73 * 1024))


def remarks_of(spec: RunSpec, *offers: Any) -> list[str]:
    spec = effective(spec)
    return list(remarks(spec.configuration, [(b.job_spec(spec), offers)]))


@pytest.mark.parametrize(
    ("requested", "state", "has", "remarked"),
    [
        ({}, Availability.idle, SMALL, True),
        ({"disk": "100GB.."}, Availability.busy, SMALL, True),
        ({"disk": "50GB.."}, Availability.idle, SMALL, False),
        ({}, Availability.available, SMALL, False),
        ({}, Availability.idle, b.resources(disk=Disk(size_mib=200 * 1024)), False),
    ],
)
def test_that_a_host_is_taken_with_a_smaller_disk_than_the_plan_shows(
    requested: Any, state: Availability, has: Any, remarked: bool
) -> None:
    found = remarks_of(b.run_spec(resources=requested), b.offer(availability=state, has=has))
    assert bool(found) is remarked and all(
        text.startswith("`disk: 100GB..`, the default, is asked only") for text in found
    )


@pytest.mark.parametrize(
    ("config", "proposed"),
    [
        ({"replicas": 2}, True),
        ({"replicas": "0..2", "scaling": {"metric": "rps", "target": 1}}, True),
        ({"replicas": 1}, False),
        ({}, False),
        ({"replicas": 2, "retry": True}, False),
        ({"replicas": 2, "retry": False}, False),
        (
            {
                "groups": [
                    {"replicas": 1, "commands": ["a"], "router": {"type": "dynamo"}},
                    {"replicas": 2, "commands": ["b"]},
                ]
            },
            False,
        ),
        ({"groups": [{"replicas": 1, "commands": ["a"]}, {"replicas": 1, "commands": ["b"]}]}, True),
    ],
)
def test_retry_is_proposed_to_a_service_of_several_replicas(config: dict[str, Any], proposed: bool) -> None:
    found = remarks_of(service(**config), b.offer())
    assert bool(found) is proposed and all("`retry: true`" in text for text in found)


CERTIFIED, PLAIN = gateways.gateway(), gateways.gateway(https_port=None)


@pytest.mark.parametrize(
    ("config", "at", "beginning"),
    [
        ({}, PLAIN, "The gateway door has no certificate"),
        ({"https": False}, PLAIN, "The gateway door has no certificate"),
        ({"https": False}, CERTIFIED, "With `https: false`"),
        ({}, CERTIFIED, ""),
        ({"auth": False}, PLAIN, ""),
        ({"auth": False, "https": False}, CERTIFIED, ""),
        ({}, None, ""),
    ],
)
def test_that_callers_elsewhere_cant_send_tokens_is_said(config: dict[str, Any], at: Gateway, beginning: str) -> None:
    spec = effective(service(**config))
    found = list(remarks(spec.configuration, [(b.job_spec(spec), [b.offer()])], at))
    assert len(found) == bool(beginning)
    assert all(text.startswith(beginning) and "tokens" in text and "`auth: false`" in text for text in found)


def test_a_gateway_without_a_certificate_says_what_it_is_good_for() -> None:
    config = {"type": "gateway", "fleet": "edge", "domain": "example.com"}
    assert list(of_gateway(GatewayConfiguration.model_validate(config))) == []
    (remark,) = of_gateway(GatewayConfiguration.model_validate({**config, "certificate": None}))
    assert "`certificate`" in remark and "`auth: false`" in remark


def test_a_policy_without_a_gpu_or_with_one_that_nobody_measures_is_remarked() -> None:
    spec = b.run_spec(utilization_policy={"min_gpu_utilization": 10, "time_window": "10m"})
    plain, nvidia = b.offer(), b.offer(has=b.resources(gpus=1))
    assert remarks_of(spec, nvidia) == []
    assert "judges GPUs only" in remarks_of(spec, nvidia, plain)[0]
    has = b.resources(gpus=1)
    other = b.offer(has=has.with_(gpus=tuple(gpu.with_(vendor="tenstorrent") for gpu in has.gpus)))
    assert remarks_of(spec, other) == [
        "`utilization_policy` has nothing to judge tenstorrent GPUs by: nobody reports how busy they are."
    ]
    assert remarks_of(b.run_spec(), plain) == []


POD = b.offer("pod", backend="runpod", instance_runtime=CONTAINER)
FACTS = {"runpod": BackendFacts(name="runpod", tags=False), "aws": BackendFacts(name="aws")}


@pytest.mark.parametrize(
    ("config", "offer", "remarked"),
    [
        ({"idle_duration": "1h"}, POD, "`idle_duration` has no effect on containers"),
        ({"idle_duration": "1h"}, b.offer(), ""),
        ({}, POD, ""),
        ({"tags": {"team": "a"}}, POD, "`tags` aren't set in runpod"),
        ({"tags": {"team": "a"}}, b.offer(), ""),
    ],
)
def test_what_has_no_effect_where_the_job_may_run(config: dict[str, Any], offer: Any, remarked: str) -> None:
    spec = effective(b.run_spec(config))
    found = list(remarks(spec.configuration, [(b.job_spec(spec), [offer])], facts=FACTS))
    assert [remarked in text for text in found] == ([True] if remarked else [])


def test_a_plan_says_when_a_reservation_begins() -> None:
    offer = b.offer()
    coming = offer.with_(terms=offer.terms.with_(reservation="soon", starts_at=1_795_003_200 * SECOND))
    said = "The reservation soon begins at 2026-11-18 12:00 UTC, and has no machines until then."
    assert remarks_of(b.run_spec(), offer, coming, coming) == [said]
    assert remarks_of(b.run_spec(), offer) == []
