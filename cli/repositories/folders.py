"""A folder that isn't a Git checkout as a run's code: packed like `files`, and unpacked at the repo's path.

Files that `.gitignore` and `.dstackignore` exclude are left out, as with `files`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from cli.repositories.git import git

NO_REPOSITORY = "not a git repository"


def is_plain(folder: Path, env: Mapping[str, str]) -> bool:
    """Is it an existing folder outside of all checkouts and repositories, even broken ones?"""
    if not folder.is_dir() or (folder / ".git").exists():
        return False
    found = git("rev-parse", "--git-dir", env={**env, "LC_ALL": "C"}, folder=folder)
    return found.status != 0 and NO_REPOSITORY in found.err


def id_of(folder: Path) -> str:
    """The id of a folder, which depends on its path."""
    digest = hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', folder.name)[:100] or 'folder'}-{digest[:8]}"


def data_of(folder: Path) -> dict[str, str]:
    """The folder's description for the server; the same for the repo and for a run."""
    return {"repo_type": "local", "repo_dir": str(folder)}
