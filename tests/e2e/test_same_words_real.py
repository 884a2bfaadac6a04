"""What is wrong with a configuration is said in the same words by our command line, by the API, and by the genuine
Python client; only the command line knows the file, and adds the place."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.configuration import error_catalog
from chalicelib.configuration.parse import parse
from chalicelib.configuration.resolution import resolved
from chalicelib.errors import Invalid
from chalicelib.planning.runs.field_support import FLEET_NOT_BUILT, RUN_NOT_BUILT
from cli.connection.config import ProjectEntry, config_path, save_projects
from cli.main import invoke
from cli.screen.terminal import Terminal
from tests.e2e.peer import Peer
from tests.harness.server import HttpError, Server
from tests.planning.runs.test_field_support import raw_with
from tests.wire.corpus import corpus

RUNS = ("task", "service", "dev-environment")
FILE = ".dstack.yml"
PLACE = re.compile(r"^(?:\.dstack\.yml|\.dstack/profiles\.yml):\d+:\d+: ")
OF_THE_TEXT = {"ambiguous-number", "duplicate-key", "not-utf8", "too-much", "yaml-key", "yaml-syntax", "yaml-tag"}
OF_THE_ROLE = {"not-permitted"}  # these callers are admins; see tests/api/test_permissions.py
OF_THE_FILE = {  # what is a mistake in a file, and not in what a client makes of it
    "invalid-interpolation": "commands are filled in by the client; what is left is the shell's",
    "invalid-path": "a relative `working_dir` is how older clients say where a repo is",
    "exclusive": "a client of this line sends `env` of a fleet, which reaches its jobs",
}


@dataclass(frozen=True)
class Case:
    name: str
    configuration: dict[str, Any]
    profile: dict[str, Any] | None = None
    file: str = ""  # as it is written; JSON is YAML

    @property
    def text(self) -> str:
        return self.file or json.dumps(self.configuration, indent=1)


def from_catalog() -> Iterator[Case]:
    for code, entry in sorted(error_catalog.ENTRIES.items()):
        if code not in OF_THE_TEXT | OF_THE_ROLE:
            yield Case(code, yaml.safe_load(entry.wrong), file=entry.wrong)


def from_corpus() -> Iterator[Case]:
    """The files that both clients refuse when given without anything else."""
    for case in corpus():
        if not case.refused or case.flags or case.files or case.env:
            continue
        codes = codes_of(case.file)
        if codes and not codes & OF_THE_TEXT:
            value = json.loads(json.dumps(yaml.safe_load(case.file), default=str))
            if isinstance(value, dict) and value.get("type") in (*RUNS, "fleet"):
                yield Case(case.name, value, file=case.file)


def codes_of(file: str) -> set[str]:
    try:
        resolved(parse(file), environment={})
    except Invalid as error:
        return {problem.code for problem in error.problems}
    return set()


def from_support() -> Iterator[Case]:
    """Every field of a configuration or a profile that isn't built."""
    for path in (*RUN_NOT_BUILT, *(f"fleet.{path}" for path in FLEET_NOT_BUILT)):
        if path.removeprefix("fleet.").partition(".")[0] in ("configuration", "profile"):
            raw = raw_with(path)
            yield Case(f"unsupported {path}", raw["configuration"], raw["profile"] or None)


BY_THE_COMMAND_LINE = {  # it can't do what it would have to do first, and says that
    "unsupported fleet.configuration.ssh_config",
}
CASES = {case.name: case for case in (*from_catalog(), *from_corpus(), *from_support())}


@pytest.fixture(scope="module")
def answers(server: Server) -> dict[str, tuple[list[str], list[str]]]:
    """What the API says of every case: the lines, and their fields."""
    return {name: answer(server, case) for name, case in CASES.items()}


def answer(server: Server, case: Case) -> tuple[list[str], list[str]]:
    profile = {"name": "default", **case.profile} if case.profile else None
    if case.configuration["type"] == "fleet":
        path, body = "fleets/get_plan", {"spec": {"configuration": case.configuration, "profile": profile or {}}}
    else:
        spec = {"configuration": case.configuration, "profile": profile}
        path, body = "runs/get_plan", {"run_spec": spec}
    try:
        server.call(f"/api/project/main/{path}", body)
    except HttpError as error:
        (entry,) = json.loads(error.body)["detail"]
        assert error.status == 400 and entry.keys() <= {"msg", "code", "fields"}
        return entry["msg"].split("\n"), entry.get("fields", [])
    return [], []


@dataclass
class OurLine:
    """Our command line, in this process, against the real server."""

    folder: Path
    server: Server

    def apply(self, case: Case) -> list[str]:
        """What it says, without the lines of the file that it shows."""
        (self.folder / FILE).write_text(case.text, encoding="utf-8")
        profiles = self.folder / ".dstack" / "profiles.yml"
        profiles.parent.mkdir(exist_ok=True)
        profiles.write_text(
            json.dumps({"profiles": [{"name": "p", "default": True, **(case.profile or {})}]}, indent=1)
        )
        out, err = io.StringIO(), io.StringIO()
        terminal = Terminal(env={}, home=self.folder, cwd=self.folder, watched=False)
        with redirect_stdout(out), redirect_stderr(err):
            status = invoke(["apply", "-y", "-d"], terminal)
        assert status == 1, out.getvalue() + err.getvalue()
        lines = err.getvalue().splitlines()
        return [line for line in lines if not line.startswith("  ") and not line.endswith("; nothing was done.")]


@pytest.fixture(scope="module")
def our_line(server: Server, tmp_path_factory: pytest.TempPathFactory) -> OurLine:
    folder = tmp_path_factory.mktemp("ours")
    save_projects(config_path(folder), [ProjectEntry("main", server.url, server.token, True)])
    return OurLine(folder, server)


@pytest.mark.parametrize("name", [name for name in CASES if name not in BY_THE_COMMAND_LINE])
def test_the_command_line_says_what_the_api_says_and_where(
    name: str, our_line: OurLine, answers: dict[str, tuple[list[str], list[str]]]
) -> None:
    case, (lines, fields) = CASES[name], answers[name]
    output = our_line.apply(case)
    if not lines:
        assert codes_of(case.text) & OF_THE_FILE.keys(), f"the API takes {case.text}"
        return
    assert sorted(PLACE.sub("", line) for line in output) == sorted(lines)
    assert all(PLACE.match(line) for line in output), output
    assert len(fields) == len(lines) or not fields


def test_the_genuine_python_client_says_the_same(
    peer: Peer, answers: dict[str, tuple[list[str], list[str]]], tmp_path: Path
) -> None:
    names = [name for name, case in CASES.items() if case.configuration["type"] in RUNS and not case.profile]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps([CASES[name].configuration for name in names]))
    refusals = dict(zip(names, peer.python(Path(__file__).parent / "api_refusals.py", str(file)), strict=True))
    sent = {name: found for name, found in refusals.items() if found["by"] == "ServerClientError"}
    assert len(sent) > 140
    by_the_client = {name: (found["text"].split("\n"), found["fields"]) for name, found in sent.items()}
    assert by_the_client == {name: answers[name] for name in sent}


def test_every_code_is_among_the_cases() -> None:
    found = {code for case in CASES.values() for code in codes_of(case.text)} | {"unsupported"}
    assert found | OF_THE_TEXT | OF_THE_ROLE == set(error_catalog.ENTRIES)
