"""From a file to what the server is sent: found, read, parsed, completed by profile, flags and environment.

The language itself is `chalicelib.configuration`, which is pure; what touches files and the environment is here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib.errors import Invalid, Problem, Refused
from cli.runs import Definition
from cli.terminal import STANDARD_INPUT, Terminal

if TYPE_CHECKING:
    from chalicelib.configuration.overrides import Overrides

RUN_TYPES = ("dev-environment", "task", "service")
DEFAULT_FILES = (".dstack.yml", ".dstack.yaml")


def load_definition(
    terminal: Terminal,
    file: str | None,
    flags: Overrides | None = None,
    *,
    arguments: Sequence[str] = (),
    profile: str | None = None,
    no_profile: bool = False,
) -> Definition:
    """The configuration of `file` with the flags put in, in wire form."""
    from chalicelib.configuration import parse_bytes
    from chalicelib.configuration.overrides import overridden
    from chalicelib.configuration.resolution import resolved

    path, shown, raw = _read(terminal, file)
    parsed: Any = parse_bytes(raw, filename=shown)
    if flags:
        parsed = overridden(parsed, flags)
    _check_use_of(arguments, parsed, shown)
    try:
        parsed = resolved(parsed, environment=terminal.env, arguments=arguments)
    except Invalid as error:
        raise Invalid(_placed(error.problems, flags, raw, shown)) from None
    folder = path.parent if path else terminal.cwd
    document = _on_the_wire(parsed, flags)
    chosen: dict[str, Any] = {}
    if document["type"] in RUN_TYPES:
        _check_working_dir(document, shown)
        document["files"] = [_local(entry, folder, terminal.home) for entry in document.get("files") or ()]
        chosen = load_profile(terminal, profile, no_profile)
    elif document["type"] == "fleet":
        chosen = load_profile(replace(terminal, env={}), None, no_profile)  # the default one, whatever is set
    return Definition(document, chosen, shown, folder)


def described(terminal: Terminal, file: str | None) -> Definition:
    """What a file names, without what it needs to run: for deleting it."""
    from chalicelib.configuration import parse_bytes

    path, shown, raw = _read(terminal, file)
    document = parse_bytes(raw, filename=shown).model_dump(mode="json")
    return Definition(document, {}, shown, path.parent if path else terminal.cwd)


def fleet_definition(
    terminal: Terminal,
    document: dict[str, Any],
    flags: Overrides,
    *,
    profile: str | None = None,
    no_profile: bool = True,
) -> Definition:
    """A fleet that a command line describes instead of a file."""
    from pydantic import ValidationError

    from chalicelib.configuration import problems_of
    from chalicelib.configuration.overrides import overridden
    from chalicelib.domain.specs.fleets import FleetConfiguration

    try:
        parsed = overridden(FleetConfiguration.model_validate(document), flags)
    except ValidationError as error:
        raise Invalid(problems_of(error, model=FleetConfiguration)) from None
    chosen = load_profile(terminal, profile, no_profile)
    return Definition(parsed.model_dump(mode="json"), chosen, "?", terminal.cwd)


def synthetic_task(terminal: Terminal, flags: Overrides, *, profile: str | None, no_profile: bool) -> dict[str, Any]:
    """The run spec that asks for offers: a task that asks for nothing but what the flags say."""
    from chalicelib.configuration.overrides import overridden
    from chalicelib.domain.specs.runs import TaskConfiguration

    anything = {"cpu": {"min": 1}, "memory": {"min": 0}, "gpu": {"count": {"min": 0}}, "disk": None}
    task = TaskConfiguration.model_validate(
        {"type": "task", "commands": [":"], "image": "scratch", "user": "root", "resources": anything}
    )
    return {
        "run_name": None,
        "repo_id": None,
        "repo_data": None,
        "repo_code_hash": None,
        "repo_dir": None,
        "file_archives": [],
        "working_dir": None,
        "configuration_path": None,
        "configuration": _on_the_wire(overridden(task, flags), flags),
        "profile": load_profile(terminal, profile, no_profile),
        "ssh_key_pub": None,
    }


def _on_the_wire(configuration: Any, flags: Overrides | None) -> dict[str, Any]:
    """As the API takes it. Fleets named by flags stay words, as every client sends them."""
    document: dict[str, Any] = configuration.model_dump(mode="json")
    if flags and flags.fleets:
        document["fleets"] = list(flags.fleets)
    return document


def _placed(problems: Sequence[Problem], flags: Overrides | None, raw: bytes, shown: str) -> list[Problem]:
    """Problems with where they are: in the file, or in a flag."""
    from chalicelib.configuration.parse import located

    by_flag = {f"env.{said}" for said in (flags.env if flags else ())}
    of_file = [problem for problem in problems if problem.path not in by_flag]
    return [
        *(replace(problem, path="--env") for problem in problems if problem.path in by_flag),
        *located(of_file, raw, filename=shown),
    ]


def load_profile(terminal: Terminal, name: str | None, none: bool) -> dict[str, Any]:
    """The profile to send: the named one, else the default one, of this folder's file, then of the home's."""
    from chalicelib.configuration import parse_profiles
    from chalicelib.configuration.profiles import FILES, NONE_WANTED, chosen, wanted

    name, looks = wanted(name, none, terminal.env)
    if not looks:
        return dict(NONE_WANTED.model_dump(mode="json"))
    found = []
    for base in (terminal.cwd, terminal.home):
        path = next((base / file for file in FILES if (base / file).is_file()), None)
        if path is not None:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise Refused(f"{path} can't be read: {error}.", hint="Mend it, or use --no-profile.") from error
            found.append(parse_profiles(text, filename=str(path)))
    return dict(chosen(name, tuple(found)).model_dump(mode="json"))


def _read(terminal: Terminal, file: str | None) -> tuple[Path | None, str, bytes]:
    """The file's path, the name to show and to send, and its bytes."""
    if file == STANDARD_INPUT:
        return (
            None,
            STANDARD_INPUT,
            sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode(),
        )
    if file is None:
        file = next((name for name in DEFAULT_FILES if (terminal.cwd / name).is_file()), None)
        if file is None:
            raise Refused(
                f"There is no .dstack.yml in {terminal.cwd}.",
                hint="Name a file with -f, or write one with `dstack init`.",
            )
    path = terminal.cwd / Path(file).expanduser()
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise Refused(f"{file} doesn't exist.", hint=_others(path)) from None
    except OSError as error:
        raise Refused(f"{file} can't be read: {error.strerror}.") from error
    named = Path(file).expanduser()
    return path, os.path.relpath(path, terminal.cwd) if named.is_absolute() else str(named), raw


