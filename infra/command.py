"""What the commands share: options, confirmation prompts, errors without a traceback, JSON output at the end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from chalicelib.errors import DstackError, Refused
from infra.account import checked
from infra.stacks import POLL

Say = Callable[[str], None]
Agree = Callable[[str], bool]


class Declined(DstackError):
    """The user answered no."""


def parser(module: str, does: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=does)
    made.add_argument("stage", help="its name: dev, prod, …")
    made.add_argument("--yes", action="store_true", help="make the changes without asking")
    made.add_argument("--json", action="store_true", help="the last line is a JSON object; the rest goes to stderr")
    made.add_argument("--region", help="instead of the configured one")
    made.add_argument("--profile", help="of the AWS configuration")
    made.add_argument("--poll", type=float, default=POLL, help="seconds between looks at CloudFormation")
    return made


def run(given: argparse.Namespace, work: Callable[[argparse.Namespace, Say, Agree], Any]) -> int:
    say = _to_stderr if given.json else _to_stdout
    try:
        checked(given.stage)
        done = work(given, say, (lambda _: True) if given.yes else _ask)
    except DstackError as error:
        _to_stderr(f"{error.message}\n{error.hint}".strip())
        return 1
    except KeyboardInterrupt:
        _to_stderr("\nInterrupted. What CloudFormation has begun goes on; run the command again to follow it.")
        return 130
    if given.json:
        _to_stdout(json.dumps(vars(done)))
    return 0


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        raise Refused(
            "There is nobody to answer the question.", hint="To go ahead unasked, add --yes (with make, YES=1)."
        )
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _to_stdout(text: str) -> None:
    print(text, flush=True)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
