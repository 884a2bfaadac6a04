"""Google's library, imported in parts."""

from __future__ import annotations

import pytest

from chalicelib.backends.gcp import sdk
from chalicelib.backends.registry import backend_class

pytestmark = pytest.mark.slow


def test_the_package_counts_as_installed_while_a_part_of_it_is_imported() -> None:
    with sdk.without_init():
        assert backend_class("gcp").facts.name == "gcp"
