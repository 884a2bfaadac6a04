"""`docs/guides/gcp.md`: what it writes is accepted, and its role has all that is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from chalicelib.backends.gcp.checking import ADDRESSES, NAT, needed
from chalicelib.backends.gcp.images import ARM_FAMILY, ARM_PROJECT, FAMILY, PROJECT
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from chalicelib.errors import MissingPermission
from tests.backends.gcp.conftest import Site
from tests.backends.gcp.places import Image

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guides" / "gcp.md").read_text()
KEY, DEFAULT, FEDERATED, SPOT, WIRED, GPUDIRECT, TPU, SLICE, VOLUME = re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)


def test_its_configurations_are_accepted(site: Site) -> None:
    assert parse(SPOT) and parse(TPU) and parse(SLICE) and parse(VOLUME)
    site.fake.nats |= {"us-central1", "europe-west4"}
    site.fake.images["my-project/global/images/family/a3-mega"] = Image()
    for text in (KEY, DEFAULT, FEDERATED, WIRED, GPUDIRECT):
        config: Any = parse_backend(text)
        site.new(config).check()


def test_its_role_is_the_smallest_that_does() -> None:
    role = yaml.safe_load((DOCS / "examples" / "gcp" / "role.yml").read_text())
    own, _ = needed(shared=False, public=True, nat=True, account=True)
    assert role["includedPermissions"] == sorted(own)


def test_its_names_are_those_of_the_code() -> None:
    for family, project in ((FAMILY, PROJECT), (ARM_FAMILY, ARM_PROJECT)):
        assert f"`{family}` of `{project}`" in GUIDE


def test_a_check_names_each_permission_of_the_role_that_is_missing(site: Site) -> None:
    """The one for addresses, or else the one for the NAT that stands in for them."""
    site.fake.nats |= {"us-central1", "europe-west4"}
    checks = [
        site.new(site.configured(vm_service_account="machines@example.com", public_ips=public)).check
        for public in (True, False)
    ]
    for permission in yaml.safe_load((DOCS / "examples" / "gcp" / "role.yml").read_text())["includedPermissions"]:
        site.fake.lacking = {permission}
        named = [named_by(check) for check in checks]
        needed_by = {ADDRESSES: [True, False], NAT: [False, True]}.get(permission, [True, True])
        assert named == [[permission] if needed else [] for needed in needed_by], permission


def named_by(check: Callable[[], None]) -> list[str]:
    try:
        check()
    except MissingPermission as error:
        return re.findall(r"compute\.\w+\.\w+", error.message)
    return []
