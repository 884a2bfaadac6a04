"""From a file to what the server is sent: found, read, parsed, completed by profile, flags and environment.

The language itself is `chalicelib.configuration`, which is pure; what touches files and the environment is here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chalicelib.errors import Invalid, Problem, Refused
from cli.runs import Definition
from cli.terminal import Terminal

RUN_TYPES = ("dev-environment", "task", "service")
DEFAULT_FILES = (".dstack.yml", ".dstack.yaml")
STANDARD_INPUT = "-"
NO_PROFILE = {"name": "default", "default": False}
FLAGS = {"backends": "--backend", "regions": "--region", "instance_types": "--instance-type", "fleets": "--fleet"}
SWITCH = {"": False, "0": False, "false": False, "off": False, "1": True, "true": True, "on": True}


def load_definition(
    terminal: Terminal,
    file: str | None,
    overrides: Mapping[str, Any],
    *,
    run_args: Sequence[str] = (),
    profile: str | None = None,
    no_profile: bool = False,
    for_deletion: bool = False,
) -> Definition:
    """The configuration of `file` in wire form; with `for_deletion` only what names it is looked at."""
    from chalicelib.configuration import parse_bytes

    path, shown, raw = _read(terminal, file)
    parsed = parse_bytes(raw, filename=shown)
    folder = path.parent if path else terminal.cwd
    if for_deletion:
        return Definition(parsed.model_dump(mode="json"), {}, shown, folder)
    if overrides:
        parsed = override(parsed, overrides)
    document = parsed.model_dump(mode="json")
    _fill_environment(document, terminal.env, shown)
    if document["type"] in RUN_TYPES:
        _check_working_dir(document, shown)
        document["files"] = [_local(entry, folder, terminal.home) for entry in document.get("files") or ()]
        document = _interpolated(document, shown, run_args)
    chosen = load_profile(terminal, profile, no_profile) if document["type"] in (*RUN_TYPES, "fleet") else {}
    return Definition(document, chosen, shown, folder)


def fleet_definition(document: dict[str, Any], folder: Path) -> Definition:
    """A fleet that flags describe instead of a file."""
    return Definition(_validated(_model("fleet"), document).model_dump(mode="json"), NO_PROFILE, "?", folder)


def synthetic_task(
    terminal: Terminal, overrides: Mapping[str, Any], *, profile: str | None, no_profile: bool
) -> dict[str, Any]:
    """The run spec that asks for offers: a task that asks for nothing but what the flags say."""
    anything = {"cpu": {"min": 1}, "memory": {"min": 0}, "gpu": {"count": {"min": 0}}, "disk": None}
    task = {
        "type": "task",
        "commands": [":"],
        "image": "scratch",
        "user": "root",
        **overrides,
        "resources": {**anything, **overrides.get("resources", {})},
    }
    return {
        "run_name": None,
        "repo_id": None,
        "repo_data": None,
        "repo_code_hash": None,
        "repo_dir": None,
        "file_archives": [],
        "working_dir": None,
        "configuration_path": None,
        "configuration": _validated(_model("task"), task).model_dump(mode="json"),
        "profile": load_profile(terminal, profile, no_profile),
        "ssh_key_pub": None,
    }


def override(parsed: Any, overrides: Mapping[str, Any]) -> Any:
    """The configuration with these fields replaced; resources one by one, variables by name."""
    document = parsed.model_dump(mode="json")
    changed = {**document, **overrides}
    for key in ("resources", "env"):
        if key in overrides:
            changed[key] = {**(document.get(key) or {}), **_env_of(overrides[key])}
    return _validated(type(parsed), changed)


def load_profile(terminal: Terminal, name: str | None, none: bool) -> dict[str, Any]:
    """The profile to send: the named one, else the default one, of this folder's file, then of the home's."""
    from chalicelib.configuration import parse_profiles

    if none:
        return NO_PROFILE
    if name is None:
        if _switch(terminal, "DSTACK_NO_PROFILE"):
            return NO_PROFILE
        name = terminal.env.get("DSTACK_PROFILE") or None
    known = []
    for base in (terminal.cwd, terminal.home):
        file = next(
            (base / ".dstack" / n for n in ("profiles.yml", "profiles.yaml") if (base / ".dstack" / n).is_file()), None
        )
        if file is None:
            continue
        found = parse_profiles(file.read_text(encoding="utf-8"), filename=str(file)).profiles
        known += [profile.name for profile in found]
        chosen = [profile for profile in found if (profile.name == name if name else profile.default)]
        if chosen:
            return dict(chosen[0].model_dump(mode="json"))
    if name is None:
        return NO_PROFILE
    raise Refused(
        f"There is no profile {name} in .dstack/profiles.yml, here or in your home.",
        hint=f"There is {', '.join(known)}." if known else "There are no profiles at all.",
    )


def _switch(terminal: Terminal, name: str) -> bool:
    text = terminal.env.get(name, "")
    if text.lower() not in SWITCH:
        raise Refused(f"{name} is {text!r}, which is neither on nor off.", hint="Set it to 1 or 0, or unset it.")
    return SWITCH[text.lower()]


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
    return path, os.path.relpath(path, terminal.cwd) if path.is_absolute() else file, raw


def _others(path: Path) -> str:
    """Configurations beside a file that isn't there."""
    beside = sorted(found.name for found in path.parent.glob("*.dstack.y*ml"))[:5] if path.parent.is_dir() else []
    return f"There is {', '.join(beside)}." if beside else "Check the path; it is relative to this folder."


