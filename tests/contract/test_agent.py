"""What the type checker can't see of the agents' contract: the plane's models of what comes up have its keys, and each
key is written by one side and read by the other."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel
from typing_extensions import is_typeddict

from chalicelib import agent, domain, engine, planning, runtime, usecases
from chalicelib.api.routes import agent_gateway
from chalicelib.contract import agent as contract
from chalicelib.contract import agent_gateway as gateway
from chalicelib.domain import instances, jobs, offers, reports, serving, volumes
from chalicelib.domain.specs import services
from chalicelib.usecases import agent_message
from tests.harness.whole import required

UP: list[tuple[type[BaseModel], Any]] = [
    (agent_message.AgentMessage, contract.SyncMessage),
    (agent_message.TroubleReport, contract.Trouble),
    (agent_message.LogBytes, contract.LogBytes),
    (agent_message.ChunkReport, contract.Chunk),
    (agent_message.MetricPoint, contract.MetricPoint),
    (agent_message.GpuLoad, contract.GpuLoad),
    (reports.TaskReport, contract.TaskReport),
    (reports.GatewayReport, contract.GatewayReport),
    (instances.HostFacts, contract.HostFacts),
    (instances.HostGpu, contract.HostGpu),
    (jobs.Login, contract.TaskLogin),
    (jobs.PullProgress, contract.PullProgress),
    (agent_gateway._Reports, gateway.TrafficReports),
    (agent_gateway._Report, gateway.TrafficReport),
    (agent_gateway._BucketBody, gateway.TrafficBucket),
    (agent_gateway._AnswersBody, gateway.AnswersStep),
    (agent_gateway._DurationsBody, gateway.Durations),
    (agent_gateway._Caller, gateway.RightsQuestion),
    (agent_gateway._Streams, gateway.GatewayStreams),
    (agent_gateway._Stream, gateway.GatewayStream),
]
DOWN: list[tuple[type[BaseModel], Any]] = [
    (serving.CallerVerdict, gateway.RightsAnswer),
    (serving.ServedReplica, gateway.ServedReplica),
    (serving.ServedModel, gateway.ServedModel),
    (services.RateLimit, gateway.RateLimit),
]
UNREAD_BY_THE_PLANE = {
    "HostGpu": {"id", "bus"},  # the agent's own, by which it chooses cards
    "TrafficReport": {"waits_since"},  # for planes of earlier releases
}
UNREAD_BY_AGENTS = {
    "GatewayService": {"run_name", "strip_prefix"},  # for the server's own door, which serves the same values
    "NewConfiguration": {"news"},  # for the plane's long polls
    "SameConfiguration": {"news"},
    "SyncReply": {"news"},
}
NEVER_SENT: dict[str, set[str]] = {}
FROM_MODELS = [  # which the plane stores, and sends without their defaults
    (volumes.Device, contract.DiskDevice),
    (offers.Sidecar, contract.TaskSidecar),
]


def keys(kind: Any) -> set[str]:
    return set(get_type_hints(kind))


@pytest.mark.parametrize(("model", "kind"), UP, ids=lambda each: each.__name__)
def test_the_plane_validates_what_agents_send(model: type[BaseModel], kind: Any) -> None:
    assert keys(kind) - set(model.model_fields) == UNREAD_BY_THE_PLANE.get(kind.__name__, set())
    assert set(model.model_fields) <= keys(kind), "the plane reads what no agent sends"
    needed = {name for name, field in model.model_fields.items() if field.is_required()}
    assert needed <= required(kind), "the plane needs what an agent may leave out"


@pytest.mark.parametrize(("model", "kind"), DOWN, ids=lambda each: each.__name__)
def test_values_of_the_plane_are_sent_whole(model: type[BaseModel], kind: Any) -> None:
    assert set(model.model_fields) == keys(kind)


@pytest.mark.parametrize(("model", "kind"), FROM_MODELS, ids=lambda each: each.__name__)
def test_stored_values_are_sent_as_they_are(model: type[BaseModel], kind: Any) -> None:
    assert set(model.model_fields) == keys(kind)


def test_a_service_is_sent_whole() -> None:
    assert keys(gateway.GatewayService) == {*serving.Served.model_fields, "hosts", "hold"}


def test_both_sides_know_the_same_states() -> None:
    assert get_args(reports.TaskState) == get_args(contract.TaskState)
    for model, kind, key in (
        (reports.GatewayReport, contract.GatewayReport, "state"),
        (agent_message.TroubleReport, contract.Trouble, "status"),
    ):
        assert get_args(get_type_hints(model)[key]) == get_args(get_type_hints(kind)[key])


# --- each key is written on one side and read on the other ------------------------------------------------------------


def texts(folder: Path) -> Iterator[str]:
    """The texts in a package's code, without docstrings."""
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text())
        prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
                yield node.value
            if isinstance(node, ast.keyword) and node.arg:  # dict(report, host_port=…)
                yield node.arg


@cache
def used_by_agents() -> frozenset[str]:
    return frozenset(texts(Path(agent.__path__[0])))


@cache
def used_by_the_plane() -> frozenset[str]:
    packages = (domain, engine, planning, runtime, usecases)
    found = {text for package in packages for text in texts(Path(package.__path__[0]))}
    return frozenset(
        found.union(*(model.model_fields for model, _ in [*DOWN, *FROM_MODELS]), serving.Served.model_fields)
    )


def unused(kinds: Iterable[Any], used: frozenset[str]) -> dict[str, set[str]]:
    found = {kind.__name__: keys(kind) - used for kind in kinds}
    return {name: left for name, left in found.items() if left}


def within(kind: Any) -> set[Any]:
    """The types of documents that a type is made of, itself included."""
    found, waiting, seen = set(), [kind], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, str) or one in seen:
            continue
        seen.add(one)
        waiting += get_args(one)
        if is_typeddict(one):
            found.add(one)
            waiting += get_type_hints(one).values()
    return found


SENT_UP = set().union(
    *map(within, (contract.SyncMessage, gateway.TrafficReports, gateway.RightsQuestion, gateway.GatewayStreams))
)
SENT_DOWN = set().union(
    *map(within, (contract.SyncReply, gateway.NewConfiguration, gateway.SameConfiguration, gateway.RightsAnswer))
)


@pytest.mark.slow
def test_agents_write_each_key_that_goes_up() -> None:
    assert unused(SENT_UP, used_by_agents()) == {}


@pytest.mark.slow
def test_agents_read_each_key_that_comes_down() -> None:
    assert unused(SENT_DOWN, used_by_agents()) == UNREAD_BY_AGENTS


@pytest.mark.slow
def test_the_plane_writes_each_key_that_goes_down() -> None:
    assert unused(SENT_DOWN, used_by_the_plane()) == NEVER_SENT


def test_every_type_is_sent() -> None:
    declared = {kind for module in (contract, gateway) for kind in vars(module).values() if is_typeddict(kind)}
    parts = {contract.PlannedTask, contract.TaskCommands, contract.TaskOptions}  # of Task
    parts |= {contract.ReplicaReport, gateway.GatewayConfiguration}  # of TaskReport, of NewConfiguration
    assert declared - SENT_UP - SENT_DOWN - parts == {contract.Left}
