"""`make e2e-aws`: a deployment on an emulator of AWS from nothing to nothing. The last line is JSON: which stages were
as they should be, how long each took, what the deploy command reported of itself, and what failed, if anything. `python
-m tests.e2e.aws cluster undone` makes only these stages between the deployment and its removal."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.aws.journey import Journey, Stage, begun
from tests.e2e.aws.stages import chosen
from tests.e2e.onprem.__main__ import Watch


def main() -> int:
    stages, watch = chosen(sys.argv[1:]), Watch()
    seen: dict[str, object] = {}
    try:
        with tempfile.TemporaryDirectory() as folder, begun(Path(folder)) as trip:
            travel(trip, stages, watch, seen)
    except Exception as error:
        traceback.print_exc()
        seen["failed"] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps({**seen, "seconds": watch.seconds}))
    return 1 if "failed" in seen else 0


def travel(trip: Journey, stages: Sequence[Stage], watch: Watch, seen: dict[str, object]) -> None:
    watch.lap("an emulator, a clean clone, make deploy")
    seen["deploy_s"], seen["deploy_cpu_s"] = trip.made.seconds, trip.made.cpu
    seen["deploy"] = trip.made.report["seconds"]
    seen["megabytes"] = trip.made.report["megabytes"]
    for stage in stages:
        seen[stage.__name__] = False
        stage(trip)
        watch.lap((stage.__doc__ or stage.__name__).strip().split("\n")[0])
        seen[stage.__name__] = True
    if trip.again is not None:
        seen["again_s"], seen["again_cpu_s"] = trip.again.seconds, trip.again.cpu


if __name__ == "__main__":
    sys.exit(main())