def _fill_environment(document: dict[str, Any], env: Mapping[str, str], shown: str) -> None:
    """Variables without a value take it from the environment of whoever submits."""
    missing = []
    for name, value in (document.get("env") or {}).items():
        if isinstance(value, Mapping):
            if value["key"] in env:
                document["env"][name] = env[value["key"]]
            else:
                missing.append(Problem(f"{name} has no value, here or in your environment", f"env.{name}", shown))
    if missing:
        names = " ".join(problem.path.removeprefix("env.") for problem in missing)
        raise Invalid(
            missing, hint=f"Export {names} before, give it with -e NAME=VALUE, or write its value into the file."
        )


def _interpolated(document: dict[str, Any], shown: str, run_args: Sequence[str]) -> dict[str, Any]:
    """The references that the client fills in: arguments in commands, variables in credentials and probes."""
    from chalicelib.configuration.interpolation import Unreadable, fill, joined_arguments

    problems: list[Problem] = []
    used = False
    variables = {"env": document.get("env") or {}}
    arguments = {"run": {"args": joined_arguments(run_args)}}

    def filled(value: Any, values: Mapping[str, Mapping[str, str]], path: str) -> Any:
        nonlocal used
        if isinstance(value, list):
            return [filled(item, values, f"{path}.{number}") for number, item in enumerate(value)]
        if isinstance(value, dict):
            return {key: filled(item, values, f"{path}.{key}") for key, item in value.items()}
        if not isinstance(value, str):
            return value
        try:
            found = fill(value, values)
        except Unreadable as error:
            problems.append(Problem(str(error), path, shown))
            return value
        used = used or ("run" in values and found != value)
        return found

    changed = dict(document)
    for key, values in (
        ("commands", arguments),
        ("groups", arguments),
        ("registry_auth", variables),
        ("probes", variables),
    ):
        if changed.get(key):
            changed[key] = filled(changed[key], values, key)
    if problems:
        raise Invalid(problems)
    if run_args and not used:
        raise Refused(
            f"{shown} doesn't use the arguments {' '.join(run_args)}.",
            hint="Commands take them by `${{ run.args }}`. To name a file, use -f FILE.",
        )
    return changed


def _check_working_dir(document: Mapping[str, Any], shown: str) -> None:
    folder = document.get("working_dir")
    if folder and not folder.startswith(("/", "~")):
        raise Invalid(
            [Problem(f"{folder} is relative", "working_dir", shown, hint="write an absolute path, or one from `~`")]
        )


def _local(entry: Mapping[str, Any], folder: Path, home: Path) -> dict[str, Any]:
    local = entry["local_path"]
    found = home / local[2:] if local.startswith("~/") else folder / local
    return {**entry, "local_path": os.path.normpath(found)}


def _env_of(given: Any) -> dict[str, Any]:
    """`K=V` and `K` words as a mapping; a later one wins."""
    if isinstance(given, Mapping):
        return dict(given)
    found: dict[str, Any] = {}
    for word in given:
        name, sign, value = word.partition("=")
        found[name] = value if sign else {"key": name}
    return found


def _model(kind: str) -> Any:
    from chalicelib.configuration.parse import TYPES

    return TYPES[kind]


def _validated(model: Any, document: Mapping[str, Any]) -> Any:
    """The document as a model; what is wrong came from flags, so problems name those."""
    from pydantic import ValidationError

    from chalicelib.configuration import problems_of

    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise Invalid([_of_flag(problem) for problem in problems_of(error, model=model)]) from None


def _of_flag(problem: Problem) -> Problem:
    first, _, rest = problem.path.partition(".")
    word = rest.split(".")[0] if first == "resources" and rest else first
    return Problem(
        problem.message, path=FLAGS.get(word, f"--{word.replace('_', '-')}"), hint=problem.hint, code=problem.code
    )
