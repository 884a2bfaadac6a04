"""Services under `/api/v1`: how many replicas there are and should be, and why, and their requests."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instants import MINUTE, SECOND, iso
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import Run
from chalicelib.domain.services import BUCKET, STEP, Answers, Bucket, Traffic
from tests.api.rig import Rig
from tests.api.test_services import jobs_of, run_of
from tests.api.v1.rest import TASK, Client

CHAT = {"type": "service", "name": "chat", "port": 8000, "commands": ["serve"]}
SCALED = {"replicas": "1..4", "scaling": {"metric": "rps", "target": 10, "window": "30s"}}


def serve(rig: Rig, **fields: Any) -> tuple[Run, list[Job]]:
    made = Client.of(rig).ok("POST", Client.of(rig).runs, {**CHAT, **fields}, status=201)
    return run_of(rig, made["id"]), jobs_of(rig, made["id"])


def shown(rig: Rig) -> Any:
    return Client.of(rig).ok("GET", f"{Client.of(rig).runs}/chat/service")


def test_only_a_service_is_one(rig: Rig) -> None:
    api = Client.of(rig)
    api.ok("POST", api.runs, {**TASK, "name": "train"}, status=201)
    status, code, problem = api.refused("GET", f"{api.runs}/train/service")
    assert (status, code, problem["detail"]) == (404, "not-found", "The run train is a task, not a service.")
    assert api.refused("GET", f"{api.runs}/nothing/service")[0] == 404


def test_it_says_how_many_there_should_be_by_which_rule_and_why(rig: Rig) -> None:
    run, _ = serve(rig, **SCALED, model="tiny", auth=False)
    (scale,) = run.scales
    rig.save(
        run.with_(scales=(scale.with_(desired=2, wanted=3, why="12 requests a second", at=rig.world.clock.now()),))
    )
    found = shown(rig)
    (group,) = found["groups"]
    assert (group["fewest"], group["most"], group["desired"], group["wanted"]) == (1, 4, 2, 3)
    assert (group["why"], group["changed_at"]) == ("12 requests a second", iso(rig.world.clock.now()))
    rule = {"metric": "rps", "target": 10, "window_seconds": 30}
    assert group["scaling"] == {**rule, "scale_up_delay_seconds": 300, "scale_down_delay_seconds": 600}
    where = f"/proxy/services/{rig.project.name}/chat/"
    assert (found["url"], found["auth"], found["model"]) == (where, False, {"name": "tiny", "url": f"{where}v1"})


def test_a_fixed_number_has_no_rule(rig: Rig) -> None:
    serve(rig, replicas=2)
    found = shown(rig)
    (group,) = found["groups"]
    assert (group["fewest"], group["most"], group["desired"], group["scaling"]) == (2, 2, 2, None)
    assert found["model"] is None and len(found["replicas"]) == 2


def test_a_rollout_shows_which_replica_runs_which_spec(rig: Rig) -> None:
    _, jobs = serve(rig, replicas=3)
    now = rig.world.clock.now()
    old, new, gone = jobs
    api = Client.of(rig)
    api.ok("PUT", f"{api.runs}/chat/spec", {**CHAT, "replicas": 3, "commands": ["serve better"]})
    rig.save(old.with_(status=JobStatus.running, ready_at=now, draining_at=now))
    rig.save(new.with_(status=JobStatus.running, deployment_num=1, queue=4))
    rig.save(gone.with_(status=JobStatus.terminated, reason=JobReason.scaled_down, finished_at=now))
    service = shown(rig)
    keys = ("revision", "ready_at", "draining_at", "waiting")
    found = [tuple(replica[key] for key in keys) for replica in service["replicas"]]
    assert service["revision"] == 1 and found == [(0, iso(now), iso(now), None), (1, None, None, 4)]


def test_how_long_answers_took_is_read_from_all_doors_together(rig: Rig) -> None:
    run, _ = serve(rig)
    found = shown(rig)["traffic"]
    assert (found["answers"], found["first_byte"], found["whole"]) == ([], None, None)
    now = rig.world.clock.now()
    old, new = ((now - back) // STEP * STEP for back in (4 * MINUTE, STEP))
    rig.save(run_of(rig, run.id).with_(gateway_id="g1", url="https://chat.example.com/"))
    for num, cells in enumerate(((0, 98), (0, 0, 2))):  # 98 answers within 5 to 10 ms, 2 within 10 to 15 ms
        steps = (Answers(at=old, whole=(100,)), Answers(at=new, whole=cells))
        rig.save(Traffic(run_id=run.id, door=f"gateway/g1/{num}", at=now, answers=steps))
    found = shown(rig)["traffic"]
    both = {"p50": 0.0076, "p95": 0.0098, "p99": 0.0125}
    assert found["whole"] == both and found["first_byte"] is None
    assert found["answers"] == [
        {"at": iso(old), "first_byte": None, "whole": {"p50": 0.0025, "p95": 0.0048, "p99": 0.0049}},
        {"at": iso(new), "first_byte": None, "whole": both},
    ]
    rig.world.at += 6 * MINUTE  # since when the doors are quiet, so that they report no more
    found = shown(rig)["traffic"]
    assert (found["answers"], found["whole"]) == ([], None)


def test_requests_at_all_doors_are_counted_together(rig: Rig) -> None:
    run, jobs = serve(rig)
    assert shown(rig)["traffic"]["reported_at"] is None
    now = rig.world.clock.now()
    first, second = (now - MINUTE) // BUCKET * BUCKET, (now - MINUTE) // BUCKET * BUCKET + BUCKET
    told = {"run_id": run.id, "at": now - SECOND, "held": 2, "prompt_tokens": 5, "completion_tokens": 7}
    rig.save(Traffic(door="server", buckets=(Bucket(at=first, requests=3, busy=0.5),), **told))
    rig.save(Traffic(door=f"router/{jobs[0].id}", buckets=(Bucket(at=first, requests=9),), **told))
    traffic = shown(rig)["traffic"]
    assert (traffic["held"], traffic["prompt_tokens"], traffic["completion_tokens"]) == (2, 5, 7)
    assert traffic["items"] == [{"at": iso(first), "requests": 3, "busy": 0.5}]
    both = (Bucket(at=first, requests=1, busy=1.0), Bucket(at=second, requests=4, busy=0.25))
    moved = run_of(rig, run.id).with_(gateway_id="g1", url="https://chat.example.com/")
    rig.save(moved)
    rig.save(Traffic(door="gateway/g1/0", buckets=both, **told), Traffic(door="gateway/g1/1", buckets=both[:1], **told))
    traffic = shown(rig)["traffic"]
    assert traffic["held"] == 4
    assert [(each["requests"], each["busy"]) for each in traffic["items"]] == [(2, 2.0), (4, 0.25)]
    rig.world.at += 6 * MINUTE
    assert shown(rig)["traffic"]["items"] == []
