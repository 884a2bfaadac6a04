"""`make e2e-gpu ARGS=--inside` where there is no card: stand-ins for NVIDIA's tool and for the driver's library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.images import NVIDIA_SMI
from tests.harness.server import ROOT

pytestmark = pytest.mark.slow

CARDS = "CARDS=2 CARD='NVIDIA H100 80GB HBM3, 81559' USED=5120 LOAD=93"
LIBCUDA = r"""
#include <unistd.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *number) { *number = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemAlloc_v2(unsigned long long *memory, unsigned long size) { return 0; }
int cuMemsetD8_v2(unsigned long long memory, unsigned char value, unsigned long size) { return 0; }
int cuCtxSynchronize(void) { usleep(100000); return 0; }
"""


@pytest.fixture
def driver() -> Iterator[Path]:
    """Not in /tmp, of which a container has its own."""
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc to make the library with")
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="driver-") as text:
        folder = Path(text)
        (folder / "libcuda.c").write_text(LIBCUDA)
        library = ["gcc", "-shared", "-fPIC", "-w", "-o", f"{folder}/libcuda.so.1", f"{folder}/libcuda.c"]
        subprocess.run(library, check=True)
        (folder / "nvidia-smi").write_text(NVIDIA_SMI.replace("#!/bin/sh\n", f"#!/bin/sh\n{CARDS}\n"))
        (folder / "nvidia-smi").chmod(0o755)
        yield folder


def test_a_container_with_the_agent_inside_sees_uses_and_measures_its_cards(driver: Path) -> None:
    env = {**os.environ, "PATH": f"{driver}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(driver)}
    command = [sys.executable, "-m", "tests.e2e.gpu", "--inside", "--busy", "10"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and found["right"], (found, done.stderr)
    assert found["used"] == {"memory_gib": 5.0, "load": 93}
    assert found["seen"][:2] == ["GPU-0", "GPU-1"] and {"cards 2", "ended"} <= {*found["seen"]}
    assert found["ended"] == ["done", 0]
