"""A warm API function in AWS: CPU of one call, from API Gateway's event to its answer.

`app.app`'s own class over the Lambda root, DynamoDB's client included; DynamoDB itself is the emulator's process.
"""

from __future__ import annotations

import json
import os
from typing import Any

from chalicelib.runtime.control_plane import ControlPlane
from tests.bench.measure import cpu_ms, report
from tests.emulators import ministack
from tests.harness.lambda_host import api_event
from tests.world.aws import AwsSite
from tests.world.site import ADMIN

CALLS = 60


def main() -> None:
    emulator = ministack.start()
    try:
        os.environ.update(emulator.environment)
        site = AwsSite("bench-warm", emulator)
        app = ControlPlane(lambda: site.plane)

        def call(path: str) -> None:
            headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
            answer: dict[str, Any] = app(api_event("POST", path, "", headers, json.dumps({}).encode(), binary=()), None)
            assert answer["statusCode"] == 200, answer

        report(
            "warm",
            projects_cpu_ms=cpu_ms(lambda: call("/api/projects/list"), CALLS),
            runs_cpu_ms=cpu_ms(lambda: call("/api/runs/list"), CALLS),
        )
        site.close()
    finally:
        emulator.stop()


if __name__ == "__main__":
    main()
