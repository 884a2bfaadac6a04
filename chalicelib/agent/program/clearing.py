"""Clearing a machine: end every task, delete what tasks left outside their folders, then all in the agent's own folder.

It can be repeated, even after being killed half-way. It runs only while no agent does.
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
    """Empties the data folder. Returns why it couldn't; empty if nothing is left."""
    problem = end_tasks(data, runtimes, roster, patience)
    if not problem:
        wipe(data)
    return problem


def end_tasks(data: str, runtimes: Dict[str, TaskRuntime], roster: Roster, patience: float = PATIENCE) -> str:
    """Ends every task, with all that they left outside, and the gateway. Returns why it couldn't."""
    gateway_role.remove(data)
    left = _ended(roster, patience)
    if left:
        return "these tasks don't end: %s" % ", ".join(_with_reason(roster, task) for task in left)
    for runtime in runtimes.values():
        runtime.sweep(set())
    kept = volumes.sweep(data)
    Holds().tidy()
    accounts.tidy()
    return "; ".join(kept)


def _with_reason(roster: Roster, task: str) -> str:
    """A disk that somebody uses keeps its task."""
    said = roster.report(task)
    return "%s (%s)" % (task, said.get("held_by")) if said.get("held") else task


def wipe(data: str) -> None:
    """Deletes what is in the data folder."""
    for name in os.listdir(data):
        path = os.path.join(data, name)
        if os.path.isdir(path) and not os.path.islink(path):
            delete_tree(path)
        else:
            os.unlink(path)


def _ended(roster: Roster, patience: float) -> List[str]:
    """Ends and removes every task. Returns those that don't end."""
    left, deadline = roster.tasks(), time.monotonic() + patience
    for task in left:
        if not roster.over(task):
            roster.abort(task)
            if roster.orphaned(task):  # a new supervisor finds the abort request and carries it out
                roster.launch(task, _nothing)
    while left:
        roster.reap()
        roster.end_logins(left)
        for task in [task for task in left if roster.over(task)]:
            roster.remove(task)
            left.remove(task)
        if left and time.monotonic() > deadline:
            return left
        if left:
            time.sleep(STEP)
    return []


def _nothing(url: str, place: str) -> None:
    """A task that is about to end needs no files."""
