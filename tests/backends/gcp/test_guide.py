"""`docs/guides/gcp.md`: what it writes is accepted, and its role has all that is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from chalicelib.backends.gcp.images import FAMILY, PROJECT
from chalicelib.backends.gcp.permissions import needed
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from tests.backends.gcp.conftest import Site

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guides" / "gcp.md").read_text()
KEY, DEFAULT, FEDERATED, SPOT, WIRED, TPU, SLICE, VOLUME = re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)


def test_its_configurations_are_accepted(site: Site) -> None:
    assert parse(SPOT) and parse(TPU) and parse(SLICE) and parse(VOLUME)
    site.fake.nats |= {"us-central1", "europe-west4"}
    for text in (KEY, DEFAULT, FEDERATED, WIRED):
        config: Any = parse_backend(text)
        site.new(config).check()


def test_its_role_is_the_smallest_that_does() -> None:
    role = yaml.safe_load((DOCS / "examples" / "gcp" / "role.yml").read_text())
    own, _ = needed(shared=False, public=True, nat=True, account=True)
    assert role["includedPermissions"] == sorted(own)


def test_its_names_are_those_of_the_code() -> None:
    assert f"`{FAMILY}` of `{PROJECT}`" in GUIDE
