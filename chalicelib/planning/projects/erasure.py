"""Which records may be erased: none of anything that still runs, and none before its retention is over."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.domain.closings import Closing
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import DAY, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.programs import Program
from chalicelib.domain.retention import Retention
from chalicelib.domain.runs import Run
from chalicelib.domain.tenants import Archive, Project
from chalicelib.domain.volumes import Volume

RECORD_DELAY: Micros = DAY  # by then a blob's record has been written, and an upload has ended
UNUSED_DAYS = 1  # for an archive with which no run was submitted
MOST_SUBMISSIONS = 100  # of each job of a live run, or of a whole service: every pass over the run reads them all


def run_erasable(run: Run, jobs: Iterable[Job], retention: Retention, now: Micros) -> bool:
    """May a deleted run be erased, with its jobs, specs and logs?"""
    deleted_at = run.deleted_at or run.last_processed_at
    return run.deleted and _over(run, jobs) and deleted_at <= now - retention.deleted * DAY


def logs_erasable(run: Run, jobs: Iterable[Job], retention: Retention, now: Micros) -> bool:
    return not run.logs_erased and _over(run, jobs) and run.ended_at <= now - retention.logs * DAY


def erasable_submissions(run: Run, jobs: Iterable[Job], retention: Retention, now: Micros) -> list[Job]:
    """The jobs of a live run that may be erased: they ended so long ago that their logs may be erased, or many others
    have followed. Each retry, each scheduled start and each replica that is scaled up adds some, up to one a minute.
    The newest job of each slot stays, as does the last one that had a machine, because retries count from it."""
    if run.finished:
        return []
    newest: dict[tuple[int, int], str] = {}
    placed: dict[tuple[int, int], str] = {}
    ordered = sorted(jobs, key=lambda job: job.submission_num)
    for job in ordered:
        newest[job.slot] = job.id
        if job.had_machine:
            placed[job.slot] = job.id
    needed = {*newest.values(), *placed.values()}
    before = now - retention.logs * DAY
    ended = [job for job in ordered if job.finished and job.id not in needed]
    followed = _followed(run, ended, max((job.submission_num for job in ordered), default=0))
    return [job for job in ended if (job.finished_at or job.last_processed_at) <= before or job.id in followed]


def _followed(run: Run, ended: list[Job], latest: int) -> set[str]:
    """The ids of jobs that many others have followed: in their own slot or, for a service, which may have hundreds of
    slots, in any of them."""
    if run.scales:
        in_time = sorted(ended, key=lambda job: (job.submitted_at, job.submission_num))
        return {job.id for job in in_time[:-MOST_SUBMISSIONS]}
    return {job.id for job in ended if job.submission_num <= latest - MOST_SUBMISSIONS}


def instance_erasable(instance: Instance, retention: Retention, now: Micros) -> bool:
    over = instance.status is InstanceStatus.terminated and not instance.claims
    return over and instance.ended_at <= now - retention.fleets * DAY


def fleet_erasable(fleet: Fleet, retention: Retention, now: Micros) -> bool:
    """Its instances ended before it did, so they go first."""
    return fleet.ended and fleet.last_processed_at <= now - retention.fleets * DAY


def volume_erasable(volume: Volume, retention: Retention, now: Micros) -> bool:
    return volume.deleted and (volume.deleted_at or volume.last_processed_at) <= now - retention.fleets * DAY


def gateway_erasable(gateway: Gateway, retention: Retention, now: Micros) -> bool:
    return gateway.deleted and (gateway.deleted_at or gateway.last_processed_at) <= now - retention.fleets * DAY


def archive_erasable(archive: Archive, retention: Retention, now: Micros) -> bool:
    """Provided that no live run uses it."""
    days = retention.archives if archive.submitted else UNUSED_DAYS
    return archive.erased or archive.used_at <= now - days * DAY


def is_settled(written_at: Micros, now: Micros) -> bool:
    """Is a blob so old that the record that names it must exist by now? It normally follows within seconds."""
    return written_at <= now - RECORD_DELAY


def program_erasable(program: Program, live: Iterable[Instance], now: Micros) -> bool:
    """May an older agent program be deleted? Whenever a machine starts, it fetches the program that was the newest when
    the machine was bought. Releases are known only to the day, hence two additional days at both ends."""
    unsure = 2 * DAY
    first, last = program.first_at - unsure, program.last_at + unsure
    overlaps = any(machine.created_at <= last and (machine.started_at or now) >= first for machine in live)
    return last <= now and not overlaps


def project_erasable(closing: Closing, project: Project, retention: Retention, now: Micros) -> bool:
    """May the records of a deleted project be erased? Its closing is due as long as anything of it runs."""
    over = project.deleted and closing.due_at is None and not closing.erased
    return over and closing.began_at <= now - retention.deleted * DAY


def project_record_erasable(closing: Closing, project: Project, retention: Retention, now: Micros) -> bool:
    """May its own record be erased? Only if no other record is left beside it and no event names it any more."""
    return project.deleted and closing.erased and closing.began_at <= now - retention.events * DAY


def _over(run: Run, jobs: Iterable[Job]) -> bool:
    return run.finished and all(job.finished for job in jobs)
