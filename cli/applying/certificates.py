"""Certificate files named in a gateway's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import Invalid, Problem

if TYPE_CHECKING:
    from chalicelib import contract

MOST = 100_000  # bytes of a file


def with_certificate(configuration: contract.Configuration, folder: Path, home: Path) -> contract.Configuration:
    """The configuration with the contents of the files that its `certificate` names; PEM and references to secrets stay
    as they are. Relative paths start at `folder`, in which the command runs, as with SSH keys."""
    given = configuration.get("certificate")
    if not isinstance(given, dict) or given.get("type") != "given":
        return configuration
    read = dict(given)
    problems = []
    for field in ("certificate", "key"):
        text = given.get(field)
        if isinstance(text, str) and text and "-----BEGIN" not in text and "${{" not in text:
            try:
                read[field] = _read(home / text[2:] if text.startswith("~/") else folder / text)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "it isn't text"
                hint = "name a PEM file that you can read, or write its text, or `${{ secrets.NAME }}`"
                problem = f"`{text[:200]}` can't be read: {why}"
                problems.append(Problem(problem, f"certificate.{field}", hint=hint, code="invalid-path"))
    if problems:
        raise Invalid(problems)
    return {**configuration, "certificate": read}


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MOST).decode("ascii")
