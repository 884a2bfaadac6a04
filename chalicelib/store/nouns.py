"""Nouns to records and back: which index a noun stands in, and when it is due.

A noun carries the version it was read as; `put(noun)` makes the change that writes it under that condition, so nobody
above this file handles versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import orjson

from chalicelib.domain.events import Event
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.tenants import Archive, Member, Project, Repo, Secret, User
from chalicelib.store import keys
from chalicelib.store.port import Due, Key, Put, Record, Store

N = TypeVar("N", bound=Noun)

Placing = tuple[Key, tuple[str, str] | None, tuple[str, str] | None, Due | None]


def _run(run: Run) -> Placing:
    if run.deleted:
        return keys.run(run.id), None, None, None
    sort = keys.by_time(keys.runs_of(run.project_id), run.submitted_at, run.id)
    live = None if run.finished else (keys.live_runs_of(run.project_id), sort[1])
    return keys.run(run.id), sort, live, _due("run", f"run/{run.id}", run.due_at)


def _job(job: Job) -> Placing:
    key = keys.job(job.run_id, job.replica_num, job.job_num, job.submission_num)
    if job.status is JobStatus.submitted and job.assignment is None:
        sort = keys.queue_sort(job.priority, job.submitted_at, job.id)
        due = _due("queue", f"queue/{job.project_id}", job.due_at)
        return key, (keys.queue_of(job.project_id), sort), None, due
    return key, None, None, _due("run", f"run/{job.run_id}", job.due_at)


def _fleet(fleet: Fleet) -> Placing:
    sort = None if fleet.deleted else keys.by_time(keys.fleets_of(fleet.project_id), fleet.created_at, fleet.id)
    return keys.fleet(fleet.id), sort, None, _due("fleet", f"fleet/{fleet.id}", fleet.due_at)


def _instance(instance: Instance) -> Placing:
    place = (keys.instances_of(instance.fleet_id), f"{instance.num:06d}#{instance.epoch:06d}")
    joined = instance.status in (InstanceStatus.idle, InstanceStatus.busy)
    free = (keys.free_of(instance.project_id), instance.id) if joined and instance.free_blocks > 0 else None
    gone = instance.status is InstanceStatus.terminated
    return (
        keys.instance(instance.id),
        None if gone else place,
        free,
        _due("instance", f"instance/{instance.id}", instance.due_at),
    )


def _event(event: Event) -> Placing:
    key = keys.event(event.project_id, event.at, event.id)
    run = (keys.run_events(event.run_id), key.sk) if event.run_id else None
    fleet = (keys.fleet_events(event.fleet_id), key.sk) if event.fleet_id else None
    return key, run, fleet, None


def _member(member: Member) -> Placing:
    key = keys.member(member.project_id, member.user_id)
    return key, (keys.member_of(member.user_id), member.project_id), None, None


def _due(kind: str, unit: str, at: int | None) -> Due | None:
    return None if at is None else Due(kind, unit, at)


_PLACING: dict[type[Noun], Any] = {
    Run: _run,
    RunBody: lambda body: (keys.run_body(body.run_id, body.deployment_num), None, None, None),
    Job: _job,
    Fleet: _fleet,
    FleetBody: lambda body: (keys.fleet_body(body.fleet_id, body.spec_num), None, None, None),
    Instance: _instance,
    Presence: lambda presence: (keys.presence(presence.instance_id), None, None, None),
    Event: _event,
    User: lambda user: (keys.user(user.id), None, None, None),
    Project: lambda project: (keys.project(project.id), None, None, None),
    Member: _member,
    Secret: lambda secret: (keys.secret(secret.project_id, secret.name), None, None, None),
    Repo: lambda repo: (keys.repo(repo.project_id, repo.repo_id), None, None, None),
    Archive: lambda archive: (keys.archive(archive.id), None, None, None),
}


def key_of(noun: Noun) -> Key:
    key: Key = _PLACING[type(noun)](noun)[0]
    return key


def put(noun: Noun) -> Put:
    """The change that writes `noun`, on the condition that nobody wrote it since it was read."""
    key, gsi1, gsi2, due = _PLACING[type(noun)](noun)
    body = noun.__pydantic_serializer__.to_json(noun, exclude_defaults=True)
    return Put(Record(key, noun.version + 1, body, gsi1, gsi2, due), expect=noun.version)


def read(kind: type[N], record: Record) -> N:
    noun = kind.model_validate_json(record.body)
    object.__setattr__(noun, "version", record.version)
    return noun


def pointer(key: Key, target: str, *, version: int = 0) -> Put:
    """A name's record: `{"id": target}`. Version 0 claims a free name; a higher one moves the pointer on."""
    return Put(Record(key, version + 1, orjson.dumps({"id": target})), expect=version)


def pointed(record: Record) -> str:
    """The id that a name's record points at."""
    return str(orjson.loads(record.body)["id"])


def find(store: Store, kind: type[N], key: Key) -> N | None:
    record = store.get(key)
    return None if record is None else read(kind, record)


def find_many(store: Store, kind: type[N], found: Sequence[Key]) -> list[N | None]:
    return [None if record is None else read(kind, record) for record in store.get_many(found)]


def find_target(store: Store, key: Key) -> tuple[str, int] | None:
    """The id a pointer names and the pointer's version, or None where the name is free."""
    record = store.get(key)
    return None if record is None else (pointed(record), record.version)
