"""The script that starts the agent in any image: its text in real shells, with programs that stand for an image's."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from chalicelib.domain import container_script

PROGRAM = b"the agent"
SETTINGS = container_script.settings("http://plane:3000", "i-1", "secret", hashlib.sha256(PROGRAM).hexdigest(), "")
TOOLS = ("sh", "cat", "cp", "mkdir", "rm", "chmod", "sleep", "tar", "gzip")
SHELLS = [shell for shell in (["dash"], ["bash"], ["bash", "--posix"], ["busybox", "ash"]) if shutil.which(shell[0])]


class ImageStandIn:
    """A folder of programs, and a home; `python3` notes how it was started."""

    def __init__(self, folder: Path, *tools: str) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        (folder / "home").mkdir()
        for name in (*TOOLS, *tools):
            (self.bin / name).symlink_to(str(shutil.which(name)))

    def has(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.bin / name).chmod(0o755)

    def fetches(self, name: str, content: bytes) -> None:
        """With the last argument but one, or the last, as in curl's and wget's command lines."""
        (self.folder / "served").write_bytes(content)
        self.has(
            name,
            f'echo "$*" >>{self.folder}/asked; for each; do [ "$last" = -o ] || [ "$last" = -O ] && '
            f'cp {self.folder}/served "$each"; last=$each; done',
        )

    def has_python(self) -> None:
        """One that says it will do, and else notes its arguments and whether it was given the token."""
        note = f'echo "$* <${{DSTACK_TOKEN-}}>" >{self.folder}/started'
        self.has("python3", f'case "$3" in -c) exit 0;; esac; {note}')

    def run(self, shell: list[str], **settings: str) -> subprocess.CompletedProcess[str]:
        data = str(self.folder / "data")
        env = {"PATH": str(self.bin), "HOME": str(self.folder / "home"), "DSTACK_DATA": data, **SETTINGS, **settings}
        script = container_script.SCRIPT.replace("/usr/", f"{self.folder}/usr/")  # of this machine
        argv = [str(shutil.which(shell[0])), *shell[1:], "-c", script]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("shell", "fetcher"),
    [(shell, name) for shell in SHELLS for name in ("curl", "wget") if (shell[0], name) != ("busybox", "wget")],
)  # busybox's shell takes its own wget
def test_an_image_with_python_starts_the_agent_on_it(tmp_path: Path, shell: list[str], fetcher: str) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    image.fetches(fetcher, PROGRAM)
    image.has_python()
    done = image.run(shell)
    assert done.returncode == 0, done.stderr
    data = tmp_path / "data"
    assert (data / "agent.pyz").read_bytes() == PROGRAM
    assert (data / "token").read_text() == "secret" and (data / "token").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "started").read_text() == (
        f"-I -S {data}/agent.pyz --inside --data {data} --server http://plane:3000 --instance i-1 "
        f"--token-file {data}/token <>\n"
    )
    assert (
        f"http://plane:3000/agent/agent.pyz?sha256={SETTINGS['DSTACK_AGENT_SHA256']}"
        in (tmp_path / "asked").read_text()
    )


def test_a_wget_that_crashes_at_an_option_is_asked_without(tmp_path: Path) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    image.fetches("plain", PROGRAM)
    image.has("wget", 'case "$*" in *-T*) kill -SEGV $$;; esac; exec plain "$@"')
    image.has_python()
    assert image.run(["sh"]).returncode == 0


@pytest.mark.parametrize(
    ("tools", "content", "settings", "words"),
    [
        (("curl",), b"changed", {}, "agent.pyz from http://plane:3000 isn't the one that was meant: its SHA-256 is "),
        ((), PROGRAM, {}, "neither curl, wget, python nor perl to fetch agent.pyz with"),
        (("curl",), PROGRAM, {}, "this image has no Python 3.8 or newer, and this control plane has no carrier"),
        (("curl",), PROGRAM, {"DSTACK_INSTANCE": ""}, "the container has no DSTACK_INSTANCE"),
        (("curl",), PROGRAM, {"DSTACK_PREPARE": "/proc/no"}, "none of these folders can be written: /proc/no"),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, tools: tuple[str, ...], content: bytes, settings: dict[str, str], words: str
) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    for name in tools:
        image.fetches(name, content)
    done = image.run(["sh"], **settings)
    assert (done.returncode, done.stderr.count("dstack: ")) == (78, 1), done.stderr
    assert words in done.stderr


def test_a_digest_can_be_had_in_several_ways(tmp_path: Path) -> None:
    image = ImageStandIn(tmp_path)
    image.fetches("curl", PROGRAM)
    image.has_python()
    digest = SETTINGS["DSTACK_AGENT_SHA256"]
    image.has("openssl", f"echo '{digest} *file'")
    assert image.run(["sh"]).returncode == 0
    (image.bin / "openssl").unlink()
    image.has("shasum", f"echo '{digest}  file'")
    assert image.run(["sh"]).returncode == 0


def test_the_script_fits_where_providers_take_few_arguments() -> None:
    assert sum(len(word.encode()) + 1 for word in container_script.command()) <= container_script.LONGEST


def test_no_argument_has_the_token() -> None:
    assert "secret" not in " ".join([*container_script.command(), *container_script.prepared()])
    assert SETTINGS["DSTACK_TOKEN"] == "secret"
