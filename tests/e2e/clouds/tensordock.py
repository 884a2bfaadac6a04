"""TensorDock, which sells nothing without GPUs."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain.instants import SECOND
from tests.backends.tensordock.fake import TensorDock
from tests.backends.tensordock.provider import CREDS, TensorDockProvider
from tests.e2e.clouds.cloud import Cloud, now


class Journey(Cloud):
    config: ClassVar = {"type": "tensordock", "creds": CREDS}
    fleet: ClassVar = {
        "resources": {"gpu": "RTX4090:1", "cpu": "1..", "memory": "0.1GB..", "disk": "1MB.."},
        "instance_types": ["geforcertx4090-pcie-24gb"],
    }
    running = "Running"

    def __init__(self) -> None:
        self.fake = TensorDock(now)
        self.fake.build = self.fake.addressed = self.fake.end = SECOND
        self.provider = TensorDockProvider(self.fake)
