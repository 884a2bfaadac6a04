"""An SSH connection to a job, held open by an `ssh` process: it shows that the route works, and forwards ports."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from chalicelib.errors import Refused
from cli.ssh.config import Hop
from cli.ssh.forwards import Forward

UP = b"up"
END_SECONDS = 5.0
PROBE_SECONDS = 1.0
OPTIONS = {
    "BatchMode": "yes",  # there is nobody to answer a question
    "ExitOnForwardFailure": "yes",
    "PermitLocalCommand": "yes",  # the command runs once the connection and its forwarded ports are ready
    "LocalCommand": f"echo {UP.decode()}",
}
_NOISE = re.compile(
    r"Warning: Permanently added|Connection closed by|^\s*$|^debug|kex_exchange_identification|Killed by"
)


@dataclass
class SshTunnel:
    """The process of a tunnel, in its own process group, so that Ctrl-C on the terminal doesn't reach it."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    up: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def fileno(self) -> int:
        """A file descriptor, readable when the tunnel is up, and when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def poll(self) -> bool:
        """Does the process run? Sets `up` once the connection is ready."""
        while not self.up and select.select([self], [], [], 0)[0]:
            data = os.read(self.fileno(), 100)
            if not data:
                self.process.wait()  # its output is closed, so it will end
                break
            self.up = UP in data
        return self.process.poll() is None

    def failure(self) -> str:
        """Why the process ended, as SSH puts it."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        shown = [line.strip() for line in lines if not _NOISE.search(line)] or [line for line in lines if line.strip()]
        return "; ".join(shown[-3:]) or f"ssh ended with status {self.process.returncode}"

    def end(self) -> None:
        """Ends the process and its children."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(END_SECONDS)
        if self.process.stdout:
            self.process.stdout.close()
        self.errors.close()


@dataclass(frozen=True)
class OpenSsh:
    """This machine's OpenSSH client."""

    env: Mapping[str, str]

    def start(self, config: Path, alias: str, forwards: Sequence[Forward]) -> SshTunnel:
        command = ["ssh", "-F", str(config), "-N", "-T"]
        for name, value in OPTIONS.items():
            command += ["-o", f"{name}={value}"]
        for forward in forwards:
            command += ["-L", forward.option]
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `SshTunnel.end`; without a name, so never left
        try:
            process = subprocess.Popen(
                [*command, "--", alias],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(self.env),
                start_new_session=True,
            )
        except FileNotFoundError:
            errors.close()
            raise Refused("There is no `ssh` on this machine.", hint="Install the OpenSSH client.") from None
        return SshTunnel(process, errors)

    def options(self) -> frozenset[str]:
        """The options that it knows and shows, in lower case."""
        return frozenset(line.partition(" ")[0] for line in self._explained("-F", "none", "--", "localhost"))

    def own_keys(self, host: str) -> tuple[str, ...]:
        """The key files that the user's own SSH configuration has for a host."""
        lines = self._explained("--", host)
        named = [line.partition(" ")[2] for line in lines if line.startswith("identityfile ")]
        paths = [Path(os.path.expanduser(name)) for name in named]  # noqa: PTH111 - `~` of the account, as SSH means it
        return tuple(str(path) for path in paths if path.is_file())

    def _explained(self, *command: str) -> list[str]:
        """The output of `ssh -G`; empty if that fails."""
        try:
            explained = subprocess.run(
                ["ssh", "-G", *command],
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=END_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return []
        return explained.stdout.splitlines()

    def answers(self, hop: Hop) -> bool:
        """Does something listen at the hop, as seen from this machine?"""
        try:
            socket.create_connection((hop.host, hop.port), timeout=PROBE_SECONDS).close()
        except OSError:
            return False
        return True
