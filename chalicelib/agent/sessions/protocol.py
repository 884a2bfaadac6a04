"""The protocol between a job's SSH server and the sessions that it starts."""

from __future__ import annotations

import signal

SFTP = "dstack-sftp"  # the command that stands for the SFTP server
CUT = signal.SIGPWR  # end the session with all its processes, because its key was withdrawn
