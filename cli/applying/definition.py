"""Reads a configuration file for the server: found, parsed, and completed by profile, flags and environment.

The language itself is `chalicelib.configuration`, which is pure; this module reads files and the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from chalicelib.errors import Invalid, Problem, Refused
from cli.applying.runs import LoadedConfiguration
from cli.screen.places import Places, Written
from cli.screen.terminal import STANDARD_INPUT, Terminal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from chalicelib import contract
    from chalicelib.configuration.overrides import Overrides
    from chalicelib.configuration.parse import Configuration

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
    text: bytes | None = None,
) -> LoadedConfiguration:
    """The configuration of `file`, or of a `text` instead, with the flags applied, in wire form."""
    from chalicelib.configuration.overrides import overridden
    from chalicelib.configuration.parse import parse_bytes, parse_rest, type_and_name
    from chalicelib.configuration.resolution import resolved

    path, shown, raw = _read(terminal, file) if text is None else (None, "", text)
    folder = path.parent if path else terminal.cwd
    places = Places(Written(shown, raw), flags=flags)
    try:
        parsed = parse_bytes(raw, filename=shown)
    except Invalid as error:
        partial, (kind, name) = parse_rest(raw, error.problems), type_and_name(raw)
        further = _further_problems(partial, flags, terminal, folder) if partial else []
        places.refuse([*error.problems, *further, *misnamed(kind, (flags and flags.name) or name)])
        raise
    if flags:
        parsed = overridden(parsed, flags)
    _check_use_of(arguments, parsed, shown)
    found = _missing_files(parsed, folder, terminal.home)
    try:
        parsed = resolved(parsed, environment=terminal.env, arguments=arguments)
    except Invalid as error:
        found += error.problems
    if found:  # if only the name is wrong, the server reports it with any other problems
        places.refuse([*misnamed(parsed.type, parsed.name), *found])
    document = _on_the_wire(parsed, flags)
    chosen: contract.Configuration = {}
    if document["type"] in (*RUN_TYPES, "preset"):
        if "files" in document:
            document["files"] = [_local(entry, folder, terminal.home) for entry in document["files"] or ()]
        chosen, where = load_profile(terminal, profile, no_profile)
        places = replace(places, profile=where)
    elif document["type"] == "fleet":  # always with the default profile
        chosen, where = load_profile(replace(terminal, env={}), None, no_profile)
        places = replace(places, profile=where)
    return LoadedConfiguration(document, chosen, shown, folder, places)


def _further_problems(
    parsed: Configuration, flags: Overrides | None, terminal: Terminal, folder: Path
) -> list[Problem]:
    """Further problems of a file that is refused anyway, so that all are reported together."""
    from chalicelib.configuration.overrides import overridden
    from chalicelib.configuration.resolution import resolved

    try:
        parsed = overridden(parsed, flags) if flags else parsed
    except Invalid as error:
        return list(error.problems)
    found = _missing_files(parsed, folder, terminal.home)
    try:
        resolved(parsed, environment=terminal.env)
    except Invalid as error:
        found += error.problems
    return found


def misnamed(kind: str, name: str | None) -> list[Problem]:
    from chalicelib.domain import names

    noun = "run" if kind in RUN_TYPES else kind if kind in ("fleet", "preset") else ""
    wrong = names.problem(name, noun) if noun and name else None
    return [Problem(wrong[0], "name", hint=wrong[1], code="invalid-name")] if wrong else []


def described(terminal: Terminal, file: str | None) -> LoadedConfiguration:
    """The type and name in a file, without the parts that are only needed to run it: for deletion."""
    from chalicelib.configuration.parse import parse_bytes

    path, shown, raw = _read(terminal, file)
    document = parse_bytes(raw, filename=shown).model_dump(mode="json")
    return LoadedConfiguration(document, {}, shown, path.parent if path else terminal.cwd)


def fleet_definition(
    terminal: Terminal,
    document: contract.Configuration,
    flags: Overrides,
    *,
    profile: str | None = None,
    no_profile: bool = True,
) -> LoadedConfiguration:
    """The definition of a fleet from a command line instead of a file."""
    from pydantic import ValidationError

    from chalicelib.configuration.overrides import overridden
    from chalicelib.configuration.problems import problems_of
    from chalicelib.configuration.providers import FROM_CLIENT
    from chalicelib.domain.specs.fleets import FleetConfiguration

    try:
        parsed = overridden(FleetConfiguration.model_validate(document, context=FROM_CLIENT), flags)
    except ValidationError as error:
        raise Invalid(problems_of(error, model=FleetConfiguration)) from None
    chosen, where = load_profile(terminal, profile, no_profile)
    return LoadedConfiguration(
        parsed.model_dump(mode="json"), chosen, "?", terminal.cwd, Places(profile=where, flags=flags)
    )


def synthetic_task(
    terminal: Terminal, flags: Overrides, *, profile: str | None, no_profile: bool
) -> tuple[contract.Configuration, Places]:
    """The run spec with which to request offers: a task with only the requirements of the flags."""
    from chalicelib.configuration.overrides import overridden
    from chalicelib.domain.specs.runs import TaskConfiguration

    anything = {"cpu": {"min": 1}, "memory": {"min": 0}, "gpu": {"count": {"min": 0}}, "disk": None}
    task = TaskConfiguration.model_validate(
        {"type": "task", "commands": [":"], "image": "scratch", "user": "root", "resources": anything}
    )
    chosen, where = load_profile(terminal, profile, no_profile)
    spec: contract.Configuration = {
        "run_name": None,
        "repo_id": None,
        "repo_data": None,
        "repo_code_hash": None,
        "repo_dir": None,
        "file_archives": [],
        "working_dir": None,
        "configuration_path": None,
        "configuration": _on_the_wire(overridden(task, flags), flags),
        "profile": chosen,
        "ssh_key_pub": None,
    }
    return spec, Places(profile=where, flags=flags)


def _on_the_wire(configuration: BaseModel, flags: Overrides | None) -> contract.Configuration:
    """The configuration in the API's form. Fleets named by flags stay strings, as every client sends them."""
    document = configuration.model_dump(mode="json")
    if flags and flags.fleets:
        document["fleets"] = list(flags.fleets)
    return document


