"""The changes, the sample, and a trial of each kind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, drawn, everything
from tests.mutants.changes import changes, readable
from tests.mutants.imports import imported
from tests.mutants.touching import statement
from tests.mutants.trial import Copy, alone, closest_tests, rounds

TABLE = "chalicelib/machines/table.py"
PATIENCE = 600.0  # seconds, for what ends by itself


def becomes(folder: Path, text: str) -> set[str]:
    (folder / "file.py").write_text(text)
    return {change.becomes for change in changes(folder, "file.py") if readable(folder, change)}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("a < b", {"a <= b"}),
        ("time.monotonic() < b", {"time.monotonic() >= b"}),
        ("a is not b", {"a is b"}),
        ("a not in b", {"a in b"}),
        ("a == b != c", {"a != b != c", "a == b == c"}),
        ("a and b or c", {"a or b or c", "a and b and c"}),
        ("not a", {"a"}),
        ("x = a + b - c", {"x = a - b - c", "x = a + b + c"}),
        ("x = [a for a in b if a]", {"x = [a for a in b if not (a)]"}),
        ("x = b if a else c", {"x = b if not (a) else c"}),
        ("x = True, 3, 60, 0.5", {"x = False, 3, 60, 0.5", "x = True, 4, 60, 0.5", "x = True, 3, 120, 0.5"}),
        ("x = max(a)", {"x = min(a)"}),
        ("x = f(a, b=b, c=c)", {"x = f(a, c=c)", "x = f(a, b=b)"}),
        ("x = f(b=b,)", {"x = f()"}),
        ("x = {'a': b, **c}", {"x = {**c}"}),
        ("x = {'a', 'b'}", {"x = {'b'}", "x = {'a'}"}),
        ("f(a)", {"pass"}),
        ("x += y", {"pass"}),
        ("raise f(a)", {"pass"}),
    ],
)
def test_what_is_changed(tmp_path: Path, text: str, changed: set[str]) -> None:
    assert becomes(tmp_path, text) >= changed


def test_what_a_function_returns_is_changed(tmp_path: Path) -> None:
    assert becomes(tmp_path, "def f():\n    return a.b") == {"return None"}
    assert becomes(tmp_path, "def f():\n    return a < b") == {"return not (a < b)", "return a <= b"}


@pytest.mark.parametrize(
    "text",
    [
        '"""Words about 1 and 2."""',
        "def f(a: Literal[1]) -> Annotated[int, 2]: ...",
        "x: Literal[1] = a",
        "log.info('%d', 1)",
        "log('some words', 1)",
        "assert a == 1",
        "if TYPE_CHECKING:\n    f(1)",
        "T = TypeVar('T', bound=Noun)",
        "x = f(hint='words of a message')",
        "x = f(hint=what)",
        "class C:\n    def f(self):\n        self._log(a)",
        "x = f'{a + 1}'",
        "x = f('%d words' % (a + 1), hint='%d more' % a)",
        "@dataclass(frozen=True)\nclass C: ...",
        "def f():\n    return None",
        "x = zip(a, b, strict=True)",
    ],
)
def test_what_is_not(tmp_path: Path, text: str) -> None:
    assert becomes(tmp_path, text) == set()


def test_the_rest_of_the_file_stays_as_it_is(tmp_path: Path) -> None:
    text = "x = (  # a word\n    a\n    < 'ä'  # another\n)\ny = b == c\n"
    (tmp_path / "file.py").write_text(text)
    first, second = changes(tmp_path, "file.py")
    assert first.applied(text.encode()).decode() == text.replace("< 'ä'", "<= 'ä'")
    assert second.applied(text.encode()).decode() == text.replace("==", "!=")
    assert (second.line, second.within, second.was) == (5, "", "y = b == c")


def test_a_reworded_comment_leaves_a_change_its_name(tmp_path: Path) -> None:
    names = []
    for comment in ("", "  # a word"):
        (tmp_path / "file.py").write_text(f"x = 60{comment}\n")
        names += [change.name for change in changes(tmp_path, "file.py")]
    assert names[0] == names[1]


def test_a_seed_draws_the_same_sample() -> None:
    found = everything(["chalicelib/machines/"])
    one = drawn(list(found), 1, 10)
    assert one == drawn(list(found), 1, 10) != drawn(list(found), 2, 10)
    assert len(one) == 10


def test_an_edit_of_the_source_moves_no_other_change_in_or_out_of_a_sample() -> None:
    found = everything(["chalicelib/machines/"])
    sample = drawn(found, 1, 10)
    others = [change for change in found if change != sample[0]]
    assert drawn(others, 1, 9) == sample[1:]


def test_tests_are_found_by_name_the_closest_first() -> None:
    assert closest_tests(ROOT, TABLE)[0] == "tests/machines/test_tables.py"
    assert closest_tests(ROOT, "chalicelib/planning/runs/rollout.py")[0] == "tests/planning/runs/test_rollout.py"
    near = {"tests/store/test_dynamo_calls.py", "tests/store/test_dynamo_real.py"}
    assert set(closest_tests(ROOT, "chalicelib/store/dynamo.py")[:2]) == near
    assert "tests/store/test_kill_real.py" not in closest_tests(ROOT, "chalicelib/store/dynamo.py")
    assert any(
        path.startswith("tests/simulation/") for path in closest_tests(ROOT, "chalicelib/agent/program/session.py")
    )
    assert not any(
        path.startswith("tests/simulation/") for path in closest_tests(ROOT, "chalicelib/agent/runtimes/docker.py")
    )


def test_an_agents_test_that_imports_nothing_of_a_file_isnt_about_it() -> None:
    found = closest_tests(ROOT, "chalicelib/agent/runtimes/users.py")
    assert "tests/agent/kernel/test_spool.py" not in found
    assert "tests/agent/runtimes/test_own_users_real.py" in found, "by another name"
    assert found.index("tests/agent/runtimes/test_users.py") < found.index("tests/agent/program/test_program.py"), (
        "closer"
    )


def test_imports_are_followed(tmp_path: Path) -> None:
    texts = {
        "tests/conftest.py": "def f():\n    import lib.lazy",
        "tests/test_a.py": "from lib import a",
        "lib/__init__.py": "",
        "lib/a.py": "from . import b\nfrom .c.d import e\nimport json",
        "lib/b.py": "from .a import x",
        "lib/c/d.py": "",
        "lib/lazy.py": "",
        "lib/alone.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    away = imported(tmp_path, "tests/test_a.py")
    assert {name: number for name, number in away.items() if name.startswith("lib")} == {
        "lib/__init__.py": 1,
        "lib/a.py": 1,
        "lib/lazy.py": 1,
        "lib/b.py": 2,
        "lib/c/d.py": 2,
    }


@pytest.mark.parametrize(
    ("line", "lines"), [(1, [1]), (2, [2, 3]), (3, [2, 3]), (4, [4]), (5, [5]), (6, [6, 7]), (9, [9]), (11, [11])]
)
def test_a_line_belongs_to_a_statement_without_its_body(line: int, lines: list[int]) -> None:
    head = b"x = 1\nif (a and\n    b):\n    f(c)\n"
    text = head + b"def g():\n    return (1 +\n        2)\ntry: pass\nexcept E:\n    pass\nx = 2\n"
    assert list(statement(text, line)) == lines


@pytest.fixture(scope="module")
def copy() -> Iterator[Copy]:
    made = Copy(ROOT)
    yield made
    made.close()


def test_a_trial_says_who_noticed_and_leaves_no_trace(copy: Copy) -> None:
    before = subprocess.check_output(["git", "status", "--short"], cwd=ROOT)
    source = (copy.root / TABLE).read_bytes()
    change = next(change for change in changes(ROOT, TABLE) if "event not in" in change.becomes)
    touching = copy.watched(
        ["tests/machines/test_tables.py", "tests/planning/placing/test_ports.py"], {"machines"}, PATIENCE
    )
    ((first, *others),) = rounds(copy.root, change, touching)
    assert {name.partition("::")[0] for name in (first, *others)} == {"tests/machines/test_tables.py"}
    verdict = copy.trial(change, touching, PATIENCE)
    assert verdict.noticed and verdict.by.startswith("tests/machines/test_tables.py::")
    assert (copy.root / TABLE).read_bytes() == source
    assert subprocess.check_output(["git", "status", "--short"], cwd=ROOT) == before


def test_what_never_ends_is_noticed(copy: Copy) -> None:
    (copy.root / "tests" / "test_endless.py").write_text("def test_endless():\n    while True:\n        pass\n")
    assert copy.passes(["tests/test_endless.py"], 3) == (False, "no end")


@pytest.mark.skipif(not alone(), reason="no namespaces of processes here")
def test_a_trial_signals_nobody_else(copy: Copy) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        text = f"import os\n\ndef test_kill():\n    os.kill({other.pid}, 9)\n"
        (copy.root / "tests" / "test_kill.py").write_text(text)
        assert copy.passes(["tests/test_kill.py"], PATIENCE) == (False, "tests/test_kill.py::test_kill")
        assert other.poll() is None
        other.kill()


def test_what_no_test_notices_survives(copy: Copy) -> None:
    assert copy.passes(["tests/domain/test_names.py"], PATIENCE) == (True, "")


def test_what_fails_without_any_change_is_left_out(copy: Copy) -> None:
    (copy.root / "tests" / "test_failing.py").write_text("def test_failing():\n    assert 0\n")
    try:
        copy.watched(["tests/test_failing.py"], {"machines"}, PATIENCE)
        assert copy.left_out == ["tests/test_failing.py::test_failing"]
        assert copy.passes(["tests/test_failing.py"], PATIENCE) == (True, "")
    finally:
        copy.left_out = []
