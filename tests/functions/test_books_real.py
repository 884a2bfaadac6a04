"""What the console needs beyond lists, from the functions in AWS and their table: each under its own policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, iso
from chalicelib.engine.cost_days import close_days
from chalicelib.store import nouns
from chalicelib.store.listing import all_of, every
from tests.api.v1.test_costs import FLEET, TASK, Later
from tests.emulators.ministack import Emulator
from tests.scenarios.stages import Virtual
from tests.world.aws import AwsSite
from tests.world.site import ADMIN

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Virtual]:
    """A task has run for five minutes, and its machine is gone."""
    home = tmp_path_factory.mktemp("books")
    (home / "fleet.dstack.yml").write_text(FLEET)
    (home / "task.dstack.yml").write_text(TASK.replace("3000", "300"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.environment.items():
            patch.setenv(name, value)
        made = Virtual(AwsSite("books", emulator), home, "main")
        assert made.dstack(["apply", "-f", "fleet.dstack.yml", "-y"])[1] == 0
        assert made.dstack(["apply", "-f", "task.dstack.yml", "-y", "-d"])[1] == 0
        made.site.time.pass_(1200)
        yield made
        made.site.close()


def call(stage: Virtual, method: str, path: str, body: Any = None, token: str = ADMIN, status: int = 200) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    found, answer = stage.site.request(method, path, headers, b"" if body is None else json.dumps(body).encode())
    assert found == status, answer
    return json.loads(answer)


def test_a_code_signs_in_once(stage: Virtual) -> None:
    code = call(stage, "POST", "/api/users/sign_in_codes/create")["code"]
    page = call(stage, "POST", "/api/auth/sign_in_codes/exchange", {"code": code}, token="")
    assert call(stage, "GET", "/api/v1/users/me", token=page["token"])["name"] == "admin"
    call(stage, "POST", "/api/auth/sign_in_codes/exchange", {"code": code}, token="", status=400)


def test_costs_are_counted_from_its_history_and_from_the_days_that_are_over(stage: Virtual) -> None:
    plane = stage.site.plane  # type: ignore[attr-defined]
    before = call(stage, "GET", "/api/v1/projects/main/costs")["items"]
    assert {item["name"] for item in before} == {"admin", None}
    (project,) = every(plane.store, "projects", "name/")
    assert close_days(plane.read, Later(plane.clock.now() + DAY), nouns.pointed(project)) == 1
    assert call(stage, "GET", "/api/v1/projects/main/costs")["items"] == before


def test_the_schedule_stores_moments_and_the_api_tells_states(stage: Virtual) -> None:
    plane = stage.site.plane  # type: ignore[attr-defined]
    (project,) = every(plane.store, "projects", "name/")
    place = keys.moment(nouns.pointed(project), 0)
    assert len(list(all_of(plane.store, "main", place.pk))) >= 1
    at = iso(plane.clock.now() - 1100 * 1_000_000).replace("+00:00", "Z")
    found = call(stage, "GET", f"/api/v1/projects/main/state?at={at}")
    assert [run["status"] for run in found["runs"]] == ["running"] and found["final"]
    assert call(stage, "GET", "/api/v1/projects/main/marks") == {"items": [], "next_until": None}
