"""The table of `dstack ps`: a run with one job is one row; else a row for the run and one per job below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import Row, age, gpus, machine, money, place, status_cell
from cli.tables.services import scaling_note

if TYPE_CHECKING:
    from chalicelib import contract

FINISHED = ("terminated", "failed", "done")

PLAIN = ("NAME", "BACKEND", "GPU", "PRICE", "STATUS", "SUBMITTED")
VERBOSE = ("NAME", "USER", "BACKEND", "RESOURCES", "INSTANCE TYPE", "PRICE", "STATUS", "SUBMITTED", "ERROR")


def runs_table(runs: Sequence[contract.Run], now: float, verbose: bool = False) -> Table:
    probes = any(_probes(job) for run in runs for job in run["jobs"])
    titles = list(VERBOSE if verbose else PLAIN)
    if probes:
        titles.insert(titles.index("SUBMITTED"), "PROBES")
    table = Table(titles, below=("USER", "RESOURCES", "INSTANCE TYPE", "ERROR"))
    for run in runs:
        for row in _rows(run, now, verbose):
            table.add(*(row.get(title, "") for title in titles))
    return table


def run_name(run: contract.Run) -> str:
    return run["run_spec"]["run_name"]


def run_status(run: contract.Run) -> str:
    """The status to show: that of a finished run comes from the job that failed, or from its newest."""
    failed = failed_job(run)
    latest = newest(failed) if failed else run["latest_job_submission"]
    asleep = latest is not None and latest["termination_reason"] == "scaled_down"  # which isn't the run's own end
    if run["status"] in FINISHED and latest is not None and latest["status_message"] and not asleep:
        return latest["status_message"]
    return run["status_message"] or run["status"]


def failed_job(run: contract.Run) -> contract.Job | None:
    """The job because of which a run failed: the others were stopped because of it."""
    failed = (job for job in run["jobs"] if status_of(job) == "failed")
    return next(failed, None) if run["status"] == "failed" else None


def newest(job: contract.Job) -> contract.Submission | None:
    return job["job_submissions"][-1] if job["job_submissions"] else None


def status_of(job: contract.Job) -> contract.JobStatus | None:
    """That of its newest submission."""
    latest = newest(job)
    return latest["status"] if latest else None


def _rows(run: contract.Run, now: float, verbose: bool) -> list[Row]:
    jobs = [job for job in run["jobs"] if not _scaled_down(job)]
    head: Row = {
        "NAME": Cell(run_name(run), "bold"),
        "USER": _people(run),
        "STATUS": status_cell(run_status(run)),
        "SUBMITTED": age(run["submitted_at"], now),
        "ERROR": _error(run, jobs, verbose),
    }
    if len(jobs) == 1:
        cells = _job_cells(jobs[0])
        of_run, of_job = str(head["ERROR"]), str(cells["ERROR"])
        errors = [of_run, of_job] if run["service"] else [of_run or of_job]
        return [{**cells, **head, "ERROR": "; ".join(filter(None, errors))}]
    rows = [head]
    for job in jobs:
        latest = newest(job)
        rows.append(
            {
                **_job_cells(job),
                "NAME": _job_label(run, job, jobs),
                "STATUS": status_cell((latest["status_message"] or latest["status"]) if latest else ""),
                "SUBMITTED": age(latest["submitted_at"], now) if latest else "",
            }
        )
    _merge_repeated(rows)
    return rows


def _scaled_down(job: contract.Job) -> bool:
    latest = newest(job)
    return latest is not None and latest["termination_reason"] == "scaled_down"


def _merge_repeated(rows: list[Row]) -> None:
    """Moves an error that several jobs of a run share to the row of the run: their status shows which jobs have it."""
    head, *jobs = rows
    shared = [str(text) for text, count in Counter(row["ERROR"] for row in jobs).items() if text and count > 1]
    head["ERROR"] = "; ".join(filter(None, dict.fromkeys((str(head["ERROR"]), *shared))))
    for row in jobs:
        row["ERROR"] = "" if row["ERROR"] in shared else row["ERROR"]


def _error(run: contract.Run, jobs: Sequence[contract.Job], verbose: bool) -> str:
    """Why the run failed or what it waits for and, for a live service, how many replicas it should have."""
    live = run["service"] and run["status"] not in (*FINISHED, "terminating")
    of_jobs = {latest["termination_reason_message"] for job in jobs if (latest := newest(job))}  # in their own rows
    waits = run["next_triggered_at"] or (live and run["message"] not in of_jobs)
    error = run["error"] or (waits and run["message"]) or ""
    groups = (job["job_spec"]["replica_group"] for job in jobs if status_of(job) == "running")
    scaling = scaling_note(run, Counter(groups)) if live and verbose else ""
    return "; ".join(filter(None, (error, scaling)))


def _people(run: contract.Run) -> str:
    """The user who applied the run, and those who changed or stopped it, if they are others."""
    others = (("changed", run["changed_by"]), ("stopped", run["stopped_by"]))
    return ", ".join([run["user"], *(f"{did} by {name}" for did, name in others if name and name != run["user"])])


def _job_label(run: contract.Run, job: contract.Job, jobs: Sequence[contract.Job]) -> str:
    """The label of a job, with only what distinguishes the jobs of this run."""

    def parts_of(one: contract.Job) -> list[str]:
        spec, latest = one["job_spec"], newest(one)
        return [
            f"group={spec['replica_group']}",
            f"group={spec['node_group_name']}",
            f"replica={spec['replica_num']}",
            f"job={spec['job_num']}",
            f"deployment={latest['deployment_num'] if latest else 0}",
        ]

    columns = zip(*map(parts_of, jobs), strict=True)
    return "  " + " ".join(part for part, column in zip(parts_of(job), columns, strict=True) if len(set(column)) > 1)


def _job_cells(job: contract.Job) -> Row:
    submission = newest(job)
    placed = submission["job_provisioning_data"] if submission else None
    runtime = submission["job_runtime_data"] if submission else None
    offer = runtime["offer"] if runtime else None
    kind = offer["instance"] if offer else placed["instance_type"] if placed else None
    resources = kind["resources"] if kind else None
    spot = " (spot)" if resources and resources["spot"] else ""
    share = f" ({offer['blocks']}/{offer['total_blocks']})" if offer and offer["total_blocks"] > 1 else ""
    price = offer["price"] if offer else placed["price"] if placed else None
    error = (submission["termination_reason_message"] or submission["error"]) if submission else None
    return {
        "BACKEND": place(placed["backend"], placed["region"]) if placed else "",
        "GPU": gpus(resources) if kind else "",
        "RESOURCES": machine(resources) if kind else "",
        "INSTANCE TYPE": f"{kind['name']}{share}" if kind else "",
        "PRICE": money(price) + spot if placed else "",
        "PROBES": _probes(job),
        "ERROR": error or "",
    }


def _probes(job: contract.Job) -> str:
    """One sign per probe: ✓ ready, ~ not yet, × failing; in fives."""
    specs, latest = job["job_spec"]["probes"], newest(job)
    signs = []
    for index, probe in enumerate(latest["probes"] if latest else ()):
        wanted = specs[index]["ready_after"] if index < len(specs) else 1
        streak = probe["success_streak"]
        signs.append("✓" if streak >= wanted else "~" if streak else "×")
    return " ".join("".join(signs[at : at + 5]) for at in range(0, len(signs), 5))
