"""Regions, zones and tags, for several of EC2's calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.domain.instants import MINUTE, Micros

Body = Mapping[str, Any]

# Where accounts usually have machines; a configuration may name others.
REGIONS = (
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
    "ca-central-1",
    "eu-central-1",
    "eu-north-1",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "ap-southeast-1",
)
SETTLED: Micros = 5 * MINUTE  # after which AWS shows an instance that it created, and "not found" means it

_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+[a-z]")  # not a Local or a Wavelength Zone


def regions_of(config: AWSBackendConfig) -> tuple[str, ...]:
    return config.regions or REGIONS


def usual_zone(zone: str) -> bool:
    return _ZONE.fullmatch(zone) is not None


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def tagged(kinds: Iterable[str], tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """For a call that creates something: everything is created with its tags, or not at all."""
    listed = tag_list(tags)
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]


def tags_of(body: Body) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in body.get("Tags", ())}


def filters(**values: str | Sequence[str]) -> list[dict[str, Any]]:
    """`filters(vpc_id="vpc-1")`; a tag is `tag={name: value}` elsewhere."""
    return [
        {"Name": name.replace("_", "-"), "Values": [value] if isinstance(value, str) else list(value)}
        for name, value in values.items()
    ]


def tag_filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]
