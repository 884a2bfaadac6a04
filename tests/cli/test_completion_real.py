"""Completion in the shells themselves, which are brought where they lack: the script is loaded, a Tab is pressed."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.connection.session import names_path
from tests.harness.debian import NotHere, install
from tests.harness.server import PATIENCE, ROOT, until

COMPLETION_SCRIPTS = {  # a shell's way to say what it would offer, without anybody at the keyboard
    "bash": (
        "source <(dstack completion bash)",
        """
COMPREPLY=()
COMP_LINE={line!r}; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_POINT=${{#COMP_LINE}}
_dstack_completion dstack
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    ),
    "fish": ("dstack completion fish | source", "complete -C {line!r}"),
}
EXPECTED = [
    ("dstack att", ["attach"], ["apply"]),
    ("dstack logs tra", ["train", "trace"], ["eval"]),
    ("dstack fleet delete g", ["gpu"], ["train"]),
    ("dstack fleet del", ["delete", "delete-instance"], ["list"]),
    ("dstack apply --max-", ["--max-price", "--max-offers"], ["--memory"]),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home with remembered names, and `dstack` on the path."""
    names = names_path(tmp_path)
    names.parent.mkdir(parents=True)
    names.write_text(json.dumps({"run": ["train", "trace", "eval"], "fleet": ["gpu"]}))
    program = tmp_path / "bin" / "dstack"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cli.main "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
    }


def program(shell: str) -> str:
    """Where the shell is, installed if need be."""
    try:
        if not shutil.which(shell):
            install(shell)
    except NotHere as problem:
        pytest.skip(f"no {shell}: {problem}")
    return str(shutil.which(shell))


@pytest.mark.parametrize("shell", COMPLETION_SCRIPTS)
def test_what_a_shell_offers(environment: dict[str, str], shell: str) -> None:
    load, offer = COMPLETION_SCRIPTS[shell]
    tabs = [offer.format(line=line) for line, *_ in EXPECTED]
    done = subprocess.run(
        [program(shell), "-c", "\necho ====\n".join([load, *tabs])],
        env=environment,
        cwd=environment["HOME"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done
    before, *shown = done.stdout.split("====\n")
    assert not before
    for (line, offered, not_offered), text in zip(EXPECTED, shown, strict=True):
        completions = {each.split("\t", maxsplit=1)[0].strip() for each in text.splitlines()}
        assert set(offered) <= completions and not set(not_offered) & completions, (line, text)


@pytest.mark.parametrize("loaded", ["source", "fpath"])
def test_what_zsh_offers_at_a_tab(environment: dict[str, str], loaded: str) -> None:
    """Sourced in .zshrc, or as a file of its completions."""
    zsh = program("zsh")
    home = Path(environment["HOME"])
    folder = home / "completions"
    folder.mkdir()
    script = subprocess.run(["dstack", "completion", "zsh"], env=environment, capture_output=True, check=True).stdout
    (folder / "_dstack").write_bytes(script)
    lines = {
        "source": "autoload -U compinit; compinit -u\nsource <(dstack completion zsh)",
        "fpath": f"fpath=({folder} $fpath)\nautoload -U compinit; compinit -u",
    }
    (home / ".zshrc").write_text(f"PS1='ready> '\n{lines[loaded]}\n")
    child, handle = pty.fork()
    if child == 0:
        os.chdir(home)
        os.execve(zsh, ["zsh", "-i"], environment)
    screen = ""

    def shown(*texts: str) -> bool:
        nonlocal screen
        while select.select([handle], [], [], 0.02)[0]:
            screen += os.read(handle, 65536).decode(errors="replace")
        return all(text in screen for text in texts)

    try:
        until("a prompt", lambda: shown("ready> "))
        os.write(handle, b"dstack logs tra\t\t")
        until("the names", lambda: shown("train", "trace"))
        assert "eval" not in screen
    finally:
        os.write(handle, b"\x03exit\n")
        os.close(handle)
        os.waitpid(child, 0)
