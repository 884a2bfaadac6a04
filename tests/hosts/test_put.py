"""Files are put on a host whole or not at all: the same commands in a shell here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chalicelib.errors import Transient
from chalicelib.hosts.connection import File, HostConnection, HostLogin, Ran


class Shell(HostConnection):
    """This machine's shell, behind a connection that breaks after so many bytes."""

    def __init__(self, breaks_after: int = 1 << 30) -> None:
        super().__init__(HostLogin("here", 22, "me", "a key"), None)
        self.breaks_after = breaks_after

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 60.0) -> Ran:
        done = subprocess.run(command, shell=True, input=stdin[: self.breaks_after], capture_output=True, timeout=120)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_file_is_put_with_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "it's a file"
    Shell().put(File(str(place), b"all of it", 0o640))
    assert place.read_bytes() == b"all of it" and place.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [place]


def test_several_files_are_put_at_once(tmp_path: Path) -> None:
    files = {"program": (bytes(range(256)) * 1000, 0o640), "token": (b"a\nb", 0o600), "empty": (b"", 0o644)}
    Shell().put(*(File(str(tmp_path / name), data, mode) for name, (data, mode) in files.items()))
    for name, (data, mode) in files.items():
        assert (tmp_path / name).read_bytes() == data and (tmp_path / name).stat().st_mode & 0o777 == mode
    assert len(list(tmp_path.iterdir())) == len(files)


@pytest.mark.parametrize("sent", [0, 4])
def test_half_a_file_replaces_nothing(tmp_path: Path, sent: int) -> None:
    place = tmp_path / "program"
    place.write_bytes(b"the old one")
    with pytest.raises(Transient, match="couldn't be written"):
        Shell(breaks_after=sent).put(File(str(place), b"the new one", 0o700), File(str(place) + "2", b"", 0o600))
    assert place.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [place], "and leaves nothing behind"


def test_nothing_is_put_if_what_comes_first_fails(tmp_path: Path) -> None:
    place, done = tmp_path / "program", tmp_path / "done"
    with pytest.raises(Transient, match=r"couldn't be written \(taken\)"):
        Shell().put(File(str(place), b"new", 0o700), first="set -eu\necho taken >&2\nfalse\ntrue")
    assert list(tmp_path.iterdir()) == []
    Shell().put(File(str(place), b"new", 0o700), first=f"cat > {done}")
    assert place.read_bytes() == b"new" and done.read_bytes() == b"", "what is sent is the files'"


def test_what_comes_then_runs_once_all_is_in_place(tmp_path: Path) -> None:
    place, copy = tmp_path / "program", tmp_path / "copy"
    Shell().put(File(str(place), b"new", 0o700), then=f"cp {place} {copy}; cat >> {copy}")
    assert copy.read_bytes() == b"new", "it gets nothing of what is sent"
    with pytest.raises(Transient, match=r"^me@here: no such unit$"):
        Shell().put(File(str(place), b"newer", 0o700), then="echo no such unit >&2; exit 3")
    assert place.read_bytes() == b"newer"
    with pytest.raises(Transient, match="couldn't be written"):
        Shell(breaks_after=1).put(File(str(place), b"newest", 0o700), then=f"rm {copy}")
    assert copy.exists(), "nothing comes then if it isn't"
