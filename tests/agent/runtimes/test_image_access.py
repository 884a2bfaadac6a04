"""Another project's private image isn't run because it lies on the machine: the registry says who may have it."""

from __future__ import annotations

import copy
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.task_runtime import Interrupted, TaskError
from chalicelib.agent.kernel.tasks import TaskFolder
from tests.agent import docker_engine
from tests.agent.runtimes.test_docker_work import Bench

PRIVATE = "registry.test/theirs/app:1"
DENIED = [{"error": "pull access denied for registry.test/theirs/app"}]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with docker_engine.running(tmp_path) as engine:
        yield Bench(tmp_path, engine)


@pytest.fixture
def pulled(bench: Bench) -> Bench:
    """One whose engine has an image that a job of project `a` had pulled."""
    bench.engine.brings = {PRIVATE: {"Id": "sha256:5e"}}
    bench.begin(image=PRIVATE, project_id="a", registry_auth={"username": "a", "password": "theirs"})
    bench.engine.brings = {}
    bench.engine.requests.clear()
    bench.engine.containers.clear()
    return bench


def test_what_a_project_pulled_it_runs_again_without_asking(pulled: Bench) -> None:
    pulled.begin(image=PRIVATE, project_id="a")
    assert pulled.engine.calls("POST /images") == []


@pytest.mark.parametrize("image", [PRIVATE, "registry.test/theirs/app@sha256:5e", "sha256:5e"])
def test_another_project_runs_it_only_if_the_registry_lets_it(pulled: Bench, image: str) -> None:
    pulled.engine.images[image] = pulled.engine.images[PRIVATE]  # by any name
    pulled.engine.pulls = DENIED
    with pytest.raises(TaskError, match="can't be pulled: pull access denied"):
        pulled.begin(image=image, project_id="b", registry_auth={"username": "b", "password": "none of theirs"})
    assert pulled.engine.request("POST /images/create").headers["X-Registry-Auth"]
    assert pulled.engine.calls("POST /containers/create") == []


def test_another_project_is_asked_for_once(pulled: Bench) -> None:
    pulled.begin(image=PRIVATE, project_id="b")
    assert len(pulled.engine.calls("POST /images/create")) == 1
    pulled.engine.containers.clear()
    pulled.engine.pulls = DENIED
    pulled.begin(image=PRIVATE, project_id="b")
    assert len(pulled.engine.calls("POST /images/create")) == 1


def test_latest_of_another_project_isnt_run_because_the_registry_denies_it(bench: Bench) -> None:
    bench.engine.brings = {"theirs": {"Id": "sha256:1a"}}
    bench.begin(image="theirs", project_id="a")
    bench.engine.containers.clear()
    bench.engine.brings, bench.engine.pulls = {}, DENIED
    bench.begin(image="theirs", project_id="a")  # does without: it was let have this one
    bench.engine.containers.clear()
    with pytest.raises(TaskError, match="can't be pulled"):
        bench.begin(image="theirs", project_id="b")


def test_an_image_with_a_new_digest_is_asked_for_again(pulled: Bench) -> None:
    pulled.begin(image=PRIVATE, project_id="b")
    pulled.engine.containers.clear()
    pulled.engine.brings = {PRIVATE: {"Id": "sha256:60"}}
    pulled.begin(image=PRIVATE, project_id="c")
    pulled.engine.containers.clear()
    pulled.engine.brings, pulled.engine.pulls = {}, DENIED
    with pytest.raises(TaskError, match="can't be pulled"):
        pulled.begin(image=PRIVATE, project_id="b")


def test_an_image_that_the_owner_of_the_machine_put_there_is_for_all_of_its_jobs(bench: Bench) -> None:
    bench.engine.images["built"] = {"Id": "sha256:0b"}
    for project in ("a", "b"):
        bench.engine.pulls = DENIED if project == "b" else []
        bench.begin(image="built", project_id=project)
        bench.engine.containers.clear()


def test_an_image_whose_pull_was_cut_off_belongs_to_nobody_yet(bench: Bench) -> None:
    bench.engine.brings = {PRIVATE: {"Id": "sha256:5e"}}
    bench.engine.faults["POST /containers/create"] = (0, "")  # a supervisor that is killed says nothing either
    bench.engine.pulls = [{"error": "the connection was cut"}]
    with pytest.raises(TaskError):
        bench.begin(image=PRIVATE, project_id="a")
    bench.engine.brings, bench.engine.pulls = {}, DENIED
    with pytest.raises(TaskError, match="can't be pulled: pull access denied"):
        bench.begin(image=PRIVATE, project_id="b")


