"""The fake is as Azure's own SDK expects it: requests are accepted, answers understood, operations followed."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.instants import HOUR, SECOND
from tests.backends.azure.fake import Azure
from tests.backends.azure.fake.api import SUBSCRIPTION
from tests.backends.azure.fake.shop import QUOTA, SIZES
from tests.backends.fakes.script import Call
from tests.backends.fakes.transport import serving

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venvs" / "azure" / "bin" / "python"
SOON = SECOND // 4


def now() -> int:
    return time.time_ns() // 1000


class QuickAzure(Azure):
    """By the real clock, in which little time passes. The machine `short` finds no room."""

    start = fails_after = end = SOON

    def _called(self, call: Call) -> Any:
        if call.path.get("vmName") == "short" and call.operation.method == "PUT":
            self.why_not = "ZonalAllocationFailed"
        return super()._called(call)


def test_azures_own_sdk_is_served() -> None:
    if not PYTHON.exists():
        pytest.skip("needs Azure's SDK: make .venvs/azure/.installed")
    fake = QuickAzure(now)
    fake.script.page = 3
    fake.with_group("rg-sdk")
    fake.tokens["known"] = now() + HOUR
    with serving(fake) as url:
        command = [str(PYTHON), "-m", "tests.backends.azure.sdk", url, SUBSCRIPTION, "known"]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout) == {
        "network": ["net", "machines", "Succeeded"],
        "sizes": len(SIZES) + 1,
        "quotas": QUOTA,
        "machine": ["one", "Succeeded", ["1"]],
        "again": {"status": 412, "code": "PreconditionFailed"},
        "states": ["ProvisioningState/succeeded", "PowerState/running"],
        "listed": ["one"],
        "addresses": [True, True],
        "attached": [0],
        "held": {"status": 409, "code": "OperationNotAllowed"},
        "groups": ["near", "together"],
        "refused": [
            {"status": 400, "code": "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines"},
            {"status": 400, "code": "BadRequest"},
            {"status": 404, "code": "ResourceNotFound"},
            {"status": 404, "code": "ResourceGroupNotFound"},
        ],
        "late": {"status": 200, "code": "ZonalAllocationFailed"},
        "left": [[], [], [], []],
    }
