"""What a container's engine is asked for where a task has volumes, and what it must see.

Disks themselves, and a real engine, are in `test_docker_volumes_real`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.kernel.task_runtime import TaskError
from tests.agent import docker_engine
from tests.agent.runtimes.test_docker_work import IMAGE, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with docker_engine.running(tmp_path) as engine:
        engine.images[IMAGE] = {"Config": {"WorkingDir": "/app"}}
        yield Bench(tmp_path, engine)


DISK = {"kind": "disk", "volume": "v-1", "name": "data", "path": "/data", "device": {"serial": "s"}, "read_only": True}


def test_a_disk_is_bound_from_where_it_is_mounted(bench: Bench) -> None:
    bench.engine.holds, bench.engine.modes = {"/data": b""}, {"/data": 0x800001FF}
    bench.begin(volumes=[DISK])
    (mount,) = bench.container.body["HostConfig"]["Mounts"]
    assert mount == {
        "Type": "bind",
        "Source": "/run/dstack-volumes/disks/v-1",
        "Target": "/data",
        "ReadOnly": True,
        "BindOptions": {"Propagation": "rprivate"},
    }


@pytest.mark.parametrize("holds", [{}, {"/data": b""}])
def test_an_engine_that_doesnt_see_a_disk_starts_nothing_beside_it(bench: Bench, holds: dict[str, bytes]) -> None:
    bench.engine.holds, bench.engine.modes = holds, {"/data": 0x80000000}
    with pytest.raises(TaskError, match=r"^volume data: the container engine .* doesn't see") as caught:
        bench.begin(volumes=[DISK])
    assert caught.value.reason == "volume_error"
    assert bench.engine.calls("POST /containers/dstack-t/start") == []
