"""The `git` program, run so that its output depends on the repository and not on the user's settings.

It never prompts for a password, and variables that point git to another repository (as in a hook) are dropped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chalicelib.errors import Refused

OF_ANOTHER_REPOSITORY = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
}
NO_PROMPTS = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": ""}
LONGEST = 60.0  # seconds; a remote that stays silent for longer counts as unreachable


@dataclass(frozen=True)
class GitResult:
    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode(errors="surrogateescape").strip()

    @property
    def why(self) -> str:
        """Git's own message about a failure: its first error line, else its last line."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        return next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "")


def git(
    *arguments: str,
    env: Mapping[str, str],
    folder: Path | None = None,
    given: bytes = b"",
    also: Mapping[str, str] = {},
) -> GitResult:
    """Runs git. `also`: environment variables for this call."""
    inherited = {name: value for name, value in env.items() if name not in OF_ANOTHER_REPOSITORY}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**inherited, **NO_PROMPTS, **also},
            input=given,
            capture_output=True,
            timeout=LONGEST,
            check=False,
        )
    except FileNotFoundError:
        raise Refused(
            "Using a repository needs git, which isn't on the PATH.",
            hint="Install git, or upload the files with `files`.",
        ) from None
    except subprocess.TimeoutExpired:
        return GitResult(-1, b"", f"no answer in {LONGEST:.0f} seconds")
    return GitResult(done.returncode, done.stdout, done.stderr.decode(errors="replace"))
