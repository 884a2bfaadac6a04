"""Every table at three widths and piped, compared with what a person approved."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chalicelib import contract
from cli.applying.follow import ending
from cli.screen.render import Table, facts, render
from cli.tables import cells
from cli.tables.events import event_line
from cli.tables.fleets import fleets_table
from cli.tables.metrics import TimeAxis, axis_line, axis_of, course, metrics_table
from cli.tables.offers import ages_line, gpus_table
from cli.tables.plans import changes, changes_table, cost_line, fleet_facts, offers_summary, offers_table, run_facts
from cli.tables.runs import run_status, runs_table
from cli.tables.usage import retention_text
from tests.cli.conftest import NOW
from tests.cli.plane import finished, fleet, instance, machine, offer, run, submission
from tests.harness import golden
from tests.harness.whole import whole

GOLDEN = Path(__file__).parent / "golden"
H100 = machine(cpus=192, memory=2097152, gpus=(("H100", 81920),) * 8, spot=True)


def placed(resources: dict[str, Any], **changes: Any) -> dict[str, Any]:
    one = offer("p5.48xlarge", 29.3218, resources=resources, **changes)
    data = {"backend": "kubernetes", "region": "eu-central-1", "instance_type": one["instance"], "price": one["price"]}
    return {"job_provisioning_data": data, "job_runtime_data": {"offer": one}}


def test_a_host_that_hasnt_reported_has_nothing_to_show_yet() -> None:
    assert cells.machine(whole(contract.Resources, {"disk": {"size_mib": 102400}})) == "-"
    assert cells.machine(whole(contract.Resources, {"cpus": 2, "memory_mib": 1024})) == "cpu=2 mem=1GB"


def test_less_than_a_gigabyte_is_said_in_megabytes() -> None:
    resources = {"memory": {"min": 100 / 1024, "max": 1.5}, "disk": {"size": {"min": 1 / 1024, "max": None}}}
    resources |= {"cpu": {"count": {"min": 1, "max": 1}}, "shm_size": 0.0625}
    assert cells.requirements(resources) == "cpu=1 mem=100MB..1.5GB disk=1MB.. shm=64MB"
    assert [cells.size_gb(mib) for mib in (0, 7.4, 512, 1024, 24_064)] == ["", "7MB", "512MB", "1GB", "23.5GB"]


def many_runs() -> list[Any]:
    cluster = run("finetune-llama-70b", "running")
    cluster["jobs"] = [
        {
            "job_spec": {"replica_num": 0, "job_num": number, "job_name": f"c-{number}-0"},
            "job_submissions": [submission("running", **placed(H100))],
        }
        for number in range(2)
    ]
    service = run("chat", "running", latest=submission("running", **placed(H100, blocks=4, total_blocks=8)))
    service["jobs"][0]["job_spec"]["probes"] = [{"ready_after": 2}, {"ready_after": 1}, {"ready_after": 1}]
    service["jobs"][0]["job_submissions"][0]["probes"] = [
        {"success_streak": 3},
        {"success_streak": 1},
        {"success_streak": 0},
    ]
    failed = finished("broken", "failed", 2, error="The command exited with 2; its last line was: no such file")
    waiting = run("waiting", "submitted", submitted_at="2026-11-20T05:00:00Z", status_message="retrying")
    found = [run("train"), cluster, service, finished("hello-1"), failed, waiting]
    return [whole(contract.Run, one) for one in found]


def replica(number: int, status: str = "running", group: str = "0", **changes: Any) -> dict[str, Any]:
    """A job of a service: with two probes, the first of which has to succeed twice."""
    spec = {"replica_num": number, "job_num": 0, "job_name": f"chat-0-{number}", "replica_group": group}
    spec |= {"service_port": 8000, "probes": [{"ready_after": 2}, {"ready_after": 1}]}
    latest = {**submission(status, **placed(H100)), "probes": [], **changes}
    job: dict[str, Any] = whole(contract.Job, {"job_spec": spec, "job_submissions": [latest]})
    return job


def streaks(*counts: int) -> list[dict[str, int]]:
    return [{"success_streak": count} for count in counts]


def service(name: str, jobs: list[dict[str, Any]], *scales: tuple[str, int, str], **changes: Any) -> dict[str, Any]:
    entries = [{"group": group, "desired": desired, "why": why or None} for group, desired, why in scales]
    url = f"/proxy/services/main/{name}/"
    model = {"name": "my-org/tiny", "base_url": f"{url}v1", "type": "chat"}
    return run(
        name, **{"jobs": jobs, "service": {"url": url, "model": model, "options": {}, "scales": entries}, **changes}
    )


def many_services() -> list[Any]:
    busy = [
        replica(0, probes=streaks(2, 1)),
        replica(1, probes=streaks(1, 0), deployment_num=1),
        replica(2, "terminated", termination_reason="scaled_down"),
        replica(3, "pulling", deployment_num=1),
    ]
    groups = [replica(0, group="big", probes=streaks(2, 1)), replica(1, group="small", probes=streaks(0, 0))]
    asleep = "no replicas: starts with the first request"
    return [
        service("chat", busy, ("0", 3, "14 requests a second, 5 for each replica")),
        service("mixed", groups, ("big", 1, ""), ("small", 2, "3 requests wait")),
        service("one", [replica(0, probes=streaks(2, 1))], ("0", 1, "")),
        service("rare", [], ("0", 0, "no request for 10 minutes"), status="pending", message=asleep),
    ]


def many_fleets() -> list[Any]:
    resources = {
        "cpu": {"arch": None, "count": {"min": 2, "max": None}},
        "memory": {"min": 8.0, "max": None},
        "gpu": {"name": ["A100", "H100"], "memory": {"min": 40.0, "max": None}, "count": {"min": 1, "max": 8}},
        "disk": {"size": {"min": 100.0, "max": None}},
    }
    cloud = fleet(
        "gpu-cluster",
        [
            instance(0, "busy", total_blocks=8, busy_blocks=3, instance_type={"name": "p5", "resources": H100}),
            instance(1, "idle", unreachable=True),
            instance(2, "terminated", termination_reason_message="the cloud took it back"),
            instance(3, "idle", health_status="failure", health_message="GPU 2: it requires a reset"),
        ],
        resources=resources,
        placement="cluster",
        spot_policy="auto",
        max_price=35.5,
        backends=["aws", "gcp", "kubernetes"],
    )
    local = fleet("local", [instance(0, "idle", backend="remote", region="remote", price=0.0)], nodes=None)
    local["spec"]["configuration"]["ssh_config"] = {"hosts": ["10.0.0.7"]}
    return [cloud, local, {**fleet("shared"), "project_name": "other"}]


def run_plan() -> dict[str, Any]:
    configuration = {"type": "task", "nodes": 2, "idle_duration": 300, "resources": {}}
    needs = {
        "resources": {
            "cpu": {"arch": "x86", "count": {"min": 2, "max": None}},
            "memory": {"min": 8.0, "max": 16.0},
            "gpu": {"name": ["H100"], "count": {"min": 8, "max": 8}, "compute_capability": [7, 5]},
            "disk": {"size": {"min": 100.0, "max": 100.0}},
            "shm_size": 4.0,
        },
        "spot": None,
        "max_price": 30.0,
        "reservation": None,
    }
    spec = {"requirements": needs, "retry": {"on_events": ["no-capacity"], "duration": 3600}, "max_duration": 7200}
    offers = [offer("p5.48xlarge", 29.3218, resources=H100), offer("small", 0.05, availability="no_quota")]
    job = {"job_spec": spec, "offers": offers, "total_offers": 25, "max_price": 29.9, "count": 1}
    plan = {
        "project_name": "main",
        "user": "admin",
        "run_spec": {"configuration": configuration, "profile": {}},
        "effective_run_spec": {"configuration": configuration, "profile": {}},
        "job_plans": [job, job],
    }
    made: dict[str, Any] = whole(contract.RunPlan, plan)
    return made


def metrics() -> list[Any]:
    values = {
        "cpu_usage_percent": [50, 100, 200, 10],
        "cpus_detected_num": [2],
        "memory_working_set_bytes": [2**30, 2**31],
        "memory_total_bytes": [2**32],
        "gpus_detected_num": [1],
        "gpu_util_percent_gpu0": [97, 50, 0],
        "gpu_memory_usage_bytes_gpu0": [40 * 2**30, 2**30],
    }
    job = {"job_spec": {"job_name": "train-0-0"}, "job_submissions": [submission("running", **placed(H100))]}
    times = [f"2026-11-21T05:{minute:02}:00+00:00" for minute in (0, 1, 2, 4)]  # newest last; one is missing
    named = [{"name": n, "timestamps": times[-len(value) :][::-1], "values": value} for n, value in values.items()]
    other = {"job_spec": {"job_name": "train-1-0"}}
    return [(whole(contract.Job, job), named), (whole(contract.Job, other), [])]


GROUPS = [
    {
        "name": "H100",
        "memory_mib": 81920,
        "vendor": "nvidia",
        "availability": ["no_quota"],
        "spot": ["on-demand", "spot"],
        "count": {"min": 1, "max": 8},
        "price": {"min": 1.9, "max": 3.25},
        "backend": "aws",
        "regions": ["eu-central-1", "eu-west-1", "us-east-1", "us-west-2"],
    },
    {
        "name": "T4",
        "memory_mib": 16384,
        "vendor": "nvidia",
        "availability": ["available"],
        "spot": ["spot"],
        "count": {"min": 1, "max": 1},
        "price": {"min": 0.2, "max": 0.2},
        "backend": "gcp",
        "regions": ["us-central1"],
    },
]

OLD = {"configuration": {"commands": ["a"], "env": {"X": "1"}, "resources": {"memory": {"min": 8, "max": None}}}}
NEW = {
    "configuration": {"commands": ["a", "b"], "env": {}, "resources": {"memory": {"min": 16, "max": None}}, "files": []}
}

TABLES: dict[str, Callable[[], Table]] = {
    "ps": lambda: runs_table(many_runs(), NOW),
    "ps-verbose": lambda: runs_table(many_runs(), NOW, verbose=True),
    "ps-services": lambda: runs_table(many_services(), NOW),
    "ps-services-verbose": lambda: runs_table(many_services(), NOW, verbose=True),
    "ps-empty": lambda: runs_table([], NOW),
    "fleet": lambda: fleets_table(many_fleets(), NOW, "main"),
    "fleet-verbose": lambda: fleets_table(many_fleets(), NOW, "main", verbose=True),
    "offers": lambda: offers_table(run_plan()["job_plans"][0]["offers"]),
    "gpus": lambda: gpus_table(GROUPS, ["gpu", "backend"]),
    "changes": lambda: changes_table(changes(OLD, NEW)),
    "metrics": lambda: metrics_table(metrics()),
}


@pytest.mark.parametrize("width", [80, 120, 200, None], ids=["80", "120", "200", "piped"])
@pytest.mark.parametrize("name", TABLES)
def test_reads_as_approved(name: str, width: int | None) -> None:
    text = render(TABLES[name](), width) + "\n"
    if width:
        assert all(len(line) <= width for line in text.splitlines())
    golden.check(GOLDEN / f"{name}-{width or 'piped'}.txt", text)


@pytest.mark.parametrize("name", TABLES)
def test_colour_changes_no_word(name: str) -> None:
    import re

    plain, coloured = render(TABLES[name](), 120), render(TABLES[name](), 120, colour=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_facts_of_a_run_and_of_a_fleet() -> None:
    pairs = dict(run_facts(run_plan(), verbose=True))
    assert pairs["Type"] == "task (nodes=2)"
    assert pairs["Resources"] == "cpu=x86:2.. mem=8GB..16GB disk=100GB shm=4GB gpu=H100:8:cc 7.5"
    assert pairs["Retry policy"] == "1h [no-capacity]" and pairs["Max duration"] == "2h"
    assert pairs["Spot policy"] == "auto" and pairs["Max price"] == "$30" and pairs["Idle duration"] == "5m"
    assert pairs["Creation policy"] == "reuse-or-create"
    assert "Creation policy" not in dict(run_facts(run_plan()))
    plan = whole(contract.FleetPlan, {"effective_spec": many_fleets()[0]["spec"]})
    assert dict(fleet_facts(plan))["Nodes"] == "0..2"
    assert all(len(line) <= 80 for line in facts(run_facts(run_plan()), 80).splitlines())


def test_the_cost_is_of_all_jobs_and_at_most() -> None:
    assert cost_line(run_plan()) == "Cost: $58.6436 an hour on the first offer, at most $117.2872 in 2h."
    free = run_plan()
    for job in free["job_plans"]:
        job["offers"] = [offer(price=0.0)]
    assert cost_line(free) == ""


def test_what_the_offers_left_out() -> None:
    assert offers_summary(2, 25, 29.9) == "Shown 2 of 25 offers, up to $29.9 an hour."
    assert offers_summary(2, 2, 29.9) == ""


def taken(backend: str, minutes: float | None, error: str | None = None) -> dict[str, Any]:
    at = None if minutes is None else datetime.fromtimestamp(NOW - 60 * minutes, UTC).isoformat()
    found: dict[str, Any] = whole(contract.OffersAge, {"backend": backend, "taken_at": at, "error": error})
    return found


@pytest.mark.parametrize(
    ("ages", "line"),
    [
        ([], ""),
        ([taken("aws", 3.0)], "Offers as of 3 mins ago"),
        ([taken("aws", 3.0), taken("gcp", 0.0)], "Offers as of 3 mins ago"),
        (
            [taken("aws", 1.0), taken("gcp", 130.0, "Throttled.")],
            "Offers as of 1 min ago; those of gcp as of 2 hours ago: its last refresh failed (Throttled)",
        ),
        (
            [taken("aws", 130.0, "no route"), taken("gcp", None, "no such key")],
            "Offers of aws as of 2 hours ago: its last refresh failed (no route); "
            "none of gcp yet: its last refresh failed (no such key)",
        ),
        ([taken("gcp", None, "no such key")], "No offers of gcp yet: its last refresh failed (no such key)"),
        (
            [taken("aws", 3.0) | {"prices": "prices.csv, 2026-11-20"}],
            "Offers as of 3 mins ago; prices of aws in USD from prices.csv, 2026-11-20",
        ),
        (
            [taken("aws", 3.0), taken("lambda", 20.0) | {"outlived": "5 minutes"}],
            "Offers as of 20 mins ago; those of lambda are older than the 5 minutes that they hold",
        ),
        ([taken("gcp", None)], ""),  # nobody has asked it yet
    ],
)
def test_how_old_offers_are_in_one_line(ages: list[dict[str, Any]], line: str) -> None:
    assert ages_line(ages, NOW) == line


def test_absent_null_and_empty_are_no_change() -> None:
    assert changes({"a": None, "b": []}, {"b": None, "c": {}}) == []
    assert changes({"configuration_path": "a"}, {"configuration_path": "b"}) == []
    assert changes({"configuration": {"x": 1}}, {"configuration": {"x": 2}}) == [("configuration.x", 1, 2)]


def test_an_event_is_a_line() -> None:
    event = {
        "recorded_at": "2026-11-21T05:00:00Z",
        "actor_user": "admin",
        "targets": [{"type": "run", "name": "train"}, {"type": "job", "name": "train-0-0"}],
        "message": "submitted",
    }
    event = whole(contract.Event, event)
    assert event_line(event).endswith("][admin][run train, job train-0-0] submitted")
    assert "][admin by token ci][run train, " in event_line({**event, "actor_token": "ci"})


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (0, "now"),
        (30, "30 sec ago"),
        (60, "1 min ago"),
        (300, "5 mins ago"),
        (3600, "1 hour ago"),
        (86_400, "yesterday"),
        (172_800, "2 days ago"),
        (1_209_600, "2 weeks ago"),
        (5_184_000, "2 months ago"),
        (63_072_000, "2 years ago"),
    ],
)
def test_ages(ago: int, expected: str) -> None:
    from datetime import UTC, datetime

    assert cells.age(datetime.fromtimestamp(NOW - ago, UTC).isoformat(), NOW) == expected


@pytest.mark.parametrize(
    ("amount", "expected"), [(0, "$0"), (0.05, "$0.05"), (2.0, "$2"), (0.00213, "$0.0021"), (20, "$20"), (None, "")]
)
def test_money(amount: float | None, expected: str) -> None:
    assert cells.money(amount) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(None, "-"), ("off", "off"), (-1, "off"), (300, "5m"), (90, "90s"), (259_200, "3d")]
)
def test_durations(seconds: Any, expected: str) -> None:
    assert cells.duration(seconds) == expected


def test_a_course_is_bars() -> None:
    assert course([2, 1, 0], TimeAxis(0, 2, 3), [100, 50, 0], 100) == "▁▅█"
    assert course([3, 0], TimeAxis(0, 3, 4), [100, 50], 100) == "▅··█"
    assert len(course(range(360), TimeAxis(0, 359, 20), list(range(360)), 360)) == 20
    assert course([], TimeAxis(0, 0, 1), [], 100) == course([1], None, [1], 100) == ""


def test_a_span_is_of_all_jobs_and_says_when_its_bars_are() -> None:
    axis = axis_of(metrics())
    assert axis is not None and (axis.bars, axis.each) == (5, 60)
    assert re.fullmatch(r"Bars: \d\d:00:00 to \d\d:04:00, 1m each\.", axis_line(axis))
    at = {"name": "cpu_usage_percent", "timestamps": ["2026-11-21T05:00:00Z"], "values": [1]}
    alone = axis_of([({}, [at])])
    assert alone is not None and alone.bars == 1 and axis_line(alone).count(":00:00") == 2
    assert axis_of([({}, [])]) is None


def test_samples_of_several_jobs_leave_no_gaps_between_them() -> None:
    """Each job is sampled every ten seconds, at moments of its own, and now and then a little later."""

    def sampled(*seconds: float) -> Any:
        times = [datetime.fromtimestamp(NOW + at, UTC).isoformat() for at in reversed(seconds)]
        job = {"job_spec": {"job_name": "x"}, "job_submissions": []}
        return job, [{"name": "cpu_usage_percent", "timestamps": times, "values": [1] * len(times)}]

    cases: list[list[tuple[float, ...]]] = [
        [(0, 10, 20), (3, 13, 23)],
        [(0, 10, 20, 30), (0.1, 10.3, 20.1, 30.2)],
        [(0,), (3,)],
    ]
    for jobs in cases:
        shown = render(metrics_table([sampled(*seconds) for seconds in jobs]))
        assert "·" not in shown and shown.count("▁") == sum(map(len, jobs)), shown
    late = axis_of([sampled(0, 1, 11, 21, 31)])
    assert late is not None and late.bars == 4, "the first may come at once"


@pytest.mark.parametrize(("status", "expected"), [("running", "no samples yet"), ("done", "no samples")])
def test_an_ended_job_gets_no_samples_any_more(status: str, expected: str) -> None:
    job = {"job_spec": {"job_name": "x"}, "job_submissions": [submission(status)]}
    assert render(metrics_table([(job, [])])).splitlines()[1].split(maxsplit=1)[1] == expected


def test_a_server_that_keeps_fewer_kinds_of_things_is_shown_as_well() -> None:
    shown = retention_text({"events": 90, "deleted": 1}, 80, colour=False)
    assert shown == "\nKept for\n  events                     90 days\n  deleted runs and projects  1 day"


def several(status: str, *jobs: dict[str, Any], groups: tuple[str, ...] = ("0", "0")) -> dict[str, Any]:
    """A run with a job for each node."""
    made = [
        {
            "job_spec": {"job_num": rank, "job_name": f"train-{rank}-0", "node_group_name": group},
            "job_submissions": [job],
        }
        for rank, (job, group) in enumerate(zip(jobs, groups, strict=True))
    ]
    return run("train", status, jobs=made, latest=jobs[0])


def test_a_plan_says_how_many_nodes_there_are_in_all_groups_and_what_each_needs() -> None:
    plan = run_plan()
    small = {"resources": {"cpu": {"count": {"min": 4, "max": None}}}, "spot": False}
    head, worker = ({**plan["job_plans"][0]["job_spec"], "node_group_name": name} for name in ("head", "worker"))
    plan["job_plans"] = [{"job_spec": job} for job in (head, {**worker, "requirements": small}, worker)]
    plan["job_plans"][2]["job_spec"]["requirements"] = small
    plan["run_spec"]["configuration"] |= {"nodes": None, "groups": [{"name": "head"}, {"name": "worker", "nodes": 2}]}
    pairs = dict(run_facts(plan))
    assert pairs["Type"] == "task (nodes=3)"
    assert pairs["Resources"].splitlines()[0].startswith("head: cpu=x86:2..")
    assert pairs["Resources"].splitlines()[1].startswith("worker: cpu=4..")


def test_a_plan_says_that_one_replica_doesnt_scale() -> None:
    plan = run_plan()
    spec = plan["effective_run_spec"]
    configuration = spec["configuration"] | {"type": "service", "scaling": {"metric": "rps", "target": 1}}
    spec["configuration"] = configuration
    assert "1..4" in dict(run_facts(plan))["Scaling"]
    spec["configuration"] = configuration | {"replicas": "1..2"}
    assert "Scaling" not in dict(run_facts(plan))


def test_nodes_have_a_line_each_with_the_name_of_their_group() -> None:
    plain = several("running", submission("running"), submission("pulling"))
    names = [
        line.split("ssh")[0].split("aws")[0].rstrip() for line in render(runs_table([plain], NOW), None).splitlines()
    ]
    assert [name[:7].rstrip() for name in names[2:]] == ["  job=0", "  job=1"]
    grouped = several("running", submission("running"), submission("running"), groups=("head", "worker"))
    text = render(runs_table([grouped], NOW), None)
    assert "  group=head job=0" in text and "  group=worker job=1" in text


def test_a_service_that_was_stopped_while_it_slept_wasnt_scaled_down() -> None:
    last = replica(0, "terminated", status_message="scaled down", termination_reason="scaled_down")
    ended = service("chat", [last], status="terminated", status_message="terminated")
    assert run_status({**ended, "latest_job_submission": last["job_submissions"][0]}) == "terminated"


def test_what_a_running_service_waits_for_is_said_once() -> None:
    why = "the new version doesn't work, so the one before stays: chat-0-1 exited (1)"
    text = render(runs_table([service("chat", [replica(0)], message=why)], NOW, verbose=True), None)
    assert text.count(why) == 1
    full = "waiting for free capacity"
    waits = replica(1, "submitted", termination_reason_message=full)
    text = render(runs_table([service("chat", [replica(0), waits], message=full)], NOW, verbose=True), None)
    assert text.count(full) == 1


def test_a_run_that_failed_shows_the_status_of_the_node_for_which_it_did() -> None:
    ended = submission("terminated", status_message="terminated", finished_at="2026-11-21T05:00:09Z")
    broken = submission("failed", status_message="exited (3)", exit_status=3, finished_at="2026-11-21T05:00:09Z")
    failed = several("failed", ended, broken)
    assert run_status(failed) == "exited (3)"
    assert ending({**failed, "message": "exited with status 3"}, "train", False) == (
        "train failed (exited (3) on train-1-0) after 9 s: exited with status 3"
    )
    assert run_status(several("terminated", ended, ended)) == "terminated"


@pytest.mark.parametrize("width", [80, 84, 100, 120])
def test_a_reason_is_no_column_of_single_words(width: int) -> None:
    """Of one run that waits, where all other columns are narrow."""
    why = "waiting for the quota: 1 of 1 job of the project main is there, and for a place in the fleet cloud"
    shown = render(runs_table([run("b", "pending", error=why, jobs=[])], NOW, verbose=True), width).splitlines()
    assert all(len(line) <= width for line in shown) and len(shown) < 7, shown


def test_what_several_nodes_say_is_told_once() -> None:
    why = "image nowhere/x:1 can't be pulled: manifest unknown"
    jobs = [
        {"job_spec": {"job_num": at}, "job_submissions": [submission("failed", termination_reason_message=message)]}
        for at, message in enumerate((why, None, why, "its disk is full"))
    ]
    shown = render(runs_table([run("sum", "failed", jobs=jobs)], NOW, verbose=True)).splitlines()
    assert [line.endswith(why) for line in shown] == [False, True, False, False, False, False]
    assert shown[-1].endswith("its disk is full")
    output = render(runs_table([run("sum", "failed", jobs=jobs, error=why)], NOW, verbose=True))
    assert output.count(why) == 1


def test_what_nobody_reports_of_a_gpu_is_not_zero() -> None:
    job, named = metrics()[0]
    silent = [each for each in named if not each["name"].startswith("gpu_")]
    (row,) = [
        line for line in render(metrics_table([(job, silent)]), 120, colour=False).splitlines() if "gpu=0" in line
    ]
    assert row.split() == ["gpu=0", "not", "reported", "not", "reported"]


def test_bars_are_of_the_times_of_their_own_metric() -> None:
    """A GPU that was reported later has no bars before."""
    job, named = metrics()[0]
    late = [
        {**each, "timestamps": each["timestamps"][:2], "values": [100, 100]} if "util" in each["name"] else each
        for each in named
    ]
    shown = render(metrics_table([(job, late)]), 120, colour=False)
    assert re.search(r"gpu=0 +100% ··█·█ ", shown), shown
