"""What tasks of the simulated machines do: a shell of a few words, run on the world's time.

It knows `&&` and `||`, variables, `>&2` (both streams are one), `2>/dev/null` and the commands below. A
scenario that needs more of a shell is about real processes, and runs with them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from chalicelib.planning.jobs import command_lists
from tests.world.hosts import STARTING, Host, Task

Sleep = float
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


class UnknownCommand(AssertionError):
    """The simulated shell can't do that."""


class Shell:
    """Runs every task's commands. A host's disk outlives its tasks: the next one finds what a task created there."""

    def __init__(self) -> None:
        self._disks: dict[str, set[str]] = {}

    def begin(self, host: Host, task: Task) -> None:
        host.schedule(STARTING, lambda: self._run(host, task))

    def stop_requested(self, host: Host, task: Task, grace: float, reason: str) -> None:
        """Like a shell without a trap: the first signal ends it."""
        host.schedule(STARTING if grace else 0.0, lambda: host.exit(task, 143, reason))

    def _run(self, host: Host, task: Task) -> None:
        host.move(task, "running")
        steps = self._steps(host, task)

        def go() -> None:
            for pause in steps:
                if task.state != "exited":
                    host.schedule(pause, go)
                return

        go()

    def _steps(self, host: Host, task: Task) -> Iterator[Sleep]:
        """Writes the task's output and ends it; yields how long to sleep."""
        status = 0
        scripts = task.spec["commands"][len(command_lists.argv("", [])) :]
        for script in scripts:
            task.step += 1
            for operator, words in commands(script, task.spec["env"]):
                if (operator == "&&") is not (status == 0) and operator:
                    continue
                command, arguments = words[0], words[1:]
                if command == "exit":
                    host.write(task, b"exit\n")  # an interactive shell says so
                    host.exit(task, int(arguments[0]))
                    return
                if command == "sleep":
                    yield float(arguments[0])
                    status = 0
                else:
                    status = self._do(host, task, command, arguments)
            if status:
                break
        host.exit(task, status)

    def _do(self, host: Host, task: Task, command: str, arguments: list[str]) -> int:
        disk = self._disks.setdefault(host.name, set())
        if command == "echo":
            host.write(task, (" ".join(arguments) + "\n").encode())
        elif command == "mkdir":
            there = arguments[0] in disk
            disk.add(arguments[0])
            return int(there)
        elif command == "test" and arguments[1] == "=":
            return int(arguments[0] != arguments[2])
        elif command != "true":
            raise UnknownCommand(f"{command} {' '.join(arguments)}")
        return 0


def commands(script: str, env: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Each command with the operator before it, which is empty for the first."""
    lexer = shlex.shlex(re.sub(r">&2|2>/dev/null", "", script), posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    operator, words = "", list[str]()
    for token in [*lexer, "&&"]:
        if token in ("&&", "||"):
            yield operator, words
            operator, words = token, []
        elif token.strip("&|;<>") == "":
            raise UnknownCommand(f"{token} in {script!r}")
        else:
            words.append(_VARIABLE.sub(lambda found: env.get(found[1] or found[2], ""), token))
