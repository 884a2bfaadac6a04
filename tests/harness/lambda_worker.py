"""One warm Lambda sandbox: a process with one function that handles events, one at a time.

Events arrive as JSON lines on standard input and responses leave the same way, so what AWS couldn't carry as JSON can't
get through here either. What the function prints goes to standard error, as it would to CloudWatch.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


def main(handler: str) -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = handler.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        answers.write(json.dumps(_answer(function, json.loads(line))) + "\n")
        answers.flush()
    return 0


def _answer(function: Any, event: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": function(event, None)}
    except Exception as error:  # what Lambda returns if a function raised
        sys.excepthook(type(error), error, error.__traceback__)
        return {"errorType": type(error).__name__, "errorMessage": str(error)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
