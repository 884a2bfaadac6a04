"""Clearing a machine: end every task, delete what tasks left outside their folders, then empty the agent's folder.

It can be repeated, even after being killed half-way. It runs only while no agent is running.
"""

from __future__ import annotations

import os
import time
from typing import Dict, List

from ..gateway import role as gateway_role
from ..kernel.task_runtime import TaskRuntime
from ..kernel.tasks import delete_tree
from ..runtimes import accounts
from ..volumes import volumes
from ..volumes.holds import Holds
from .roster import Roster

PATIENCE = 60.0  # seconds for all tasks to end
STEP = 0.05


def clear(data: str, runtimes: Dict[str, TaskRuntime], roster: Roster, patience: float = PATIENCE) -> str:
    """End all tasks and empty the data folder. Returns what prevented that; empty if nothing is left."""
    problem = end_tasks(data, runtimes, roster, patience)
    if not problem:
        wipe(data)
    return problem


def end_tasks(data: str, runtimes: Dict[str, TaskRuntime], roster: Roster, patience: float = PATIENCE) -> str:
    """End the gateway and every task, and delete what they left outside the folder. Returns what prevented that."""
    gateway_role.remove(data)
    running = _end_all(roster, patience)
    if running:
        return "these tasks don't end: %s" % ", ".join(_with_reason(roster, task) for task in running)
    for runtime in runtimes.values():
        runtime.sweep(set())
    problems = volumes.sweep(data)
    Holds().tidy()
    accounts.tidy()
    return "; ".join(problems)


def _with_reason(roster: Roster, task: str) -> str:
    """A task's id, with the users of its disk if they prevent its removal."""
    report = roster.report(task)
    return "%s (%s)" % (task, report.get("held_by")) if report.get("held") else task


def wipe(data: str) -> None:
    """Delete everything in the data folder."""
    for name in os.listdir(data):
        path = os.path.join(data, name)
        if os.path.isdir(path) and not os.path.islink(path):
            delete_tree(path)
        else:
            os.unlink(path)


def _end_all(roster: Roster, patience: float) -> List[str]:
    """End and remove every task. Returns those that don't end."""
    remaining, deadline = roster.tasks(), time.monotonic() + patience
    for task in remaining:
        if not roster.over(task):
            roster.abort(task)
            if roster.orphaned(task):  # a new supervisor finds the abort request and carries it out
                roster.launch(task, _fetch_nothing)
    while remaining:
        roster.reap()
        roster.end_logins(remaining)
        for task in [task for task in remaining if roster.over(task)]:
            roster.remove(task)
            remaining.remove(task)
        if remaining and time.monotonic() > deadline:
            return remaining
        if remaining:
            time.sleep(STEP)
    return []


def _fetch_nothing(url: str, place: str) -> None:
    """Stand in for `fetch`: a task that is about to end needs no files."""
