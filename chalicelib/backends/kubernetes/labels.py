"""Tags as labels, by which objects are listed, and those that can't be labels as an annotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from chalicelib.backends.kubernetes.config import is_label_key, is_label_value

TAGS = "dstack-tags"  # the annotation
OWN = {"app.kubernetes.io/managed-by": "dstack"}


def labels_of(tags: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations. An owner's tags are always labels."""
    fit = {key: value for key, value in tags.items() if is_label_key(key) and is_label_value(value)}
    rest = {key: value for key, value in tags.items() if key not in fit}
    return {**OWN, **fit}, {TAGS: orjson.dumps(rest).decode()} if rest else {}


def tags_of(body: Mapping[str, Any]) -> dict[str, str]:
    """The tags with which an object was created. An annotation that somebody broke has none: the owner's are labels."""
    metadata = body["metadata"]
    try:
        rest = orjson.loads(metadata.get("annotations", {}).get(TAGS, "{}"))
    except orjson.JSONDecodeError:
        rest = {}
    return {**metadata.get("labels", {}), **(rest if isinstance(rest, dict) else {})}