def load_profile(terminal: Terminal, name: str | None, none: bool) -> tuple[contract.Configuration, Written | None]:
    """The profile to send (the named or the default one, from this folder's file, then the home's), and where it is
    written."""
    from chalicelib.configuration.parse import decode, parse_profiles
    from chalicelib.configuration.profiles import FILES, NONE_WANTED, chosen, wanted

    name, has_profile = wanted(name, none, terminal.env)
    if not has_profile:
        return dict(NONE_WANTED.model_dump(mode="json")), None
    found = []
    for base in (terminal.cwd, terminal.home):
        path = next((base / file for file in FILES if (base / file).is_file()), None)
        if path is not None:
            try:
                with path.open("rb") as opened:
                    raw = _enough_of(opened)
            except OSError as error:
                raise Refused(f"{path} can't be read: {error.strerror}.", hint="Or use --no-profile.") from error
            shown = str(path.relative_to(base)) if base == terminal.cwd else str(path)
            found.append((Written(shown, raw), parse_profiles(decode(raw, shown), filename=shown)))
    profile = chosen(name, tuple(config for _, config in found))
    places = (
        replace(written, above=("profiles", place))
        for written, config in found
        for place, one in enumerate(config.profiles)
        if one is profile
    )
    return dict(profile.model_dump(mode="json")), next(places, None)


def _read(terminal: Terminal, file: str | None) -> tuple[Path | None, str, bytes]:
    """The file's path, the name to show and to send, and its bytes."""
    if file == STANDARD_INPUT:
        return (
            None,
            STANDARD_INPUT,
            _enough_of(sys.stdin.buffer) if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode(),
        )
    if file is None:
        file = next((name for name in DEFAULT_FILES if (terminal.cwd / name).is_file()), None)
        if file is None:
            raise Refused(
                f"There is no .dstack.yml in {terminal.cwd}.",
                hint="Name a file with -f, or write one with `dstack init`.",
            )
    if not file:
        raise Refused("-f is empty.", hint="Name a file with it, or leave it out for .dstack.yml.")
    path = terminal.cwd / Path(file).expanduser()
    try:
        with path.open("rb") as opened:
            raw = _enough_of(opened)
    except FileNotFoundError:
        raise Refused(f"{file} doesn't exist.", hint=_nearby_files(path)) from None
    except OSError as error:
        raise Refused(f"{file} can't be read: {error.strerror}.") from error
    named = Path(file).expanduser()
    return path, os.path.relpath(path, terminal.cwd) if named.is_absolute() else str(named), raw


def _enough_of(opened: BinaryIO) -> bytes:
    """The whole file, or just enough of one that is too long to know that it is."""
    from chalicelib.configuration.text import MAX_BYTES

    return opened.read(MAX_BYTES + 1)


def _nearby_files(path: Path) -> str:
    """A hint that names configurations next to a missing file."""
    beside = sorted(found.name for found in path.parent.glob("*.dstack.y*ml"))[:5] if path.parent.is_dir() else []
    return f"There is {', '.join(beside)}." if beside else "Check the path; it is relative to this folder."


def _check_use_of(arguments: Sequence[str], configuration: BaseModel, shown: str) -> None:
    """Refuse arguments that no command uses: they were meant for something else."""
    from chalicelib.configuration.interpolation import references

    texts = [*getattr(configuration, "commands", ())]
    for group in getattr(configuration, "groups", None) or ():
        texts += group.commands
    if arguments and not any(str(each) == "run.args" for text in texts for each in references(text)):
        raise Refused(
            f"{shown} doesn't use the arguments {' '.join(arguments)}.",
            hint="Use `${{ run.args }}` in `commands`. To name a file, use -f FILE.",
        )


def _missing_files(configuration: BaseModel, folder: Path, home: Path) -> list[Problem]:
    """Problems of paths in `files` that don't exist."""
    return [
        Problem(
            f"`{mapping.local_path}` doesn't exist",
            f"files.{place}.local_path",
            hint="paths are relative to the folder of the configuration",
            code="invalid-path",
        )
        for place, mapping in enumerate(getattr(configuration, "files", ()))
        if not os.path.lexists(_local_path(mapping.local_path, folder, home))
    ]


def _local_path(local: str, folder: Path, home: Path) -> Path:
    return home / local[2:] if local.startswith("~/") else folder / local


def _local(entry: contract.Configuration, folder: Path, home: Path) -> contract.Configuration:
    return {**entry, "local_path": str(_local_path(entry["local_path"], folder, home))}
