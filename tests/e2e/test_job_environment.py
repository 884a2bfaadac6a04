"""The page on a job's environment lists exactly the variables that a job was seen to get."""

from __future__ import annotations

import re

from tests.harness.server import ROOT

ELSEWHERE = {"DSTACK_VENV_DIR", "DSTACK_SERVICE_PORT", "DSTACK_ROUTER_INTERNAL_IP"}  # in containers, in services
CALLING = {"DSTACK_SERVER_URL", "DSTACK_PROJECT", "DSTACK_TOKEN"}  # with `dstack: true`


def test_the_page_names_what_a_job_printed() -> None:
    page = (ROOT / "docs/reference/job-environment.md").read_text()
    printed = (ROOT / "tests/scenarios/scripts/env.txt").read_text()
    listed = set(re.findall(r"(?m)^\| `(DSTACK_\w+)`", page))
    assert listed == set(re.findall(r"(?m)^(DSTACK_\w+)$", printed)) | ELSEWHERE | CALLING
