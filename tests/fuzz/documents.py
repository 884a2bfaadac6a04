"""What isn't a call: archives that the agent unpacks, and configuration files."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.runtimes.files import unpack
from chalicelib.configuration.parse import parse_bytes, parse_profiles
from chalicelib.configuration.server import parse_server_bytes
from chalicelib.errors import Invalid
from tests.agent.hostile_tars import HOSTILE, entry, folder, hard, packed, sealed, soft
from tests.fuzz.shapes import spoilt

ROOT = Path(__file__).parents[2]
Draw = random.Random
NAMES = (
    "a",
    "a/b",
    "a/b/c",
    "../up",
    "/etc/x",
    ".",
    "..",
    "a/../../x",
    "é",
    "x" * 120,
    "a//b",
    "./a",
    "b/",
    "l",
    "l/x",
)
SERVER = b"""projects:
- name: main
  backends:
  - type: aws
    creds: {type: access_key, access_key: a, secret_key: b}
    regions: [eu-west-1]
encryption:
  keys: [{type: identity}]
default_permissions: {allow_non_admins_create_projects: false}
"""
PROFILES = (
    b"profiles:\n- name: big\n  spot_policy: auto\n  max_price: 1.5\n  retry: {on_events: [error], duration: 1h}\n"
)
FRAGMENTS = (
    b": ", b"- ", b"\n", b"  ", b"&a ", b"*a", b"<<: *a\n", b"!!python/object:os.system ", b"|\n", b"{", b"]", b"'",
    b'"', b"\t", b"\0", b"\xff", b"\xef\xbb\xbf", b"%YAML 9\n", b"---\n", b"? ", b"1..", b"24GB", b"${{ x }}", b"${{",
    b"null", b"~", b"1e999", b".nan", b"0x1F", b"2026-01-01", b"yes", b"type: task\n", b"name: x\n", b"? [a]\n: b\n",
)  # fmt: skip


def archive(rng: Draw) -> bytes:
    """A tar: mostly of odd entries, sometimes one that nobody packs by accident, sometimes spoilt."""
    if rng.random() < 0.2:
        made = rng.choice(list(HOSTILE.values()))[0]
    else:
        made = packed(*(_entry(rng) for _ in range(rng.randrange(1, 6))))
    act = rng.random()
    if act < 0.3:
        return spoilt(made, rng)
    if act < 0.6 and len(made) >= 512:  # a field of its first header, and the checksum put right
        content = bytearray(made)
        at = rng.choice((0, 100, 124, 136, 156, 157, 257, 345, 386, 482))
        piece = rng.choice(
            (b"\0", b"\xff" * 12, b"77777777777", b"-1", b"x" * 12, b"L", b"K", b"S", b"\x80" + b"\xff" * 11)
        )
        content[at : at + len(piece)] = piece
        return sealed(content)
    return made


def _entry(rng: Draw) -> tuple[tarfile.TarInfo, bytes]:
    name, other = rng.choice(NAMES), rng.choice(NAMES)
    made: Callable[[], tuple[tarfile.TarInfo, bytes]] = rng.choice(
        (
            lambda: entry(name, data=b"data"),
            lambda: entry(name, data=b"data"),
            lambda: folder(name),
            lambda: soft(name, other),
            lambda: hard(name, other),
            lambda: entry(name, rng.choice((tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"Z"))),
        )
    )
    return made()


def unpacked(data: bytes, folder: Path, into: bool) -> Iterator[str]:
    """Unpacks it as an agent does: inside the folder, or not at all, with a reason."""
    inside, file = folder / "outer" / "inner", folder / "archive.tar"
    inside.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    before = _outside(folder)
    try:
        unpack(str(file), str(inside), into)
    except TaskError:
        pass
    except Exception as error:
        yield f"an archive raises {type(error).__name__}: {error}"
    if _outside(folder) != before:
        yield f"an archive writes outside its folder: {_outside(folder) - before}"
    yield from (f"an archive leaves a link that leads out: {place}" for place in _leading_out(inside))
    _remove(inside)


def _outside(folder: Path) -> set[str]:
    return {str(path) for path in folder.iterdir()} | {str(path) for path in (folder / "outer").iterdir()} - {
        str(folder / "outer" / "inner")
    }


def _leading_out(inside: Path) -> Iterator[str]:
    """Links out of the archive. One whose only entry is a folder gives that folder the name of its place, so what is
    beside the place is still within the archive."""
    root = os.path.realpath(inside.parent)
    for where, folders, files in os.walk(inside):
        for name in (*folders, *files):
            place = Path(where, name)
            if place.is_symlink() and not _goes_round(place) and not Path(os.path.realpath(place)).is_relative_to(root):
                yield str(place)


def _goes_round(link: Path) -> bool:
    """Does a link lead to itself, which is nowhere?"""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


@cache
def seeds() -> tuple[bytes, ...]:
    """The examples, and what the documentation's tests accept."""
    recorded = json.loads((ROOT / "tests" / "configuration" / "recorded.json").read_text())
    texts = [str(case["file"]).encode() for case in recorded]
    return (*(path.read_bytes() for path in sorted((ROOT / "examples").glob("*.yml"))), *texts)


def configuration(rng: Draw) -> bytes:
    made = rng.choice((*seeds(), SERVER, PROFILES) if rng.random() < 0.8 else (SERVER, PROFILES))
    for _ in range(rng.choice((0, 1, 2, 4))):
        place = rng.randrange(len(made) + 1)
        act = rng.random()
        if act < 0.6:
            made = made[:place] + rng.choice(FRAGMENTS) * rng.choice((1, 1, 1, 50)) + made[place:]
        elif act < 0.9:
            lines = made.split(b"\n")
            line = rng.randrange(len(lines))
            lines[line : line + 1] = rng.choice(([], [lines[line]] * 2, [b"  " + lines[line]], [rng.choice(lines)]))
            made = b"\n".join(lines)
        else:
            made = spoilt(made, rng)
    return made


def read(data: bytes) -> Iterator[str]:
    """Reads a file in every way there is: a model, or Invalid that says why."""
    readers: tuple[Callable[[], object], ...] = (
        lambda: parse_bytes(data, filename=".dstack.yml"),
        lambda: parse_server_bytes(data, filename="config.yml"),
        lambda: parse_profiles(data.decode("utf-8", "replace"), filename="profiles.yml"),
    )
    for read_it in readers:
        try:
            read_it()
        except Invalid as refused:
            if not str(refused).strip():
                yield "a file is refused without a word"
        except Exception as error:
            yield f"a file raises {type(error).__name__}: {error}"
