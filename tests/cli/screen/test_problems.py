"""Problems of a configuration as a person reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.errors import Invalid, Problem
from cli.screen.problems import problems_in, render_problems
from tests.cli.conftest import Dstack
from tests.cli.plane import Plane


def test_place_sentence_line_and_caret(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("type: task\n\tnmae: x\n")
    error = Invalid([Problem("isn't a known key", "nmae", "a.yml", 2, 2, "did you mean `name`?")])
    assert render_problems(error, tmp_path) == (
        "a.yml:2:2: nmae: isn't a known key (did you mean `name`?)\n  2 |     nmae: x\n    |     ^"
    )


def test_all_of_them_with_their_number(tmp_path: Path) -> None:
    text = render_problems(Invalid([Problem("one"), Problem("two", "b")]), tmp_path)
    assert text.splitlines() == ["one", "b: two", "2 problems; nothing was done."]


def test_a_file_that_cant_be_read_again_shows_the_place(tmp_path: Path) -> None:
    error = Invalid([Problem("bad", "a", "-", 1, 1)])
    assert render_problems(error, tmp_path) == "-:1:1: a: bad"


def test_a_line_beyond_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("x: 1\n")
    assert render_problems(Invalid([Problem("bad", "", "a.yml", 9, 1)]), tmp_path) == "a.yml:9:1: bad"


def test_a_long_line_is_cut_around_the_place(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(f"x: {'1' * 500}, y: {'2' * 500}\n")
    lines = render_problems(Invalid([Problem("bad", "y", "a.yml", 1, 506)]), tmp_path).splitlines()
    assert lines[1] == f"  1 | …{'1' * 38}, y: {'2' * 77}…"
    assert lines[2].index("^") == lines[1].index("y:")


# --- what a server finds ----------------------------------------------------------------------------------------------

TASK = "type: task\nname: web\nenv:\n  - A=1\nports: [80]\ncommands: [ls]\n"


def refusal(*problems: tuple[str, str]) -> tuple[int, Any]:
    lines = [f"{field}: {text}" if field else text for field, text in problems]
    entry = {"msg": "\n".join(lines), "code": "error", "fields": [field for field, _ in problems]}
    return 400, {"detail": [entry]}


@pytest.fixture
def web(dstack: Dstack, plane: Plane) -> Dstack:
    (dstack.terminal.cwd / ".dstack.yml").write_text(TASK)
    plane.answers["/repos/init"] = {}
    return dstack


def test_every_problem_a_server_finds_has_its_line(web: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get_plan"] = refusal(("name", "bad (why)"), ("env.A", "worse"), ("ports.0", "worst"))
    ended = web("apply", "-y")
    assert ended.code == 1 and ended.err == (
        ".dstack.yml:2:1: name: bad (why)\n  2 | name: web\n    | ^\n"
        ".dstack.yml:4:5: env.A: worse\n  4 |   - A=1\n    |     ^\n"
        ".dstack.yml:5:9: ports.0: worst\n  5 | ports: [80]\n    |         ^\n"
        "3 problems; nothing was done.\n"
    )


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("type: task\nname: My_Run\ncommands: []\n", [None, "name"]),
        ("type: task\nname: My_Run\ncommands: [a]\nfiles: [nowhere]\n", ["name", "files.0.local_path"]),
        ("type: task\nname: My_Run\ncommands: [a]\npriority: 101\n", ["name", "priority"]),
        ("type: task\nnmae: x\nname: My_Run\n", ["nmae", "name"]),
        ("type: fleet\nname: My_Fleet\n", ["name", None]),
    ],
    ids=["no commands", "no file", "priority", "unknown key", "fleet"],
)
def test_a_name_that_isnt_allowed_is_one_problem_among_others(
    dstack: Dstack, text: str, fields: list[str | None]
) -> None:
    (dstack.terminal.cwd / ".dstack.yml").write_text(text)
    ended = dstack("apply", "-y")
    assert ended.code == 1 and "can't be the name of a" in ended.err and f"{len(fields)} problems" in ended.err
    assert ended.err.count("can't be the name of a") == 1
    for field in filter(None, fields):
        assert f": {field}: " in ended.err


def test_a_name_that_a_flag_gives_is_the_one_that_counts(dstack: Dstack) -> None:
    (dstack.terminal.cwd / ".dstack.yml").write_text("type: task\nname: My_Run\n")
    assert "can't be the name" not in dstack("apply", "-y", "--name", "fine").err
    assert "--name: `Bad_One` can't be the name" in dstack("apply", "-y", "--name", "Bad_One").err


def test_what_the_file_doesnt_say_has_no_line(web: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get_plan"] = refusal(("run_spec.working_dir", "a"), ("", "b"), ("shell", "c"))
    assert web("apply", "-y").err == "run_spec.working_dir: a\nb\nshell: c\n3 problems; nothing was done.\n"


def test_what_a_flag_says_is_told_of_the_flag(web: Dstack, plane: Plane) -> None:
    fields = ["name", "env.A", "env.B", "ports", "resources.gpu.count", "resources.cpu", "retry", "fleets.0.project"]
    plane.answers["/runs/get_plan"] = refusal(*((path, "x") for path in fields))
    flags = ["-n", "other", "-e", "B=1", "-p", "90", "--gpu", "1", "--retry-duration", "1h", "--fleet", "a/b"]
    ended = web("apply", "-y", *flags)
    assert [line.partition(": x")[0] for line in ended.err.splitlines() if line.endswith(": x")] == [
        "--name",
        ".dstack.yml:4:5: env.A",
        "--env",
        "--port",
        "--gpu",
        "resources.cpu",
        "--retry-duration",
        "--fleet",
    ]


def test_what_a_profile_says_is_told_of_its_file(web: Dstack, plane: Plane) -> None:
    for folder in (web.terminal.cwd / ".dstack", web.terminal.home / ".dstack"):
        folder.mkdir(exist_ok=True)
    own, home = (folder / ".dstack" / "profiles.yml" for folder in (web.terminal.cwd, web.terminal.home))
    own.write_text("profiles:\n- name: a\n- name: b\n  reservation: r\n")
    home.write_text("profiles:\n- {name: usual, default: true,\n   reservation: r}\n")
    plane.answers["/runs/get_plan"] = refusal(("profile.reservation", "not yet"))
    assert ".dstack/profiles.yml:4:3: profile.reservation: not yet\n  4 |" in web("apply", "--profile", "b").err
    assert f"{home}:3:4: profile.reservation: not yet\n" in web("apply").err
    assert web("offer").err.startswith(f"{home}:3:4: profile.reservation: not yet\n")
    assert web("apply", "--no-profile").err == "profile.reservation: not yet\n"


def test_an_answer_of_another_kind_is_shown_as_it_is(web: Dstack, plane: Plane) -> None:
    entry = {"msg": "one\ntwo", "code": "error", "fields": ["name"]}
    plane.answers["/runs/get_plan"] = (400, {"detail": [entry]})
    assert web("apply").err == "one\ntwo\n"
    for fields in (None, "name", [1, 2], ["name"]):
        assert problems_in({"msg": "one\ntwo", "fields": fields}) == ()


def test_every_file_that_isnt_there_and_every_variable_at_once(web: Dstack, plane: Plane) -> None:
    (web.terminal.cwd / ".dstack.yml").write_text(
        "type: task\ncommands: [ls]\nfiles:\n- a.txt\n- local_path: ~/b\n  path: /b\nenv: [C]\n"
    )
    ended = web("apply", "-y")
    assert ended.code == 1 and not plane.requests
    assert [line for line in ended.err.splitlines() if line.startswith(".dstack.yml")] == [
        ".dstack.yml:4:3: files.0.local_path: `a.txt` doesn't exist (paths are relative to the folder of the "
        "configuration)",
        ".dstack.yml:5:3: files.1.local_path: `~/b` doesn't exist (paths are relative to the folder of the "
        "configuration)",
        ".dstack.yml:7:7: env.C: the variable `C` has no value (`export C=...` where you apply this, or write "
        "`C=value`)",
    ]


def test_what_is_wrong_at_all_is_told_at_once(dstack: Dstack) -> None:
    """What the models refuse, and what is only looked at once they don't."""
    file = """\
type: task
commands: ["${{ nope.x }}"]
name: X_
priority: 200
env: [NOT_SET]
files: [missing]
"""
    (dstack.terminal.cwd / "a.yml").write_text(file)
    lines = [line for line in dstack("apply", "-f", "a.yml", "-y").err.splitlines() if line.startswith("a.yml:")]
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4", "5", "6"], lines
    sent = [line for line in dstack("apply", "-f", "a.yml", "-y", "-n", "good").err.splitlines() if "name" in line]
    assert not sent, "a flag says it in place of the file"


