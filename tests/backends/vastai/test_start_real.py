"""What Vast.ai runs as a container's command, in a shell."""

from __future__ import annotations

import subprocess

import pytest

from chalicelib.backends.vastai.backend import VastAIBackend
from chalicelib.backends.vastai.requests import START, instance
from chalicelib.domain import container_script
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.vastai.fake import Vast
from tests.backends.vastai.provider import CONFIG, client
from tests.backends.vastai.test_traps import offers


@pytest.mark.slow
def test_the_shell_runs_the_script_that_the_variable_holds() -> None:
    clock = Clock()
    backend = VastAIBackend(CONFIG, client(Vast(clock.now), clock), clock.now)
    body = instance(request_for(offers(backend, gpu="RTX4090:4")[0]))
    script = body["env"][START]
    assert "\n" not in script and START in body["env"][container_script.HIDDEN].split()
    option, run = body["args"]
    shown = subprocess.run(
        [body["onstart"], option, run.replace("eval", "printf %s", 1)],
        env={START: script},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == container_script.SCRIPT.rstrip("\n")
    ran = subprocess.run([body["onstart"], option, run], env={START: script}, capture_output=True, text=True)
    assert (ran.returncode, "the container has no DSTACK_SERVER" in ran.stderr) == (78, True)
