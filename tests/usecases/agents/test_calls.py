"""The calls of an agent, on a real store."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.retention import Retention
from chalicelib.domain.runs import RunStatus
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Invalid
from chalicelib.store import nouns
from chalicelib.store.deferred_writes import DeferredWrites
from chalicelib.store.port import Delete
from chalicelib.usecases.agents.calls import JOBS_A_COMMIT, has_news, sync
from chalicelib.usecases.pace import PER_CALL
from chalicelib.usecases.people.secrets import set_secret
from tests.usecases.cluster import FACTS, INSTANCE, PROJECT, Agent, Cluster, exited, logs, running, wants
from tests.world import nouns as b
from tests.world.plane import World


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world)
    made.agent.join()
    world.take_woken()
    return made


# --- a job's life -----------------------------------------------------------------------------------------------------


def test_a_placed_job_is_told_until_the_agent_lists_it(cluster: Cluster) -> None:
    job = cluster.place()
    answer = cluster.agent.sync()
    assert wants(answer) == {job.id: "run"} and has_news(answer)
    assert answer["tasks"][0]["spec"]["commands"] == ["sh", "-c", "echo hello"]
    listed = cluster.agent.sync({"id": job.id, "state": "preparing"})
    assert wants(listed) == {job.id: "run"} and "spec" not in listed["tasks"][0] and not has_news(listed)


def test_a_job_is_sent_only_once_its_machine_has_joined(world: World) -> None:
    cluster = Cluster.of(world, InstanceStatus.provisioning)
    job = cluster.place()
    cluster.save(cluster.instance.with_(status=InstanceStatus.provisioning))
    cluster.agent.join()
    waiting = cluster.agent.sync()
    assert wants(waiting) == {} and not has_news(waiting)
    cluster.save(cluster.instance.with_(status=InstanceStatus.busy))
    assert wants(cluster.agent.sync()) == {job.id: "run"}


def test_a_claim_of_a_job_that_is_gone_troubles_nobody(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.world.store.commit([Delete(nouns.key_of(job))])
    assert wants(cluster.agent.sync()) == {}


def test_a_jobs_states_go_forward_with_their_events(cluster: Cluster) -> None:
    job = cluster.place()
    pull = {"downloaded_bytes": 5, "total_bytes": 10}
    cluster.agent.sync({"id": job.id, "state": "pulling", "pull": pull})
    at_pull = cluster.job(job)
    assert at_pull.status is JobStatus.pulling and at_pull.pull is not None and at_pull.pull.downloaded_bytes == 5
    cluster.world.clock.pass_(3)
    cluster.agent.sync(running(job))
    now_running = cluster.job(job)
    assert (now_running.status, now_running.username, now_running.working_dir) == (JobStatus.running, "root", "/w")
    assert now_running.running_at == cluster.world.clock.at
    assert cluster.world.again(b.run("task")).status is RunStatus.running, "in the same commit"
    assert cluster.world.take_woken() >= {f"run/{job.run_id}"}
    cluster.world.clock.pass_(3)
    answer = cluster.agent.sync(exited(job, 0, reason="done_by_runner", log_end=0))
    done = cluster.job(job)
    assert (done.status, done.reason, done.exit_status) == (JobStatus.done, JobReason.done_by_runner, 0)
    assert wants(answer) == {job.id: "remove"} and has_news(answer)
    assert (cluster.instance.status, cluster.instance.claims) == (InstanceStatus.idle, ())
    assert cluster.world.take_woken() >= {f"run/{job.run_id}", f"queue/{PROJECT}"}
    steps = [(event.targets[0].type, event.message.split(":")[0]) for event in cluster.events]
    assert [text for kind, text in steps if kind == "job"] == [
        "provisioning → pulling",
        "pulling → running",
        "running → terminating",
        "terminating → done",
    ]
    assert ("instance", "busy → idle") in steps


@pytest.mark.parametrize("state", ["pulling", "running"])
def test_a_job_shows_where_its_machine_is_once_that_is_known(cluster: Cluster, state: str) -> None:
    job = cluster.place()
    made = Handle(kind="vm", id="i-1", data={"zone": "eu-a"})
    cluster.save(cluster.instance.with_(hostname="box", internal_ip="10.0.0.9", handles=(made,)))
    cluster.agent.sync({"id": job.id, "state": state})
    place = cluster.job(job).assignment
    assert place is not None and (place.hostname, place.internal_ip, place.zone) == ("box", "10.0.0.9", "eu-a")


def test_a_job_that_started_and_ended_between_two_calls_has_run(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(exited(job, 3, reason="container_exited_with_error", message="it broke"))
    after = cluster.job(job)
    assert (after.status, after.exit_status, after.message) == (JobStatus.failed, 3, "it broke")
    assert after.running_at is not None


def test_a_task_that_never_started_has_not_run(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(exited(job, None, reason="creating_container_error", message="no such image"))
    after = cluster.job(job)
    assert (after.status, after.reason, after.running_at) == (
        JobStatus.failed,
        JobReason.creating_container_error,
        None,
    )


@pytest.mark.parametrize("reason", ["scaled_down", "rm -rf", "instance_unreachable"])
def test_an_agent_can_not_claim_a_reason_that_isnt_its_to_give(cluster: Cluster, reason: str) -> None:
    job = cluster.place()
    cluster.agent.sync(exited(job, 0, reason=reason))
    assert cluster.job(job).reason is JobReason.executor_error


def test_a_job_ends_only_when_all_its_log_is_here(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(running(job))
    answer = cluster.agent.sync(exited(job, 0, log_end=10), logs=[logs(job, 0, b"hello")])
    assert cluster.job(job).status is JobStatus.terminating and cluster.instance.claims
    assert answer["logs"] == [{"task": job.id, "offset": 5}] and job.id not in wants(answer)
    cluster.agent.sync(exited(job, 0, log_end=10), logs=[logs(job, 5, b"world")])
    after = cluster.job(job)
    assert (after.status, after.log_end) == (JobStatus.done, 10)


def test_log_bytes_are_placed_by_offset(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(running(job), logs=[logs(job, 0, b"abc", b"def")])
    overlap = cluster.agent.sync(running(job), logs=[logs(job, 3, b"def", b"ghi")])
    assert overlap["logs"] == [{"task": job.id, "offset": 9}] and has_news(overlap)
    gap = cluster.agent.sync(running(job), logs=[logs(job, 50, b"xyz")])
    assert gap["logs"] == [{"task": job.id, "offset": 9}]
    page = cluster.world.plane.logs.read(PROJECT, job.id)
    assert b"".join(data for _, data in page.records) == b"abcdefghi"


def test_a_job_that_logs_too_much_is_ended(world: World) -> None:
    from dataclasses import replace

    world.plane = replace(world.plane, limits=replace(world.plane.limits, log_bytes_per_hour=100))
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    cluster.agent.sync(running(job), logs=[logs(job, 0, b"x" * 90)])
    answer = cluster.agent.sync(running(job), logs=[logs(job, 90, b"x" * 20)])
    assert wants(answer) == {job.id: "abort"} and answer["logs"] == [{"task": job.id, "offset": 110}]
    cluster.agent.sync(exited(job, -9, log_end=500))
    after = cluster.job(job)
    assert (after.status, after.reason) == (JobStatus.failed, JobReason.log_quota_exceeded)
    assert world.plane.logs.end(PROJECT, job.id) == 90


def test_an_hour_later_there_is_room_for_more_log(world: World) -> None:
    from dataclasses import replace

    world.plane = replace(world.plane, limits=replace(world.plane.limits, log_bytes_per_hour=100))
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    cluster.agent.sync(running(job), logs=[logs(job, 0, b"x" * 90)])
    world.clock.pass_(3601)
    cluster.agent.sync(running(job), logs=[logs(job, 90, b"x" * 20)])
    assert cluster.job(job).status is JobStatus.running


# --- stops ------------------------------------------------------------------------------------------------------------


def test_a_stop_is_polite_until_its_grace_is_over(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(running(job))
    now = cluster.world.clock.at
    ending = {"status": JobStatus.terminating, "reason": JobReason.terminated_by_user}
    cluster.save(cluster.job(job).with_(**ending, stop_sent_at=now, kill_at=now + 8 * SECOND))
    answer = cluster.agent.sync(running(job))
    assert answer["tasks"] == [{"id": job.id, "want": "stop", "grace": 8.0}] and has_news(answer)
    cluster.world.clock.pass_(8)
    assert wants(cluster.agent.sync(running(job))) == {job.id: "abort"}
    cluster.agent.sync(exited(job, 137, reason="container_exited_with_error"))
    after = cluster.job(job)
    assert (after.status, after.reason, after.exit_status) == (JobStatus.terminated, JobReason.terminated_by_user, 137)


def test_a_stopped_job_the_agent_never_saw_is_not_freed_before_the_agent_says_so(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync()
    ending = {"status": JobStatus.terminating, "reason": JobReason.terminated_by_user}
    cluster.save(cluster.job(job).with_(**ending, kill_at=cluster.world.clock.at))
    answer = cluster.agent.sync()
    assert wants(answer) == {job.id: "abort"} and cluster.instance.claims
    cluster.agent.sync(exited(job, None, reason="aborted_by_user"))
    assert cluster.job(job).status is JobStatus.terminated and not cluster.instance.claims


def test_a_host_that_lost_its_disk_takes_back_no_exit_status(cluster: Cluster) -> None:
    """The job had exited, and part of its log was still to come."""
    job = cluster.place()
    cluster.agent.sync(running(job))
    cluster.agent.sync({**exited(job, 0), "log_end": 90})
    assert cluster.job(job).status is JobStatus.terminating
    cluster.agent.sync(exited(job, None, reason="aborted_by_user"))
    after = cluster.job(job)
    assert (after.status, after.reason, after.exit_status) == (JobStatus.done, JobReason.done_by_runner, 0)


# --- what isn't right -------------------------------------------------------------------------------------------------


def test_a_replayed_message_is_answered_and_not_applied(cluster: Cluster) -> None:
    job = cluster.place()
    old = cluster.agent.message()
    cluster.agent.sync(running(job))
    before = cluster.job(job), cluster.presence
    answer = cluster.agent.send(old)
    assert (cluster.job(job), cluster.presence) == before
    assert answer["seq"] == old["seq"] and wants(answer)[job.id] == "run"


def test_a_message_of_an_agent_that_was_restarted_since_is_a_replay(cluster: Cluster) -> None:
    job = cluster.place()
    old = {**cluster.agent.message(), "seq": 500}
    newer = Agent(cluster.world, boot="boot-2", credential=cluster.agent.credential)
    newer.sync(running(job), facts=FACTS)
    assert cluster.presence.boot == "boot-2"
    cluster.agent.send(old)
    assert cluster.job(job).status is JobStatus.running and cluster.presence.boot == "boot-2"


def test_an_agent_is_told_that_an_earlier_process_of_it_was_heard_later(cluster: Cluster) -> None:
    newer = Agent(cluster.world, boot="boot-3", credential=cluster.agent.credential)
    assert "boot" not in newer.sync(facts=FACTS)
    late = Agent(cluster.world, boot="boot-2", credential=cluster.agent.credential)  # it was on its way for long
    late.sync(facts={**FACTS, "cpus": 2})
    answer = newer.sync()
    assert answer["boot"] == "past" and answer["news"], "a long poll doesn't wait with that"


def test_facts_of_a_replayed_message_are_not_what_the_host_is_now(cluster: Cluster) -> None:
    old = cluster.agent.message(facts=FACTS)
    newer = Agent(cluster.world, boot="boot-2", credential=cluster.agent.credential)
    newer.sync(facts={**FACTS, "cpus": 2})
    cluster.agent.send(old)
    assert cluster.presence.facts is not None
    assert cluster.presence.facts.cpus == 2


def test_what_a_message_said_of_a_job_is_applied_once_also_if_it_was_cut_off_before_the_rest(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.save(job.with_(told_by=(cluster.agent.boot, cluster.agent.seq + 1)))
    cluster.agent.sync(running(job))
    assert cluster.job(job).status is JobStatus.provisioning
    cluster.agent.sync(running(job))
    assert cluster.job(job).status is JobStatus.running


def test_a_late_state_does_not_go_back(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(running(job))
    cluster.agent.sync({"id": job.id, "state": "pulling"})
    assert cluster.job(job).status is JobStatus.running


def test_a_task_the_host_lost_ends_its_job(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(running(job))
    wiped = Agent(cluster.world, boot="boot-2", credential=cluster.agent.credential)
    wiped.sync(facts=FACTS)
    after = cluster.job(job)
    assert (after.status, after.reason) == (JobStatus.failed, JobReason.executor_error)
    assert "lost" in after.message and not cluster.instance.claims


def test_a_task_whose_job_waits_again_is_told_to_go(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync()
    cluster.save(cluster.job(job).with_(status=JobStatus.submitted, assignment=None))
    assert cluster.agent.sync(running(job))["tasks"] == [{"id": job.id, "want": "remove"}]


def test_a_foreign_task_is_told_to_go_and_changes_nothing(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    stranger = derive("test", "stranger")
    metric = {"task": stranger, "at": 1}
    report = {"id": stranger, "state": "running"}
    with caplog.at_level("DEBUG"):
        cluster.agent.sync(report)
        assert stranger in caplog.text
        caplog.clear()
        chunk = {"task": stranger, "offset": 0, "records": [[1, "aGk="]]}
        assert cluster.agent.sync(logs=[chunk])["logs"] == [] and stranger in caplog.text
        answer = cluster.agent.sync(report, logs=[chunk], metrics=[metric])
    assert wants(answer) == {stranger: "remove"} and answer["logs"] == []
    assert cluster.world.plane.logs.end(PROJECT, stranger) == 0


def test_another_instances_job_can_not_be_touched(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.save(cluster.instance.with_(claims=()))
    answer = cluster.agent.sync(exited(job, 0))
    assert cluster.job(job).status is JobStatus.provisioning and wants(answer) == {job.id: "remove"}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[]", "object"),
        (b'{"instance": 5}', "instance"),
        (b'{"v": 1, "instance": "i", "boot": "b", "seq": -1}', "seq"),
        (b'{"v": 9, "instance": "i", "boot": "b", "seq": 1}', "protocol 9"),
        (
            b'{"v": 1, "instance": "i", "boot": "b", "seq": 1, "tasks": [{"id": "x", "state": "flying"}]}',
            "tasks.0.state",
        ),
        (
            b'{"v": 1, "instance": "i", "boot": "b", "seq": 1, "logs": ' + b'"' + b"x" * 3_000_000 + b'"}',
            "the limit is",
        ),
    ],
)
def test_nonsense_is_refused_with_its_place(world: World, body: bytes, named: str) -> None:
    with pytest.raises(Invalid, match=named):
        sync(world.plane, "i", "c", body)


def test_a_record_that_is_not_base64_is_refused(cluster: Cluster) -> None:
    job = cluster.place()
    with pytest.raises(Invalid, match="base64"):
        cluster.agent.sync(running(job), logs=[{"task": job.id, "offset": 0, "records": [[1, "%%%"]]}])


def test_facts_of_a_newer_agent_are_understood_as_far_as_known(world: World) -> None:
    cluster = Cluster.of(world)
    cluster.agent.credential = bootstrap_token(world.plane.install_key, INSTANCE, 0)
    gpu = {"name": "H100", "memory_mib": 81_920, "vendor": "nvidia", "driver": "1", "mood": "good"}
    cluster.agent.sync(facts={**FACTS, "quantum_bits": 3, "gpus": [gpu]})
    facts = cluster.presence.facts
    assert facts is not None and facts.cpus == 8 and facts.gpus[0].name == "H100"


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_are_filled_in_on_the_way_and_kept_out_of_everything_stored(cluster: Cluster) -> None:
    from chalicelib.domain import keys
    from chalicelib.domain.tenants import Project, User
    from chalicelib.store import nouns

    world = cluster.world
    project = nouns.find(world.plane.store, Project, keys.project(PROJECT))
    assert project is not None
    actor = User(id=derive("test", "user"), name="admin", created_at=0, token_hash="")
    set_secret(world.plane, project, actor, "hf", "s3cr3t-value")
    cluster.place(env={"TOKEN": "Bearer ${{ secrets.hf }}", "PLAIN": "1"})
    answer = cluster.agent.sync()
    env = answer["tasks"][0]["spec"]["env"]
    assert env["TOKEN"] == "Bearer s3cr3t-value" and env["PLAIN"] == "1"
    stored = b"".join(path.read_bytes() for path in world.folder.rglob("*") if path.is_file())
    assert b"s3cr3t-value" not in stored


def test_a_missing_secret_ends_the_job_and_names_it(cluster: Cluster) -> None:
    job = cluster.place(env={"TOKEN": "${{ secrets.nope }}"})
    answer = cluster.agent.sync()
    after = cluster.job(job)
    assert (after.status, after.reason, after.log_end) == (JobStatus.terminated, JobReason.terminated_by_server, 0)
    assert "`nope`" in after.message and answer["tasks"] == [] and not cluster.instance.claims


@pytest.mark.parametrize(
    "spec", [{"user": {"uid": 10**22}}, {"max_duration": 2**70}, {"commands": 5}], ids=["uid", "duration", "unreadable"]
)
def test_a_task_that_cant_be_sent_ends_alone_with_the_reason(cluster: Cluster, spec: dict[str, Any]) -> None:
    """Neither its host nor its neighbours wait for it, and the host's answer can be written."""
    before, bad, after = cluster.place("before"), cluster.place("bad", spec=spec), cluster.place("after")
    answer = cluster.agent.sync()
    orjson.dumps(answer)
    assert wants(answer) == {before.id: "run", after.id: "run"}
    ended = cluster.job(bad)
    assert ended.finished and ended.reason is JobReason.terminated_by_server
    assert "can't be sent to its host" in ended.message
    assert {claim.job_id for claim in cluster.instance.claims} == {before.id, after.id}


