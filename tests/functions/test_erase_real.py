"""A few turns of erasing on DynamoDB and S3, as the emulator gives them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.engine.record_upgrades import UpgradeProgress
from chalicelib.store import nouns
from chalicelib.store.port import Put
from functions import erase_unused
from tests.emulators.ministack import Emulator
from tests.harness.lambda_host import scheduled_event
from tests.world import nouns as b
from tests.world.aws import AwsSite


@pytest.fixture
def site(emulator: Emulator) -> Iterator[AwsSite]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.environment.items():
            patch.setenv(name, value)
        made = AwsSite("erasing", emulator)
        yield made
        made.close()


def test_what_older_versions_left_goes_with_the_rest(site: AwsSite, caplog: pytest.LogCaptureFixture) -> None:
    ports = site._api.ports
    fleet = b.fleet("pool")
    gone = b.machine(0, fleet, status=InstanceStatus.terminated, finished_at=site.time.at, due_at=None)
    unlisted = replace(nouns.put(gone).record, gsi2=None)
    ports.store.commit([Put(unlisted, 0), nouns.put(b.presence_of(gone))])
    for name in (f"archives/o/{'a' * 64}", f"code/o/{'b' * 64}-x", "logs/p/j/x"):
        ports.blobs.put(name, b"1")
    site.time.at = round(time.time() + 40 * 86_400) * SECOND  # the bucket dates blobs by its own clock
    done = [erase_unused.handler(scheduled_event("erase"), None, site._api) for _ in range(3)]
    site.time.at += DAY + SECOND
    done += [erase_unused.handler(scheduled_event("erase"), None, site._api) for _ in range(2)]
    assert [turn["instances"] for turn in done if turn["instances"]] == [[gone.id]]
    assert ports.store.get(keys.presence(gone.id)) is None
    assert ports.blobs.list("archives/") == ports.blobs.list("code/") == []
    assert ports.blobs.list("logs/") == ["logs/p/j/x"]
    renewal = nouns.find(ports.store, UpgradeProgress, keys.renewal(UpgradeProgress.form))
    assert renewal is not None and renewal.done
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
