"""The workflow machine. Its steps are done in order; when one fails for good, or nobody wants the result any more, what
was done is undone in reverse order, which is never abandoned.
"""

from __future__ import annotations

from chalicelib.domain.instants import MINUTE, SECOND, Micros, every, spoken
from chalicelib.machines.table import StateMachine

UNDO_EVERY: Micros = 5 * SECOND  # doubled with every failure, up to:
UNDO_SELDOM: Micros = 5 * MINUTE
CALL_DUE_WITHIN: Micros = 2 * MINUTE  # for an execution to request its next step; then another one is started
MOST_STARTS = 3  # executions started in vain; then the engine's own passes take over
CHECK_STEP_EVERY: Micros = MINUTE  # pause between checks of a step that an execution waits for, if no wake-up comes

WORKFLOW = StateMachine(
    noun="workflow",
    initial=("running",),
    terminal=frozenset({"done", "undone"}),
    table={
        "running": {"finished": "done", "failed": "undoing"},
        "undoing": {"unwound": "undone"},
    },
    timeouts={
        "running": "each step's own: the time-out of an attempt, how many may fail, how long it may wait; an execution "
        f"that doesn't request its next within {spoken(CALL_DUE_WITHIN)} is started again, and after {MOST_STARTS} "
        "times the engine's own passes take over",
        "undoing": f"each step is tried again after {spoken(UNDO_EVERY)}, then less and less often, down to "
        f"{every(UNDO_SELDOM)}; never abandoned",
    },
)