@pytest.mark.parametrize(
    "wrong",
    [
        {"exit_status": 10**30},
        {"at": 2**61},
        {"log_end": -1},
        {"pull": {"total_bytes": 10**30}},
    ],
)
def test_a_number_that_no_reader_could_show_is_refused_at_the_border(cluster: Cluster, wrong: dict[str, Any]) -> None:
    job = cluster.place()
    with pytest.raises(Invalid, match=next(iter(wrong))):
        cluster.agent.sync({**exited(job), **wrong})
    assert cluster.job(job).status is JobStatus.provisioning


def test_a_moment_that_no_date_can_show_is_refused_in_a_log(cluster: Cluster) -> None:
    job = cluster.place()
    piece = {"task": job.id, "offset": 0, "records": [[2**61, "YQ=="]]}
    with pytest.raises(Invalid, match=r"logs\.0\.records"):
        cluster.agent.sync(running(job), logs=[piece])
    assert cluster.world.plane.logs.end(job.project_id, job.id) == 0


def test_what_an_agent_says_reaches_no_terminal_as_it_is(cluster: Cluster) -> None:
    bad = "\x1b[2J\x1b]0;owned\x07text\u202e"
    cluster.agent.sync(
        facts={**FACTS, "hostname": bad, "gpus": [{"name": bad, "memory_mib": 1, "vendor": bad}]}, agent=bad
    )
    facts = cluster.presence.facts
    assert facts is not None and facts.hostname == facts.gpus[0].name == "text " == cluster.presence.agent_version
    job = cluster.place()
    cluster.agent.sync(running(job, username=bad, working_dir=bad))
    assert (cluster.job(job).username, cluster.job(job).working_dir) == ("text ", "text ")
    cluster.agent.sync(exited(job, 1, message=f"one\n{bad}"))
    assert cluster.job(job).message == "one\ntext "
    assert not any("\x1b" in event.message for event in cluster.events)


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"1" + b"0" * 5000])
def test_numbers_that_json_has_no_room_for_are_refused(cluster: Cluster, number: bytes) -> None:
    body = b'{"v":1,"instance":"%s","boot":"boot-1","seq":9,"wait":%s}' % (INSTANCE.encode(), number)
    with pytest.raises(Invalid):
        sync(cluster.world.plane, INSTANCE, cluster.agent.credential, body)


