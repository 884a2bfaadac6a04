"""A warm API function in AWS: CPU of one call, from API Gateway's event to its answer.

`app.app`'s own class over the Lambda root, DynamoDB's client included; DynamoDB itself is the emulator's process. The
calls are those that people and scripts make most, in a project with a machine, a log and as many runs as there were
calls. What a call wakes is played later, so it isn't counted.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from chalicelib.runtime.chalice_app import ControlPlane
from tests.bench.measure import cpu_ms, report
from tests.emulators import ministack
from tests.harness.lambda_host import api_event
from tests.scenarios.stages import Virtual
from tests.world.aws import AwsSite
from tests.world.site import ADMIN

CALLS = 40
LINE, LINES = "x" * 99, 60  # of the log that is read
PROJECT = "work"
RESOURCES = {"cpu": "2..", "memory": "8GB.."}
FLEET = "type: fleet\nname: machines\nnodes: 1\nresources: {cpu: 2.., memory: 8GB..}\nidle_duration: off\n"


class Warm:
    """A function that has answered before."""

    def __init__(self, site: AwsSite) -> None:
        self._app = ControlPlane(lambda: site.plane)

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        event = api_event("POST", path, "", headers, json.dumps(body or {}).encode(), binary=())
        answer: dict[str, Any] = self._app(event, None)
        assert answer["statusCode"] == 200, answer
        return json.loads(answer["body"])

    def of(self, path: str, body: dict[str, Any]) -> Any:
        return self.call(f"/api/project/{PROJECT}/{path}", body)


def spec(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    task = {"type": "task", "name": name, "commands": list(commands), "resources": RESOURCES, **more}
    return {"run_name": name, "configuration": task}


@contextmanager
def opened() -> Iterator[tuple[AwsSite, Virtual]]:
    emulator = ministack.start()
    os.environ.update(emulator.environment)
    with tempfile.TemporaryDirectory() as folder:
        site = AwsSite("bench-warm", emulator)
        try:
            yield site, Virtual(site, Path(folder), PROJECT)
        finally:
            site.close()
            emulator.stop()


def main() -> None:
    with opened() as (site, stage):
        warm, numbers = Warm(site), count()

        def apply(name: str = "", *commands: str, **more: Any) -> dict[str, Any]:
            run = spec(name or f"queued-{next(numbers)}", *(commands or ("true",)), **more)
            applied: dict[str, Any] = warm.of("runs/apply", {"plan": {"run_spec": run}, "force": False})
            return applied

        (stage.home / "fleet.dstack.yml").write_text(FLEET)
        output, status = stage.dstack(["apply", "-y", "-d", "-f", "fleet.dstack.yml"])
        assert status == 0, output
        site.time.pass_(300)
        run = apply("told", " && ".join([f"echo {LINE}"] * LINES + ["sleep 1000000"]))
        site.time.pass_(1000)  # a quiet job's output comes every quarter of an hour
        job = warm.of("runs/get", {"run_name": "told"})["jobs"][0]["job_submissions"][-1]
        log = {"run_name": "told", "job_submission_id": job["id"], "limit": 1000}
        assert len(warm.of("logs/poll", log)["logs"]) == LINES, (run["status"], job["status"])
        plan = {"run_spec": spec("planned", "true"), "max_offers": 20}
        assert warm.of("runs/get_plan", plan)["job_plans"][0]["offers"]
        report(
            "warm",
            projects_cpu_ms=cpu_ms(lambda: warm.call("/api/projects/list"), CALLS),
            get_plan_cpu_ms=cpu_ms(lambda: warm.of("runs/get_plan", plan), CALLS),
            apply_cpu_ms=cpu_ms(lambda: apply(creation_policy="reuse", retry=True), CALLS),
            runs_cpu_ms=cpu_ms(lambda: warm.call("/api/runs/list", {"limit": 20}), CALLS),
            logs_cpu_ms=cpu_ms(lambda: warm.of("logs/poll", log), CALLS),
        )


if __name__ == "__main__":
    main()
