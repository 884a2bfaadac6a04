"""The body of a request as data: a template, and what is filled in.

A body shows what is asked of a provider, so it reads best as the provider's documents have it, with the reason for a
line beside it. `"{name}"` stands for a whole value of any type, and in a longer text, or in a key, for its part of it.
What has no value, because it is None, is left out, and so is what has nothing else in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_HOLE = re.compile(r"\{([^{}]+)\}")


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Raises KeyError for a name without a value."""
    if isinstance(template, str):
        return _text(template, values)
    if isinstance(template, Mapping):
        found = {_text(key, values): filled(each, values) for key, each in template.items()}
        kept = {key: each for key, each in found.items() if None not in (key, each)}
        return kept if kept or not template else None
    if isinstance(template, list):
        parts = [each for each in (filled(each, values) for each in template) if each is not None]
        return parts if parts or not template else None
    return template


def _text(template: str, values: Mapping[str, Any]) -> Any:
    names = _HOLE.findall(template)
    if any(values[name] is None for name in names):
        return None
    whole = _HOLE.fullmatch(template)
    return values[whole[1]] if whole else _HOLE.sub(lambda hole: str(values[hole[1]]), template)
