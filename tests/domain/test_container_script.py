"""The script that starts the agent in any image: its text in real shells, with programs that stand for an image's."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from chalicelib.domain import container_script
from tests.harness.debian import busybox_or_skipped


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PROGRAM = b"the agent"
SETTINGS = container_script.settings("http://plane:3000", "i-1", "secret", sha256(PROGRAM), {})
TOOLS = ("sh", "cat", "cp", "mkdir", "rm", "chmod", "tar", "gzip")
STUBBED = [shell for shell in (["dash"], ["bash"], ["bash", "--posix"]) if shutil.which(shell[0])]
SHELLS = [*STUBBED, ["busybox", "ash"]]  # which takes its own wget, sleep and uname


class ImageStandIn:
    """A folder of programs, and a home; `python3` notes how it was started, and `sleep` only how long."""

    def __init__(self, folder: Path, *tools: str) -> None:
        self.folder, self.bin, self.served = folder, folder / "bin", folder / "served"
        for made in (self.bin, self.served, folder / "home"):
            made.mkdir()
        for name in (*TOOLS, *tools):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        self.has("sleep", f"echo $1 >>{folder}/slept")
        self.serve(PROGRAM)

    def has(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.bin / name).chmod(0o755)

    def serve(self, content: bytes, digest: str = "") -> None:
        (self.served / (digest or sha256(content))).write_bytes(content)

    def fetches(self, name: str, first: str = "") -> None:
        """A stand-in for curl or wget, whose command lines end with the output file and the URL, in either order."""
        output = 'for each; do [ "$last" = -o ] || [ "$last" = -O ] && file=$each; last=$each'
        url = "case $each in http*) url=$each;; esac; done"
        self.has(
            name, f'echo "$*" >>{self.folder}/asked; {output}; {url}; {first}\ncp {self.served}/${{url##*=}} $file'
        )

    def has_python(self) -> None:
        """One that will do, fetches nothing, and else notes its arguments and whether it was given the token."""
        note = f'echo "$* <${{DSTACK_TOKEN-}}>" >{self.folder}/started'
        self.has("python3", f'case "$2 $3" in "-S -c") exit 0;; "-c "*) exit 1;; esac; {note}')

    def slept(self) -> list[int]:
        return [int(pause) for pause in (self.folder / "slept").read_text().split()]

    def run(self, shell: list[str], **settings: str) -> subprocess.CompletedProcess[str]:
        data = str(self.folder / "data")
        env = {"PATH": str(self.bin), "HOME": str(self.folder / "home"), "DSTACK_DATA": data, **SETTINGS, **settings}
        script = container_script.SCRIPT
        script = re.sub(" (?=/(usr|tmp|dev/shm)/)", f" {self.folder}", script)
        program = str(busybox_or_skipped() if shell[0] == "busybox" else shutil.which(shell[0]))
        argv = [program, *shell[1:], "-c", script]
        return subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("shell", "fetcher"),
    [(shell, "curl") for shell in SHELLS] + [(shell, "wget") for shell in STUBBED],
)
def test_an_image_with_python_starts_the_agent_on_it(tmp_path: Path, shell: list[str], fetcher: str) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    image.fetches(fetcher)
    image.has_python()
    done = image.run(shell)
    assert done.returncode == 0, done.stderr
    data = tmp_path / "data"
    assert (data / "agent.pyz").read_bytes() == PROGRAM
    assert (data / "token").read_text() == "secret" and (data / "token").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "started").read_text() == (
        f"-I -S {data}/agent.pyz --inside --data {data} --token-file {data}/token <>\n"
    )
    assert (
        f"http://plane:3000/agent/agent.pyz?sha256={SETTINGS['DSTACK_AGENT_SHA256']}"
        in (tmp_path / "asked").read_text()
    )


def test_a_wget_that_crashes_at_an_option_is_asked_without(tmp_path: Path) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    image.fetches("plain")
    image.has("wget", 'case "$*" in *-T*) kill -SEGV $$;; esac; exec plain "$@"')
    image.has_python()
    assert image.run(["sh"]).returncode == 0


@pytest.mark.parametrize(
    ("tools", "settings", "message"),
    [
        ((), {}, "neither curl, wget, python nor perl to fetch agent.pyz with"),
        (("curl",), {}, "this image has no Python 3.8 or newer, and this control plane has no carrier"),
        (("curl",), {"DSTACK_INSTANCE": ""}, "the container has no DSTACK_INSTANCE"),
        (("curl",), {"DSTACK_PREPARE": "/proc/no"}, "none of these folders can be written: /proc/no"),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, tools: tuple[str, ...], settings: dict[str, str], message: str
) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    for name in tools:
        image.fetches(name)
    done = image.run(["sh"], **settings)
    assert (done.returncode, done.stderr.count("dstack: ")) == (78, 1), done.stderr
    assert message in done.stderr


@pytest.mark.slow
def test_a_server_that_restarts_is_waited_for(tmp_path: Path) -> None:
    """First nothing answers; then something else does, such as the page of a proxy before the server."""
    image = ImageStandIn(tmp_path, "sha256sum")
    tries = f"printf x >>{tmp_path}/tries; n=$(cat {tmp_path}/tries)"
    page = 'xxxxxxxxxxx) echo "<html>" >$file; exit;;'
    image.fetches("curl", f"{tries}; case $n in {page} xxxxxxxxxxxx) ;; *) exit 7;; esac")
    image.has_python()
    done = image.run(["sh"])
    assert done.returncode == 0, done.stderr
    assert image.slept() == [1, 2, 4, 8, 16, 32, 30, 30, 30, 30, 30]


@pytest.mark.parametrize("shell", STUBBED, ids=" ".join)
@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("exit 7", "agent.pyz can't be fetched from http://plane:3000"),
        ("echo changed >$file; exit", "agent.pyz from http://plane:3000 has an unexpected SHA-256: "),
    ],
)
@pytest.mark.slow
def test_it_gives_up_after_the_time_that_a_machine_has_to_report(
    tmp_path: Path, shell: list[str], first: str, message: str
) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    image.fetches("curl", first)
    done = image.run(shell)
    assert (done.returncode, message in done.stderr) == (78, True), done.stderr
    assert 600 <= sum(image.slept()) < 660


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_full_disk_is_said_at_once(tmp_path: Path, shell: list[str]) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    image.fetches("curl")
    (tmp_path / "data").mkdir()
    for name in ("agent.pyz", "writable"):
        (tmp_path / "data" / name).symlink_to("/dev/full")
    done = image.run(shell)
    assert (done.returncode, f"dstack: {tmp_path}/data is full" in done.stderr) == (78, True), done.stderr
    assert not (tmp_path / "slept").exists()


def carrier(loader: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        for path, body in (("lib/loader", loader), ("bin/python3", 'echo "$0 $*" >>"$NOTE"')):
            member = tarfile.TarInfo(path)
            content = f"#!/bin/sh\n{body}\n".encode()
            member.size, member.mode = len(content), 0o755
            packed.addfile(member, io.BytesIO(content))
    return out.getvalue()


def settings_of(**carriers: bytes) -> dict[str, str]:
    digests = {architecture: sha256(content) for architecture, content in carriers.items()}
    return container_script.settings("http://plane:3000", "i-1", "secret", sha256(PROGRAM), digests)


@pytest.mark.parametrize("shell", STUBBED, ids=" ".join)
@pytest.mark.parametrize(("machine", "chosen"), [("x86_64", "x86"), ("aarch64", "arm"), ("arm64", "arm")])
def test_the_carrier_is_that_of_the_processor(tmp_path: Path, shell: list[str], machine: str, chosen: str) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    image.fetches("curl")
    image.has("uname", f"echo {machine}")
    made = {
        architecture: carrier(f'[ {architecture} = {chosen} ] && shift 2 && exec "$@"')
        for architecture in ("x86", "arm")
    }
    for content in made.values():
        image.serve(content)
    done = image.run(shell, **settings_of(**made), NOTE=str(tmp_path / "note"))
    assert done.returncode == 0, done.stderr
    data = tmp_path / "data"
    begun = f"{data}/carrier/bin/python3 -I -S {data}/agent.pyz --inside --data {data} --token-file {data}/token"
    assert (tmp_path / "note").read_text().splitlines()[-1] == begun


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_why_a_carrier_doesnt_run_is_said_of_each_folder(tmp_path: Path, shell: list[str]) -> None:
    image = ImageStandIn(tmp_path, "sha256sum")
    image.fetches("curl")
    image.has("uname", "echo x86_64")
    broken = carrier("echo needs another kernel >&2; echo more >&2; exit 1")
    image.serve(broken)
    (tmp_path / "tmp").write_text("no folder")
    done = image.run(shell, **settings_of(x86=broken, arm=broken))
    assert done.returncode == 78, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("dstack: no folder can hold and run a Python: mount one at /dstack, without noexec; ")
    assert f"; {tmp_path}/data/carrier: needs another kernel; {tmp_path}/tmp/dstack-carrier: mkdir" in line


@pytest.mark.slow
def test_files_of_the_working_folder_arent_imported(tmp_path: Path) -> None:
    """The image's own Python fetches the agent and checks it."""
    image = ImageStandIn(tmp_path)
    (image.bin / "python3").symlink_to(sys.executable)
    for module in ("ssl", "hashlib"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('the job has a file of this name')")
    program = b"print('the agent has started')"
    (tmp_path / "agent").mkdir()
    (tmp_path / f"agent/agent.pyz?sha256={sha256(program)}").write_bytes(program)
    done = image.run(["sh"], DSTACK_SERVER=f"file://{tmp_path}", DSTACK_AGENT_SHA256=sha256(program))
    assert done.stdout == "the agent has started\n", done.stderr


def test_a_digest_can_be_had_in_several_ways(tmp_path: Path) -> None:
    image = ImageStandIn(tmp_path)
    image.fetches("curl")
    image.has_python()
    digest = SETTINGS["DSTACK_AGENT_SHA256"]
    image.has("openssl", f"echo '{digest} *file'")
    assert image.run(["sh"]).returncode == 0
    (image.bin / "openssl").unlink()
    image.has("shasum", f"echo '{digest}  file'")
    assert image.run(["sh"]).returncode == 0


def test_the_script_fits_where_providers_take_few_arguments() -> None:
    assert sum(len(arg.encode()) + 1 for arg in container_script.command()) <= container_script.LONGEST


def test_no_argument_has_the_token() -> None:
    assert "secret" not in " ".join([*container_script.command(), *container_script.prepared()])
    assert SETTINGS["DSTACK_TOKEN"] == "secret"
