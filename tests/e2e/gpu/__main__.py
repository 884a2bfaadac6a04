"""`make e2e-gpu`: on a machine with NVIDIA cards. Tells each stage as it ends; the last line is JSON with all of them.

`--policy` adds the run that is ended for leaving its card idle, which takes its window of five minutes.
`--inside` tries the other kind of machine instead: a container with the agent in it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.gpu.inside import inside
from tests.e2e.gpu.journey import BUSY_S, journey


def _tried(chosen: argparse.Namespace, home: Path, report: Callable[[str, Any], None]) -> bool:
    if chosen.inside:
        return inside(home, report, chosen.busy)
    return journey(home, chosen.policy, report, chosen.busy)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.gpu", description=__doc__)
    parser.add_argument("--policy", action="store_true", help="wait for a run to be ended for leaving its card idle")
    parser.add_argument("--inside", action="store_true", help="the agent is in a container that is a machine, as a pod")
    parser.add_argument("--busy", type=int, default=BUSY_S, help=f"seconds for which jobs fill their cards ({BUSY_S})")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}

    def report(stage: str, what: Any) -> None:
        found[stage] = what
        print(f"{stage}: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        home = Path(folder) / "home"
        found["right"] = _tried(chosen, home, report)
    print(json.dumps(found))
    return 0 if found["right"] else 1


if __name__ == "__main__":
    sys.exit(main())
