"""Files that fit a sitting, functions that fit a screen. Fails with the list of those that don't."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

MAX_FILE = 600
MAX_FUNCTION = 70


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True).stdout.split()
    problems = []
    for name in listed:
        path = Path(name)
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > MAX_FILE:
            problems.append(f"{name}: {lines} lines, {MAX_FILE} at most")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # The body: a command's signature is its list of flags, one a line, and reads like a table.
                length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if length > MAX_FUNCTION:
                    problems.append(f"{name}:{node.lineno}: {node.name} has {length} lines, {MAX_FUNCTION} at most")
    print("\n".join(problems) if problems else f"{len(listed)} files, all of readable size")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