@pytest.fixture
def cut_off(bench: Bench) -> Bench:
    """One whose engine had just brought an image for a job of project `a` when that job's supervisor went away."""
    bench.engine.faults["POST /images/create"] = (0, "")
    with pytest.raises(Interrupted):
        bench.begin(image=PRIVATE, project_id="a")
    bench.engine.faults.clear()
    bench.engine.images[PRIVATE] = {"Id": "sha256:5e"}
    bench.pauses.clear()
    return bench


@pytest.mark.parametrize("image", [PRIVATE, "registry.test/theirs/app@sha256:5e", "sha256:5e"])
def test_an_image_that_isnt_recorded_yet_is_asked_for_by_whatever_name(cut_off: Bench, image: str) -> None:
    cut_off.engine.images[image] = cut_off.engine.images[PRIVATE]
    cut_off.engine.pulls = DENIED
    with pytest.raises(TaskError, match="can't be pulled: pull access denied"):
        beside(cut_off).begin(image=image, project_id="b")


def test_a_supervisor_that_was_killed_while_it_pulled_asks_again(cut_off: Bench) -> None:
    cut_off.begin(state="pulling", image=PRIVATE, project_id="a")
    assert len(cut_off.engine.calls("POST /images/create")) > 1
    cut_off.engine.containers.clear()
    cut_off.engine.pulls = DENIED
    with pytest.raises(TaskError, match="can't be pulled"):
        cut_off.begin(image=PRIVATE, project_id="b")


def test_what_a_task_that_ended_in_its_pull_brought_is_recorded_when_the_task_is_removed(cut_off: Bench) -> None:
    cut_off.runtime.remove(cut_off.folder)
    cut_off.folder.delete()
    cut_off.engine.pulls = DENIED
    with pytest.raises(TaskError, match="can't be pulled"):
        beside(cut_off).begin(image=PRIVATE, project_id="b")


def test_an_image_of_the_owners_stays_so_though_a_supervisor_was_killed_while_it_asked_for_a_newer_one(
    bench: Bench,
) -> None:
    bench.engine.images["built"] = {"Id": "sha256:0b"}
    bench.engine.faults["POST /images/create"] = (0, "")
    with pytest.raises(Interrupted):
        bench.begin(image="built", project_id="a")
    bench.engine.faults.clear()
    bench.pauses.clear()
    bench.engine.pulls = DENIED
    for project in ("a", "b"):
        bench.begin(state="pulling", image="built", project_id=project)
        bench.engine.containers.clear()


def beside(bench: Bench) -> Bench:
    """Another task of the same machine."""
    other = copy.copy(bench)
    other.folder, other.pauses = TaskFolder(bench.folder.data, "u"), []
    other.folder.create({})
    return other


class Watched(dict[str, Any]):
    """An engine's faults: none. Says whether records can be written while the engine is asked for its images."""

    def __init__(self, lock: Path) -> None:
        super().__init__()
        self.lock, self.free = lock, list[bool]()

    def get(self, request: str, default: Any = None) -> Any:
        if request == "GET /images/json":
            with self.lock.open() as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self.free.append(True)
                except BlockingIOError:
                    self.free.append(False)
        return default


def test_nobody_records_an_image_between_the_engines_list_and_what_is_deleted_by_it(bench: Bench) -> None:
    bench.engine.faults = watched = Watched(Path(bench.folder.data, "images.lock"))
    bench.engine.brings = {"own:1": {"Id": "sha256:01"}}
    bench.begin(image="own:1", project_id="a")
    assert watched.free == [False]


def test_records_of_images_that_are_gone_are_deleted(pulled: Bench) -> None:
    records = Path(pulled.folder.data) / "images"
    assert len(list(records.iterdir())) == 1
    del pulled.engine.images[PRIVATE]
    pulled.engine.brings = {"other:1": {"Id": "sha256:07"}}
    pulled.begin(image="other:1", project_id="a")
    assert len(list(records.iterdir())) == 1
