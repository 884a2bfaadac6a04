"""Lambda."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain.instants import SECOND
from tests.backends.lambda_cloud.fake import KEY, KINDS, LambdaApi
from tests.backends.lambda_cloud.provider import LambdaProvider
from tests.e2e.clouds.cloud import Cloud, now


class Journey(Cloud):
    config: ClassVar = {"type": "lambda", "creds": {"type": "api_key", "api_key": KEY}}
    fleet: ClassVar = {"instance_types": ["cpu_4x_general"]}
    running = "active"

    def __init__(self) -> None:
        self.fake = LambdaApi(now)
        self.fake.boot = self.fake.end = SECOND
        self.provider = LambdaProvider(self.fake)

    def doubles_prices(self) -> None:
        self.fake.cents = {name: 2 * each.cents for name, each in KINDS.items()}
