"""Jobs that share their host's network never listen on the same port there at the same time."""

from __future__ import annotations

import pytest

from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import Job
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.queue import decide_queue
from tests.world import nouns as b
from tests.world.nouns import lint

LAB = b.fleet("lab")
SMALL = {"cpu": "1..", "memory": "1GB..", "disk": "1MB.."}


def queued_with(name: str, *ports: int) -> QueuedJob:
    return b.queued(name, b.run_spec(resources=SMALL, ports=list(ports)))


def plain(num: int = 0, *claims: tuple[int, ...], runtimes: tuple[str, ...] = ("process",)) -> Instance:
    """A host of four blocks with a job for each tuple of ports."""
    host = b.host(num, LAB, has=b.resources(cpus=8, gb=32), total_blocks=4, runtimes=runtimes, isolation="user")
    for block, ports in enumerate(claims):
        host = b.holding(host, b.job(b.run(f"other-{num}-{block}")), block)
        last = host.claims[-1].with_(ports=ports)
        host = host.with_(claims=(*host.claims[:-1], last))
    return host


def decided(*items: QueuedJob, hosts: tuple[Instance, ...]) -> Plan:
    snapshot = b.waiting(*items, fleets=(b.view(LAB, *hosts, blocks=4),))
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    return plan


def jobs(plan: Plan) -> dict[str, Job]:
    return {noun.run_name: noun for step in plan.steps for noun in step.saves if isinstance(noun, Job)}


def place(plan: Plan, name: str = "a") -> str:
    job = jobs(plan)[name]
    return job.assignment.instance_name if job.assignment else ""


def test_a_host_where_the_port_is_taken_isnt_chosen() -> None:
    hosts = (plain(0, (8000,)), plain(1))
    assert place(decided(queued_with("a", 9000, 8000), hosts=hosts)) == "lab-1"
    assert place(decided(queued_with("a", 8000), hosts=(plain(0), plain(1, (8000,))))) == "lab-0"
    assert place(decided(queued_with("a", 9000), hosts=hosts)) == "lab-0", "the tightest place, as ever"
    assert place(decided(queued_with("a"), hosts=hosts)) == "lab-0"


def test_a_job_waits_for_its_port_and_says_so() -> None:
    plan = decided(queued_with("a", 8000), hosts=(plain(0, (8000,)),))
    waiting = jobs(plan)["a"]
    assert waiting.assignment is None
    assert "for port 8000 on lab-0 in fleet `lab`, where another job listens on it" in waiting.message


def test_a_host_that_is_full_is_waited_for_as_such() -> None:
    plan = decided(queued_with("a", 8000), hosts=(plain(0, (8000,), (), (), ()),))
    assert "for free capacity in fleet `lab`" in jobs(plan)["a"].message


def test_two_that_are_placed_in_one_pass_dont_meet_either() -> None:
    plan = decided(queued_with("a", 8000), queued_with("z", 8000), queued_with("y", 8001), hosts=(plain(0), plain(1)))
    assert place(plan, "a") != place(plan, "z") and place(plan, "y")
    last = {noun.id: noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)}
    claimed = sorted(claim.ports for host in last.values() for claim in host.claims)
    assert claimed == [(8000,), (8000,), (8001,)], "so that the next pass knows them"


def test_a_gang_that_finds_no_port_for_its_last_job_frees_those_of_the_others() -> None:
    first = queued_with("gang", 8000)
    second = QueuedJob(b.job(first.run, node=1), first.run, first.spec, first.run_spec)
    plan = decided(first, second, queued_with("z", 8000), hosts=(plain(0),))
    assert place(plan, "z") == "lab-0"


@pytest.mark.parametrize("runtimes", [("docker", "process"), ()], ids=["docker", "not known yet"])
def test_containers_have_their_ports_to_themselves(runtimes: tuple[str, ...]) -> None:
    plan = decided(queued_with("a", 8000), queued_with("z", 8000), hosts=(plain(0, (8000,), runtimes=runtimes),))
    assert place(plan, "a") == place(plan, "z") == "lab-0"


def test_a_port_that_a_job_of_this_pass_listens_on_is_taken_at_its_host_alone() -> None:
    hosts = (plain(0, (), (), ()), plain(1))  # the first has one block left
    large = b.queued("large", b.run_spec(resources={**SMALL, "cpu": "4.."}, ports=[8000]))
    plan = decided(large, queued_with("small", 8000), hosts=hosts)
    assert (place(plan, "large"), place(plan, "small")) == ("lab-1", "lab-0")
