"""What a node's labels must be like, as the terms of a node affinity say it.

Source: the Kubernetes API, NodeSelectorRequirement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def expression(key: str, operator: str, values: Sequence[str]) -> dict[str, object]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def meets(labels: Mapping[str, str], key: str, operator: str, values: Sequence[str]) -> bool:
    """A node without the label meets `NotIn` and `DoesNotExist`. An unknown operator is met by none."""
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "NotIn":
        return labels.get(key) not in values
    if key not in labels or operator == "Exists":
        return key in labels
    if operator == "In":
        return labels[key] in values
    if operator not in ("Gt", "Lt") or not (is_number(labels[key]) and values and is_number(values[0])):
        return False
    has, bound = int(labels[key]), int(values[0])
    return has > bound if operator == "Gt" else has < bound


def is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
