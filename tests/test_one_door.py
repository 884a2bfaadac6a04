"""A status moves in one place: `Draft`, whose moves follow the tables. All else goes through it, and the steps it
builds are checked and committed by one committer, for passes, outcomes of effects, users and agents alike. And one
reader knows where the parts of a run and of a fleet are stored."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from chalicelib.engine.effects.table import FAMILIES

ROOT = Path(__file__).parents[1]
DRAFT = "chalicelib/planning/kernel/transitions.py"


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("chalicelib", "functions", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not name.startswith("chalicelib/agent/"):  # another program, with states of its own
                yield name, path.read_text()


def sources(*expected: str) -> Iterator[tuple[str, ast.Module]]:
    """The files that have all of the words."""
    for name, text in texts():
        if all(part in text for part in expected):
            yield name, parsed(text)


parsed = cache(ast.parse)  # each test asks for some of the same files

CHANGING = ("with_", "dict", "replace", "model_copy", "evolve")
# Where a status is a word in an answer, or what the history says.
SHOWN = (
    "chalicelib/api/",
    "chalicelib/runtime/health.py",
    "chalicelib/runtime/migration/signpost.py",
    "chalicelib/runtime/request_log.py",
    "chalicelib/domain/moments.py",
    "chalicelib/engine/moments.py",
    "cli/",
)


def moves(tree: ast.Module) -> Iterator[int]:
    """Lines that change the status of what is there: `noun.with_(status=…)`, or a table of changes that has one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            named = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in CHANGING:
            named = {keyword.arg for keyword in node.keywords}
        else:
            continue
        if "status" in named:
            yield node.lineno


def follows(tree: ast.Module) -> bool:
    """Does it import the function that follows a table?"""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "chalicelib.machines.table"
        and any(alias.name == "apply" for alias in node.names)
        for node in ast.walk(tree)
    )


@pytest.mark.slow
def test_only_a_draft_moves_a_status() -> None:
    inner = ((name, tree) for name, tree in sources("status") if not name.startswith(SHOWN))
    found = {f"{name}:{line}" for name, tree in inner for line in moves(tree)}
    assert {place.partition(":")[0] for place in found} == {DRAFT}, found


@pytest.mark.slow
def test_only_a_draft_follows_a_table() -> None:
    assert {name for name, tree in sources("chalicelib.machines.table") if follows(tree)} == {DRAFT}


def test_a_draft_moves_any_noun_in_the_same_way() -> None:
    """One that is new needs nothing there: the example shows how, under the rules that hold for the others."""
    example = ast.parse((ROOT / "tests/engine/leases.py").read_text())
    assert not list(moves(example)) and not follows(example)


@pytest.mark.slow
def test_what_follows_from_a_move_isnt_left_out() -> None:
    """The trade of a place, the wake of a gateway: jobs, instances and runs are moved by their own methods."""
    past = re.compile(r"\.move\(\s*(JOB|INSTANCE|RUN)\b")
    assert [name for name, text in texts() if past.search(text)] == []
    assert past.search("draft.move(JOB, job, 'end')")


@pytest.mark.parametrize(
    "line",
    [
        "x.with_(status=1)",
        'x.with_(**{"status": 1})',
        'x.with_(**{"a": 2, "status": 1, **y})',
        'changes = {"status": 1}; x.with_(**changes)',
        "x.with_(**dict(status=1))",
        "copy.replace(x, status=1)",
        'x.model_copy(update={"status": 1})',
    ],
)
def test_a_move_elsewhere_would_be_seen(line: str) -> None:
    assert list(moves(ast.parse(line)))


