"""A job's commands, in real shells: each item runs whole, all in one shell, until one fails; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.jobs import command_lists
from chalicelib.planning.jobs.jobs import agent_task
from chalicelib.planning.runs.field_support import refusals
from tests.planning.shells import SHELLS, ended, execute, placed, sent
from tests.world import nouns as b

FAILING = 'sh -c "exit 3"'

Case = tuple[list[str], list[str], int, int | None]  # commands, lines, status, which command it ended in

# What begins in one item has no part in the next, whatever its grammar.
COMMANDS: dict[str, Case] = {
    "a block after a failure": (["sh -c 'echo a; exit 1'", "echo b\necho c\n", "echo d"], ["a"], 1, 1),
    "a comment first in a block": ([FAILING, "# fetch\necho b\necho c", "echo d"], [], 3, 1),
    "`||`": (["sh -c 'echo a; exit 1'", "rm /no/such || true", "echo c"], ["a"], 1, 1),
    "`;`": ([FAILING, "echo a; echo b", "echo c"], [], 3, 1),
    "`&` in the middle": ([FAILING, "sleep 0 & echo a", "echo b"], [], 3, 1),
    "`&` at the end": ([FAILING, "echo a &", "wait"], [], 3, 1),
    "a comment at the end": (["echo a\necho b   # then train\n", "echo c"], ["a", "b", "c"], 0, None),
    "a comment alone": (["# download", "echo a"], ["a"], 0, None),
    "a here-document": (["cat > f <<EOF\nhello\nEOF\n", "cat f"], ["hello"], 0, None),
    "nothing": (["echo a", "", "  \n", "echo b"], ["a", "b"], 0, None),
    "a semicolon at the end": (["echo a;", "echo b"], ["a", "b"], 0, None),
    "leaving a loop that isn't there": (["false || break 2>/dev/null", "echo a"], ["a"], 0, None),
}

# What one item does to the shell, the next one finds.
SHELL: dict[str, Case] = {
    "functions": (["up () {\n  echo up $1\n}", "up 1", "echo end"], ["up 1", "end"], 0, None),
    "variables": (["a=1; export B=2", 'echo $a; sh -c "echo \\$B"'], ["1", "2"], 0, None),
    "aliases": (["alias hi='echo hello'", "hi you"], ["hello you"], 0, None),
    "parameters": (["echo $#", "set -- x y", "echo $# $1", "shift; echo $1"], ["0", "2 x", "y"], 0, None),
    "the directory": (["cd /usr", "pwd"], ["/usr"], 0, None),
    "open files": (["exec 3>f", "echo a >&3", "cat f"], ["a"], 0, None),
    "exec": (["cd /usr", "exec sh -c 'pwd; exit 5'", "echo never"], ["/usr"], 5, 2),
    "exit": (["(exit 0)", "trap 'exit 4' EXIT; (exit 1)", "echo never"], [], 4, 2),
    "an EXIT trap": (["trap 'echo bye >&2' EXIT", "echo a", "false", "echo b"], ["a", "bye"], 1, 3),
    "an EXIT trap at the end": (["trap 'echo bye' EXIT", "echo a"], ["a", "bye"], 0, None),
    "a trap": (["trap 'echo got it' USR1", "kill -USR1 $$", "echo b"], ["got it", "b"], 0, None),
    "set -e": (["set -e", "false\necho never", "echo never"], [], 1, 2),
    "set -e by exception": (["set -e", "if false; then :; fi\nfalse || echo a", "echo b"], ["a", "b"], 0, None),
    "no set -e": (["false\necho a", "echo b"], ["a", "b"], 0, None),
    "set -f and IFS": (["set -f; IFS=0123456789", "v=a2b; printf '<%s>' $v '*'; echo"], ["<a><b><*>"], 0, None),
    "set -C": (["set -C", "echo a", "echo b"], ["a", "b"], 0, None),
    "closed output": (["exec 2>&-", "echo a", "exec >/dev/null", "echo b"], ["a"], 0, None),
    "a background job": (["sh -c 'echo b > f' &\nb=$!", "wait $b && cat f"], ["b"], 0, None),
    "few open files": (["ulimit -n 20", "echo a", FAILING, "echo b"], ["a"], 3, 3),
    "a function named like a builtin": (["echo() { printf '<%s>\\n' \"$1\"; }", "echo a"], ["<a>"], 0, None),
    "an alias of a builtin": (["alias echo='echo x'", "echo a", "echo b"], ["x a", "x b"], 0, None),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("case", [*COMMANDS.values(), *SHELL.values()], ids=[*COMMANDS, *SHELL])
def test_each_command_runs_whole_in_one_shell(case: Case, shell: str, tmp_path: Path) -> None:
    commands, lines, status, number = case
    found = ended(shell, commands, tmp_path)
    output = [line for line in found.lines if not line.startswith("[")]  # what an interactive bash says of its jobs
    assert (output, found.status) == (lines, status)
    if number is not None:
        assert found.step.startswith(f"command {number} (`")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "command", ["echo a |", "echo a &&", "(", "if true; then", "echo 'a", 'echo "a', "fi", "echo $(", "; echo a"]
)
def test_a_command_that_cant_be_parsed_is_named(command: str, shell: str, tmp_path: Path) -> None:
    found = ended(shell, ["echo first", command, "cat; fi; ) ' \""], tmp_path)
    assert found.status != 0 and found.step == f"command 2 (`{command}`)"
    assert found.lines[0] == "first" and len(found.lines) == 2, "and the shell says why"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "command",
    ["set -u; echo $nope", "echo ${nope?}", ". /no/such", "export 1x=2", "readonly r=1; r=2", "no-such-program"],
)
def test_an_error_of_the_shell_ends_the_job_and_nobody_is_asked(command: str, shell: str, tmp_path: Path) -> None:
    found = ended(shell, ["trap 'echo bye' EXIT", command, "echo never"], tmp_path)
    assert found.status != 0 and found.step.startswith("command 2")
    assert found.lines[-1] == "bye" and "never" not in found.lines


@pytest.mark.parametrize("shell", SHELLS)
def test_an_interrupt_ends_the_job_once_its_program_has_ended(shell: str, tmp_path: Path) -> None:
    program = "trap 'echo cleaned up; exit 0' INT; kill -INT $PPID $$"
    found = ended(shell, [f'sh -c "{program.replace("$", chr(92) + "$")}"', "echo never"], tmp_path)
    assert found.status != 0 and "cleaned up" in found.lines and "never" not in found.lines


@pytest.mark.parametrize("shell", SHELLS)
def test_an_agent_that_is_older_than_the_names_runs_them_all_the_same(shell: str, tmp_path: Path) -> None:
    task = sent(b.run_spec(image="x", shell=placed(shell, tmp_path), commands=["echo a", FAILING, "echo never"]))
    del task["steps"]
    found = execute(task, tmp_path)
    assert (found.lines, found.status, found.step) == (["a"], 3, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_trace_is_of_the_commands_alone(shell: str, tmp_path: Path) -> None:
    found = ended(shell, ["set -x", "echo a", "sh -c 'exit 7'", "echo b"], tmp_path)
    assert [line.lstrip("+ ").replace("'", "") for line in found.lines] == ["echo a", "a", "sh -c exit 7"]
    assert (found.status, found.step) == (7, "command 3 (`sh -c 'exit 7'`)")


@pytest.mark.parametrize("shell", SHELLS)
def test_programs_see_nothing_of_how_they_are_run(shell: str, tmp_path: Path) -> None:
    found = ended(shell, ["echo $0 $#", "env", "echo a"], tmp_path)
    assert found.lines[0].endswith("sh 0") and not [line for line in found.lines[1:] if "dstack_" in line.lower()]


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_a_list_may_be_long(shell: str, tmp_path: Path) -> None:
    long = [f"echo '{'x' * 127_000}' | wc -c", f"# {'y' * 127_000}"]
    assert ended(shell, ["n=0", *long, "echo $n"], tmp_path).lines == ["127001", "0"]
    many = ["n=0", *["n=$((n+1))"] * 997, "echo $n", FAILING]
    found = ended(shell, many, tmp_path)
    assert (found.lines, found.status, found.step) == (["997"], 3, f"command 1000 (`{FAILING}`)")


def test_a_bash_reads_what_its_user_set_up(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("alias greet='echo hello'; PLACE=here\n")
    assert ended("bash", ["greet", "echo $PLACE"], tmp_path).lines == ["hello", "here"]


def test_a_bash_goes_on_with_what_only_it_has(tmp_path: Path) -> None:
    commands = ["declare -A of; of[a]=1; all=(x y)", "echo ${of[a]} ${all[1]}", "set -o pipefail; false | true", "no"]
    found = ended("bash", commands, tmp_path)
    assert (found.lines, found.status, found.step[:9]) == (["1 y"], 1, "command 3")
    assert ended("bash", ["set -E; trap 'echo failed' ERR; set -e", "false"], tmp_path).lines == ["failed"]


# --- what a job is sent -----------------------------------------------------------------------------------------------


def test_a_command_is_called_by_its_number_and_the_first_line_that_says_something() -> None:
    commands = ("a", "\n# fetch\n  b\x1b[31m \n c", "x" * 100)
    found = command_lists.names(("prepare",), commands, ("wait",))
    assert found == ["the job's preparation", "command 1 (`a`)", "command 2 (`b`)", f"command 3 (`{'x' * 59}…`)", ""]
    assert command_lists.names((), ("a",), ()) == [], "the job's only one"


def test_a_job_that_was_stored_as_one_text_runs_as_it_is() -> None:
    old = {**b.job_spec(b.run_spec()).model_dump(), "commands": ["/bin/bash", "-i", "-c", "a && b"]}
    for name in ("shell", "before", "after"):
        del old[name]
    with_shell = {**old, "commands": ["python", "-m", "train"]}
    tasks = [agent_task(b.job(b.run()), JobSpec.model_validate(spec), b.host(), "main") for spec in (old, with_shell)]
    assert [(task["commands"], task["shell"], task.get("steps")) for task in tasks] == [
        (old["commands"], "/bin/bash", None),
        (with_shell["commands"], None, None),
    ]


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(**configuration: Any) -> list[tuple[str, str]]:
    spec = RunSpec.model_validate({"run_name": "x", "configuration": {"type": "task", **configuration}})
    return [(problem.path, problem.message) for problem in refusals(spec)]


def test_what_no_shell_could_be_given_is_refused_by_its_place() -> None:
    long = "x" * (command_lists.LONGEST + 1)
    assert refused(commands=["a" * command_lists.LONGEST] + ["b"] * (command_lists.MOST - 1)) == []
    assert refused(commands=["a", long]) == [
        ("configuration.commands.1", "a command has at most 125 KB, and this one has 126")
    ]
    assert refused(groups=[{"commands": ["a"]}, {"commands": [long]}])[0][0] == "configuration.groups.1.commands.0"
    assert refused(type="dev-environment", init=["é" * 64_001])[0][0] == "configuration.init.0"
    many = ["a"] * (command_lists.MOST + 1)
    assert refused(commands=many) == [
        ("configuration.commands", "a job runs at most 1000 commands, and this list has 1001")
    ]
    assert refused(commands=["a"], env={"DATA": long}) == [
        ("configuration.env.DATA", "a variable has at most 125 KB, and this one has 126")
    ]


def test_a_command_that_would_go_on_in_the_next_is_refused() -> None:
    wanted = [("configuration.commands.0", "it ends with a backslash, and no item goes on in the next")]
    assert refused(commands=["echo one \\", "echo two"]) == refused(commands=["echo \\\\\\"]) == wanted
    assert refused(commands=["echo \\\\", "python train.py \\\n  --lr 1 \\\n"]) == []
    assert refused(entrypoint="dir", commands=["C:\\"]) == [], "an argument"
    assert refused(type="dev-environment", init=["a", "make \\"])[0][0] == "configuration.init.1"


@pytest.mark.parametrize("shell", ["/usr/bin/fish", "/bin/tcsh", "/usr/local/bin/nu"])
def test_a_shell_with_a_language_of_its_own_is_refused(shell: str) -> None:
    text = f"`commands` are in the language of POSIX shells, and `{shell}` has one of its own"
    assert refused(commands=["a"], shell=shell) == [("configuration.shell", text)]
    assert refused(commands=["a"], shell="/usr/bin/zsh") == []
