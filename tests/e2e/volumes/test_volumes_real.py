"""What a run writes to a volume, the next run reads on another machine: whatever is killed meanwhile, and whenever.

`python -m tests.e2e.volumes --kills` plays every case; here are those that differ most.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.hosts.host import Host
from tests.e2e.hosts.spec import workers
from tests.e2e.volumes.kills import Case
from tests.e2e.volumes.lab import Clouds, clouds
from tests.harness import loops

pytestmark = loops.needed

Lab = tuple[Clouds, tuple[Host, Host], bool]


@pytest.fixture(scope="module", params=[True, False], ids=["containers", "processes"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with clouds(tmp_path_factory.mktemp("lab"), workers(2, docker=request.param)) as one:
        yield one, (one.machine("one"), one.machine("two")), request.param


@pytest.mark.parametrize(
    ("victim", "step"),
    [("server", "unmounted"), ("agent", "mounted"), ("supervisor", "written"), ("all", "asked to detach")],
)
def test_what_was_written_is_there_whoever_is_killed(lab: Lab, victim: str, step: str) -> None:
    Case(*lab, victim, step).play()
