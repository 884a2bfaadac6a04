"""What the commands share: options, confirmation prompts, errors without a traceback, JSON output at the end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.errors import DstackError, Invalid, Refused
from infra.account import checked
from infra.stacks import POLL

Say = Callable[[str], None]
Agree = Callable[[str], bool]


def pairs(given: Sequence[str], option: str, example: str) -> dict[str, str]:
    """The names and values that an option gave, as in `NAME=VALUE`."""
    if wrong := [text for text in given if "=" not in text]:
        raise Invalid(f"{option} {wrong[0]} is not NAME=VALUE.", hint=f"Set it as in {option} {example}.")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


def choices(parser: argparse.ArgumentParser) -> None:
    """The options by which a deployment chooses something."""
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the stack")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="KEY=VALUE", help="a tag of all that is made; KEY= takes it away"
    )


class Declined(DstackError):
    """The user answered no."""


def parser(module: str, does: str) -> argparse.ArgumentParser:
    new = argparse.ArgumentParser(prog=f"python -m {module}", description=does)
    new.add_argument("stage", help="the name of the stage: dev, prod, …")
    new.add_argument("--yes", action="store_true", help="make the changes without asking")
    new.add_argument("--json", action="store_true", help="the last line is a JSON object; the rest goes to stderr")
    new.add_argument("--region", help="the AWS region, instead of the configured one")
    new.add_argument("--profile", help="the profile of the AWS configuration")
    new.add_argument("--poll", type=float, default=POLL, help="seconds between polls of CloudFormation")
    return new


def run(given: argparse.Namespace, work: Callable[[argparse.Namespace, Say, Agree], Any]) -> int:
    say = _to_stderr if given.json else _to_stdout
    try:
        checked(given.stage)
        done = work(given, say, (lambda _: True) if given.yes else _ask)
    except DstackError as error:
        _to_stderr(f"{error.message}\n{error.hint}".strip())
        return 1
    except KeyboardInterrupt:
        _to_stderr("\nInterrupted. CloudFormation continues what it has begun; run the command again to follow it.")
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
