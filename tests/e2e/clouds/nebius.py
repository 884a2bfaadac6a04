"""Nebius, which speaks gRPC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from chalicelib.domain.instants import SECOND
from tests.backends.fakes.procedures import serving_procedures
from tests.backends.nebius.fake import ACCOUNT, KEY_ID, Nebius, private_key
from tests.backends.nebius.provider import NebiusProvider
from tests.e2e.clouds.cloud import Cloud, now


class Journey(Cloud):
    config: ClassVar = {
        "type": "nebius",
        "creds": {
            "type": "service_account",
            "service_account_id": ACCOUNT,
            "public_key_id": KEY_ID,
            "private_key_content": private_key(),
        },
        "regions": ["eu-north1"],
    }
    fleet: ClassVar = {"instance_types": ["cpu-d3 4vcpu-16gb"]}
    running = "RUNNING"

    def __init__(self) -> None:
        self.fake = Nebius(now)
        self.fake.boot = self.fake.end = SECOND
        self.provider = NebiusProvider(self.fake)

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[str]:
        with serving_procedures(self.fake, port) as address:
            yield f"http://{address}"

    def doubles_prices(self) -> None:
        platforms = self.fake.platforms
        self.fake.platforms = {name: replace(each, hour=2 * each.hour) for name, each in platforms.items()}

    def deny(self) -> Sequence[str]:
        self.fake.denied |= {"compute.v1.InstanceService", "vpc.v1.SubnetService"}
        return sorted(self.fake.denied)

    def allow(self) -> None:
        self.fake.denied.clear()
