"""Crusoe Cloud, whose prices are the operator's."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain.instants import SECOND
from tests.backends.crusoe.fake import DISK_MONTH, KEY, PRICES, PROJECT, SECRET, Crusoe
from tests.backends.crusoe.provider import CrusoeProvider
from tests.e2e.clouds.cloud import Cloud, now


class Journey(Cloud):
    config: ClassVar = {
        "type": "crusoe",
        "project_id": PROJECT,
        "creds": {"type": "access_key", "access_key": KEY, "secret_key": SECRET},
        "regions": ["us-east1-a"],
    }
    prices: ClassVar = {**PRICES, "persistent-ssd": DISK_MONTH}
    fleet: ClassVar = {"instance_types": ["c1a.2x"]}
    running = "STATE_RUNNING"

    def __init__(self) -> None:
        self.fake = Crusoe(now)
        self.fake.boot = self.fake.end = SECOND
        self.provider = CrusoeProvider(self.fake)