def _others(path: Path) -> str:
    """Configurations beside a file that isn't there."""
    beside = sorted(found.name for found in path.parent.glob("*.dstack.y*ml"))[:5] if path.parent.is_dir() else []
    return f"There is {', '.join(beside)}." if beside else "Check the path; it is relative to this folder."


def _check_use_of(arguments: Sequence[str], configuration: Any, shown: str) -> None:
    """Arguments that no command takes were meant for something else."""
    texts = [*getattr(configuration, "commands", ())]
    for group in getattr(configuration, "groups", None) or ():
        texts += group.commands
    if arguments and not any("run.args" in text for text in texts):
        raise Refused(
            f"{shown} doesn't use the arguments {' '.join(arguments)}.",
            hint="Commands take them by `${{ run.args }}`. To name a file, use -f FILE.",
        )


def _check_working_dir(document: Mapping[str, Any], shown: str) -> None:
    folder = document.get("working_dir")
    if folder and not folder.startswith(("/", "~")):
        raise Invalid(
            [Problem(f"{folder} is relative", "working_dir", shown, hint="write an absolute path, or one from `~`")]
        )


def _local(entry: Mapping[str, Any], folder: Path, home: Path) -> dict[str, Any]:
    local = entry["local_path"]
    found = home / local[2:] if local.startswith("~/") else folder / local
    return {**entry, "local_path": str(found)}
