"""Both composition roots, which a test can start, call and stop in the same way."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass

from tests.harness.server import ROOT, Server, until


@dataclass
class LambdaServer(Server):
    """The AWS root: `lambda_root` over an emulator's services."""

    endpoint: str = ""

    def start(self, *flags: str, port: int = 0) -> Server:
        command = [sys.executable, "-m", "tests.harness.lambda_root", "--endpoint", self.endpoint]
        self.process = subprocess.Popen(
            [*command, "--home", str(self.home), *flags],
            cwd=ROOT,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines = []
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        until("the AWS root to come up", self._came_up)
        return self
