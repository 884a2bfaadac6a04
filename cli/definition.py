"""From a file to what the server is sent: found, read, parsed, completed by profile, flags and environment.

The language itself is `chalicelib.configuration`, which is pure; what touches files and the environment is here.
"""

from __future__ import annotations

RUN_TYPES = ("dev-environment", "task", "service")
