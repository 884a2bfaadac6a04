"""Every other command, against a plane of scripted answers."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from cli.connection.config import config_path, load_projects
from cli.connection.session import names_path
from tests.cli.conftest import Dstack, interrupt_at
from tests.cli.plane import (
    JOB_ID,
    NOT_THERE,
    PROJECT_ID,
    RUN_ID,
    Plane,
    finished,
    fleet,
    instance,
    log_page,
    offer,
    run,
    steps,
)

# --- ps, run ---------------------------------------------------------------------------------------------------------


def test_ps_asks_for_the_active_runs(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/api/runs/list"] = [run()]
    ended = dstack("ps")
    assert ended.code == 0 and ended.out.splitlines()[1].split()[:2] == ["train", "aws"]
    assert plane.bodies("/api/runs/list") == [
        {
            "project_name": "main",
            "repo_id": None,
            "username": None,
            "only_active": True,
            "include_jobs": True,
            "job_submissions_limit": 1,
            "prev_submitted_at": None,
            "prev_run_id": None,
            "limit": 100,
            "ascending": False,
        }
    ]


def test_ps_shows_the_last_run_when_none_is_active(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/api/runs/list"] = lambda body: [] if body["only_active"] else [finished()]
    ended = dstack("ps")
    assert "exited (0)" in ended.out
    assert [(body["only_active"], body["limit"]) for body in plane.bodies("/api/runs/list")] == [
        (True, 100),
        (False, 1),
    ]


@pytest.mark.slow
def test_ps_n_pages(dstack: Dstack, plane: Plane) -> None:
    def page(body: dict[str, Any]) -> list[Any]:
        return [run(f"r{number}") for number in range(body["limit"])]

    plane.answers["/api/runs/list"] = page
    assert len(dstack("ps", "-n", "150").out.splitlines()) == 151
    first, second = plane.bodies("/api/runs/list")
    assert (first["limit"], second["limit"]) == (100, 50)
    assert second["prev_run_id"] == RUN_ID and second["prev_submitted_at"] == "2026-11-21T05:00:00Z"


def test_ps_a_ends_at_an_empty_page(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/api/runs/list"] = steps([run("a"), run("b")], [])
    assert len(dstack("ps", "-a").out.splitlines()) == 3


@pytest.mark.parametrize("flags", [["--json"], ["--format", "json"]])
def test_ps_json_is_one_line(dstack: Dstack, plane: Plane, flags: list[str]) -> None:
    plane.answers["/api/runs/list"] = [run()]
    out = dstack("ps", *flags).out
    assert out.count("\n") == 1 and json.loads(out) == {"project": "main", "runs": [run()]}


def test_ps_watches_until_ctrl_c(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/api/runs/list"] = [run()]
    ended = dstack("ps", "-w", sleep=interrupt_at(3))
    assert ended.code == 0 and ended.out.count("NAME") == 3
    assert dstack("ps", "-w", "--json").code == 2


def test_a_person_gets_colour_and_a_pipe_does_not(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/api/runs/list"] = [run()]
    assert "\x1b[32mrunning" in dstack("ps", watched=True, columns=80).out
    assert "\x1b" not in dstack("ps").out
    assert "\x1b" not in dstack("ps", watched=True, columns=80, env={"NO_COLOR": "1"}).out
    assert "\x1b" in dstack("ps", watched=True, columns=80, env={"NO_COLOR": ""}).out, "an empty variable is as none"
    assert "\x1b" not in dstack("ps", watched=True, columns=80, env={"TERM": "dumb"}).out


def test_run_get(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get"] = run()
    assert json.loads(dstack("run", "get", "train", "--json").out) == run()
    assert dstack("run", "get", "--id", RUN_ID, "--json").code == 0
    assert plane.bodies("/runs/get") == [{"run_name": "train", "id": None}, {"run_name": None, "id": RUN_ID}]
    assert "Status     running" in dstack("run", "get", "train").out
    assert dstack("run", "get").code == 2


def test_what_isnt_there(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": NOT_THERE, "/fleets/get": NOT_THERE, "/secrets/get": NOT_THERE}
    for args, message in (
        (["run", "get", "x"], "There is no run x in project main.\nSee them all with `dstack ps -a`."),
        (["run", "get", "--id", "5"], "no run with the id 5"),
        (["logs", "x"], "There is no run x"),
        (["attach", "x", "--logs"], "There is no run x"),
        (["stop", "x", "-y"], "There is no run x"),
        (["metrics", "x"], "There is no run x"),
        (["fleet", "get", "x"], "There is no fleet x"),
        (["fleet", "delete", "x", "-y"], "There is no fleet x"),
        (["secret", "get", "x"], "There is no secret x"),
    ):
        ended = dstack(*args)
        assert ended.code == 1 and message in ended.err and ended.out == "", (args, ended)


# --- stop ------------------------------------------------------------------------------------------------------------


def test_stop(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": run(), "/runs/stop": None}
    assert dstack("stop", "train", "-y").out == "train: stopping.\n"
    assert dstack("stop", "train", "-x", answers="y\n").code == 0
    assert dstack("stop", "train", answers="n\n").out.endswith("Nothing was stopped.\n")
    assert [body["abort"] for body in plane.bodies("/runs/stop")] == [False, True]


def test_stop_what_has_ended(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get"] = finished()
    ended = dstack("stop", "train", "-y")
    assert ended.code == 0 and "has already ended (done)" in ended.out


# --- logs, attach ----------------------------------------------------------------------------------------------------


def test_logs_reads_all_pages(dstack: Dstack, plane: Plane) -> None:
    pages = {None: log_page("one\n", "p2"), "p2": log_page("two\n", "p3"), "p3": log_page("three\n")}
    plane.answers |= {"/runs/get": run(), "/logs/poll": lambda body: pages[body["next_token"]]}
    assert dstack("logs", "train").out == "one\ntwo\nthree\n"
    assert plane.bodies("/logs/poll")[0] == {
        "run_name": "train",
        "job_submission_id": JOB_ID,
        "start_time": None,
        "end_time": None,
        "descending": False,
        "next_token": None,
        "limit": 1000,
        "diagnose": False,
    }


def test_logs_follows_for_a_person(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {
        "/runs/get": steps(run(), run(), run(), run(), finished()),
        "/logs/poll": steps(
            log_page("one\n"), log_page("one\ntwo\n"), log_page("one\ntwo\nthr"), log_page("one\ntwo\nthree\n")
        ),
    }
    ended = dstack("logs", "train", watched=True)
    assert ended.out == "one\ntwo\nthree\n" and dstack.naps == [0.2, 0.2, 0.2]
    assert ended.err == "Following train: Ctrl-C leaves it running; --no-follow prints what there is.\n"
    plane.answers["/runs/get"] = steps(run(), finished())
    assert dstack("logs", "train", "-f", watched=True).err == ""  # it was asked for
    assert dstack("logs", "train", watched=True).err == ""  # it has ended


@pytest.mark.parametrize("follow", ["--follow", "--no-follow"])
def test_logs_can_start_with_the_last_lines(dstack: Dstack, plane: Plane, follow: str) -> None:
    answers = steps(run(), run(), finished()) if follow == "--follow" else finished()
    plane.answers["/runs/get"] = answers
    entries = log_page("one\ntwo\nthree\n")
    plane.answers["/logs/poll"] = lambda body: (
        {**entries, "logs": entries["logs"][::-1]} if body["descending"] else entries
    )
    assert dstack("logs", "train", "--tail", "2", follow).out == "two\nthree\n"


def test_a_log_that_grows_into_a_next_page(dstack: Dstack, plane: Plane) -> None:
    first = steps(log_page("a\n"), log_page("a\nb\n", "p2"))
    second = steps(log_page("c\n"), log_page("c\nd\n"))

    def poll(body: dict[str, Any]) -> Any:
        script = second if body["next_token"] == "p2" else first
        return (script[0] if len(script) == 1 else script.pop(0)).value

    plane.answers |= {"/runs/get": steps(run(), run(), run(), finished()), "/logs/poll": poll}
    assert dstack("logs", "train", "--follow").out == "a\nb\nc\nd\n"


def test_no_follow_is_one_shot(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": run(), "/logs/poll": log_page("one\n")}
    assert dstack("logs", "train", "--no-follow", watched=True).out == "one\n"
    assert len(plane.bodies("/runs/get")) == 1


def test_logs_since_and_diagnose(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": run(), "/logs/poll": log_page("")}
    dstack("logs", "train", "-d", "--since", "1h")
    dstack("logs", "train", "--since", "2026-11-21T05:00:00Z")
    first, second = plane.bodies("/logs/poll")
    assert first["diagnose"] is True and first["start_time"] == "2026-11-21T04:01:00Z"
    assert second["start_time"] == "2026-11-21T05:00:00Z"
    assert "neither a duration" in dstack("logs", "train", "--since", "soon").err


def test_logs_of_a_replica_that_isnt_there(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": run(), "/logs/poll": log_page("")}
    ended = dstack("logs", "train", "--replica", "3")
    assert ended.code == 1 and "no replica 3, job 0" in ended.err


def test_ctrl_c_ends_logs_quietly(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": run(), "/logs/poll": log_page("one\n")}
    ended = dstack("logs", "train", "--follow", sleep=interrupt_at(1))
    assert (ended.code, ended.out, ended.err) == (0, "one\n", "")


def test_bytes_that_are_no_text_pass_unchanged(dstack: Dstack, plane: Plane, tmp_path: Path) -> None:
    import base64

    entry = {"timestamp": "x", "log_source": "stdout", "message": base64.b64encode("é\r\n".encode()).decode()}
    plane.answers |= {"/runs/get": run(), "/logs/poll": {"logs": [entry], "next_token": None}}
    assert dstack("logs", "train").out == "é\r\n"


def test_attach_follows_and_ends_as_the_job(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": steps(run(), finished("train", "failed", 7)), "/logs/poll": log_page("one\n")}
    ended = dstack("attach", "train", "--logs")
    assert ended.code == 7 and ended.out == "one\n" and "exited (7)" in ended.err


def test_attach_ctrl_c_detaches(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": run(), "/logs/poll": log_page("one\n")}
    ended = dstack("attach", "train", "--logs", sleep=interrupt_at(1))
    assert ended.code == 0 and "Detached" in ended.err


# --- fleet -----------------------------------------------------------------------------------------------------------


def test_fleet_lists(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/fleets/list"] = [fleet(instances=[instance(0)])]
    for args in (["fleet"], ["fleet", "list"], ["fleet", "-v"], ["fleet", "list", "-v"]):
        assert "instance=0" in dstack(*args).out
    assert plane.bodies("/fleets/list")[0] == {"include_imported": True}
    assert json.loads(dstack("fleet", "list", "--json").out)["fleets"][0]["name"] == "gpu"


def test_no_fleets_says_how_to_get_one(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/fleets/list"] = []
    assert "dstack apply" in dstack("fleet").err


def test_fleet_get(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/fleets/get"] = fleet()
    assert json.loads(dstack("fleet", "get", "gpu", "--json").out) == fleet()
    assert dstack("fleet", "get", "--id", "5").code == 0
    assert plane.bodies("/fleets/get") == [{"name": "gpu", "id": None}, {"name": None, "id": "5"}]


def test_fleet_delete(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {
        "/fleets/get": fleet(instances=[instance(0), instance(3)]),
        "/fleets/delete": None,
        "/fleets/delete_instances": None,
    }
    assert dstack("fleet", "delete", "gpu", "-y").code == 0
    assert dstack("fleet", "delete", "gpu", "-i", "0", "-i", "3", "-y").code == 0
    assert dstack("fleet", "delete-instance", "gpu", "3", "-y").code == 0
    assert dstack("fleet", "delete", "gpu", answers="n\n").out.endswith("Nothing was deleted.\n")
    assert plane.bodies("/fleets/delete") == [{"names": ["gpu"], "force": False}]
    assert plane.bodies("/fleets/delete_instances") == [
        {"name": "gpu", "instance_nums": [0, 3], "force": False},
        {"name": "gpu", "instance_nums": [3], "force": False},
    ]
    ended = dstack("fleet", "delete", "gpu", "-i", "7", "-y")
    assert ended.code == 1 and "has no instance 7" in ended.err and "It has 0, 3." in ended.err


# --- project ---------------------------------------------------------------------------------------------------------


def test_project_add(bare: Dstack, plane: Plane) -> None:
    plane.answers["/api/projects/main/get"] = {"project_id": PROJECT_ID}
    ended = bare("project", "add", "--name", "main", "--url", plane.url + "/", "--token", "tok")
    assert ended.code == 0 and "is added" in ended.out and plane.requests[0].headers["Authorization"] == "Bearer tok"
    path = config_path(bare.terminal.home)
    assert [(p.name, p.url, p.default) for p in load_projects(path)] == [("main", plane.url, True)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_project_add_warns_of_plain_http_to_another_machine(bare: Dstack, plane: Plane) -> None:
    plane.answers["/api/projects/main/get"] = {"project_id": PROJECT_ID}
    for url, warned in (("http://192.0.2.7:3000", True), ("https://gpu.example.com", False), (plane.url, False)):
        ended = bare("project", "add", "--name", "main", "--url", url, "--token", "t", "-y")
        assert ended.err.startswith(f"{url} isn't https: your token can be read") is warned


def test_a_second_project_asks_for_the_default(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/api/projects/lab/get"] = {}
    add = ["project", "add", "--name", "lab", "--url", plane.url, "--token", "t"]
    path = config_path(dstack.terminal.home)
    for answers, flags, default in (("n\n", [], "main"), ("", ["-n"], "main"), ("", ["-y"], "lab"), ("", [], "lab")):
        assert dstack(*add, *flags, answers=answers).code == 0
        assert [p.name for p in load_projects(path) if p.default] == [default]
    assert dstack(*add, "-y", "-n").code == 2


def test_a_wrong_token_changes_nothing(bare: Dstack, plane: Plane) -> None:
    plane.answers["/api/projects/main/get"] = (403, {"detail": {"msg": "Invalid token", "code": None}})
    ended = bare("project", "add", "--name", "main", "--url", plane.url, "--token", "bad")
    assert ended.code == 1 and "Invalid token" in ended.err and not config_path(bare.terminal.home).exists()


def test_project_list_shows_no_token(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/api/users/get_my_user"] = {"username": "admin"}
    ended = dstack("project", "list")
    assert ended.out.splitlines() == [f"PROJECT  URL{' ' * (len(plane.url) - 3)}  DEFAULT", f"main     {plane.url}  ✓"]
    assert "admin" in dstack("project", "list", "-v").out
    document = json.loads(dstack("project", "list", "-v", "--json").out)
    assert document == {
        "shape": 1,
        "projects": [{"project": "main", "url": plane.url, "default": True, "user": "admin"}],
    }
    assert dstack("project").out == ended.out


def test_project_default_and_delete(dstack: Dstack, plane: Plane) -> None:
    assert dstack("project", "set-default", "main").code == 0
    ended = dstack("project", "set-default", "nope")
    assert ended.code == 1 and "Projects here: main" in ended.err
    assert "Nothing was changed" in dstack("project", "delete", "--name", "main", answers="n\n").out
    assert dstack("project", "delete", "--name", "main", "-y").code == 0
    assert load_projects(config_path(dstack.terminal.home)) == []


# --- offer, event, secret, metrics -----------------------------------------------------------------------------------


def offers_plan(body: dict[str, Any]) -> dict[str, Any]:
    needs = {"resources": body["run_spec"]["configuration"]["resources"], "spot": False, "max_price": None}
    job = {"job_spec": {"requirements": needs}, "offers": [offer()], "total_offers": 6, "max_price": 20.0}
    ages = [{"backend": "aws", "taken_at": "2026-11-21T03:57:00Z", "error": None}]
    plan = {"project_name": "main", "user": "admin", "job_plans": [job], "action": "create"}
    return {**plan, "offers_as_of": ages}


def test_offer(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get_plan"] = offers_plan
    ended = dstack("offer", "--gpu", "24GB..", "--spot", "--max-offers", "10")
    assert ended.code == 0 and "Shown 1 of 6 offers, up to $20 an hour.\nOffers as of " in ended.out
    (body,) = plane.bodies("/runs/get_plan")
    spec = body["run_spec"]
    assert body["max_offers"] == 10 and body["for_offers_only"] is True
    assert spec["configuration"]["image"] == "scratch" and spec["configuration"]["commands"] == [":"]
    assert spec["configuration"]["user"] == "root" and spec["configuration"]["spot_policy"] == "spot"
    assert spec["configuration"]["resources"]["disk"] is None
    assert spec["configuration"]["resources"]["memory"] == {"min": 0.0, "max": None}
    assert spec["run_name"] is None and spec["repo_id"] is None


def test_offer_json(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get_plan"] = offers_plan
    document = json.loads(dstack("offer", "--json").out)
    assert list(document) == [
        "project",
        "user",
        "requirements",
        "offers",
        "total_offers",
        "offers_as_of",
        "offers_asked",
    ]
    assert document["offers_as_of"][0]["backend"] == "aws"
    assert list(document["requirements"]) == ["resources", "max_price", "spot", "reservation"]


def test_offer_grouped(dstack: Dstack, plane: Plane) -> None:
    group = {"name": "T4", "memory_mib": 16384, "count": {"min": 1, "max": 2}, "price": {"min": 0.2, "max": 0.4}}
    plane.answers["/gpus/list"] = {"gpus": [{**group, "spot": ["spot"], "backend": "aws", "regions": ["x"]}]}
    ended = dstack("offer", "--group-by", "gpu,backend")
    assert ended.code == 0 and "T4:16GB:1..2" in ended.out and "$0.2..0.4" in ended.out
    assert plane.bodies("/gpus/list")[0]["group_by"] == ["backend"]
    document = json.loads(dstack("offer", "--group-by", "gpu", "--json").out)
    assert list(document) == ["project", "requirements", "group_by", "gpus", "offers_as_of", "offers_asked"]
    assert document["offers_as_of"] == []  # a server that doesn't say
    for keys, message in (
        ("backend", "must include gpu"),
        ("gpu,region", "also needs backend"),
        ("gpu,color", "not color"),
    ):
        ended = dstack("offer", "--group-by", keys)
        assert ended.code == 2 and message in ended.err


def events(*numbers: int) -> list[Any]:
    return [
        {
            "id": str(number),
            "recorded_at": f"2026-11-21T04:{number // 60:02}:{number % 60:02}Z",
            "message": f"event {number}",
            "targets": [{"type": "run", "name": "train"}],
        }
        for number in numbers
    ]


def test_event_is_oldest_first(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/api/projects/main/get": {"project_id": PROJECT_ID}, "/api/events/list": events(2, 1)}
    for args in (["event"], ["event", "list"]):
        assert [line.split("] ")[1] for line in dstack(*args).out.splitlines()] == ["event 1", "event 2"]
    (body, _) = plane.bodies("/api/events/list")
    assert body["within_projects"] == [PROJECT_ID] and body["limit"] == 100 and body["ascending"] is False
    assert [one["id"] for one in json.loads(dstack("event", "--json").out)["events"]] == ["1", "2"]


def test_event_filters_by_id(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/runs/get": run(), "/fleets/get": fleet(), "/api/events/list": []}
    dstack("event", "--within-run", "train", "--include-target-type", "job")
    dstack("event", "list", "--target-fleet", "gpu")
    first, second = plane.bodies("/api/events/list")
    assert first["within_runs"] == [RUN_ID] and first["include_target_types"] == ["job"]
    assert first["within_projects"] is None and second["target_fleets"] == [fleet()["id"]]
    assert dstack("event", "--within-run", "a", "--within-fleet", "b").code == 2


def test_event_since_reads_pages_until_there(dstack: Dstack, plane: Plane) -> None:
    def page(body: dict[str, Any]) -> list[Any]:
        newest = int(body["prev_id"]) - 1 if body["prev_id"] else 250
        return events(*range(newest, newest - 100, -1))

    plane.answers |= {"/api/projects/main/get": {"project_id": PROJECT_ID}, "/api/events/list": page}
    lines = dstack("event", "--since", "2026-11-21T04:02:00Z").out.splitlines()
    assert (lines[0].split("] ")[1], lines[-1].split("] ")[1], len(lines)) == ("event 120", "event 250", 131)


def test_secrets(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {
        "/secrets/list": [{"id": "1", "name": "tok", "value": None}],
        "/secrets/get": {"id": "1", "name": "tok", "value": "s3cret"},
        "/secrets/create_or_update": {"id": "1", "name": "tok", "value": None},
        "/secrets/delete": None,
    }
    assert dstack("secret").out == dstack("secret", "list").out == "NAME  VALUE\ntok   ******\n"
    assert "s3cret" in dstack("secret", "get", "tok").out
    assert "s3cret" not in dstack("secret", "set", "tok", "s3cret").out
    dstack("secret", "set", "tok", "-", answers="from input\n")
    assert dstack("secret", "delete", "tok", "-y").code == 0
    assert [b["value"] for b in plane.bodies("/secrets/create_or_update")] == ["s3cret", "from input"]
    assert plane.bodies("/secrets/delete") == [{"secrets_names": ["tok"]}]
    assert plane.bodies("/secrets/list") == [None, None]


def test_metrics(dstack: Dstack, plane: Plane) -> None:
    values = [{"name": "cpu_usage_percent", "timestamps": [], "values": [50, 10]}]
    plane.answers |= {"/runs/get": run(), "/metrics/job/train": {"metrics": values}}
    assert "50%" in dstack("metrics", "train").out
    assert plane.requests[1].path.endswith("/metrics/job/train?replica_num=0&job_num=0&limit=1000")
    assert json.loads(dstack("metrics", "train", "--json").out)["jobs"] == [{"job": "train-0-0", "metrics": values}]
    assert "no such job" in dstack("metrics", "train", "--replica", "5").err


# --- init, completion, old words, what isn't built -------------------------------------------------------------------


def test_init_writes_an_example_that_parses(bare: Dstack) -> None:
    from chalicelib.configuration.parse import parse

    assert bare("init").code == 0
    text = (bare.terminal.cwd / ".dstack.yml").read_text()
    assert parse(text).type == "task"
    (bare.terminal.cwd / ".dstack.yml").write_text("mine")
    assert "left unchanged" in bare("init").out and (bare.terminal.cwd / ".dstack.yml").read_text() == "mine"


@pytest.mark.slow
def test_init_schema(bare: Dstack) -> None:
    assert bare("init", "--schema").code == 0
    schema = json.loads((bare.terminal.cwd / ".dstack" / "configuration.schema.json").read_text())
    assert "2020-12" in schema["$schema"]
    first = (bare.terminal.cwd / ".dstack.yml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=.dstack/configuration.schema.json"


def test_a_first_machine_of_a_pool_makes_the_fleet(dstack: Dstack, plane: Plane) -> None:
    plan = {"project_name": "main", "user": "admin", "action": "create", "current_resource": None, "offers": []}
    plane.answers |= {
        "/fleets/get": NOT_THERE,
        "/fleets/get_plan": lambda body: {**plan, "spec": body["spec"], "total_offers": 0},
        "/fleets/apply": fleet("default-pool", [instance(0)]),
    }
    assert dstack("pool", "add", "--spot-policy", "auto", "--idle-duration", "72h", "-y").code == 0
    sent = plane.bodies("/fleets/get_plan")[0]["spec"]["configuration"]
    assert sent["name"] == "default-pool" and sent["nodes"] == {"min": 0, "target": 1, "max": 1}
    assert sent["spot_policy"] == "auto" and sent["idle_duration"] == 72 * 3600


def test_pool_is_fleets_in_older_words(dstack: Dstack, plane: Plane) -> None:
    plan = {"project_name": "main", "user": "admin", "action": "create", "current_resource": None, "offers": []}
    plane.answers |= {
        "/fleets/list": [fleet()],
        "/fleets/get": fleet(instances=[instance(0)]),
        "/fleets/delete_instances": None,
        "/fleets/get_plan": lambda body: {**plan, "spec": body["spec"], "total_offers": 0},
        "/fleets/apply": fleet(),
    }
    for name in ("list", "ps"):
        ended = dstack("pool", name)
        assert "gpu" in ended.out and "dstack fleet" in ended.err
    assert dstack("pool", "add", "--gpu", "24GB..", "--max-price", "1", "-y").code == 0
    sent = plane.bodies("/fleets/get_plan")[0]["spec"]["configuration"]
    assert sent["nodes"] == {"min": 0, "target": 2, "max": 2} and sent["max_price"] == 1.0  # one more than there is
    assert sent["resources"]["gpu"]["memory"] == {"min": 24.0, "max": None}
    assert dstack("pool", "remove", "gpu-0", "-y").code == 0
    assert plane.bodies("/fleets/delete_instances") == [{"name": "gpu", "instance_nums": [0], "force": False}]
    assert dstack("pool", "remove", "gpu", "-y").code == 1
    assert "identity_file" in dstack("pool", "add-ssh", "u@10.0.0.7", "-i", "nokey", "-y").err
    assert dstack("pool", "add-ssh", "10.0.0.7", "-i", "nokey", "-y").code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(bare: Dstack, shell: str) -> None:
    ended = bare("completion", shell)
    assert ended.code == 0 and f"_DSTACK_COMPLETE=complete_{shell}" in ended.out


def test_names_are_kept_for_completion(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/api/runs/list": [run("train")], "/fleets/list": [fleet("gpu")]}
    dstack("ps")
    dstack("fleet")
    assert json.loads(names_path(dstack.terminal.home).read_text()) == {"run": ["train"], "fleet": ["gpu"]}


def test_a_misspelt_command(bare: Dstack) -> None:
    ended = bare("aply")
    assert ended.code == 2 and "Did you mean apply?" in ended.err
    assert bare("ps", "--al").code == 2


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("user add bob", "`dstack user` has no command 'add'. Did you mean create?"),
        ("secret add tok v", "Did you mean set?"),
        ("user rm bob", "Did you mean delete?"),
        ("volume ls", "Did you mean list?"),
        ("volume show data", "Did you mean get?"),
        ("log train", "Did you mean logs?"),
        ("ls", "Did you mean ps?"),
        ("user frobnicate", "`dstack user --help` lists them all."),
        ("--nope user", "No such option: --nope"),
    ],
)
def test_another_tools_word_for_a_command(bare: Dstack, line: str, advice: str) -> None:
    ended = bare(*line.split())
    assert ended.code == 2 and advice in ended.err, ended


def test_nothing_shows_the_help(bare: Dstack) -> None:
    assert bare().code == 0 and bare().out == bare("--help").out
    assert bare("--version").code == 0


def test_nothing_is_set_up(bare: Dstack) -> None:
    ended = bare("ps")
    assert ended.code == 1 and "dstack server" in ended.err
