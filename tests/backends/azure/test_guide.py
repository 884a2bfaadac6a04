"""`docs/guides/azure.md`: what it writes is accepted, and does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from chalicelib.backends.azure.backend import AzureBackend
from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.permissions import IDENTITY, OWN_GROUP, lacking, needed
from chalicelib.backends.azure.sizes import _CARDS, _WITHOUT_GPU
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from chalicelib.errors import MissingPermission
from tests.backends.azure.fake import Azure
from tests.backends.azure.provider import config
from tests.backends.clock import Clock
from tests.backends.conformance.requests import group_request_for, inside, request_for, volume_request
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.transport import sender

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "azure.md").read_text()
BACKEND, *CONFIGURATIONS = map(dedent, re.findall(r"(?ms)^ *```yaml\n(.*?)^ *```", GUIDE))
(ROLE,) = re.findall(r"(?ms)^ *```json\n(.*?)^ *```", GUIDE)


def test_its_configurations_are_accepted() -> None:
    assert all(map(parse, CONFIGURATIONS))


def test_its_backend_passes_the_check_with_its_role_alone() -> None:
    given: Any = parse_backend(BACKEND)
    clock = Clock()
    fake = Azure(clock.now)
    role = json.loads(ROLE)
    fake.rights = ({"actions": role["Actions"], "notActions": role["NotActions"]},)
    backend = AzureBackend(given, AzureClient(given, clock.now, send=sender(fake), env={}), clock.now)
    backend.check()
    assert {each.region for each in backend.offers()} == set(given.regions)
    offer = next(each for each in backend.offers() if each.availability_zones)
    group = backend.create_group(group_request_for(offer))
    handles = list(backend.create(inside(request_for(offer), group)))
    volume = backend.create_volume(volume_request(offer.region))
    clock.passes(90)
    backend.attach_volume(volume, handles)
    backend.detach_volume(volume, handles)
    end_all(backend, clock.passes, handles)
    backend.delete_volume(volume)
    backend.delete_group(group)


def test_its_role_has_what_is_needed_and_no_more() -> None:
    actions = json.loads(ROLE)["Actions"]
    wanted = [*needed(config()), OWN_GROUP, IDENTITY]
    assert lacking(wanted, [{"actions": actions}]) == []
    assert not [each for each in actions if "*" in each and not each.endswith("/read")]


def test_a_check_names_each_action_of_its_role_that_is_missing() -> None:
    given: Any = parse_backend(BACKEND)
    given, clock = given.with_(vm_managed_identity="dstack/jobs"), Clock()
    for action in (*needed(given), IDENTITY, OWN_GROUP):
        fake = Azure(clock.now)
        group = f"/subscriptions/{given.subscription_id}/resourceGroups/dstack"
        fake.with_identity(f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/jobs")
        fake.rights = ({"actions": json.loads(ROLE)["Actions"], "notActions": [action]},)
        with pytest.raises(MissingPermission) as raised:
            AzureBackend(given, AzureClient(given, clock.now, send=sender(fake), env={}), clock.now).check()
        assert set(re.findall(r"Microsoft\.\w+(?:/\w+)+", raised.value.message)) == {action}


def test_the_sizes_that_it_names_are_those_that_are_offered() -> None:
    for name in re.findall(r"Standard_[A-Za-z0-9_]+", GUIDE):
        assert _WITHOUT_GPU.fullmatch(name) or any(pattern.fullmatch(name) for pattern, _, _ in _CARDS), name
