"""`dstack server migrate`, as its page has it, under load: the deployed stage's control plane moves into a folder with
a real server, and back, while jobs write, runs are submitted and a log is followed. The command is killed at each of
its steps (`toll.py`) and run again."""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.keys import Key
from chalicelib.store import copying
from chalicelib.store.blobs import FileBlobs, S3Blobs
from chalicelib.store.fences import fence_of
from chalicelib.store.history import events_in
from chalicelib.store.packing import unpacked
from chalicelib.store.port import Record
from chalicelib.store.sqlite import SqliteStore
from tests.e2e.aws import toll
from tests.e2e.aws.deployment import PATIENCE, STAGE
from tests.e2e.aws.journey import Journey
from tests.e2e.aws.load import LINES, WORD, Load, nodes_of
from tests.e2e.aws.toll import Toll
from tests.e2e.onprem.lab import SMALL
from tests.harness import forks
from tests.harness.ports import free_port
from tests.harness.server import HttpError, Server, until

PROJECT, LONG, FLEET = "moves", "long", "pool"
LONGEST = 60  # seconds that a call of a function may take meanwhile: the command waits for the longest
MOST_KILLED = 60


def moves(trip: Journey) -> None:
    """The control plane moves into a folder and back under load, with a command that is killed at each step."""
    stage = trip.at(PROJECT)
    one = trip.one
    server = Server(one.home, ("--fake-cloud", "--no-local-fleet"), token=one.token)
    server.url = f"http://127.0.0.1:{free_port()}"
    load = Load(PROJECT, one.token, (one.url, server.url), stage.home)
    limit_calls(trip)
    gate = stage.home / "open"
    job = begun(load, stage, gate)
    with_files(stage, "files-there")
    try:
        with toll.before(one.emulator.url if one.emulator else "") as passing, load.going_on(LONG, job):
            until("the load's first run", lambda: done_of(load, load.taken), seconds=PATIENCE)
            migrate(trip, server, passing, "--back", "--keys", "-y")
            migrate(trip, server, passing, "--back", "--check")
            killed = moved(trip, server, passing, "--back", "--public-url", server.url, "-y")
            assert {"before the fence: ", "after the fence: The", "after the fence: Verified:"} <= killed, killed
            serve(server)
            goes_on(load, job)
            stage.server, away = server, one
            stage.log_in()
            with_files(stage, "files-here")
            assert stage.dstack(["secret", "set", "here", "set in the folder"])[1] == 0
            migrate(trip, server, passing, "--check")
            killed = moved(trip, server, passing, "-y", restarts=True)
            assert {"before the fence: Waiting", "after the fence: The", "after the fence: Verified:"} <= killed, killed
            goes_on(load, job)
            stage.server = away
            stage.log_in()
            assert load.ask("secrets/get", name="here")["value"] == "set in the folder"
            assert load.ask("secrets/get", name="word")["value"] == WORD
            with_files(stage, "files-again")
        gate.touch()
        nothing_is_lost(trip, load)
        everything_is_there(trip)
        assert "has moved to" in signpost(server)
    finally:
        server.stop(signal.SIGKILL)
    trip.clear(stage)


def limit_calls(trip: Journey) -> None:
    """Or each wait for a function that may still run would take five minutes. A pass gets more time than in AWS, since
    many start at once on two busy cores when functions are replaced."""
    functions = trip.one.client("lambda")
    for each in functions.list_functions()["Functions"]:
        if each["FunctionName"].startswith(f"dstack-{STAGE}-") and each["Timeout"] != LONGEST:
            functions.update_function_configuration(FunctionName=each["FunctionName"], Timeout=LONGEST)


def begun(load: Load, stage: Any, gate: Path) -> str:
    """A fleet, a secret, and a job that writes numbered lines until the gate opens. Returns the job's id."""
    stage.behave("{}")
    fleet = {"type": "fleet", "name": FLEET, "nodes": "0..4", "placement": "cluster"}
    stage.ask("fleets/apply", {"plan": {"spec": {"configuration": fleet, "profile": {}}}, "force": False})
    stage.ask("secrets/create_or_update", {"name": "word", "value": WORD})
    counts = f"n=0; while [ ! -e {gate} ]; do n=$((n+1)); echo $n; sleep 0.5; done; echo over $n"
    assert load.submit({"type": "task", "name": LONG, "commands": [counts]})
    until("the long job", lambda: (load.runs() or {})[LONG]["status"] == "running", every=1, seconds=PATIENCE)
    return str((load.runs() or {})[LONG]["jobs"][0]["job_submissions"][-1]["id"])


