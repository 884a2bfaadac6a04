"""`docs/guides/lambda.md`: what it writes is accepted, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from chalicelib.backends.lambda_cloud import client as calls
from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from chalicelib.backends.lambda_cloud.requests import KEY_NAME
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from tests.backends.clock import Clock
from tests.backends.lambda_cloud.fake import KEY, LambdaApi
from tests.backends.lambda_cloud.provider import client

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "lambda.md").read_text()
BACKEND, FLEET, TASK = re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)


def test_its_configurations_are_accepted_and_find_what_they_name() -> None:
    assert parse(FLEET) and parse(TASK)
    config: Any = parse_backend(BACKEND)
    assert config.creds.api_key != KEY
    clock = Clock()
    backend = LambdaBackend(config, client(LambdaApi(clock.now), clock), clock.now)
    backend.check()
    wanted = yaml.safe_load(TASK)["resources"]["gpu"]
    found = [each for each in backend.offers() if each.instance.resources.gpus[:1]]
    assert {each.region for each in found} == {"us-east-1", "us-west-3"}
    assert wanted in {each.instance.resources.gpus[0].name for each in found}


def test_its_numbers_and_names_are_those_of_the_code() -> None:
    assert calls.RATE == 1.0 and "once a second" in GUIDE
    assert f"`{KEY_NAME}`" in GUIDE
