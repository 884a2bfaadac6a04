"""What isn't built is refused by name, with what to write instead, and so are values that nothing could do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from chalicelib.configuration.reading import read
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.specs.fleets import NEEDS_NODES, FleetSpec
from chalicelib.domain.specs.gateways import GatewaySpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.errors import Problem
from chalicelib.planning.gateways import field_support as gateway_support
from chalicelib.planning.gateways.field_support import GATEWAY_NOT_BUILT
from chalicelib.planning.jobs.jobs import effective
from chalicelib.planning.runs import field_support
from chalicelib.planning.runs.field_support import FLEET_NOT_BUILT, RUN_NOT_BUILT
from tests.world.nouns import fleet_spec, run_spec


def with_hints(refuse: Callable[..., Iterable[Problem]]) -> Callable[..., list[Problem]]:
    """Whatever is refused, the refusal says what to write instead."""

    def refused(*given: Any) -> list[Problem]:
        found = list(refuse(*given))
        assert [each for each in found if not each.hint] == []
        return found

    return refused


refusals, fleet_refusals = with_hints(field_support.refusals), with_hints(field_support.fleet_refusals)
privileged, reservation_refusals = with_hints(field_support.privileged), with_hints(field_support.reservation_refusals)
option_refusals = with_hints(field_support.option_refusals)
gateway_refusals = with_hints(gateway_support.gateway_refusals)


# One value, not the default, for every refused field.
VALUES: dict[str, Any] = {
    "setup": ["a"],
    "working_dir": "/x",
    "model.format": {"name": "m", "format": "tgi"},
    "model.chat_template": {"name": "m", "format": "tgi", "chat_template": "{{ messages }}"},
    "model.eos_token": {"name": "m", "format": "tgi", "eos_token": "</s>"},
    "resources.shm_size": "1GB",
    "placement": "cluster",
    "retry": {"on_events": ["no-capacity"], "duration": "1h"},
    "ssh_config": {"user": "u", "identity_file": "k", "hosts": ["10.0.0.1"]},
}
SERVICES = ("model",)  # fields that only a service has
GROUP = {"commands": ["a"]}
REMOTE = {
    "repo_type": "remote",
    "repo_name": "r",
    "repo_branch": "main",
    "repo_hash": "abc",
    "repo_diff": "d",
    "repo_config_name": "n",
    "repo_config_email": "e",
}


def raw_with(path: str) -> dict[str, Any]:
    """A spec in which only `path` is set."""
    raw: dict[str, Any] = {"configuration": {"type": "task", "commands": ["a"]}, "profile": {}}
    if path.startswith("fleet."):
        raw["configuration"] = {"type": "fleet", "nodes": "0..2"}
        path = path.removeprefix("fleet.")
    if path.startswith("repo_data."):
        raw["repo_data"] = REMOTE
        return raw
    field = path.removeprefix("configuration.")
    if field.partition(".")[0] in SERVICES:
        raw["configuration"] = {"type": "service", "port": 80}
        parent = field.partition(".")[0]
        raw["configuration"].update(commands=["a"], **{parent: VALUES[field]})
        return raw
    head, _, name = path.partition(".") if path.split(".")[0] in ("configuration", "profile") else ("", "", path)
    place = raw[head] if head else raw
    *parents, last = name.removesuffix(".project").removesuffix(".fleet").split(".")
    for step in parents:
        place = place.setdefault(step, {})
    place[last] = VALUES[name]
    return raw


@pytest.mark.parametrize("path", [*RUN_NOT_BUILT, *(f"fleet.{path}" for path in FLEET_NOT_BUILT)])
def test_a_refused_field_is_named(path: str) -> None:
    raw = raw_with(path)
    problems = (
        fleet_refusals(FleetSpec.model_validate(raw))
        if path.startswith("fleet.")
        else refusals(RunSpec.model_validate(raw))
    )
    named = {problem.path: problem for problem in problems}
    found = named[path.removeprefix("fleet.")]
    assert path.rpartition(".")[2] in found.message
    assert found.hint


OF_GATEWAYS: dict[str, Any] = {
    "public_ip": {"public_ip": False, "certificate": None},
    "load_balancer": {"load_balancer": {"type": "alb"}},
}


@pytest.mark.parametrize("path", GATEWAY_NOT_BUILT)
def test_a_refused_field_of_a_gateway_is_named(path: str) -> None:
    body = {"backend": "aws", "region": "r", **OF_GATEWAYS[path.removeprefix("configuration.")]}
    (found,) = gateway_refusals(GatewaySpec.model_validate({"configuration": body}))
    assert found.path == path and path.rpartition(".")[2] in found.message and found.hint


@pytest.mark.parametrize(
    ("backend", "certificate", "field", "owner"),
    [
        ("aws", {"type": "acm", "arn": "a"}, "arn", "AWS"),
        ("gcp", {"type": "gcp-cm", "name": "n"}, "name", "Google Cloud"),
    ],
)
def test_a_certificate_that_its_provider_keeps_is_refused(
    backend: str, certificate: dict[str, str], field: str, owner: str
) -> None:
    body = {"backend": backend, "region": "r", "certificate": certificate}
    (found,) = gateway_refusals(read(GatewaySpec, {"configuration": body}))
    assert found.path == f"configuration.certificate.{field}" and f"certificates of {owner} are" in found.message


def test_a_plain_task_and_a_plain_fleet_pass() -> None:
    assert refusals(run_spec()) == []
    assert fleet_refusals(fleet_spec(nodes="0..2")) == []


def test_what_means_nothing_is_no_offence() -> None:
    spec = run_spec({"startup_order": "any"}, nodes=1, stop_criteria="all-done", docker=False, privileged=False)
    assert refusals(spec) == []


def test_a_port_that_is_reserved_is_refused_where_it_is_written() -> None:
    (found,) = refusals(run_spec(ports=[8000, 10_022]))
    assert found.path == "configuration.ports.1" and "10022" in found.message
    (found,) = refusals(run_spec(commands=[], groups=[GROUP, {**GROUP, "ports": [10_022]}]))
    assert found.path == "configuration.groups.1.ports.0"
    (found,) = refusals(RunSpec.model_validate({"configuration": {"type": "dev-environment", "ports": [10_999]}}))
    assert found.path == "configuration.ports.0"


def test_an_address_of_a_node_that_doesnt_exist_is_refused_where_it_is_written() -> None:
    known, unknown = "ping ${{ groups[0].nodes[1].IP_ADDRESS }}", "ping ${{ groups[0].nodes[2].IP_ADDRESS }}"
    assert refusals(run_spec(nodes=2, commands=[known])) == []
    (found,) = refusals(run_spec(nodes=2, commands=[known, unknown]))
    assert found.path == "configuration.commands.1" and "groups[0].nodes[2]" in found.message
    assert "groups[0].nodes[0..1]" in found.hint
    groups = [{"commands": ["a"], "nodes": 2}, {"commands": ["b", "ping ${{ groups[2].nodes[0].IP_ADDRESS }}"]}]
    (found,) = refusals(run_spec(commands=[], groups=groups))
    assert found.path == "configuration.groups.1.commands.1" and "groups[1].nodes[0..0]" in found.hint
    (found,) = refusals(run_spec(commands=["ping ${{ groups[0].nodes[1].IP_ADDRESS }}"]))
    assert found.path == "configuration.commands.0"


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("nodes", {"nodes": 501}),
        ("groups", {"commands": [], "groups": [GROUP, {**GROUP, "nodes": 500}]}),
    ],
)
def test_there_are_bounds_to_the_nodes_of_a_task(field: str, written: dict[str, Any]) -> None:
    (found,) = refusals(run_spec(**written))
    assert (found.path, found.code) == (f"configuration.{field}", "too-large")
    assert refusals(run_spec(nodes=500)) == []


def test_several_nodes_have_no_engines_of_their_own() -> None:
    (found,) = refusals(run_spec(nodes=2, docker=True))
    assert found.path == "configuration.docker" and "one node" in found.hint
    assert refusals(run_spec(nodes=1, docker=True)) == []


def service(**config: Any) -> RunSpec:
    config = {"type": "service", "port": 80, **({} if "groups" in config else {"commands": ["a"]}), **config}
    return RunSpec.model_validate({"configuration": config})


def test_a_plain_service_passes_and_so_does_what_asks_for_what_happens_anyway() -> None:
    assert refusals(service(replicas=2, model="m", probes=[], strip_prefix=False, auth=False)) == []
    assert refusals(service(gateway=False, https="auto", rate_limits=[{"rps": 1}])) == []


def test_a_service_has_an_end_to_its_replicas() -> None:
    (found,) = refusals(service(replicas=501))
    assert (found.path, found.code) == ("configuration.replicas", "too-large")
    groups = [{**GROUP, "replicas": 500}, {**GROUP, "replicas": 1}]
    assert [each.path for each in refusals(service(groups=groups))] == ["configuration.groups"]
    assert refusals(service(replicas=500)) == []


def test_what_a_service_cannot_mean_is_refused_where_it_is_written() -> None:
    (found,) = refusals(service(probes=[{"type": "http"}, {"type": "http", "timeout": "6m"}]))
    assert found.path == "configuration.probes.1.timeout" and "5m" in found.hint
    (found,) = refusals(service(port=10_022))
    assert found.path == "configuration.port"
    fields = {"commands": ["serve ${{ groups[0].replicas[1].IP_ADDRESS }}"], "replicas": 1}
    (found,) = refusals(service(groups=[fields]))
    assert found.path == "configuration.groups.0.commands.0" and "replicas[1].IP_ADDRESS" in found.message
    assert "groups[0].replicas[0..0]" in found.hint
    assert refusals(service(groups=[{**fields, "replicas": 2}])) == []
    scaling = {"metric": "rps", "target": 1}
    (found,) = refusals(service(groups=[{**fields, "replicas": "0..2", "scaling": scaling}]))
    assert "replicas" in found.hint and "begin at 1" in found.hint


def test_scaling_beside_the_one_replica_that_is_the_default_is_accepted() -> None:
    spec = service(scaling={"metric": "rps", "target": 1})
    assert refusals(spec) == refusals(effective(spec)) == [], "the plan says that it doesn't scale"


def test_a_service_that_sleeps_until_its_first_request_has_no_schedule() -> None:
    scaling = {"metric": "rps", "target": 1}
    daily = {"cron": "0 8 * * *"}
    found = {each.path: each.code for each in refusals(service(replicas="0..1", scaling=scaling, schedule=daily))}
    assert found["configuration.schedule"] == "exclusive"
    assert refusals(service(schedule=daily)) == []
    sleeps = {**GROUP, "replicas": "0..1", "scaling": scaling}
    assert refusals(service(groups=[{**GROUP, "replicas": 1}, sleeps], schedule=daily)) == [], "one group is there"


def test_a_group_may_take_over_a_host_no_more_than_a_service() -> None:
    (found,) = privileged(service(groups=[{**GROUP, "replicas": 1}, {"replicas": 1, "docker": True, **GROUP}]))
    assert found.path == "configuration.groups.1.docker"


@pytest.mark.parametrize(
    ("groups", "path"),
    [
        ([{"replicas": 1, "commands": ["r"], "router": {"type": "smg"}}, {**GROUP, "replicas": 1, "docker": True}], 1),
        ([{"replicas": 1, "commands": ["x ${{ groups[0].replicas[0].IP_ADDRESS }}"], "docker": True}], 0),
    ],
)
def test_replicas_in_their_hosts_network_have_no_engines_of_their_own(groups: list[Any], path: int) -> None:
    (found,) = refusals(service(groups=groups))
    assert (found.path, found.code) == (f"configuration.groups.{path}.docker", "invalid-value")
    assert refusals(service(groups=[{"replicas": 1, "commands": ["x"], "docker": True}])) == []


def test_the_reservation_of_a_group_needs_a_backend_for_it_too() -> None:
    spec = service(groups=[{**GROUP, "replicas": 1}, {**GROUP, "replicas": 1, "reservation": "cr-1"}])
    (found,) = reservation_refusals(spec, [BackendFacts(name="aws")])
    assert found.path == "configuration.groups.1.reservation"
    assert reservation_refusals(spec, [BackendFacts(name="aws", reservations=True)]) == []


def test_options_are_for_a_backend_that_has_some_and_named_once_where_they_were_written() -> None:
    options = {"backend_options": [{"type": "vastai", "offer_order": "price"}, {"type": "aws", "fast": True}]}
    spec = effective(run_spec(options))
    able = [BackendFacts(name="vastai", options=True), BackendFacts(name="aws")]
    assert [each.path for each in option_refusals(spec, able)] == ["profile.backend_options.1"]
    fleet = fleet_spec(nodes="0..2", **options)
    assert [each.path for each in option_refusals(fleet, ())] == [
        f"configuration.backend_options.{at}" for at in (0, 1)
    ]
    assert option_refusals(run_spec(), ()) == []


def test_options_for_a_backend_that_isnt_to_be_used_have_no_effect() -> None:
    options = {"backend_options": [{"type": "vastai", "offer_order": "price"}]}
    able = [BackendFacts(name="vastai", options=True), BackendFacts(name="aws")]

    def paths(profile: dict[str, Any] | None, **config: Any) -> list[str]:
        return [each.path for each in option_refusals(effective(run_spec(profile, **config)), able)]

    assert paths(None, backends=["aws"], **options) == ["configuration.backend_options.0"]
    assert paths({"backends": ["aws"]}, **options) == ["configuration.backend_options.0"]
    assert paths({"backends": ["aws"], **options}) == ["profile.backend_options.0"]
    assert paths(options, backends=["aws"]) == [], "they may be for other runs with this profile"
    assert paths({"backends": ["aws"], **options}, backends=["vastai"]) == []
    assert paths(None, backends=["aws", "vastai"], **options) == []
    (found,) = option_refusals(fleet_spec(nodes="0..2", backends=["aws"], **options), able)
    assert (found.path, found.code) == ("configuration.backend_options.0", "invalid-value")
    assert "add `vastai`" in found.hint


def test_a_variable_without_a_value_is_named() -> None:
    (found,) = refusals(run_spec(env=["TOKEN"]))
    assert found.path == "configuration.env.TOKEN"
    assert re.search("export TOKEN", found.hint)


def test_a_fleet_without_nodes_is_told_what_to_write() -> None:
    (found,) = fleet_refusals(fleet_spec())
    assert (found.path, found.code) == ("configuration", NEEDS_NODES[0])
    assert "nodes: 0..2" in found.hint


def test_folders_of_hosts_are_for_admins_alone_and_named_by_their_place() -> None:
    (found,) = privileged(run_spec(volumes=["data:/a", "/nfs:/b"]))
    assert (found.path, found.code) == ("configuration.volumes.1", "not-permitted")
