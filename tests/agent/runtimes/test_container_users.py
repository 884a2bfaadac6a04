"""Names for users whom an image doesn't list, against an engine that answers as the test says."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.runtimes.container_users import give_name, home_of_user
from chalicelib.agent.runtimes.docker_client import DockerClient
from chalicelib.agent.runtimes.docker_repositories import LIST_MOST, owner_of
from tests.agent import docker_engine
from tests.agent.docker_engine import Engine

PASSWD, GROUP = b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n", b"root:x:0:\nvideo:x:44:app"
LISTS = {"/etc/passwd": PASSWD, "/etc/group": GROUP}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with docker_engine.running(tmp_path) as engine:
        yield engine


def named(engine: Engine, user: str, holds: dict[str, bytes], home: str = "/home/me") -> dict[str, Any]:
    """What is put into the container: (owner, mode, content) by path; None for a folder."""
    engine.container("c", holds=holds)
    found: dict[str, Any] = {}

    def put(packed: BinaryIO) -> None:
        packed.seek(0)
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as tar:
            for member in tar:
                source = tar.extractfile(member)
                found[member.name] = (member.uid, member.gid), oct(member.mode), source and source.read()

    give_name(DockerClient(engine.socket), put, "c", user, home, "/bin/bash")
    return found


@pytest.mark.parametrize("user", ["root", "", "0", "0:5", "app", "app:video", "1000", "1000:44", "nobody-here"])
def test_whom_the_image_lists_or_the_engine_refuses_is_left_alone(engine: Engine, user: str) -> None:
    assert named(engine, user, LISTS) == {}


@pytest.mark.parametrize("user", ["²", "app:²"])
def test_a_digit_that_is_no_number_is_a_name(engine: Engine, user: str) -> None:
    engine.container("c", holds=LISTS)
    with pytest.raises(TaskError, match="²: the image has no such"):
        owner_of(DockerClient(engine.socket), "c", user)


def test_another_number_is_listed_first_and_gets_a_home(engine: Engine) -> None:
    assert named(engine, "1234:4321", LISTS) == {
        "etc/passwd": ((0, 0), "0o644", b"dstack-1234:x:1234:4321:dstack-1234:/home/me:/bin/bash\n" + PASSWD),
        "etc/group": ((0, 0), "0o644", b"dstack-1234:x:4321:\n" + GROUP + b"\n"),
        "home/me": ((1234, 4321), "0o755", None),
    }


@pytest.mark.parametrize(("user", "gid"), [("1234", 0), ("1234:video", 44), ("1234:44", 44)])
def test_a_group_that_the_image_lists_keeps_its_name(engine: Engine, user: str, gid: int) -> None:
    found = named(engine, user, {**LISTS, "/home/me": b""})
    entry = b"dstack-1234:x:1234:%d:dstack-1234:/home/me:/bin/bash\n" % gid
    assert set(found) == {"etc/passwd"} and found["etc/passwd"][2] == entry + PASSWD


def test_an_image_without_lists_gets_some(engine: Engine) -> None:
    found = named(engine, "1234:4321", {})
    assert found["etc/passwd"][2] == b"dstack-1234:x:1234:4321:dstack-1234:/home/me:/bin/bash\n"
    assert found["etc/group"][2] == b"dstack-1234:x:4321:\n"


def test_roots_group_gets_no_other_name(engine: Engine) -> None:
    assert set(named(engine, "1234", {})) == {"etc/passwd", "home/me"}


def test_bytes_that_nobody_understands_stay_as_they_are(engine: Engine) -> None:
    odd = b"caf\xe9:x:7:7::/:/bin/sh\n"
    assert named(engine, "1234", {**LISTS, "/etc/passwd": odd})["etc/passwd"][2].endswith(b"\n" + odd)


def test_a_list_that_is_too_long_to_be_written_again_isnt(engine: Engine) -> None:
    found = named(engine, "1234:4321", {**LISTS, "/etc/passwd": b"#" * (LIST_MOST + 1)})
    assert set(found) == {"etc/group", "home/me"}


@pytest.mark.parametrize(
    ("spec", "env", "want"),
    [
        ({}, [], "/home/1234"),
        ({}, ["HOME=/srv", "PATH=/bin"], "/srv"),
        ({"home_dir": "/data"}, ["HOME=/srv"], "/data"),
        ({"home_dir": "/data", "env": {"HOME": "/mine"}}, ["HOME=/srv"], "/mine"),
        ({"env": {"HOME": ""}}, None, "/home/1234"),
    ],
)
def test_its_home_is_where_its_processes_are_told_it_is(spec: Any, env: Any, want: str) -> None:
    assert home_of_user(spec, {"Config": {"Env": env}}, "1234:5") == want
