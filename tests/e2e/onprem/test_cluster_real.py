"""A task on two hosts: its containers reach each other at the addresses of the hosts, compute together, and log in to
each other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.hosts.spec import workers
from tests.e2e.multinode import journey
from tests.e2e.onprem.lab import Lab, lab
from tests.harness.debian import NotHere
from tests.harness.images import GLOO, MPI, gloo_image, mpi_image
from tests.harness.mpi import on_each_node
from tests.harness.server import until
from tests.runtime.live import logs_of, run_of


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    try:
        images = [gloo_image(journey.extension()), mpi_image()]
    except NotHere as problem:
        pytest.skip(str(problem))
    with lab(tmp_path_factory.mktemp("lab"), workers(2)) as one:
        for host in one.site.workers:
            for image in images:
                host.import_image(image)
        one.apply({**one.fleet("lab", one.site.workers), "placement": "cluster"})
        yield one
        one.delete("lab")


RANKS = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(cat /proc/sys/kernel/hostname)"
MASTER = on_each_node("mpirun", 2, RANKS)


def test_mpirun_starts_a_process_in_the_container_of_each_host(site: Lab) -> None:
    command = f"if [ $DSTACK_NODE_RANK != 0 ]; then exec sleep 1000; fi; {MASTER}"
    order = {"nodes": 2, "startup_order": "workers-first", "stop_criteria": "master-done"}
    output = site.apply(site.task("mpi", command, "lab", image=MPI, user="somebody", **order))
    ran = sorted(line.split()[1::4] for line in output.splitlines() if line.startswith("rank "))
    assert [rank for rank, _ in ran] == ["0", "1"], output
    assert {where for _, where in ran} == {host.name for host in site.site.workers}, output
    until("both hosts to be free", lambda: set(site.statuses("lab").values()) == {"idle"})


def test_the_containers_of_both_hosts_sum_their_vectors(site: Lab) -> None:
    files = {"allreduce.py": journey.HERE / "allreduce.py", "xoscar_pygloo.so": journey.extension()}
    for name, source in files.items():
        shutil.copy(source, site.server.home / name)
    more = {"nodes": 2, "image": GLOO, "shell": "bash", "files": list(files)}
    site.apply(site.task("sum", "python allreduce.py 29500", "lab", **more))  # nothing else is on these hosts
    assert [log.strip() for log in logs_of(site.server, "sum")] == journey.wanted(2)
    places = [job["job_submissions"][0]["job_provisioning_data"] for job in run_of(site.server, "sum")["jobs"]]
    assert {place["hostname"] for place in places} == {host.address for host in site.site.workers}