def with_files(stage: Any, name: str) -> None:
    """A run that gets a file of its user's: each place has the same upload."""
    (stage.home / "data.csv").write_text("1,2,3\n")
    task = {"type": "task", "name": name, "files": ["data.csv"], "commands": ["cat data.csv"], "resources": SMALL}
    (stage.home / f"{name}.dstack.yml").write_text(json.dumps(task))
    output, status = stage.dstack(["apply", "-y", "-d", "-f", f"{name}.dstack.yml"])
    assert status == 0, output


def done_of(load: Load, names: list[str]) -> list[str]:
    """Those of these runs that are done."""
    runs = load.runs() or {}
    return [name for name in names if name in runs and runs[name]["status"] == "done"]


def goes_on(load: Load, job: str) -> None:
    """At whichever place decides now: the running job's lines come, and a run that is submitted there is done."""
    lines, taken = load.followed.count(b"\n"), len(load.taken)
    until("the agent to follow", lambda: load.followed.count(b"\n") > lines + 10, every=1, seconds=PATIENCE)
    until("a new run to be done", lambda: done_of(load, load.taken[taken + 1 :]), every=2, seconds=PATIENCE)


def serve(server: Server) -> None:
    port = int(server.url.rpartition(":")[2])
    server.start("--public-url", server.url, port=port)


# --- the command ------------------------------------------------------------------------------------------------------


def command(trip: Journey, server: Server, passing: Toll, *words: str) -> forks.Fork:
    one = trip.one
    assert one.emulator is not None and one.front is not None
    inherited = {name: value for name, value in one.environment().items() if name in ("PATH", "LANG", "HOME")}
    settings = {
        **one.emulator.environment,
        "AWS_ENDPOINT_URL": passing.url,
        "DSTACK_AWS_ENDPOINT": passing.url,
        "DSTACK_SERVER_FAKE_CLOUD": "on",
        "DSTACK_FAKE_CLOUD": str(one.data / "fake-cloud"),
        "DSTACK_API_URL": one.front.url,
        "DSTACK_AGENT_URL": one.front.url,
    }
    line = ["server", "migrate", STAGE, "--data-dir", str(server.data), *words]
    return forks.fork(line, one.home, {**inherited, **settings}, seconds=600)


def migrate(trip: Journey, server: Server, passing: Toll, *words: str) -> str:
    """To its end."""
    done = command(trip, server, passing, *words)
    with done.stdout as said:
        text = said.read()
    assert done.wait() == 0, text
    return text


def moved(trip: Journey, server: Server, passing: Toll, *words: str, restarts: bool = False) -> set[str]:
    """Run it until it comes through. Returns the phases in which it was killed. `restarts`: a server is killed, too,
    and started again, while it decides."""
    passing.killed_at.clear()
    for number in range(MOST_KILLED):
        if restarts and number == 3:
            server.kill()
            serve(server)
        attempt = command(trip, server, passing, *words)
        passing.follow(attempt)
        status = attempt.wait()
        text = passing.heard()
        attempt.stdout.close()
        passing.command = None
        if status != -signal.SIGKILL:
            assert status == 0, text
            assert "has moved to" in migrate(trip, server, passing, *words), "a second time it has nothing to do"
            return {phase for phase, _ in passing.killed_at}
    raise AssertionError(f"killed {MOST_KILLED} times: {passing.killed_at}")


# --- what is there in the end -----------------------------------------------------------------------------------------


