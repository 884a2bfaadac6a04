"""What becomes of each field where containers are sold in place of machines: a job there has it as on a machine, or it
is refused by name, or these tables say what differs.

Nothing is listed that can be found out: the cases of `test_effects` are repeated for a job in a container. So a new
field is right in a container, too, or has to find its place here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.instances import Instance
from chalicelib.domain.offers import CONTAINER, OfferTerms
from chalicelib.planning.jobs.jobs import agent_task
from chalicelib.planning.matching.containers import FIELDS, GRANTABLE, refusal
from chalicelib.planning.matching.requirements import requirements_of
from chalicelib.planning.placing.queue import decide_queue
from docs import containers_table
from tests.harness.rows import each
from tests.planning.field_proofs import FLEET_PROOFS, RUN_PROOFS
from tests.planning.test_effects import FLEET_PARAMS, RESOURCES, RUN_CASES, Seen, _short_form, seen
from tests.world import nouns as b

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "chalicelib" / "agent"

POD = b.offer("pod", 0.5, backend="runpod", instance_runtime=CONTAINER, terms=OfferTerms(grants=tuple(GRANTABLE)))

# What the offer of a container has to grant, or none can, by the names in `planning/matching/containers.py`. A folder
# of the host needs a `host` that one owns.
NEEDS = {
    "configuration.user": {"user"},
    "configuration.privileged": {"privileged"},
    "configuration.docker": {"docker"},
    "configuration.nodes": {"multinode"},
    "configuration.groups.nodes": {"multinode"},
    "configuration.groups.resources": {"multinode"},  # the cases of these have several groups
    "configuration.groups.ports": {"multinode"},
    "configuration.groups.privileged": {"privileged"},
    "configuration.groups.docker": {"docker"},
    "configuration.resources.shm_size": {"shm_size"},
    "configuration.volumes.name": {"volumes"},
    "configuration.volumes.instance_path": {"host"},
    "configuration.volumes.path": {"host"},
}
# What a job in a container has in place of what it has on a machine.
DIFFERS: dict[str, Any] = {
    "configuration.privileged": (True, "inside"),  # its provider has started it so: see ON_REQUEST
    "configuration.idle_duration": 0,  # it ends with its job, and the plan says so
    "profile.idle_duration": 0,
}
REFUSED = {"docker", "host"}  # whatever an offer grants
# What only the provider can do, when the container is created: the fields of `spi.Container`.
ON_REQUEST = {"configuration.registry_auth"}
# Fields without a case in `test_effects`, whose proofs hold wherever a job runs …
OF_THE_CONTROL_PLANE = (
    *("scaling.", "groups.scaling.", "schedule.", "utilization_policy", "inactivity_duration", "dstack"),
    *("gateway", "https", "auth", "strip_prefix", "rate_limits"),
)
# … or only where jobs reach each other: `multinode` and `network` in `planning/matching/containers.py`.
OF_SEVERAL = ("startup_order", "stop_criteria", "groups.router.type")


@dataclass(frozen=True)
class Contained(Seen):
    """What a run looks like whose job is in a container."""

    @property
    def needs_of_place(self) -> set[str]:
        found = [requirements_of(self.spec, job).query for job in self.nodes]
        return {need for query in found for need in query.container} | {"host" for query in found if query.host}

    @property
    def task(self) -> dict[str, Any]:
        return agent_task(b.job(b.run()), self.job, b.machine(offer=POD), "main")

    @property
    def cloning(self) -> Contained:
        return Contained(super().cloning.spec)

    @property
    def bought(self) -> Instance:
        return bought(self, nodes="0..2")


def bought(run: Seen, **fleet: Any) -> Instance:
    """The container that is bought for a run in a fleet."""
    view = b.view(b.fleet("cloud"), **fleet)
    plan = decide_queue(b.waiting(b.queued("train", run.spec), fleets=(view,), offers=(POD,)))
    return next(noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance))


@each("path", RUN_CASES)
@pytest.mark.slow
def test_a_field_of_a_run_has_its_effect_in_a_container_or_is_refused(path: str) -> None:
    value, getter, want = RUN_CASES[path]
    run, needs = Contained(seen(_short_form(path), value).spec), NEEDS.get(path, set())
    assert run.needs_of_place == needs
    if not needs & REFUSED and path not in ON_REQUEST:
        assert getter(run) == DIFFERS.get(path, want)


@pytest.mark.parametrize("path", [path for path, needs in NEEDS.items() if "host" not in needs])
def test_a_refusal_says_what_to_change(path: str) -> None:
    why, field = refusal(NEEDS[path]), path.removesuffix(".name").rpartition(".")[2]
    assert f"{field}`" in why.hint or (NEEDS[path] == {"multinode"} and "one node" in why.hint), why


def test_no_other_field_matters_to_containers() -> None:
    others = {path.partition(".")[2] for path in RUN_PROOFS.keys() - RUN_CASES.keys()}
    known = (*OF_THE_CONTROL_PLANE, *OF_SEVERAL)
    assert sorted(path for path in others if not path.startswith(known)) == []


# --- fleets -----------------------------------------------------------------------------------------------------------

MATCHING, OWN = "tests/planning/matching/test_containers.py", "tests/planning/test_container_fields.py"
OF_FLEETS = {  # what matters to the machines of a fleet, and the test of what it is to its containers
    "blocks": f"{MATCHING}::test_what_a_container_cant_have_is_refused_with_a_reason",
    "nodes.min": f"{MATCHING}::test_a_fleet_buys_none_before_a_job_needs_it",
    "nodes.target": f"{MATCHING}::test_a_fleet_buys_none_before_a_job_needs_it",
    "nodes.max": f"{MATCHING}::test_a_full_fleet_of_containers_has_room_again",
    "placement": f"{MATCHING}::test_a_cluster_buys_no_containers_that_dont_reach_each_other",
    "env": f"{OWN}::test_a_container_has_the_tags_and_variables_of_its_fleet",
    "tags": f"{OWN}::test_a_container_has_the_tags_and_variables_of_its_fleet",
    "idle_duration": f"{OWN}::test_a_container_has_the_tags_and_variables_of_its_fleet",
}
OF_OFFERS = {*FLEET_PARAMS} - {"idle_duration", "tags"} | {f"resources.{name}" for name in RESOURCES}
OF_RUNS = {path for path in FLEET_PROOFS if "a_fleet_leaves_to_runs_what_is_theirs" in FLEET_PROOFS[path]}


def test_a_container_has_the_tags_and_variables_of_its_fleet() -> None:
    run = Contained(b.run_spec(tags={"run": "b"}))
    found = bought(run, nodes="0..2", tags={"team": "a"}, env={"A": "1"}, idle_duration="1h")
    assert (found.tags, found.env, found.idle_seconds) == ({"team": "a", "run": "b"}, {"A": "1"}, 0)


def test_every_field_of_a_fleet_is_decided_for_containers() -> None:
    left = set()
    for path in FLEET_PROOFS.keys() - OF_RUNS:
        part, _, name = path.removeprefix("fleet.").partition(".")
        named = part in ("configuration_path", "autocreated") or name in ("type", "name", "default")
        if not (named or name in OF_OFFERS or name in OF_FLEETS or name.startswith("ssh_config.")):
            left.add(path)
    assert left == set()
    for file, _, test in (proof.partition("::") for proof in OF_FLEETS.values()):
        assert f"def {test}(" in (ROOT / file).read_text()


def test_the_guide_has_the_table_of_what_each_backend_with_containers_gives() -> None:
    assert containers_table.PAGE.read_text(encoding="utf-8") == containers_table.page(), "make docs"
    known = {need for needs in NEEDS.values() for need in needs} | {
        "network",
        "nodes_login",
        "nodes_volumes",
        "blocks",
        "job",
    }
    assert known == FIELDS.keys() and FIELDS.keys() >= GRANTABLE


# --- what the agent in a container is sent ----------------------------------------------------------------------------

NOT_READ_INSIDE = {  # why the agent has no use for these there
    "image": "its provider has started the container from it",
    "privileged": "so has it for this",
    "registry_auth": "and with this login",
    "cpu": "only the container's own limits apply",
    "memory_bytes": "only the container's own limits apply",
    "isolated": "the agent is alone with its job",
    "gpu_devices": "all that the container has are the job's",
    "volumes": "its provider has mounted them: any are refused",
    "project": "a name for people",
}
ELSEWHERE = ("docker.py", "docker_client.py", "docker_repositories.py", "container_users.py", "visibility.py")


def test_the_agent_in_a_container_reads_all_that_it_is_sent() -> None:
    service = Contained(b.run_spec(type="service", port=80, commands=["serve"]))
    sent = {*service.task, *Contained(b.run_spec()).task}
    assert sent >= NOT_READ_INSIDE.keys()
    sources = [path.read_text() for path in AGENT.rglob("*.py") if path.name not in ELSEWHERE]
    unread = {key for key in sent - NOT_READ_INSIDE.keys() if not any(f'"{key}"' in text for text in sources)}
    assert unread == set()
