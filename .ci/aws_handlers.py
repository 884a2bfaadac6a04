"""What CloudFormation calls for each type of resource that the stacks have, from the schemas that AWS publishes and
cfn-lint brings: `tests/infra/handlers.json`. Runs in `.venvs/aws_lint`; `--check` compares the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cfnlint

FILE = Path(__file__).resolve().parents[1] / "tests" / "infra" / "handlers.json"
SCHEMAS = Path(cfnlint.__file__).parent / "data" / "schemas"
PHASES = ("create", "read", "update", "delete")


def found(kinds: list[str]) -> dict[str, dict[str, list[str]]]:
    """By type and phase. What tags need belongs to the update, and what is read to the creation and the update."""
    named = json.loads((SCHEMAS / "providers" / "us-east-1.json").read_text())
    handlers = {}
    for kind in kinds:
        schema: dict[str, Any] = json.loads((SCHEMAS / "resources" / f"{named[kind]}.json").read_text())
        of = {phase: set(schema["handlers"].get(phase, {}).get("permissions", ())) for phase in PHASES}
        tags = set(schema.get("tagging", {}).get("permissions", ()))
        handlers[kind] = {
            "create": sorted(of["create"] | of["read"]),
            "update": sorted(of["update"] | of["read"] | tags),
            "delete": sorted(of["delete"]),
        }
    return handlers


def main() -> int:
    text = json.dumps(found(sorted(json.loads(FILE.read_text()))), indent=1) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif text != FILE.read_text():
        print(f"{FILE.name} isn't what the schemas say: run `.venvs/aws_lint/bin/python .ci/aws_handlers.py`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
