"""The functions of a stage, which a migration replaces so that none goes on that has begun before the fence.

A function's process reads the fence once, at its first event, because that would cost money at each. So all processes
are replaced: a changed setting of a function makes Lambda start new ones for all events from then on. The old ones end
within the function's time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chalicelib.errors import Refused
from chalicelib.runtime.migration.steps import Say

MARK = "DSTACK_FENCE"  # the variable that is changed; its value means nothing
POLL, POLLS = 1.0, 120  # seconds between two checks whether a change has been made, and how many


def replace_processes(functions: Any, stage: str, mark: str, sleep: Callable[[float], None], say: Say) -> None:
    """Return once no process is left that has started before. `functions`: boto3's client for Lambda."""
    found = list(_functions(functions, stage))
    if not found:
        raise Refused(f"The stage {stage} has no functions.", hint=f"Deploy it with `make deploy STAGE={stage}`.")
    for each in found:
        variables = each.get("Environment", {}).get("Variables", {})
        functions.update_function_configuration(
            FunctionName=each["FunctionName"], Environment={"Variables": {**variables, MARK: mark}}
        )
    for each in found:
        _await(functions, each["FunctionName"], sleep)
    longest = max(int(each.get("Timeout", 0)) for each in found)
    say(f"Waiting for {longest} s, the longest that a call of one of the {len(found)} functions can still take.")
    sleep(longest)


def _functions(functions: Any, stage: str) -> Iterator[dict[str, Any]]:
    """Those of the stage; none of the stage `prod-eu` if this is `prod`."""
    for page in functions.get_paginator("list_functions").paginate():
        for each in page["Functions"]:
            beginning, _, name = each["FunctionName"].rpartition("-")
            if beginning == f"dstack-{stage}" and name:
                yield each


def _await(functions: Any, name: str, sleep: Callable[[float], None]) -> None:
    for _ in range(POLLS):
        status = functions.get_function_configuration(FunctionName=name).get("LastUpdateStatus", "Successful")
        if status == "Successful":
            return
        if status == "Failed":
            break
        sleep(POLL)
    raise Refused(f"AWS didn't replace the processes of {name}.", hint="Run the command again.")
