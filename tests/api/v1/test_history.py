"""Events, offers and usage under `/api/v1`."""

from __future__ import annotations

from urllib.parse import quote

from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.runs.metrics import metric_puts
from tests.api.rig import Rig
from tests.api.test_runs import job_of, placed
from tests.api.v1.rest import TASK, Client


def test_events_are_paged_and_filtered(rig: Rig) -> None:
    api = Client.of(rig)
    events = f"/api/v1/projects/{api.project}/events"
    runs = [api.ok("POST", api.runs, {**TASK, "name": name}, status=201)["id"] for name in ("one", "two")]
    of_one = api.ok("GET", f"{events}?run_id={runs[0]}&target_type=run")["items"]
    assert {target["name"] for event in of_one for target in event["targets"] if target["type"] == "run"} == {"one"}
    assert of_one[-1]["user"] == "admin" and of_one[-1]["project"] == api.project
    found, url = [], f"{events}?limit=1"
    while True:
        page = api.ok("GET", url)
        found += [event["id"] for event in page["items"]]
        if page["next"] is None:
            break
        url = f"{events}?limit=1&cursor={page['next']}"
    assert found == [event["id"] for event in api.ok("GET", events)["items"]] and len(found) > 2
    assert set(found) <= {event["id"] for event in api.ok("GET", "/api/v1/events")["items"]}


def test_events_say_what_changed_and_are_found_by_target_actor_and_date(rig: Rig) -> None:
    api = Client.of(rig)
    events = f"/api/v1/projects/{api.project}/events"
    api.ok("POST", api.runs, {**TASK, "name": "one"}, status=201)
    api.ok("POST", f"{api.runs}/one/stop", status=202)
    found = {event["type"]: event for event in api.ok("GET", f"{events}?target=run/one")["items"]}
    made, moved = found["created"], found["status"]
    assert (len(found), made["before"], made["user"], made["token"]) == (2, None, "admin", None)
    assert (moved["before"], moved["after"]) == ("submitted", "terminating")
    assert moved["reason"] == "stopped_by_user"
    assert api.ok("GET", f"{events}?target=run/two")["items"] == []
    every = api.ok("GET", events)["items"]
    people, system = (api.ok("GET", f"{events}?by={who}")["items"] for who in ("people", "system"))
    assert people == [event for event in every if event["user"]] and system == [e for e in every if not e["user"]]
    assert api.ok("GET", f"{events}?user=admin")["items"] == people and people
    before = quote(made["at"])
    assert made["id"] not in [event["id"] for event in api.ok("GET", f"{events}?until={before}")["items"]]
    assert api.refused("GET", f"{events}?target=one")[:2] == (422, "invalid")


def test_offers_are_found_by_requirements(rig: Rig) -> None:
    api = Client.of(rig)
    offers = f"/api/v1/projects/{api.project}/offers"
    found = api.ok("GET", offers)
    assert [offer["type"] for offer in found["items"]] == ["small", "large", "a100", "h100x8"] and found["total"] == 4
    gpus = api.ok("GET", f"{offers}?gpu=H100:8&regions=ewr,fra&limit=5")["items"]
    assert [(offer["region"], offer["resources"]["gpus"][0]["count"]) for offer in gpus] == [("ewr", 8)]
    assert api.ok("GET", f"{offers}?max_price=0.07")["total"] == 1
    assert api.ok("GET", f"{offers}?limit=1") == {"items": found["items"][:1], "total": 4}
    assert api.refused("GET", f"{offers}?cpu=many")[:2] == (422, "invalid")


def test_what_a_job_used(rig: Rig) -> None:
    api = Client.of(rig)
    run = api.ok("POST", api.runs, {**TASK, "name": "one"}, status=201)
    assert api.ok("GET", f"{api.runs}/one/metrics")["items"] == []
    job, now = job_of(rig, run["id"]), rig.world.clock.now()
    rig.save(placed(job, now))
    points = [
        MetricPoint(task=job.id, at=now - seconds * 10**6, cpu_usage_micro=(9 - seconds) * 500_000,
                    memory_usage_bytes=2**30, memory_working_set_bytes=2**29, gpus=[])
        for seconds in (4, 3, 2)
    ]  # fmt: skip
    rig.world.plane.store.commit(metric_puts(points, {job.id: job}, now, 1))
    seen = api.ok("GET", f"{api.runs}/one/metrics?limit=1")
    assert [(each["cpu_percent"], each["memory_bytes"]) for each in seen["items"]] == [(50, 2**30)]
    assert seen["cpus"] and api.refused("GET", f"{api.runs}/one/metrics?node=5")[0] == 404
