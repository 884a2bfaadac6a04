"""The fake of Cloud TPU has a second client, Google's own of discovery documents: what ours relies on is as that has
it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from chalicelib.domain.instants import SECOND
from tests.backends.fakes.transport import serving
from tests.backends.gcp.test_fake_contract_real import PYTHON
from tests.backends.gcp.tpu.fake import TOKEN, Tpus

pytestmark = pytest.mark.slow


def test_the_client_of_discovery_documents() -> None:
    if not PYTHON.exists():
        pytest.skip("Google's client isn't installed here; `make test` installs it into .venvs/google")
    began = time.time_ns() // 1000
    fake = Tpus(lambda: began + (time.time_ns() // 1000 - began) * 40)
    fake.end = 3600 * SECOND
    with serving(fake) as address:
        command = [str(PYTHON), str(Path(__file__).with_name("discovery_client.py")), address, TOKEN]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "sold": [True, True],
        "replayed": True,
        "another body": [400, "INVALID_ARGUMENT"],
        "the name again": [409, "ALREADY_EXISTS"],
        "labels": [400, "INVALID_ARGUMENT"],
        "type": [400, "INVALID_ARGUMENT"],
        "unknown field": [400, "INVALID_ARGUMENT"],
        "read-only field": [400, "INVALID_ARGUMENT"],
        "node": ["READY", "203.0."],
        "labels of its node": {"team": "research"},
        "operations": ["create"],
        "listed": [1, 1],
        "delete": [400, "FAILED_PRECONDITION"],
        "state": "DELETING",
        "closed": [403, "PERMISSION_DENIED"],
        "topology": ["4x4"],
        "hosts": [4, 4],
    }
