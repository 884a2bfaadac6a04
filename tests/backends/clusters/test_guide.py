"""`docs/guides/clusters.md` has a row for each backend whose machines reach each other, and names the others."""

from __future__ import annotations

import re
from pathlib import Path

from chalicelib.backends.registry import built, facts_of
from chalicelib.configuration.parse import parse

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "clusters.md").read_text()


def test_each_backend_has_its_row_or_is_named_as_one_without() -> None:
    rows = set(re.findall(r"(?m)^\| \[`(\w+)`\]", GUIDE))
    (without,) = re.findall(r"(?m)^Machines of (.*) aren't promised", GUIDE)
    able = {name for name in built() if facts_of(name).multinode}
    assert rows == able
    assert set(re.findall(r"`(\w+)`", without)) == built() - able


def test_its_fleet_is_accepted() -> None:
    assert parse(re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)[0])
