"""One warm Lambda sandbox: a process with one function that handles events, one at a time.

Events arrive as JSON and responses leave the same way, so what AWS couldn't carry as JSON can't get through here
either. What the function prints goes to standard error, as it would to CloudWatch.

A sandbox is a copy of a process that has imported what functions need, and has none of their settings: of a start,
nearly all is Python that imports the same modules once more.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

IMPORTED = ("app", "boto3", "pynamodb.connection", "chalicelib.runtime.lambda_", "chalicelib.engine.reconcile")
COPIES = get_context("forkserver")
COPIES.set_forkserver_preload([*IMPORTED])


def work(handler: str, environment: Mapping[str, str], events: Connection) -> None:
    """Until nobody sends events any more."""
    os.dup2(2, 1)
    os.environ.clear()
    os.environ.update(environment)
    module, _, name = handler.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    while True:
        try:
            event = events.recv()
        except EOFError:
            return
        events.send(json.dumps(_answer(function, json.loads(event))))


def _answer(function: Any, event: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": function(event, None)}
    except Exception as error:  # what Lambda returns if a function raised
        sys.excepthook(type(error), error, error.__traceback__)
        return {"errorType": type(error).__name__, "errorMessage": str(error)}
