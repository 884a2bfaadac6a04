"""The keys that the nodes of one attempt share with nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from chalicelib.domain.gangs import Gang
from chalicelib.domain.offers import Interconnect, OfferTerms, Sidecar
from chalicelib.domain.tenants import Project
from chalicelib.errors import Bug
from chalicelib.planning.jobs.nodes import Nodes
from chalicelib.usecases.agents.tasks import task_of
from chalicelib.usecases.runs.node_keys import FIRST_PORT, PORTS, hostfile, node_ssh
from tests.world.engine import Engine
from tests.world.gangs import cluster, gang_of, jobs_of, task
from tests.world.nouns import PROJECT

SECRET = b"install key"
NODES = Nodes(("10.0.0.1", "10.0.0.2"), (8, 8))
NAMES = ("train-0-0", "train-1-0")


def attempt(number: int = 0) -> Gang:
    return Gang(
        id=f"gang-{number}", run_id="r", run_name="train", project_id="p", nodes=2, began_at=0, last_processed_at=0
    )


def keys_for(rank: int = 0, number: int = 0, secret: bytes = SECRET, nodes: Nodes = NODES) -> dict[str, Any]:
    return node_ssh(secret, attempt(number), nodes, NAMES, rank)


def test_all_nodes_are_told_the_same_keys_whenever_they_ask() -> None:
    one, two = keys_for(0), keys_for(1)
    assert (one["rank"], two["rank"]) == (0, 1)
    for which in ("public_key", "host_public_key", "nodes"):
        assert one[which] == two[which]
    for private, public in (("private_key", "public_key"), ("host_private_key", "host_public_key")):
        key = load_ssh_private_key(two[private].encode(), None)
        assert key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() == one[public]
    assert one["public_key"] != one["host_public_key"]


@pytest.mark.parametrize("other", [keys_for(number=1), keys_for(secret=b"of another installation")])
def test_another_attempt_and_another_installation_have_other_keys(other: dict[str, Any]) -> None:
    own = keys_for()
    assert not {own["public_key"], own["host_public_key"]} & {other["public_key"], other["host_public_key"]}


def test_each_node_has_a_port_at_its_address() -> None:
    apart = [(node["address"], node["port"]) for node in keys_for()["nodes"]]
    assert apart[0][1] == apart[1][1], "one port for all where addresses differ"
    together = keys_for(nodes=Nodes(("127.0.0.1", "127.0.0.1"), (0, 0)))["nodes"]
    assert [node["port"] - together[0]["port"] for node in together] == [0, 1]
    assert all(FIRST_PORT <= keys_for(number=number)["nodes"][0]["port"] < FIRST_PORT + PORTS for number in range(200))
    assert len({keys_for(number=number)["nodes"][0]["port"] for number in range(50)}) > 40


def test_the_hostfile_has_names_where_an_address_isnt_enough() -> None:
    assert hostfile(NODES, NAMES) == "10.0.0.1 slots=8\n10.0.0.2 slots=8\n"
    assert hostfile(Nodes(("127.0.0.1", "127.0.0.1"), (0, 0)), NAMES) == "train-0-0\ntrain-1-0\n"


def test_a_task_on_several_nodes_is_in_its_hosts_network_and_knows_the_others() -> None:
    place = Engine.in_memory()
    hosts = cluster(place, 3)
    runs = [task(place, "train", 2), task(place, "alone", 1)]
    place.save(Project(id=PROJECT, name="main", owner_id="u", created_at=place.at))
    place.reconciler().run([f"queue/{PROJECT}", *(f"run/{run.id}" for run in runs)])
    gang, by_id = gang_of(place, runs[0]), {host.id: place.again(host) for host in hosts}
    assert gang is not None
    sent = [
        found
        for job in jobs_of(place, runs[0])
        if job.assignment and (found := task_of(place.plane, job, by_id[job.assignment.instance_id]))
    ]
    assert [each["network"] for each in sent] == ["host", "host"]
    assert [each["node_ssh"]["rank"] for each in sent] == [0, 1]
    assert [(node["name"], node["address"]) for node in sent[1]["node_ssh"]["nodes"]] == [
        (f"train-{rank}-0", address) for rank, address in enumerate(gang.addresses)
    ]
    assert sent[0]["hostfile"] == "".join(f"{address}\n" for address in gang.addresses)
    assert "interconnect" not in sent[0]
    (single,) = jobs_of(place, runs[1])
    assert single.assignment is not None
    alone = task_of(place.plane, single, by_id[single.assignment.instance_id])
    assert alone is not None
    assert "node_ssh" not in alone and "network" not in alone
    place.save(place.again(gang).with_(addresses=()))
    first = jobs_of(place, runs[0])[0]
    with pytest.raises(Bug, match="before the addresses of its nodes were published"):
        task_of(place.plane, first, by_id[single.assignment.instance_id])


def test_a_task_on_several_nodes_gets_what_its_clouds_network_needs() -> None:
    place = Engine.in_memory()
    hosts = cluster(place, 2)
    run = task(place, "train", 2)
    place.save(Project(id=PROJECT, name="main", owner_id="u", created_at=place.at))
    place.reconciler().run([f"queue/{PROJECT}", f"run/{run.id}"])
    job = jobs_of(place, run)[0]
    assert job.assignment is not None
    host = place.again(next(each for each in hosts if each.id == job.assignment.instance_id))
    env = {"NCCL_SOCKET_IFNAME": "ens7", "DSTACK_NODE_RANK": "not this"}
    beside = Sidecar(image="receiver:1", args=("--all",), ready="is ready")
    about = {"rank_variable": "WORKER_ID", "addresses_variable": "WORKER_HOSTNAMES"}
    places = {"folders": ("/opt/a",), "devices": ("/dev/b",)}
    fast = Interconnect.model_validate({"name": "fast", "env": env, **places, "sidecars": (beside,), **about})
    terms = OfferTerms(interconnect=fast)
    found = task_of(place.plane, job, host.with_(offer=host.offer.with_(terms=terms)))
    assert found is not None
    assert found["interconnect"] == {
        "folders": ["/opt/a"],
        "devices": ["/dev/b"],
        "sidecars": [{"image": "receiver:1", "args": ["--all"], "ready": "is ready"}],
    }
    assert (found["env"]["NCCL_SOCKET_IFNAME"], found["env"]["DSTACK_NODE_RANK"]) == ("ens7", "0")
    gang = gang_of(place, run)
    assert gang is not None and len(gang.addresses) == 2
    assert (found["env"]["WORKER_ID"], found["env"]["WORKER_HOSTNAMES"]) == ("0", ",".join(gang.addresses))
    assert "" not in found["env"]
