"""Another project's private image isn't run because it lies on the machine: the registry says who may have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.task_runtime import TaskError
from tests.agent import docker_engine
from tests.agent.test_docker_work import Bench

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
    assert pulled.engine.asked("POST /images") == []


@pytest.mark.parametrize("image", [PRIVATE, "registry.test/theirs/app@sha256:5e", "sha256:5e"])
def test_another_project_runs_it_only_if_the_registry_lets_it(pulled: Bench, image: str) -> None:
    pulled.engine.images[image] = pulled.engine.images[PRIVATE]  # by any name
    pulled.engine.pulls = DENIED
    with pytest.raises(TaskError, match="can't be pulled: pull access denied"):
        pulled.begin(image=image, project_id="b", registry_auth={"username": "b", "password": "none of theirs"})
    assert pulled.engine.request("POST /images/create").headers["X-Registry-Auth"]
    assert pulled.engine.asked("POST /containers/create") == []


def test_another_project_is_asked_for_once(pulled: Bench) -> None:
    pulled.begin(image=PRIVATE, project_id="b")
    assert len(pulled.engine.asked("POST /images/create")) == 1
    pulled.engine.containers.clear()
    pulled.engine.pulls = DENIED
    pulled.begin(image=PRIVATE, project_id="b")
    assert len(pulled.engine.asked("POST /images/create")) == 1


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


def test_a_supervisor_that_was_killed_while_it_pulled_asks_again(bench: Bench) -> None:
    bench.engine.images[PRIVATE] = {"Id": "sha256:5e"}
    bench.begin(state="pulling", image=PRIVATE, project_id="a")
    bench.engine.containers.clear()
    bench.engine.pulls = DENIED
    with pytest.raises(TaskError, match="can't be pulled"):
        bench.begin(image=PRIVATE, project_id="b")


def test_records_of_images_that_are_gone_are_deleted(pulled: Bench) -> None:
    records = Path(pulled.folder.data) / "images"
    assert len(list(records.iterdir())) == 1
    del pulled.engine.images[PRIVATE]
    pulled.engine.brings = {"other:1": {"Id": "sha256:07"}}
    pulled.begin(image="other:1", project_id="a")
    assert len(list(records.iterdir())) == 1
