"""Makes the data of a fake: the operations that it answers, out of the document in which a provider publishes its API.

    python -m tests.backends.fakes.extract DOCUMENT --source WHERE OPERATION… > tests/backends/fakes/NAME.json

The operations are called as in the document. One line each, so that a newer document is compared by `git diff`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.backends.fakes import forms


def written(data: Mapping[str, Any]) -> str:
    lines = ["{", f'"source": {json.dumps(data["source"], ensure_ascii=False)}']
    for part in ("operations", "schemas"):
        rows = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in data[part].items()]
        lines[-1] += ","
        lines += [f'"{part}": {{', ",\n".join(rows), "}"]
    return "\n".join([*lines, "}"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.backends.fakes.extract", description=__doc__)
    parser.add_argument("document", type=Path, help="JSON")
    parser.add_argument("--source", required=True, help="what it is, where it is published, and its licence")
    parser.add_argument("operations", nargs="+")
    given = parser.parse_args()
    document = json.loads(given.document.read_text(encoding="utf-8"))
    sys.stdout.write(written(forms.read(document, given.operations, given.source)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
