"""Code on its way into a container, against an engine that answers as the test says: no clone, as that needs a host.

What a real engine makes of it, with real clones, is in `test_docker_repositories_real`.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from chalicelib.agent.kernel.process_tree import MARK
from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.runtimes.accounts import outside
from chalicelib.agent.runtimes.docker_client import DockerClient, DockerError
from chalicelib.agent.runtimes.docker_repositories import add_home, is_occupied, owner_of, remove
from tests.agent import docker_engine
from tests.agent.docker_engine import Engine, Request
from tests.agent.runtime_conformance import archive
from tests.agent.runtimes.test_docker_work import IMAGE, NAME, Bench

PASSWD = b"root:x:0:0::/root:/bin/sh\nbroken line\napp:x:1000:1001:,,,:/home/app:/bin/sh\nodd:x:x:y::/:/bin/sh\n"
GROUP = b"root:x:0:\nvideo:x:44:app\n"
LISTS = {"/etc/passwd": PASSWD, "/etc/group": GROUP}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with docker_engine.running(tmp_path) as engine:
        engine.images[IMAGE] = {"Config": {"WorkingDir": "/", "User": "app"}}
        engine.holds = dict(LISTS)
        yield engine


@pytest.fixture
def bench(tmp_path: Path, engine: Engine) -> Bench:
    bench = Bench(tmp_path, engine)
    files = Path(bench.folder.files)
    files.mkdir()
    (files / "code").write_bytes(archive({"./a.txt": b"A"}))
    return bench


def code(path: str = "app", if_exists: str = "error") -> dict[str, Any]:
    return {"path": path, "if_exists": if_exists, "code": {"url": "/agent/files/1"}}


def put(request: Request) -> dict[str, tuple[int, int]]:
    """The names of what was put into the container, and their owners."""
    with tarfile.open(fileobj=io.BytesIO(request.body)) as tar:
        return {member.name: (member.uid, member.gid) for member in tar}


def archives(engine: Engine) -> list[dict[str, tuple[int, int]]]:
    return [put(request) for request in engine.requests if request.method == "PUT"]


def test_code_is_put_there_as_the_users_own_and_before_the_start(bench: Bench) -> None:
    bench.begin(repo=code())
    assert archives(bench.engine)[0] == {"workflow/app": (1000, 1001), "workflow/app/a.txt": (1000, 1001)}
    assert "DSTACK_REPO_DIR=/workflow/app" in bench.container.body["Env"]
    assert bench.container.body["WorkingDir"] == "/workflow"
    requests = [line.rpartition("/")[2] for line in bench.engine.calls()]
    assert requests.index("create") < requests.index("archive") < requests.index("start")


def test_an_image_with_a_working_directory_keeps_it(bench: Bench) -> None:
    bench.engine.images[IMAGE] = {"Config": {"WorkingDir": "/srv"}}
    bench.begin(repo=code("."))
    assert list(archives(bench.engine)[0]) == ["srv", "srv/a.txt"] and bench.container.body["WorkingDir"] == "/srv"


@pytest.mark.parametrize(
    ("user", "owner"),
    [
        ("", (0, 0)),
        ("root", (0, 0)),
        ("root:video", (0, 44)),
        ("app", (1000, 1001)),
        ("app:video", (1000, 44)),
        ("app:7", (1000, 7)),
        ("1000", (1000, 1001)),
        ("4321", (4321, 0)),
        ("4321:app", None),
        ("nobody", None),
        ("odd", None),
    ],
)
def test_a_users_ids_are_those_of_the_image(engine: Engine, user: str, owner: tuple[int, int] | None) -> None:
    engine.container(NAME, holds=LISTS)
    docker = DockerClient(engine.socket)
    if owner is None:
        with pytest.raises(TaskError, match="the image has no such"):
            owner_of(docker, NAME, user)
    else:
        assert owner_of(docker, NAME, user) == owner


@pytest.mark.parametrize("entry", ["bad:x:²:5::/:", "bad:x:5:abc::/:", "bad:x:4294967296:5::/:", "bad:x:5"])
def test_an_entry_that_no_system_would_take_is_none(engine: Engine, entry: str) -> None:
    engine.container(NAME, holds={"/etc/passwd": f"{entry}\nroot:x:0:0::/root:/bin/sh\n".encode()})
    docker = DockerClient(engine.socket)
    with pytest.raises(TaskError, match="user bad: the image has no such user"):
        owner_of(docker, NAME, "bad")
    assert owner_of(docker, NAME, "5") == (5, 0) and owner_of(docker, NAME, "root") == (0, 0)


def test_an_image_without_a_list_of_users_has_numbers_only(engine: Engine) -> None:
    engine.container(NAME)
    assert owner_of(DockerClient(engine.socket), NAME, "7:8") == (7, 8)


@pytest.mark.parametrize(
    ("holds", "there"),
    [
        ({}, False),
        ({"/x/": b""}, False),
        ({"/x/": b"", "/x/lost+found/": b""}, False),
        ({"/x/": b"", "/x/x/": b""}, True),
        ({"/x/": b"", "/x/y": b""}, True),
    ],
)
def test_whether_a_place_is_taken(engine: Engine, holds: dict[str, bytes], there: bool) -> None:
    engine.container(NAME, holds=holds)
    assert is_occupied(DockerClient(engine.socket), NAME, "/x") is there


def test_what_is_no_folder_is_said_to_be_none(engine: Engine) -> None:
    engine.container(NAME)
    engine.faults[f"GET /containers/{NAME}/archive"] = (400, '{"message": "not a directory"}')
    with pytest.raises(TaskError, match="repository: /x: not a directory"):
        is_occupied(DockerClient(engine.socket), NAME, "/x")
    with pytest.raises(DockerError):
        owner_of(DockerClient(engine.socket), NAME, "app")


def test_an_engine_that_does_not_answer_says_nothing_of_a_place(tmp_path: Path) -> None:
    with pytest.raises(DockerError):
        is_occupied(DockerClient(str(tmp_path / "no.sock")), NAME, "/x")


@pytest.mark.parametrize(("if_exists", "puts"), [("skip", 1), ("error", 0)])
def test_a_place_that_is_taken_is_left_alone(bench: Bench, if_exists: str, puts: int) -> None:
    bench.engine.holds |= {"/app/": b"", "/app/mine": b""}
    if if_exists == "error":
        with pytest.raises(TaskError, match="/app exists and isn't empty"):
            bench.begin(repo=code("/app", if_exists))
    else:
        bench.begin(repo=code("/app", if_exists))
    assert len(archives(bench.engine)) == puts  # the hostfile


def test_an_engine_that_goes_away_meanwhile_gets_what_was_packed_before(tmp_path: Path, engine: Engine) -> None:
    """The code is gone by then, as are the credentials of a clone."""
    place = f"PUT /containers/{NAME}/archive"

    class Patient(Bench):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            if engine.faults.pop(place, None):
                (Path(self.folder.files) / "code").unlink()

    bench = Patient(tmp_path, engine)
    Path(bench.folder.files).mkdir()
    (Path(bench.folder.files) / "code").write_bytes(archive({"./a.txt": b"A"}))
    engine.faults[place] = (0, "")
    bench.begin(repo=code())
    assert "workflow/app/a.txt" in archives(engine)[-2]
    assert not (Path(bench.folder.path) / "repository.tar").exists()


def test_a_list_of_users_is_read_so_far_and_no_further(engine: Engine) -> None:
    """It is the image's, so it may be of any size."""
    line = b"last:x:7:8::/:/bin/sh\n"
    for before, owner in ((1 << 20) - len(line), (7, 8)), (1 << 20, None):
        engine.container(NAME, holds={"/etc/passwd": b"#" * (before - 1) + b"\n" + line})
        if owner is None:
            with pytest.raises(TaskError, match="user last: the image has no such user"):
                owner_of(DockerClient(engine.socket), NAME, "last")
        else:
            assert owner_of(DockerClient(engine.socket), NAME, "last") == owner


def test_what_a_killed_clone_left_is_ended_and_deleted() -> None:
    task = f"left-{os.getpid()}"
    folder = Path(outside(task))
    (folder / "clone").mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: task}) as left:
        until_exec(left.pid)
        remove(task)
        assert left.wait(120) == -9
    assert not folder.exists()
    remove(task)


def until_exec(pid: int) -> None:
    """Between fork and exec its environment is still ours."""
    while b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        os.sched_yield()


def test_a_home_that_the_image_hasnt_is_made_for_its_user(engine: Engine) -> None:
    engine.container(NAME, holds={**LISTS, "/there/": b""})
    docker, packed = DockerClient(engine.socket), list[tarfile.TarInfo]()

    def put(source: BinaryIO) -> None:
        source.seek(0)
        with tarfile.open(fileobj=source) as tar:
            packed.extend(tar)

    for home in (None, "", "/there/"):
        add_home(docker, put, NAME, home, "app")
    assert packed == []
    add_home(docker, put, NAME, "/new/home/", "app")
    (home,) = packed
    assert (home.name, home.isdir(), home.mode, home.uid, home.gid) == ("new/home", True, 0o755, 1000, 1001)
    assert (home.uname, home.gname) == ("", "")
