"""What a fresh process does until its first answer: import the app, make a plane, answer one event of API Gateway's.

`python -m tests.bench.first_answer FOLDER list|plan|prepare` tells the CPU milliseconds of each stage on one line.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

TOKEN = "bench-token"
FLEET = {"configuration": {"type": "fleet", "name": "cloud", "nodes": "0..9"}, "profile": {}}
RUN = {
    "run_name": "first",
    "repo_id": "none",
    "repo_data": {"repo_type": "virtual"},
    "configuration": {"type": "task", "commands": ["true"], "resources": {"cpu": "1..", "memory": "0.1GB.."}},
}
IN_MAIN = "/api/project/{project_name}"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "list": ("/api/projects/list", {}),
    "plan": (f"{IN_MAIN}/runs/get_plan", {"run_spec": RUN, "max_offers": 20}),
    "prepare": (f"{IN_MAIN}/fleets/apply", {"plan": {"spec": FLEET}, "force": False}),
}


def main(folder: Path, call: str) -> None:
    stages, begun = {}, time.process_time()

    def done(stage: str) -> None:
        nonlocal begun
        now = time.process_time()
        stages[stage], begun = round((now - begun) * 1000, 1), now

    import app  # noqa: F401 - what a cold start pays for

    done("import")
    plane = _plane(folder)
    done("plane")
    if call == "prepare":
        from chalicelib.usecases.operator.first_start import first_start

        first_start(plane, TOKEN)
    from chalicelib.runtime.chalice_app import ControlPlane

    answer = ControlPlane(lambda: plane)(_event(*CALLS[call]), None)
    if answer["statusCode"] != 200:
        raise SystemExit(answer["body"])
    done("answer")
    print(json.dumps(stages))
    plane.store.close()


def _plane(folder: Path) -> Any:
    from chalicelib.catalog.offers import StoredCatalog
    from tests.world.plane import World

    plane = World.in_folder(folder).plane
    return replace(plane, catalog=StoredCatalog(plane.blobs, plane.clock, plane.backends))


def _event(resource: str, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "resource": resource,
        "path": resource.replace("{project_name}", "main"),
        "httpMethod": "POST",
        "headers": {"Authorization": f"Bearer {TOKEN}", "X-API-VERSION": "0.22.5", "Content-Type": "application/json"},
        "multiValueQueryStringParameters": None,
        "pathParameters": {"project_name": "main"},
        "stageVariables": None,
        "requestContext": {"resourcePath": resource, "httpMethod": "POST"},
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
