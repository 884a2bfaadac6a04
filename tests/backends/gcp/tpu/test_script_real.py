"""The start script of a slice, as a shell of one of its hosts understands it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chalicelib.domain.boot_script import read_user_data
from tests.backends.gcp.tpu.conftest import TpuSite

# A metadata service that knows one attribute.
CURL = """#!/bin/sh
for each; do :; done
case "$each" in
http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number) printf %s "$WORKER" ;;
*) exit 22 ;;
esac
"""


def start(folder: Path, script: str, number: str) -> subprocess.CompletedProcess[str]:
    """The part of the script before it changes anything, and then what it has chosen."""
    (folder / "curl").write_text(CURL)
    (folder / "curl").chmod(0o755)
    head = script.partition("set -eu\n")[0] + 'printf "%s %s" "$DSTACK_INSTANCE" "$DSTACK_TOKEN"\n'
    env = {"PATH": f"{folder}:/usr/bin:/bin", "WORKER": number}
    return subprocess.run(["/bin/sh", "-c", head], env=env, check=False, capture_output=True, text=True)


@pytest.mark.slow
def test_each_host_takes_the_token_at_its_number(site: TpuSite, tmp_path: Path) -> None:
    request = site.request(type="v5litepod-16")
    site.bought(request)
    (call,) = site.fake.calls_of("queuedResources.create")
    script = str(call.body["tpu"]["nodeSpec"][0]["node"]["metadata"]["startup-script"])
    for number, of_host in enumerate(request.bundle):
        assert start(tmp_path, script, str(number)).stdout.split() == list(read_user_data(of_host)[1:])
    for wrong in ("4", "", "x"):
        done = start(tmp_path, script, wrong)
        assert done.returncode == 1 and done.stdout == ""
        assert "no machine of this bundle has the number" in done.stderr