def test_what_refers_to_something_wrong_isnt_wrong_itself(dstack: Dstack) -> None:
    file = "type: task\nimage: i\nenv: {A: x, 1: yes}\nregistry_auth: {username: u, password: '${{ env.A }}'}\n"
    (dstack.terminal.cwd / "a.yml").write_text(file)
    assert "registry_auth" not in dstack("apply", "-f", "a.yml", "-y").err


@pytest.mark.parametrize("file", ["", "/dev/zero"])
def test_a_file_that_can_be_none(dstack: Dstack, file: str) -> None:
    ended = dstack("apply", "-f", file, "-y")
    assert ended.code == 1 and ("-f is empty" in ended.err or "more than 1,000,000 bytes" in ended.err), ended


def test_a_profile_that_isnt_utf8_is_told_by_its_line(web: Dstack) -> None:
    (web.terminal.cwd / ".dstack").mkdir()
    (web.terminal.cwd / ".dstack" / "profiles.yml").write_bytes(b"profiles:\n- name: \xff\n")
    assert ".dstack/profiles.yml:2:9: this byte isn't UTF-8" in web("apply").err


def test_every_key_that_cant_be_read_is_told_by_its_line(dstack: Dstack, plane: Plane) -> None:
    (dstack.terminal.cwd / ".dstack.yml").write_text(
        "type: fleet\nssh_config:\n  user: u\n  identity_file: gone\n  hosts:\n"
        "  - {hostname: a, identity_file: gone too}\n  - hostname: b\n    proxy_jump:\n"
        "      {hostname: j, user: u, identity_file: here}\n"
    )
    (dstack.terminal.cwd / "here").write_text("ssh-ed25519 AAAA")
    ended = dstack("apply", "-y")
    assert ended.code == 1 and not plane.requests
    lines = [line for line in ended.err.splitlines() if line.startswith(".dstack.yml")]
    assert [line.partition(": ")[0] for line in lines] == [f".dstack.yml:{place}" for place in ("4:3", "6:19", "9:30")]
    assert "ssh_config.hosts.1.proxy_jump.identity_file: " in lines[2] and "is a public key" in lines[2]