def nothing_is_lost(trip: Journey, load: Load) -> None:
    """Each run was done once, with each of its lines; nothing is told twice."""
    until("all runs", lambda: all_done(load), every=2, seconds=PATIENCE)
    runs = load.runs()
    assert runs is not None and len(load.taken) > 5
    load.follow(LONG, runs[LONG]["jobs"][0]["job_submissions"][0]["id"])
    (lines,) = load.log(runs[LONG])
    assert lines == [*map(str, range(1, len(lines))), f"over {len(lines) - 1}"]
    assert load.followed.decode().splitlines() == lines
    for name in ("files-there", "files-here", "files-again"):
        assert load.log(runs[name]) == [["1,2,3"]]
    for name in load.taken:
        assert load.log(runs[name]) == [["begun", *LINES, "over"]] * nodes_of(name), name
        marks = [path.read_text() for path in load.marks.glob(f"{name}.*")]
        assert marks == ["ran\n"] * nodes_of(name), f"{name} ran once"
    assert runs.keys() == {LONG, "files-there", "files-here", "files-again", *load.taken}
    nothing_happened_twice(trip)


def nothing_happened_twice(trip: Journey) -> None:
    """No job became anything twice, says the history."""
    project = str(trip.one.call(f"/api/projects/{PROJECT}/get", {})["project_id"])
    became = Counter(
        (event.targets[0].id, event.after)
        for key, body in in_table(trip).items()
        if key.pk == keys.events_of(project)
        for event in events_in(Record(key, 1, body))
        if event.after and event.targets[0].type == "job"
    )
    assert len(became) > 30 and {*became.values()} == {1}, became.most_common(3)


def all_done(load: Load) -> bool:
    runs = load.runs()
    return runs is not None and {run["status"] for run in runs.values()} == {"done"}


def in_table(trip: Journey) -> dict[Key, bytes]:
    """The bodies of the stage's records."""
    pages = trip.one.client("dynamodb").get_paginator("scan").paginate(TableName=f"dstack-{STAGE}")
    return {Key(item["pk"]["S"], item["sk"]["S"]): body_of(item) for page in pages for item in page["Items"]}


def in_item(trip: Journey, key: Key) -> bytes | None:
    where = {"pk": {"S": key.pk}, "sk": {"S": key.sk}}
    found = trip.one.client("dynamodb").get_item(TableName=f"dstack-{STAGE}", Key=where, ConsistentRead=True)
    return body_of(found["Item"]) if "Item" in found else None


def body_of(item: dict[str, Any]) -> bytes:
    return unpacked(item["packed"]["B"]) if "packed" in item else item["body"]["S"].encode()


def everything_is_there(trip: Journey) -> None:
    """What the folder had when it was left has come to the stage, which decides."""
    there = in_table(trip)
    assert json.loads(there[keys.FENCE])["state"] == "active"
    with closing(SqliteStore(trip.one.data / "plane.db")) as here:
        left = fence_of(here)
        assert left is not None and left.state == "moved"
        before = {record.key: record.body for page in copying.pages(here) for record in page if lasts(record.key)}
    assert any(key.pk.startswith(keys.EVENTS) for key in before) and any(key.sk.startswith("secret/") for key in before)
    # Others write while the table is scanned, so what a scan doesn't show is looked at by its key.
    lost = [key for key, body in before.items() if there.get(key) != body and in_item(trip, key) != body]
    assert lost == [], lost
    bucket = S3Blobs(bucket_of(trip), lambda: trip.one.client("s3"))
    blobs = FileBlobs(trip.one.data / "blobs")
    names = [name for name, _ in copying._dated(blobs)]
    assert any(name.startswith("archives/") for name in names)
    assert [name for name in names if bucket.get(name) != blobs.get(name)] == []


def lasts(key: Key) -> bool:
    """Is it never changed here, once it is there?"""
    return key.pk.startswith(keys.EVENTS) or key.sk.startswith("secret/")


def bucket_of(trip: Journey) -> str:
    (found,) = trip.one.client("ssm").get_parameters(Names=[f"/dstack-{STAGE}/settings"])["Parameters"]
    return str(json.loads(found["Value"])["bucket"])


def signpost(server: Server) -> str:
    """What the folder's server says now."""
    try:
        return str(server.call("/api/projects/list", {}))
    except HttpError as refused:
        return refused.body
