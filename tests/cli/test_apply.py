"""`dstack apply`: its requests, its questions, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.applying.runs import refusals
from tests.cli.conftest import Dstack, interrupt_at
from tests.cli.plane import (
    JOB_ID,
    NOT_THERE,
    Plane,
    finished,
    fleet,
    instance,
    log_page,
    offer,
    run,
    steps,
    submission,
)

TASK = "type: task\nname: train\nimage: ubuntu\ncommands:\n  - echo ${{ run.args }}\nenv: [TOKEN, B=1]\n"
FLEET = "type: fleet\nname: gpu\nnodes: 0..2\n"


def plan_for(body: dict[str, Any], current: Any = None, action: str = "create", offers: Any = None) -> dict[str, Any]:
    spec = body["run_spec"]
    job = {
        "job_spec": {
            "requirements": {"resources": spec["configuration"]["resources"], "spot": False, "max_price": None},
            "retry": None,
            "max_duration": None,
        },
        "offers": [offer()] if offers is None else offers,
        "total_offers": 1 if offers is None else len(offers),
        "max_price": 0.1,
        "count": 1,
    }
    return {
        "project_name": "main",
        "user": "admin",
        "run_spec": {**spec, "run_name": spec["run_name"] or "calm-otter-1"},
        "effective_run_spec": spec,
        "job_plans": [job],
        "current_resource": current,
        "action": action,
    }


def applied(body: dict[str, Any]) -> dict[str, Any]:
    return run(body["plan"]["run_spec"]["run_name"], "submitted")


@pytest.fixture
def task(plane: Plane, dstack: Dstack) -> Dstack:
    (dstack.terminal.cwd / ".dstack.yml").write_text(TASK)
    plane.answers |= {
        "/repos/init": None,
        "/runs/get_plan": plan_for,
        "/runs/apply": applied,
        "/runs/get": finished(),
        "/logs/poll": log_page("one\ntwo\n"),
        "/fleets/list": [],
    }
    return Dstack(_with(dstack, env={"TOKEN": "t"}), dstack.naps)


def _with(dstack: Dstack, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(dstack.terminal, **changes)


def test_detached(task: Dstack, plane: Plane) -> None:
    ended = task("apply", "-y", "-d")
    assert ended.code == 0, ended
    assert plane.paths() == ["/repos/init", "/runs/get_plan", "/runs/apply"]
    assert "Run train is submitted" in ended.out and "dstack logs train" in ended.out
    assert "Cost: $0.1 an hour" in ended.out and "aws (us-east-1)" in ended.out


def test_what_the_plan_is_asked_with(task: Dstack, plane: Plane) -> None:
    assert task("apply", "-y", "-d", "--", "a b", "c").code == 0
    assert plane.bodies("/repos/init") == [
        {"repo_id": "none", "repo_info": {"repo_type": "virtual"}, "repo_creds": None}
    ]
    (body,) = plane.bodies("/runs/get_plan")
    spec = body.pop("run_spec")
    assert body == {
        "max_offers": 3,
        "full_offers": False,
        "unallocated_resources": False,
        "for_offers_only": False,
    }
    assert spec["run_name"] == "train" and spec["configuration_path"] == ".dstack.yml"
    assert spec["repo_id"] == "none" and spec["repo_data"] == {"repo_type": "virtual"}
    assert spec["profile"]["name"] == "default" and spec["ssh_key_pub"] is None
    assert spec["configuration"]["commands"] == ["echo 'a b' c"]
    assert spec["configuration"]["env"] == {"TOKEN": "t", "B": "1"}
    (body,) = plane.bodies("/runs/apply")
    assert body["force"] is False and set(body["plan"]) == {"run_spec", "current_resource"}


def test_flags_win(task: Dstack, plane: Plane) -> None:
    flags = (
        "-n other -e B=2 -e C=3 --cpu 8 --gpu A100:2 --memory 32GB.. --disk 200GB.. --max-price 2.5 --max-duration 2h"
    )
    more = "-b aws -r eu-west-1 --instance-type m5 --fleet gpu -R --spot-auto --retry-duration 3h --max-offers 7"
    assert task("apply", "-y", "-d", *flags.split(), *more.split()).code == 0
    (body,) = plane.bodies("/runs/get_plan")
    configuration = body["run_spec"]["configuration"]
    assert body["max_offers"] == 7 and body["run_spec"]["run_name"] == "other"
    assert configuration["env"] == {"TOKEN": "t", "B": "2", "C": "3"}
    assert configuration["resources"]["cpu"]["count"] == {"min": 8, "max": 8}
    assert configuration["resources"]["gpu"]["name"] == ["A100"]
    assert configuration["resources"]["memory"] == {"min": 32.0, "max": None}
    assert configuration["resources"]["disk"] == {"size": {"min": 200.0, "max": None}}
    assert configuration["max_price"] == 2.5 and configuration["max_duration"] == 7200
    assert configuration["backends"] == ["aws"] and configuration["regions"] == ["eu-west-1"]
    assert configuration["instance_types"] == ["m5"] and configuration["fleets"] == ["gpu"]
    assert configuration["creation_policy"] == "reuse" and configuration["spot_policy"] == "auto"
    assert configuration["retry"] == {"on_events": None, "duration": 10800}


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (["--dont-destroy"], "idle_duration", -1),
        (["--idle-duration", "1h"], "idle_duration", 3600),
        (["--retry"], "retry", True),
        (["--no-retry"], "retry", False),
        (["--spot"], "spot_policy", "spot"),
        (["--on-demand"], "spot_policy", "on-demand"),
        (["--spot-policy", "auto"], "spot_policy", "auto"),
        (["--max-duration", "off"], "max_duration", "off"),
    ],
)
def test_a_flag(task: Dstack, plane: Plane, flags: list[str], field: str, value: Any) -> None:
    assert task("apply", "-y", "-d", *flags).code == 0
    assert plane.bodies("/runs/get_plan")[0]["run_spec"]["configuration"][field] == value


def test_attached_shows_the_log_and_ends_as_the_job(task: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get"] = steps(
        run(status="submitted"), run(status="provisioning"), run(), finished("train", "failed", 3)
    )
    plane.answers["/logs/poll"] = steps(log_page("one\n"), log_page("one\ntwo\n"))
    ended = task("apply", "-y")
    assert ended.code == 3, ended
    assert ended.out.endswith("\none\ntwo\n")
    assert [line.split(" on ")[0] for line in ended.err.splitlines()[1:4]] == ["submitted", "provisioning", "running"]
    assert "train failed (exited (3)) after 9 s" in ended.err
    assert task.naps == [0.2, 0.2, 0.2]


def test_a_run_is_asked_about_often_while_it_changes_and_seldom_while_it_doesnt(task: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get"] = steps(*[run(status="provisioning")] * 55, run(), finished())
    assert task("apply", "-y").code == 0
    assert task.naps == [0.2] * 50 + [1.0] * 5 + [0.2]


def test_done_is_0(task: Dstack) -> None:
    ended = task("apply", "-y")
    assert ended.code == 0 and ended.out.endswith("one\ntwo\n")


@pytest.mark.parametrize(("status", "reason"), [("failed", "no capacity"), ("terminated", "stopped")])
def test_an_end_without_an_exit_status_is_1(task: Dstack, plane: Plane, status: str, reason: str) -> None:
    latest = submission("failed", status_message=reason, exit_status=None)
    plane.answers["/runs/get"] = run(status=status, latest=latest)
    ended = task("apply", "-y")
    assert ended.code == 1 and reason in ended.err


def test_a_node_that_fails_says_how_the_command_ends(task: Dstack, plane: Plane) -> None:
    ended, failed = submission("terminated", exit_status=130), submission("failed", exit_status=3)
    specs = [{"replica_num": 0, "job_num": num, "job_name": f"train-{num}-0"} for num in (0, 1)]
    jobs = [{"job_spec": spec, "job_submissions": [each]} for spec, each in zip(specs, (ended, failed), strict=True)]
    plane.answers["/runs/get"] = run(status="failed", latest=ended, jobs=jobs)
    assert task("apply", "-y").code == 3


def test_a_retry_shows_both_logs(task: Dstack, plane: Plane) -> None:
    other = "27c09196-7120-480c-be4f-97fc1ca4282d"
    plane.answers["/runs/get"] = steps(run(), run(latest=submission(id=other)), finished())
    plane.answers["/logs/poll"] = lambda body: log_page(
        "first\n" if body["job_submission_id"] == JOB_ID else "second\n"
    )
    ended = task("apply", "-y")
    assert "first\n" in ended.out and "second\n" in ended.out


def test_it_asks_and_no_is_no(task: Dstack, plane: Plane) -> None:
    ended = task("apply", "-d", answers="what\nn\n")
    assert ended.code == 0 and "/runs/apply" not in plane.paths()
    assert ended.out.count("Start the run train? [y/n]: ") == 2 and "Nothing was started." in ended.out


def test_nobody_answers(task: Dstack, plane: Plane) -> None:
    ended = task("apply", "-d")
    assert ended.code == 1 and "Add -y" in ended.err and "/runs/apply" not in plane.paths()


# --- a run of that name is active already: the decision table ---------------------------------------------------------


def active(plane: Plane, *, changed: bool, action: str) -> None:
    def plan(body: dict[str, Any]) -> dict[str, Any]:
        if "/runs/stop" in plane.paths():
            return plan_for(body)
        old = {**body["run_spec"], "configuration": {**body["run_spec"]["configuration"]}}
        if changed:
            old["configuration"]["priority"] = 7
        return plan_for(body, current={**run(), "run_spec": old}, action=action)

    plane.answers |= {"/runs/get_plan": plan, "/runs/stop": None, "/runs/get": steps(run(), finished())}


def test_an_update_in_place(task: Dstack, plane: Plane) -> None:
    active(plane, changed=True, action="update")
    ended = task("apply", "-d", answers="y\n")
    assert ended.code == 0 and "Change it while it runs?" in ended.out and "priority  7    -" in ended.out
    assert "is changed" in ended.out and "/runs/stop" not in plane.paths()
    assert plane.bodies("/runs/apply")[0]["plan"]["current_resource"]["id"] == run()["id"]


def test_nothing_changed_and_y(task: Dstack, plane: Plane) -> None:
    active(plane, changed=False, action="update")
    ended = task("apply", "-y", "-d")
    assert ended.code == 0 and "--force" in ended.out
    assert plane.paths() == ["/repos/init", "/runs/get_plan"]


def test_nothing_changed_and_force(task: Dstack, plane: Plane) -> None:
    active(plane, changed=False, action="update")
    assert task("apply", "-y", "-d", "--force").code == 0
    assert plane.paths()[2:] == ["/runs/stop", "/runs/get", "/runs/get", "/runs/get_plan", "/runs/apply"]
    assert plane.bodies("/runs/apply")[0]["force"] is True


def test_nothing_changed_and_asked(task: Dstack, plane: Plane) -> None:
    active(plane, changed=False, action="update")
    ended = task("apply", "-d", answers="n\n")
    assert ended.code == 0 and "Stop it and submit it again?" in ended.out and "/runs/stop" not in plane.paths()


def test_a_change_that_needs_a_new_run(task: Dstack, plane: Plane) -> None:
    active(plane, changed=True, action="create")
    ended = task("apply", "-y", "-d")
    assert ended.code == 0 and plane.bodies("/runs/stop") == [{"runs_names": ["train"], "abort": False}]
    assert plane.bodies("/runs/apply")[0]["plan"]["current_resource"] is None


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_asks_and_leaves_it(task: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get"] = run()
    ended = task("apply", answers="y\nn\n", sleep=interrupt_at(2))
    assert ended.code == 0 and "Stop the run train? [y/n]" in ended.out and "keeps running" in ended.out
    assert "/runs/stop" not in plane.paths()


def test_ctrl_c_asks_and_stops_it(task: Dstack, plane: Plane) -> None:
    stopped = finished(status="terminated", exit_status=130)
    plane.answers |= {"/runs/stop": None, "/runs/get": steps(run(), run(), stopped)}
    ended = task("apply", answers="y\ny\n", sleep=interrupt_at(1))
    assert ended.code == 1 and plane.bodies("/runs/stop") == [{"runs_names": ["train"], "abort": False}]


def test_a_second_ctrl_c_aborts(task: Dstack, plane: Plane) -> None:
    naps = 0

    def sleep(seconds: float) -> None:
        nonlocal naps
        naps += 1
        if naps <= 2:
            raise KeyboardInterrupt

    plane.answers |= {"/runs/stop": None, "/runs/get": steps(run(), run(), run(), finished(status="terminated"))}
    ended = task("apply", answers="y\ny\n", sleep=sleep)
    assert ended.code == 1 and [body["abort"] for body in plane.bodies("/runs/stop")] == [False, True]


def test_ctrl_c_with_y_leaves_it_unasked(task: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get"] = run()
    ended = task("apply", "-y", sleep=interrupt_at(1))
    assert ended.code == 0 and "keeps running" in ended.out and "/runs/stop" not in plane.paths()


# --- files, input, refusals ------------------------------------------------------------------------------------------


def test_files_are_uploaded_before_the_plan(task: Dstack, plane: Plane) -> None:
    folder = task.terminal.cwd
    (folder / "data").mkdir()
    (folder / "data" / "a.txt").write_text("a")
    (folder / ".dstack.yml").write_text(TASK + "files:\n  - data\n  - ./data:copy\n")
    plane.answers["/api/files/upload_archive"] = {"id": "5216a07d-1aff-4174-9b39-7e137ed69808", "hash": "x"}
    assert task("apply", "-y", "-d").code == 0
    assert plane.paths()[:3] == ["/repos/init", "/api/files/upload_archive", "/runs/get_plan"]
    spec = plane.bodies("/runs/get_plan")[0]["run_spec"]
    assert [entry["path"] for entry in spec["file_archives"]] == ["data", "copy"]
    assert [entry["local_path"] for entry in spec["configuration"]["files"]] == [str(folder / "data")] * 2


def test_from_standard_input(task: Dstack, plane: Plane) -> None:
    assert task("apply", "-f", "-", "-y", "-d", answers=TASK).code == 0
    assert plane.bodies("/runs/get_plan")[0]["run_spec"]["configuration_path"] == "-"


def test_an_absolute_path_is_sent_as_a_relative_one(task: Dstack, plane: Plane, tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(TASK)
    assert task("apply", "-f", str(tmp_path / "x.yml"), "-y", "-d").code == 0
    assert plane.bodies("/runs/get_plan")[0]["run_spec"]["configuration_path"] == "../x.yml"


def test_json_prints_the_run_alone(task: Dstack) -> None:
    ended = task("apply", "-y", "-d", "--json")
    assert ended.code == 0 and json.loads(ended.out)["run_spec"]["run_name"] == "train"


def test_no_offers_says_why(task: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get_plan"] = lambda body: plan_for(body, offers=[])
    assert "This project has no fleet" in task("apply", "-y", "-d").err
    plane.answers["/fleets/list"] = [fleet("gpu")]
    assert "no machine in gpu fits" in task("apply", "-y", "-d").err


def test_a_profile_goes_along(task: Dstack, plane: Plane) -> None:
    (task.terminal.cwd / ".dstack").mkdir()
    (task.terminal.cwd / ".dstack" / "profiles.yml").write_text(
        "profiles:\n- {name: cheap, max_price: 1}\n- {name: usual, default: true, regions: [x]}\n"
    )
    for flags, name in ((["--profile", "cheap"], "cheap"), ([], "usual"), (["--no-profile"], "no-profile")):
        assert task("apply", "-y", "-d", *flags).code == 0
        assert plane.bodies("/runs/get_plan")[-1]["run_spec"]["profile"]["name"] == name


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--profile", "a", "--no-profile"], 2, "--profile and --no-profile contradict"),
        (["--spot", "--on-demand"], 2, "--spot and --on-demand contradict"),
        (["-R", "--idle-duration", "1h"], 2, "--reuse and --idle-duration contradict"),
        (["--no-retry", "--retry-duration", "1h"], 2, "contradict"),
        (["-f", "-"], 2, "needs -y"),
        (["--gpu", "A100:"], 2, "--gpu"),
        (["--max-duration", "1h30m"], 2, "--max-duration"),
        (["--max-price", "much"], 2, "not a number"),
        (["--max-price", "0"], 2, "--max-price"),
        (["-f", "nope.yml"], 1, "nope.yml doesn't exist"),
        (["--profile", "nope"], 1, "nope"),
        (["-P", "nowhere"], 1, "nowhere doesn't exist"),
        (["-p", "x"], 2, "--port: `x` isn't a port"),
        (["--ssh-identity", "k"], 1, "--ssh-identity: "),
    ],
)
def test_refusals(task: Dstack, plane: Plane, args: list[str], code: int, message: str) -> None:
    ended = task("apply", *args)
    assert (ended.code, ended.out) == (code, ""), ended
    assert message in ended.err and "Traceback" not in ended.err
    assert not plane.requests


def test_arguments_that_nothing_takes(task: Dstack) -> None:
    (task.terminal.cwd / "x.yml").write_text("type: task\ncommands: [ls]\n")
    ended = task("apply", "-y", "-f", "x.yml", "y.yml")
    assert ended.code == 1 and "use -f FILE" in ended.err


def test_a_variable_that_is_missing(task: Dstack) -> None:
    ended = task("apply", "-y", env={})
    assert (
        ended.code == 1 and "env.TOKEN" in ended.err and ".dstack.yml:6:" in ended.err and "export TOKEN" in ended.err
    )


def test_no_file(dstack: Dstack) -> None:
    ended = dstack("apply")
    assert ended.code == 1 and "dstack init" in ended.err


def test_problems_show_the_line(task: Dstack) -> None:
    (task.terminal.cwd / ".dstack.yml").write_text("type: task\ncomands:\n  - ls\nresources:\n  gpuu: 1\n")
    ended = task("apply", "-y")
    assert ended.code == 1
    assert ".dstack.yml:2:1: comands" in ended.err and "did you mean `commands`?" in ended.err
    assert "  2 | comands:\n    | ^\n" in ended.err
    assert "  5 |   gpuu: 1\n    |   ^\n" in ended.err


# --- fleets ----------------------------------------------------------------------------------------------------------


def fleet_plan(current: Any = None, action: str = "create") -> Any:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        spec = {**body["spec"], "autocreated": False}
        base = {"project_name": "main", "user": "admin", "spec": spec, "effective_spec": spec, "action": action}
        return {**base, "offers": [offer()] * 5, "total_offers": 9, "max_offer_price": 0.1, "current_resource": current}

    return answer


@pytest.fixture
def fleets(plane: Plane, dstack: Dstack) -> Dstack:
    (dstack.terminal.cwd / ".dstack.yml").write_text(FLEET)
    plane.answers |= {"/fleets/get_plan": fleet_plan(), "/fleets/apply": fleet(), "/fleets/get": fleet()}
    return dstack


def test_a_fleet_is_created(fleets: Dstack, plane: Plane) -> None:
    ended = fleets("apply", "-y")
    assert ended.code == 0 and plane.paths() == ["/fleets/get_plan", "/fleets/apply"]
    spec = plane.bodies("/fleets/get_plan")[0]["spec"]
    assert spec["configuration"]["nodes"] == {"min": 0, "max": 2} and spec["profile"]["name"] == "default"
    assert "Shown 3 of 9 offers" in ended.out and "gpu   0..2" in ended.out


def test_it_waits_for_the_machines(fleets: Dstack, plane: Plane) -> None:
    plane.answers["/fleets/apply"] = fleet(instances=[instance(0, "pending")])
    plane.answers["/fleets/get"] = steps(fleet(instances=[instance(0, "provisioning")]), fleet(instances=[instance(0)]))
    ended = fleets("apply", "-y")
    assert ended.code == 0 and fleets.naps == [0.5, 0.5] and "idle" in ended.out
    assert "0 of 1 machines ready" in ended.err


def test_it_waits_for_machines_that_are_not_ordered_yet(fleets: Dstack, plane: Plane) -> None:
    nodes = {"min": 0, "target": 1, "max": 2}
    plane.answers["/fleets/apply"] = fleet(nodes=nodes)
    plane.answers["/fleets/get"] = steps(fleet(nodes=nodes), fleet(instances=[instance(0)], nodes=nodes))
    ended = fleets("apply", "-y")
    assert ended.code == 0 and fleets.naps == [0.5, 0.5] and "idle" in ended.out


def test_machines_that_can_not_be_had_are_a_failure(fleets: Dstack, plane: Plane) -> None:
    nodes = {"min": 1, "max": 2}
    plane.answers["/fleets/apply"] = fleet(nodes=nodes)
    plane.answers["/fleets/get"] = {**fleet(nodes=nodes), "status_message": "no offer matches this fleet"}
    ended = fleets("apply", "-y")
    assert ended.code == 1 and "no offer matches this fleet" in ended.out


def test_it_stops_waiting_for_machines_that_nobody_orders(fleets: Dstack, plane: Plane) -> None:
    plane.answers |= dict.fromkeys(("/fleets/apply", "/fleets/get"), fleet(nodes={"min": 1, "max": 2}))
    ended = fleets("apply", "-y")
    assert ended.code == 0 and len(fleets.naps) == 10


def test_a_machine_that_ended_is_a_failure(fleets: Dstack, plane: Plane) -> None:
    gone = instance(0, "terminated", termination_reason_message="no quota")
    plane.answers["/fleets/apply"] = fleet(instances=[gone])
    ended = fleets("apply", "-y")
    assert ended.code == 1 and "no quota" in ended.out


def test_an_unchanged_fleet(fleets: Dstack, plane: Plane) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return fleet_plan({**fleet(), "spec": body["spec"]}, "update")(body)

    plane.answers["/fleets/get_plan"] = answer
    ended = fleets("apply", "-y")
    assert ended.code == 0 and "is up to date" in ended.out and plane.paths() == ["/fleets/get_plan"]


def test_a_fleet_changed_in_place(fleets: Dstack, plane: Plane) -> None:
    plane.answers["/fleets/get_plan"] = fleet_plan(fleet(nodes={"min": 0, "max": 1}), "update")
    ended = fleets("apply", answers="y\n")
    assert ended.code == 0 and "nodes.max" in ended.out
    assert plane.bodies("/fleets/apply")[0]["plan"]["current_resource"]["name"] == "gpu"


def test_a_fleet_that_must_be_made_anew(fleets: Dstack, plane: Plane) -> None:
    plane.answers |= {
        "/fleets/get_plan": fleet_plan(fleet(blocks=4), "create"),
        "/fleets/delete": None,
        "/fleets/get": steps(fleet(), NOT_THERE),
    }
    ended = fleets("apply", answers="y\n")
    assert ended.code == 0 and "re-create it?" in ended.out
    assert plane.paths() == ["/fleets/get_plan", "/fleets/delete", "/fleets/get", "/fleets/get", "/fleets/apply"]
    assert plane.bodies("/fleets/apply")[0]["plan"]["current_resource"] is None


def test_an_ssh_fleet_brings_its_keys(fleets: Dstack, plane: Plane) -> None:
    from cryptography.hazmat.primitives import serialization as out
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(out.Encoding.PEM, out.PrivateFormat.OpenSSH, out.NoEncryption())
    (fleets.terminal.home / "id").write_bytes(text)
    (fleets.terminal.cwd / ".dstack.yml").write_text(
        "type: fleet\nname: lab\nssh_config:\n  user: u\n  identity_file: ~/id\n  hosts: [10.0.0.7]\n"
    )
    assert fleets("apply", "-y", "-d").code == 0
    sent = plane.bodies("/fleets/get_plan")[0]["spec"]["configuration"]["ssh_config"]
    assert sent["ssh_key"]["private"] == text.decode() and sent["ssh_key"]["public"].startswith("ssh-ed25519 ")
    (fleets.terminal.home / "id").write_text(sent["ssh_key"]["public"])
    ended = fleets("apply", "-y", "-d")
    assert ended.code == 1 and "is a public key" in ended.err


def test_flags_of_runs_are_refused_for_a_fleet(fleets: Dstack) -> None:
    ended = fleets("apply", "-y", "--max-duration", "1h")
    assert ended.code == 2 and "--max-duration" in ended.err
    ended = fleets("apply", "-y", "--", "x")
    assert ended.code == 1 and "arguments" in ended.err


# --- delete -f -------------------------------------------------------------------------------------------------------


def test_delete_a_fleet_waits_until_it_is_gone(fleets: Dstack, plane: Plane) -> None:
    plane.answers |= {"/fleets/delete": None, "/fleets/get": steps(fleet(), fleet(), NOT_THERE)}
    ended = fleets("delete", "-y")
    assert ended.code == 0 and plane.bodies("/fleets/delete") == [{"names": ["gpu"]}] and fleets.naps == [1.0]


def test_delete_a_run_needs_no_environment(task: Dstack, plane: Plane) -> None:
    plane.answers["/runs/delete"] = None
    assert task("delete", "-y", env={}).code == 0
    assert plane.bodies("/runs/delete") == [{"runs_names": ["train"]}]


def test_delete_what_isnt_there(task: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get"] = NOT_THERE
    ended = task("delete", "-y")
    assert ended.code == 1 and "There is no run train" in ended.err
    (task.terminal.cwd / ".dstack.yml").write_text("type: task\ncommands: [ls]\n")
    assert "has no `name`" in task("delete", "-y").err


# --- the older `dstack run` ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [[".", "-y", "-d", "--pool", "lab", "--reuse"], ["-y", "-d", "--reuse", "--pool=lab"]])
def test_the_older_run_applies(task: Dstack, plane: Plane, args: list[str]) -> None:
    ended = task("run", *args)
    assert ended.code == 0, ended
    configuration = plane.bodies("/runs/get_plan")[0]["run_spec"]["configuration"]
    assert "lab" in str(configuration["fleets"]) and configuration["creation_policy"] == "reuse"
    assert "today: dstack apply" in ended.err


@pytest.mark.parametrize(
    ("waits", "message"), [(True, "it waits for the first offers, ten"), (False, "only if it has `re")]
)
def test_what_a_run_without_offers_would_do_is_told(waits: bool, message: str) -> None:
    notes = [{"subject": "fleet `a`", "text": "is full", "hint": "", "waits": False}]
    output = refusals([*notes, {"subject": "fleet `b`", "text": "can grow", "hint": "see", "waits": waits}])
    assert message in output.splitlines()[-1] and "\n    → see\n" in output


def test_why_it_failed_is_told_once(task: Dstack, plane: Plane) -> None:
    why = "image nowhere/x:1 can't be pulled: manifest unknown"
    ending = run("train", "terminating", latest=submission("terminating", termination_reason_message=why))
    failed = run("train", "failed", latest=submission("failed", termination_reason_message=why, exit_status=None))
    plane.answers["/runs/get"] = steps(ending, ending, failed)
    ended = task("apply", "-y")
    assert ended.code == 1 and ended.err.count(why) == 1 and "terminating on aws" in ended.err, ended
