"""The token and the script that a machine is started with."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from chalicelib.domain.boot_script import read_user_data, user_data
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration
from chalicelib.engine.bootstrap_tokens import bootstrap_token, keyed
from chalicelib.errors import Bug
from chalicelib.hosts.join_script import JoinScript
from chalicelib.planning.jobs import dev_environments

PROGRAM = b"the agent"
DIGEST = hashlib.sha256(PROGRAM).hexdigest()


def test_token_depends_on_all_of_key_instance_and_epoch() -> None:
    tokens = {
        bootstrap_token(key, instance, epoch)
        for key in (b"a" * 32, b"b" * 32)
        for instance in ("one", "two")
        for epoch in (0, 1)
    }
    assert len(tokens) == 8
    assert bootstrap_token(b"a" * 32, "one", 0) in tokens


@pytest.mark.parametrize("url", ["http://127.0.0.1:3000", "https://x.example/a b'c", "http://[::1]:80"])
def test_script_is_read_back_as_it_was_written(url: str) -> None:
    assert read_user_data(user_data(url, "instance", "token", DIGEST)) == (url, "instance", "token")


def test_script_is_one_a_shell_understands() -> None:
    script = user_data("https://x.example/a b'c", "instance", "token", DIGEST)
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_script_names_whom_to_ask_for_notices() -> None:
    assert "--notices" not in user_data("http://plane", "instance", "token", DIGEST)
    script = user_data("http://plane", "instance", "token", DIGEST, "ec2")
    assert script.endswith("--token-file /var/lib/dstack/token --notices ec2\n")
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("served", [PROGRAM, PROGRAM + b"and more", b""])
@pytest.mark.parametrize("fetcher", ["curl", "wget"])
def test_only_the_program_that_was_meant_is_run(tmp_path: Path, served: bytes, fetcher: str) -> None:
    """The real script in a real shell, with a folder of its own and programs that note how they were called."""
    bin, home = tmp_path / "bin", tmp_path / "home"
    bin.mkdir()
    (tmp_path / "served").write_bytes(served)
    for name, body in {
        fetcher: f'echo "$@" > {tmp_path}/asked; cp {tmp_path}/served agent.pyz',
        "python3": f'cp agent.pyz {tmp_path}/ran; echo "$@" > {tmp_path}/arguments',
    }.items():
        (bin / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin / name).chmod(0o755)
    for name in ("sh", "cat", "cp", "mkdir", "sha256sum"):
        (bin / name).symlink_to(str(shutil.which(name)))
    script = user_data("http://plane:3000", "i-1", "secret", DIGEST).replace("/var/lib/dstack", str(home))
    done = subprocess.run(["sh"], input=script, text=True, env={"PATH": str(bin)}, capture_output=True, check=False)
    assert f"http://plane:3000/agent/agent.pyz?sha256={DIGEST}" in (tmp_path / "asked").read_text()
    if served == PROGRAM:
        assert done.returncode == 0 and (tmp_path / "ran").read_bytes() == PROGRAM
        assert "--instance i-1" in (tmp_path / "arguments").read_text()
        assert (home / "token").read_text() == "secret" and (home / "token").stat().st_mode & 0o777 == 0o600
    else:
        assert done.returncode != 0 and not (tmp_path / "ran").exists()


def test_foreign_script_is_not_read() -> None:
    with pytest.raises(ValueError, match="DSTACK_TOKEN"):
        read_user_data("#!/bin/sh\nDSTACK_SERVER=x\n")


def test_no_script_waits_for_minutes_for_one_connection() -> None:
    """A machine may run this before its address is there: what it sends then is lost, and the next try gets through."""
    joining = JoinScript(None, None, "i", "https://x.example", lambda: DIGEST)  # type: ignore[arg-type]
    chosen = {"type": "dev-environment", "ide": "vscode", "version": f"1.99.0@{'0' * 40}"}
    editor = DevEnvironmentConfiguration.model_validate(chosen)
    scripts = {
        "boot": user_data("https://x.example", "instance", "token", DIGEST),
        "join": joining.script(),
        "join command": joining.command("token"),
        "editor": "\n".join(chain.from_iterable(dev_environments.commands(editor, "run"))),
    }
    calls = re.compile(r"\b(?:(curl) -|(wget) -)[^\n|]*")
    for name, script in scripts.items():
        found = [match.group() for match in calls.finditer(script)]
        assert {call.split()[0] for call in found} == {"curl", "wget"}, name
        for call in found:
            assert re.search(r"--connect-timeout \d+ " if call.startswith("curl") else r" -T \d+ ", call), (name, call)


def test_the_install_key_is_used_where_an_empty_one_is_refused_and_nowhere_else() -> None:
    """Functions that have no use for it aren't given it."""
    used = {
        path.name
        for path in (Path(__file__).parents[2] / "chalicelib").rglob("*.py")
        if re.search(r"hmac\.\w+\([\w.]*install_key", path.read_text())
    }
    assert used == {"bootstrap_tokens.py"}
    with pytest.raises(Bug, match="no install key"):
        keyed(b"", "anything")
