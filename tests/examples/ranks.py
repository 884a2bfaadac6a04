"""A script as two ranks, as torchrun starts them, but in copies of one process that has imported what takes seconds:
`ranks.py PORT MODULES SCRIPT ARGUMENT…`. `RANK` in an argument is the rank's number."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path

RANKS = 2


def main(port: str, modules: str, script: str, *arguments: str) -> int:
    for module in modules.split(","):
        importlib.import_module(module)
    ranks = []
    for rank in range(RANKS):
        child = os.fork()
        if not child:
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
            os.environ |= {**own, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            sys.argv = [script, *(each.replace("RANK", str(rank)) for each in arguments)]
            sys.path[0] = str(Path(script).parent)
            runpy.run_path(script, run_name="__main__")
            return 0
        ranks.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ranks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
