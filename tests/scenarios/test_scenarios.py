"""Every scenario on the embedded root, in this process and on virtual time; on the root in AWS too, against one and the
same text, in `test_scenarios_real.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import golden
from tests.scenarios.script import parse, render
from tests.scenarios.stages import Virtual
from tests.scenarios.texts import SCRIPTS, TEXTS, check, cloud_of
from tests.world.embedded import EmbeddedSite


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedSite]:
    path = request.node.callspec.params["path"]
    found = EmbeddedSite(request.node.callspec.id, tmp_path / "server", cloud_of(path.stem))
    yield found
    found.close()


LONG = {"containers", "volumes"}
PARAMS = [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem in LONG)) for path in SCRIPTS]


@pytest.mark.parametrize("path", PARAMS)
@pytest.mark.slow
def test_a_scenario_reads_as_it_is_written(path: Path, site: EmbeddedSite, tmp_path: Path) -> None:
    check(path, Virtual(site, tmp_path, path.stem), renew=golden.WRITING)


def test_there_are_scenarios_and_each_is_written_as_it_is_rendered() -> None:
    assert len(TEXTS) >= 10
    for path in TEXTS:
        assert render(parse(path.read_text())) == path.read_text(), f"{path.name}: not as `render` writes it"
