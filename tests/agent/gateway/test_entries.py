"""What the control plane says of services → what nginx is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.agent.gateway import entries
from chalicelib.agent.gateway.relays import ReplicaAddress, place
from chalicelib.domain.serving import Served, ServedModel, ServedReplica
from chalicelib.domain.specs.services import HeaderPartitioningKey, RateLimit

KEYS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["1", "2"]))


def served_json(name: str = "app", **fields: Any) -> dict[str, Any]:
    made = Served(run_id=f"id-of-{name}", run_name=name, project_id="p", project_name="main", port=80, **fields)
    return {**made.model_dump(mode="json"), "hosts": [f"{name}.Example.test"]}


def entry(configuration: dict[str, Any], key: str) -> Any:
    return json.loads(entries.entries(configuration, "/relays")[key])


@given(KEYS, KEYS)
def test_a_difference_leads_from_what_is_there_to_what_is_wanted(had: dict[str, str], wanted: dict[str, str]) -> None:
    changed = entries.difference(had, had, wanted)
    result = {key: text for key, text in {**had, **changed}.items() if text is not None}
    assert result == wanted
    assert not [key for key, text in changed.items() if had.get(key) == text]


def test_what_is_there_unknown_is_told_anew_or_removed() -> None:
    assert entries.difference(["a", "b"], {}, {"a": "1"}) == {"a": "1", "b": None}


def test_models_that_come_in_another_order_are_no_difference() -> None:
    both = [served_json(name, model=ServedModel(name=name)) for name in ("one", "two")]
    first, second = ({"services": services, "model_hosts": {"all.test": "p"}} for services in (both, both[::-1]))
    assert entries.entries(first, "") == entries.entries(second, "")


def test_only_ready_replicas_that_dont_drain_are_told() -> None:
    states = {"ready": {"ready": True}, "young": {}, "old": {"ready": True, "draining": True}}
    replicas = tuple(
        ServedReplica(job_id=job, instance_id="i", port=1, address="10.0.0.1", **state) for job, state in states.items()
    )
    configuration = {"services": [served_json(replicas=replicas)]}
    assert entry(configuration, "host|app.example.test")["replicas"] == [
        {"job": "ready", "host": "i", "address": "10.0.0.1", "port": 1}
    ]
    assert entries.draining(configuration) == {"id-of-app": ["old"]}


def test_a_replica_without_an_address_is_behind_a_socket() -> None:
    configuration = {
        "services": [served_json(replicas=(ServedReplica(job_id="j", instance_id="i", port=1, ready=True),))]
    }
    (replica,) = entry(configuration, "host|app.example.test")["replicas"]
    assert replica["address"] == "unix:" + place("/relays", "j")
    assert entries.relayed(configuration) == {"j": ReplicaAddress("j", "i", 1, "id-of-app")}


@pytest.mark.parametrize(
    ("fields", "stands_by"),
    [({"ready": True, "address": "10.0.0.1"}, True), ({"ready": True}, False), ({"address": "10.0.0.1"}, False)],
)
def test_a_replica_that_needs_no_stream_stands_by_for_the_others(fields: dict[str, Any], stands_by: bool) -> None:
    streamed = ServedReplica(job_id="a", instance_id="i", port=1, ready=True)
    configuration = {
        "services": [served_json(replicas=(streamed, ServedReplica(job_id="b", instance_id="k", port=1, **fields)))]
    }
    assert entries.direct(configuration) == ({"id-of-app"} if stands_by else set())


def test_limits_keep_their_key() -> None:
    limits = (RateLimit(rps=2, burst=3), RateLimit(prefix="/v1", rps=1, key=HeaderPartitioningKey(header="X-Key")))
    assert entry({"services": [served_json(rate_limits=limits)]}, "host|app.example.test")["limits"] == [
        {"prefix": "/", "rps": 2.0, "burst": 3},
        {"prefix": "/v1", "rps": 1.0, "burst": 0, "header": "X-Key"},
    ]


def test_the_models_of_a_project_have_one_host() -> None:
    llama, other = ServedModel(name="llama", prefix="/api/"), served_json("theirs", model=ServedModel(name="x"))
    services = [
        served_json("one", model=llama, since=9_000_000),
        served_json("two", model=llama, since=7_000_000),
        served_json("three"),
    ]
    configuration = {
        "services": [*services, {**other, "project_id": "q"}],
        "model_hosts": {"gateway.example.test": "p"},
        "certificates": {"One.example.test": {"certificate": "c", "key": "k"}},
        "challenges": {"token": "answer"},
    }
    door = entry(configuration, "host|gateway.example.test")
    hosts = ["one.example.test", "two.example.test"]
    assert (door["project"], door["owner"], door["models"]) == ("p", "main", {"llama": {"created": 7, "hosts": hosts}})
    assert entry(configuration, "host|one.example.test")["model"] == "/api"
    assert entry(configuration, "certificate|one.example.test") == {"certificate": "c", "key": "k"}
    assert entry(configuration, "challenge|token") == {"answer": "answer"}