@pytest.mark.slow
def test_what_has_a_machine_is_written_through_the_committer() -> None:
    """`store.commit` with a noun that has a status stands in the committer, and where something is written beside the
    status: a handle, a mark of a look."""
    direct = {
        name
        for name, tree in sources("commit")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "commit"
        and isinstance(node.func.value, ast.Attribute | ast.Name)
        and (getattr(node.func.value, "attr", "") or getattr(node.func.value, "id", "")) in ("store", "_store")
    }
    tenants = {
        f"chalicelib/usecases/{part}.py"
        for part in (
            "people/access_tokens",
            *(f"people/directory{part}" for part in ("", "_groups", "_tokens")),
            "people/users",
            "people/projects",
            "people/rights_revision",
            "people/secrets",
            "people/sign_in_codes",
            "people/sign_on",
            "people/workloads",
            "runs/repos",
            "runs/files",
            "operator/first_start",
        )
    }
    beside = {
        "chalicelib/engine/commit.py",
        "chalicelib/engine/bookkeeping.py",  # how far a round of the books has come
        "chalicelib/engine/cost_days.py",  # what days that are over cost
        "chalicelib/engine/measures.py",  # what a day's measures say
        "chalicelib/engine/run_traces.py",  # that a trace is exported
        "chalicelib/engine/moments.py",  # what a project looked like
        "chalicelib/engine/effects/certificates.py",  # the account at an authority
        "chalicelib/engine/effects/containers.py",  # the login of their first request
        "chalicelib/engine/effects/placement_groups.py",  # their handles, before a machine joins one
        "chalicelib/engine/effects/purchases.py",  # handles, between two calls
        "chalicelib/engine/effects/volumes.py",  # which volume has a disk
        "chalicelib/engine/erase_unused.py",  # what is deleted or has ended, and goes
        "chalicelib/engine/subscriptions.py",  # how far a webhook or a rule has come
        "chalicelib/runtime/subscribers.py",  # which of them there are
        "chalicelib/engine/stray_blobs.py",  # which blobs are erased, and how far the round has come
        "chalicelib/engine/record_upgrades.py",  # what older versions stored otherwise
        "chalicelib/store/record_form.py",  # of which form the records are
        "chalicelib/engine/sweep.py",  # what it saw first
        "chalicelib/engine/schedule_turns.py",  # when a schedule last fired
        "chalicelib/engine/hold.py",  # what a restored server has met, and that it acts again
        "chalicelib/engine/silent_agents.py",  # that nobody expects reports of an ended machine
        "chalicelib/engine/postpone.py",  # when to look again, of what can't even be read
        "chalicelib/hosts/host_steps.py",  # what first contact with a host showed
        "chalicelib/usecases/agents/calls.py",  # metrics that one commit didn't take
        "chalicelib/usecases/agents/credentials.py",  # presence
        "chalicelib/usecases/agents/stream_orders.py",  # streams that gateways want
        "chalicelib/usecases/runs/rule_actions.py",  # that a rule is done with an event, where nothing had to change
        "chalicelib/usecases/keyed_requests.py",  # that a request is done, where nothing had to change
        "chalicelib/usecases/runs/automations.py",  # configurations that rules apply
        "chalicelib/usecases/services/certificates.py",  # a dropped one goes, for a new one
        "chalicelib/usecases/operator/backends.py",  # the settings of backends
        "chalicelib/store/log_blobs.py",  # where the parts of a log are
        "chalicelib/usecases/machines/exports.py",  # which hosts are whose to use
        "chalicelib/usecases/runs/logs.py",  # presence: that somebody reads
        "chalicelib/usecases/services/traffic.py",  # what doors see
        "chalicelib/usecases/agents/joins.py",  # commands with which machines join
        "chalicelib/store/deferred_writes.py",  # presence: promises renewed
        "chalicelib/store/fences.py",  # which of two stores decides
    }
    assert direct <= tenants | beside, direct - tenants - beside


@pytest.mark.slow
def test_only_decisions_make_effects() -> None:
    """With them they set who may act until when: whoever executes has nothing to choose."""
    names = {kind.__name__ for family in FAMILIES for kind in family.effects}
    made = {
        f"{name}:{node.lineno}"
        for name, tree in sources("chalicelib.planning.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    }
    assert made and all(place.startswith("chalicelib/planning/") for place in made), made


READER = "chalicelib/engine/read.py"
READS = re.compile(r"""keys\.(?:run_body|fleet_body|instances_of)\b|f?"job/""")


@pytest.mark.slow
def test_one_reader_knows_where_the_parts_of_a_run_and_of_a_fleet_are() -> None:
    """A run's jobs and spec, a fleet's spec and machines: who reads them past it misses what an index doesn't show yet,
    and reads again what is kept."""
    past = {
        name
        for name, text in texts()
        if READS.search(text) and not name.startswith("chalicelib/domain/") and name != READER
    }
    assert past == set()
    assert READS.search((ROOT / READER).read_text())


@pytest.mark.parametrize("line", ["keys.run_body(run.id, 0)", 'all_of(store, "main", pk, low="job/")', 'f"job/{num}"'])
def test_a_second_reader_would_be_seen(line: str) -> None:
    assert READS.search(line)
