"""Bootstrap tokens and credentials of agents: what they are exchanged for, how often, and what is refused."""

from __future__ import annotations

import pytest

from chalicelib.domain.ids import derive
from chalicelib.domain.instances import InstanceStatus
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Forbidden, Invalid
from chalicelib.usecases.agents.calls import has_news, sync
from chalicelib.usecases.agents.credentials import readmit
from tests.usecases.cluster import FACTS, INSTANCE, Agent, Cluster
from tests.world.plane import World


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world)
    made.agent.join()
    world.take_woken()
    return made


def test_a_bootstrap_token_buys_a_credential_once(world: World) -> None:
    cluster = Cluster.of(world, InstanceStatus.provisioning)
    answer = cluster.agent.join()
    assert has_news(answer) and answer["credential"].startswith(INSTANCE)
    assert answer["credential"] not in cluster.presence.model_dump_json()
    assert f"instance/{INSTANCE}" in world.take_woken()
    assert "credential" not in cluster.agent.sync()
    late = Agent(world, boot="another", credential=bootstrap_token(world.plane.install_key, INSTANCE, 0))
    with pytest.raises(Forbidden, match="already used"):
        late.sync()


@pytest.mark.parametrize("arrived", [0, 1, 2])
def test_a_lost_reply_may_be_repeated_by_the_same_process_until_one_arrives(world: World, arrived: int) -> None:
    cluster = Cluster.of(world)
    token = bootstrap_token(world.plane.install_key, INSTANCE, 0)
    bought = [cluster.agent.join()["credential"]]
    for pause in (50, 3600):
        world.clock.pass_(pause)
        cluster.agent.credential = token
        bought.append(cluster.agent.sync()["credential"])
    assert len({*bought}) == 3
    Agent(world, credential=bought[arrived], seq=10).sync()
    with pytest.raises(Forbidden, match="already used"):
        Agent(world, credential=token, seq=20).sync()
    for seq, credential in enumerate(bought, 30):  # a request that the network repeated bought another
        Agent(world, credential=credential, seq=seq).sync()


def test_the_first_use_of_a_credential_is_noted_once(cluster: Cluster) -> None:
    assert cluster.presence.previous_hash
    cluster.agent.sync()
    assert not cluster.presence.previous_hash
    before = cluster.presence.version
    cluster.agent.sync()
    assert cluster.presence.version == before


@pytest.mark.parametrize("credential", ["", "nonsense", f"{INSTANCE}.token", "0" * 64])
def test_a_forged_credential_is_refused_and_changes_nothing(cluster: Cluster, credential: str) -> None:
    before = cluster.presence
    with pytest.raises(Forbidden):
        Agent(cluster.world, credential=credential, seq=99).sync(facts=FACTS)
    assert cluster.presence == before


def test_a_foreign_instances_credential_is_refused(cluster: Cluster) -> None:
    other = derive("test", "other-instance")
    cluster.save(cluster.instance.with_(id=other).model_copy(update={"version": 0}))
    with pytest.raises(Forbidden):
        Agent(cluster.world, instance_id=other, credential=cluster.agent.credential).sync()
    with pytest.raises(Invalid, match="another instance"):
        sync(cluster.world.plane, other, cluster.agent.credential, cluster.agent.message())
    with pytest.raises(Forbidden):
        Agent(cluster.world, credential=bootstrap_token(cluster.world.plane.install_key, other, 0)).sync()


def test_an_unknown_instance_is_refused_like_a_bad_credential(world: World) -> None:
    unknown, other = derive("test", "nobody"), derive("test", "somebody")
    for credential in ("", "nonsense", f"{unknown}.token", bootstrap_token(world.plane.install_key, other, 0)):
        with pytest.raises(Forbidden):
            Agent(world, instance_id=unknown, credential=credential).sync()


def test_an_instance_whose_record_was_erased_ends_its_agent(world: World) -> None:
    """Its token proves that there was one."""
    erased = derive("test", "nobody")
    agent = Agent(world, instance_id=erased, credential=bootstrap_token(world.plane.install_key, erased, 0))
    answer = agent.sync()
    assert (answer["error"], answer["next_sync_in"]) == ("gone", 60), "it ends, and if it can't, it asks no more often"


def test_a_host_that_lost_its_data_can_be_let_in_again(cluster: Cluster) -> None:
    cluster.save(cluster.presence.with_(earlier_hashes=("bought-once",)))
    readmit(cluster.world.plane, INSTANCE)
    assert (cluster.presence.credential_hash, cluster.presence.earlier_hashes) == ("", ())
    with pytest.raises(Forbidden):
        cluster.agent.sync()
    again = Agent(cluster.world, boot="boot-2")
    assert again.join()["credential"]


def test_an_instance_that_is_gone_ends_its_agent(cluster: Cluster) -> None:
    cluster.save(cluster.instance.with_(status=InstanceStatus.terminated))
    answer = cluster.agent.sync()
    expected = {"error": "gone", "seq": cluster.agent.seq, "tasks": [], "logs": [], "next_sync_in": 60, "news": True}
    assert answer == expected and has_news(answer)
