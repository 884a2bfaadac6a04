"""What a provider's documents say as tables: codes of errors and what they mean, permissions, names of cards.

They are TOML files beside the modules that read them, `errors.toml` beside `errors.py`. So they can be compared with
the documents line by line, a new code is a word in a list, and what is Python is logic.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1]


def table(name: str) -> Mapping[str, Any]:
    """`name`: such as `azure/errors.toml`."""
    with (FOLDER / name).open("rb") as file:
        return tomllib.load(file)
