"""The table of `dstack ps`: a run with one job is one row; else a row for the run and one per job below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cli.screen.render import Cell, Table
from cli.tables.cells import Json, age, gpus, machine, money, place, status_cell
from cli.tables.services import scaling_note

FINISHED = ("terminated", "failed", "done")

PLAIN = ("NAME", "BACKEND", "GPU", "PRICE", "STATUS", "SUBMITTED")
VERBOSE = ("NAME", "USER", "BACKEND", "RESOURCES", "INSTANCE TYPE", "PRICE", "STATUS", "SUBMITTED", "ERROR")


def runs_table(runs: Sequence[Json], now: float, verbose: bool = False) -> Table:
    probes = any(_probes(job) for run in runs for job in run.get("jobs") or ())
    titles = list(VERBOSE if verbose else PLAIN)
    if probes:
        titles.insert(titles.index("SUBMITTED"), "PROBES")
    table = Table(titles, below=("USER", "RESOURCES", "INSTANCE TYPE", "ERROR"))
    for run in runs:
        for row in _rows(run, now, verbose):
            table.add(*(row.get(title, "") for title in titles))
    return table


def run_name(run: Json) -> str:
    return str((run.get("run_spec") or {}).get("run_name") or "")


def run_status(run: Json) -> str:
    """The status to show: that of a finished run comes from the job that failed, or from its newest."""
    failed = failed_job(run)
    latest = newest(failed) if failed else run.get("latest_job_submission") or {}
    asleep = latest.get("termination_reason") == "scaled_down"  # which isn't the run's own end
    if run.get("status") in FINISHED and latest.get("status_message") and not asleep:
        return str(latest["status_message"])
    return str(run.get("status_message") or run.get("status") or "")


def failed_job(run: Json) -> Json | None:
    """The job because of which a run failed: the others were stopped because of it."""
    failed = (job for job in run.get("jobs") or () if newest(job).get("status") == "failed")
    return next(failed, None) if run.get("status") == "failed" else None


def newest(job: Json) -> Json:
    submissions = job.get("job_submissions") or ()
    return submissions[-1] if submissions else {}


def _rows(run: Json, now: float, verbose: bool) -> list[dict[str, Any]]:
    jobs = [job for job in run.get("jobs") or [] if newest(job).get("termination_reason") != "scaled_down"]
    head: dict[str, Any] = {
        "NAME": Cell(run_name(run), "bold"),
        "USER": _people(run),
        "STATUS": status_cell(run_status(run)),
        "SUBMITTED": age(run.get("submitted_at"), now),
        "ERROR": _error(run, jobs, verbose),
    }
    if len(jobs) == 1:
        cells = _job_cells(jobs[0])
        errors = [head["ERROR"], cells["ERROR"]] if run.get("service") else [head["ERROR"] or cells["ERROR"]]
        return [{**cells, **head, "ERROR": "; ".join(filter(None, errors))}]
    rows = [head]
    for job in jobs:
        latest = newest(job)
        rows.append(
            {
                **_job_cells(job),
                "NAME": _job_label(run, job, jobs),
                "STATUS": status_cell(str(latest.get("status_message") or latest.get("status") or "")),
                "SUBMITTED": age(latest.get("submitted_at"), now),
            }
        )
    _merge_repeated(rows)
    return rows


def _merge_repeated(rows: list[dict[str, Any]]) -> None:
    """Moves an error that several jobs of a run share to the row of the run: their status shows which jobs have it."""
    head, *jobs = rows
    shared = [text for text, count in Counter(row["ERROR"] for row in jobs).items() if text and count > 1]
    head["ERROR"] = "; ".join(filter(None, dict.fromkeys((head["ERROR"], *shared))))
    for row in jobs:
        row["ERROR"] = "" if row["ERROR"] in shared else row["ERROR"]


def _error(run: Json, jobs: Sequence[Json], verbose: bool) -> str:
    """Why the run failed or what it waits for and, for a live service, how many replicas it should have."""
    live = run.get("service") and run.get("status") not in (*FINISHED, "terminating")
    of_jobs = {newest(job).get("termination_reason_message") for job in jobs}  # shown in their own rows
    waits = run.get("next_triggered_at") or (live and run.get("message") not in of_jobs)
    error = str(run.get("error") or (waits and run.get("message")) or "")
    groups = ((job.get("job_spec") or {}).get("replica_group", "0") for job in jobs if _runs(job))
    scaling = scaling_note(run, Counter(groups)) if live and verbose else ""
    return "; ".join(filter(None, (error, scaling)))


def _runs(job: Json) -> bool:
    return bool(newest(job).get("status") == "running")


def _people(run: Json) -> str:
    """The user who applied the run, and those who changed or stopped it, if they are others."""
    owner = str(run.get("user") or "")
    changes = [
        f"{did} by {run[key]}" for did, key in (("changed", "changed_by"), ("stopped", "stopped_by")) if run.get(key)
    ]
    return ", ".join([owner, *(change for change in changes if not change.endswith(f" by {owner}"))])


def _job_label(run: Json, job: Json, jobs: Sequence[Json]) -> str:
    """The label of a job, with only what distinguishes the jobs of this run."""
    spec = job.get("job_spec") or {}
    groups = ("replica_group", "node_group_name")
    kinds = [kind for kind in groups if len({(other.get("job_spec") or {}).get(kind, "0") for other in jobs}) > 1]
    parts = [f"group={spec.get(kind, '0')}" for kind in kinds]
    if len({(other.get("job_spec") or {}).get("replica_num", 0) for other in jobs}) > 1:
        parts.append(f"replica={spec.get('replica_num', 0)}")
    if len({(other.get("job_spec") or {}).get("job_num", 0) for other in jobs}) > 1:
        parts.append(f"job={spec.get('job_num', 0)}")
    if len({newest(other).get("deployment_num", 0) for other in jobs}) > 1:
        parts.append(f"deployment={newest(job).get('deployment_num', 0)}")
    return "  " + " ".join(parts)


def _job_cells(job: Json) -> dict[str, Any]:
    submission = newest(job)
    placed = submission.get("job_provisioning_data") or {}
    offer = (submission.get("job_runtime_data") or {}).get("offer") or {}
    kind = offer.get("instance") or placed.get("instance_type") or {}
    resources = kind.get("resources") or {}
    spot = " (spot)" if resources.get("spot") else ""
    blocks = offer.get("total_blocks") or 1
    share = f" ({offer.get('blocks')}/{blocks})" if blocks > 1 else ""
    price = offer["price"] if "price" in offer else placed.get("price")
    return {
        "BACKEND": place(placed.get("backend"), placed.get("region")),
        "GPU": gpus(resources) if kind else "",
        "RESOURCES": machine(resources) if kind else "",
        "INSTANCE TYPE": f"{kind.get('name', '')}{share}",
        "PRICE": money(price) + spot if placed else "",
        "PROBES": _probes(job),
        "ERROR": str(submission.get("termination_reason_message") or submission.get("error") or ""),
    }


def _probes(job: Json) -> str:
    """One sign per probe: ✓ ready, ~ not yet, × failing; in fives."""
    specs = (job.get("job_spec") or {}).get("probes") or ()
    signs = []
    for index, probe in enumerate(newest(job).get("probes") or ()):
        wanted = specs[index].get("ready_after", 1) if index < len(specs) else 1
        streak = probe.get("success_streak", 0)
        signs.append("✓" if streak >= wanted else "~" if streak else "×")
    return " ".join("".join(signs[at : at + 5]) for at in range(0, len(signs), 5))
