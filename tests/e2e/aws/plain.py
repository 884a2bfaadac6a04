"""A plain `chalice deploy`, as somebody who knows Chalice may begin: a stage of its own, and gone in the end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from infra import artefacts
from infra.functions import ALONE, UNNAMED
from tests.e2e.aws.deployment import PYTHON, VENV, cloned
from tests.e2e.aws.journey import Journey

CALL = {
    "resource": "/api/server/get_info",
    "path": "/api/server/get_info",
    "requestContext": {"resourcePath": "/api/server/get_info", "httpMethod": "POST"},
    "pathParameters": {},
    "multiValueQueryStringParameters": None,
    "headers": {"content-type": "application/json"},
    "stageVariables": None,
    "body": "{}",
    "isBase64Encoded": False,
}


def plain(trip: Journey) -> None:
    """`chalice deploy` alone: the API says what is missing, and what was deployed must go before the whole comes."""
    clone = cloned(trip.folder / "plain")
    with_packages(clone)
    done = run(trip, clone, str(VENV / "bin" / "chalice"), "deploy")
    assert done.returncode == 0, done.stdout + done.stderr
    functions = trip.one.client("lambda")
    answer = json.loads(functions.invoke(FunctionName=f"{ALONE}-{UNNAMED}", Payload=json.dumps(CALL))["Payload"].read())
    assert answer["statusCode"] == 503
    for message in ("isn't wholly deployed; missing: table", f"Run `make deploy STAGE={UNNAMED}`"):
        assert message in answer["body"], answer
    deploy = [str(VENV / "bin" / "python"), "-m", "infra.deploy", UNNAMED, "--yes"]
    refused = run(trip, clone, *deploy)
    assert refused.returncode == 1 and f"chalice delete --stage {UNNAMED}" in refused.stderr, refused.stderr
    done = run(trip, clone, str(VENV / "bin" / "chalice"), "delete")
    assert done.returncode == 0, done.stdout + done.stderr
    left = [one["FunctionName"] for one in functions.list_functions()["Functions"]]
    assert left and not [name for name in left if name.startswith(ALONE)]


def with_packages(clone: Path) -> None:
    """Those of `requirements.txt`, which pip has fetched for the artefacts."""
    (clone / "requirements.txt").write_text("")
    kinds = {"chalice": artefacts.KINDS["chalice"]}
    for one in artefacts.packages(kinds, PYTHON, clone / "build", print)["chalice"].iterdir():
        (clone / "vendor" / one.name).symlink_to(one)


def run(trip: Journey, clone: Path, *command: str) -> subprocess.CompletedProcess[str]:
    assert trip.one.emulator is not None
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(trip.folder),
        "DSTACK_AWS_ENDPOINT": trip.one.emulator.url,
        **trip.one.emulator.environment,
    }
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=300)
