"""`make e2e-multinode [NODES=8]`: its last line is JSON, with what was seen and how long it took."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.e2e.multinode.journey import journey

NODES = 8


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="multinode-") as folder:
        found = journey(Path(folder) / "home", int(sys.argv[1]) if len(sys.argv) > 1 else NODES)
    print(json.dumps(found))
    return 0 if found["sums_right"] else 1


if __name__ == "__main__":
    sys.exit(main())
