"""Volumes, on a deployment of their own: each names its backend, so the simulated cloud there stands in for AWS."""

from __future__ import annotations

from tests.e2e.aws.deployment import deployed
from tests.e2e.aws.journey import Far, Journey, gone_from
from tests.emulators import ministack
from tests.scenarios.texts import CLOUDS, FOLDER, check

NAME = "volumes"


def volumes(trip: Journey) -> None:
    """Who waits for whose volume, as the scenario has it; then all of them are deleted, and their machines."""
    folder = trip.folder / NAME
    folder.mkdir()
    folder.chmod(0o711)  # as the other's
    home = folder / "user"
    home.mkdir()
    with (
        ministack.running(trip.one.env) as emulator,
        deployed(emulator, folder, trip.one.env, DSTACK_FAKE_CLOUD_NAME=CLOUDS[NAME]) as (one, _),
    ):
        stage = Far(one, home, NAME)
        stage.behave("{}")
        check(FOLDER / f"{NAME}.txt", stage)
        names = [each["name"] for each in stage.ask("volumes/list", {})]
        assert names, "the scenario leaves some"
        stage.ask("volumes/delete", {"names": names})
        stage.ask("fleets/delete", {"names": [each["name"] for each in stage.ask("fleets/list", {})]})
        gone_from(stage)
        stage.until("the volumes to be gone", lambda: stage.ask("volumes/list", {}) == [])
