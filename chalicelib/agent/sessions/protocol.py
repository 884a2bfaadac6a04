"""What a job's SSH server and the sessions that it begins agree on."""

from __future__ import annotations

import signal

SFTP = "dstack-sftp"  # the command that stands for the SFTP server
CUT = signal.SIGPWR  # the session's user may not be in the job any more: it ends with all that it began