def test_the_fleets_env_lies_below_the_jobs_own(cluster: Cluster) -> None:
    cluster.save(cluster.instance.with_(env={"A": "fleet", "B": "fleet"}))
    cluster.place(env={"B": "job"})
    env = cluster.agent.sync()["tasks"][0]["spec"]["env"]
    assert (env["A"], env["B"]) == ("fleet", "job")


# --- presence ---------------------------------------------------------------------------------------------------------


def test_a_quiet_call_writes_nothing_until_the_promise_must_be_renewed(cluster: Cluster) -> None:
    cluster.agent.sync()  # uses what it got for its token
    written = cluster.presence
    cluster.world.clock.pass_(100)
    cluster.agent.sync()
    assert cluster.presence == written
    cluster.world.clock.pass_(201)
    cluster.agent.sync()
    assert cluster.presence.last_seen == cluster.world.clock.at
    assert cluster.presence.seen_until >= cluster.world.clock.at + 5 * MINUTE


def test_a_host_that_is_back_is_looked_at_and_so_are_its_runs(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(running(job))
    cluster.save(cluster.instance.with_(unreachable_since=cluster.world.clock.at))
    cluster.save(cluster.job(job).with_(disconnected_at=1))
    cluster.world.take_woken()
    cluster.agent.sync(running(job))
    assert cluster.job(job).disconnected_at is None
    assert cluster.world.take_woken() == {f"instance/{INSTANCE}", f"run/{job.run_id}"}


def test_calls_are_frequent_while_something_changes_and_rare_when_nothing_does(cluster: Cluster) -> None:
    assert cluster.agent.sync()["next_sync_in"] == 60.0
    job = cluster.place()
    assert cluster.agent.sync()["next_sync_in"] == 2.0
    assert cluster.agent.sync(running(job))["next_sync_in"] == 10.0
    cluster.world.clock.pass_(301)
    for listens in (None, True):
        assert cluster.agent.sync(running(job, listens=listens))["next_sync_in"] == 60.0


@pytest.mark.slow
def test_more_ends_in_one_message_than_a_commit_takes_are_applied_one_after_the_other(world: World) -> None:
    cluster = Cluster.of(world, total_blocks=40)
    cluster.agent.join()
    jobs = [cluster.place(f"task-{n}") for n in range(40)]
    reports = [exited(job, 0) for job in jobs]
    for _ in range(ceil(len(jobs) / JOBS_A_COMMIT) - 1):
        answer = cluster.agent.sync(*reports)
        assert has_news(answer) and answer["next_sync_in"] == 2.0
    cluster.agent.sync(*reports)
    assert all(cluster.job(job).status is JobStatus.done for job in jobs) and not cluster.instance.claims


def test_what_the_host_says_of_a_running_task_is_kept_while_it_says_it(cluster: Cluster) -> None:
    job = cluster.place()
    cluster.agent.sync(running(job, message="the disk is full; the task's output waits for room"))
    cluster.agent.sync(running(job, message="the disk is full; the task's output waits for room"))
    assert "disk is full" in cluster.job(job).message
    cluster.agent.sync(running(job))
    assert cluster.job(job).message == ""


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_are_kept_for_an_hour_and_one_in_five_minutes_for_a_week(cluster: Cluster) -> None:
    from chalicelib.domain import keys

    job = cluster.place()
    cluster.agent.sync(running(job))
    start = cluster.world.clock.at - cluster.world.clock.at % (5 * MINUTE)
    points = [{"task": job.id, "at": start + second * SECOND, "cpu_usage_micro": second} for second in (0, 10, 20)]
    cluster.agent.sync(running(job), metrics=points)
    cluster.agent.sync(running(job), metrics=points)
    page = cluster.world.plane.store.query("main", keys.metric(job.id, 0).pk)
    now = cluster.world.clock.at // SECOND
    assert [record.expires_at - now for record in page.records if record.expires_at] == [7 * 86_400, 4_200, 4_200]


def test_how_long_metrics_are_kept_is_the_operators_choice(tmp_path: Path) -> None:
    from chalicelib.domain import keys

    cluster = Cluster.of(World.in_folder(tmp_path, retention=Retention(metrics=2)))
    cluster.agent.join()
    job = cluster.place()
    start = cluster.world.clock.at - cluster.world.clock.at % (5 * MINUTE)
    cluster.agent.sync(running(job), metrics=[{"task": job.id, "at": start, "cpu_usage_micro": 1}])
    (record,) = cluster.world.plane.store.query("main", keys.metric(job.id, 0).pk).records
    assert record.expires_at == cluster.world.clock.at // SECOND + 2 * 86_400
    cluster.world.plane.store.close()


# --- promises that may wait -------------------------------------------------------------------------------------------


@pytest.fixture
def gathering(cluster: Cluster) -> DeferredWrites:
    """The promises of quiet agents wait in it."""
    writes = DeferredWrites(cluster.world.store)
    cluster.world.plane = replace(cluster.world.plane, renew=writes.add)
    cluster.agent.sync()  # with its credential for the first time
    return writes


def test_a_quiet_agents_promise_may_wait(cluster: Cluster, gathering: DeferredWrites) -> None:
    before = cluster.presence
    cluster.world.clock.pass_(PER_CALL.presence)
    cluster.agent.sync()
    assert cluster.presence == before
    gathering.write()
    assert cluster.presence.last_seen == cluster.world.at
    assert cluster.presence.seen_until == cluster.world.at + PER_CALL.promise()


def test_nobody_waits_for_a_promise_that_somebody_looks_for(cluster: Cluster, gathering: DeferredWrites) -> None:
    for changes in ({"unreachable_since": cluster.world.clock.at}, {"status": InstanceStatus.provisioning}):
        cluster.save(cluster.instance.with_(**changes))
        cluster.world.clock.pass_(PER_CALL.presence)
        cluster.agent.sync()
        assert cluster.presence.last_seen == cluster.world.at, changes


def test_news_are_written_at_once(cluster: Cluster, gathering: DeferredWrites) -> None:
    cluster.agent.sync(facts={**FACTS, "cpus": 3})
    assert cluster.presence.facts is not None and cluster.presence.facts.cpus == 3
    cluster.agent.boot = "another"
    cluster.agent.seq = 0
    cluster.agent.sync()
    assert cluster.presence.boot == "another"


def test_a_promise_that_waits_is_dropped_for_the_agents_next_report(
    cluster: Cluster, gathering: DeferredWrites
) -> None:
    cluster.world.clock.pass_(PER_CALL.presence)
    cluster.agent.sync()
    cluster.agent.sync(facts={**FACTS, "cpus": 3})
    presence = cluster.presence
    gathering.write()
    assert cluster.presence == presence and presence.facts is not None and presence.facts.cpus == 3
