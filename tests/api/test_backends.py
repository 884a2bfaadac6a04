"""Backends over the API: asked before they are stored, shown without their secrets, deleted only when nothing needs
them, and used by the plane as they are now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.registry import BACKENDS
from chalicelib.backends.spi import Owned
from chalicelib.configuration.server import read_backend
from chalicelib.domain import keys
from chalicelib.domain.backends import BackendRoster, Configured
from chalicelib.domain.closings import Closing
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.domain.retention import Retention
from chalicelib.domain.tenants import ProjectRole, User
from chalicelib.domain.volumes import VolumeStatus
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.purchases import Purchases
from chalicelib.engine.effects.volumes import VolumeEffects
from chalicelib.engine.erase_unused import Eraser
from chalicelib.engine.ports import ConfigurationCheck
from chalicelib.engine.read import Reader
from chalicelib.errors import BackendError, InvalidCredentials, Throttled
from chalicelib.planning.kernel.purchases import Bought, Create, NotBought
from chalicelib.planning.volumes.volumes import CreateVolume, VolumeNotCreated
from chalicelib.runtime.accounts import StoredAccounts, providers
from chalicelib.store import nouns
from chalicelib.store.port import Page, Store
from chalicelib.store.seal import Sealer
from chalicelib.usecases.context import NoAccountWork
from chalicelib.usecases.operator import backends
from chalicelib.usecases.people.projects import delete_projects
from tests.api.rig import Rig
from tests.world import disks as d
from tests.world import nouns as b
from tests.world.keyed import CheckedHere, Keys, config
from tests.world.ports import Books

SECRETS = ("AKIA-GOOD-1", "hush-hush-1")


class Desk(Rig):
    """A rig whose accounts come from the store."""

    clouds: Keys

    @property
    def accounts(self) -> StoredAccounts:
        found = self.world.plane.backends
        assert isinstance(found, StoredAccounts)
        return found

    def add(self, key: str = SECRETS[0], secret: str = SECRETS[1], **more: Any) -> Any:
        return self.ok("P/backends/create", config(key, secret, **more))

    def stored(self) -> Configured | None:
        return nouns.find(self.world.store, Configured, keys.backend(self.project.id, "aws"))

    def machine(self) -> Owned:
        """A machine that was bought from it some time ago."""
        fleet = b.fleet("pool").with_(project_id=self.project.id)
        handle = Handle(kind="vm", id="i-1")
        instance = b.machine(0, fleet, offer=b.offer("x", backend="aws"), handles=(handle,))
        self.save(fleet, instance)
        self.world.store.commit([nouns.pointer(keys.fleet_name(self.project.id, fleet.name), fleet.id)])
        self.world.clock.pass_(600)
        return Owned(handle, "install", self.project.id, instance.id, 0)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    clouds = Keys()
    work = {"providers": clouds.providers, "account_work": CheckedHere(clouds.providers)}
    made = Desk.at(tmp_path, catalog=Books(()), backends=Accounts(), **work)
    world = made.world
    stored = StoredAccounts(world.store, Sealer(b"k" * 32), world.clock, clouds.providers)
    object.__setattr__(world.plane, "backends", stored)
    made.clouds = clouds
    yield made
    world.store.close()


def test_a_backends_life(desk: Desk) -> None:
    hidden = {"type": "access_key", "access_key": "(hidden)", "secret_key": "(hidden)"}
    assert desk.add(regions=["eu-west-1"]) == {"type": "aws", "regions": ["eu-west-1"], "creds": hidden}
    assert desk.ok("P/backends/aws/config_info")["creds"] == hidden
    [row] = desk.ok("P/backends/list")
    assert (row["name"], row["source"], row["config"]) == ("aws", "api", {"type": "aws", "regions": ["eu-west-1"]})
    assert desk.ok("/api/projects/main/get")["backends"] == [
        {"name": "aws", "config": {"type": "aws", "regions": ["eu-west-1"]}}
    ]
    assert desk.ok("/api/backends/list_types") == ["aws"]
    assert "already" in desk.refused("P/backends/create", config())
    assert desk.ok("P/backends/delete", {"backends_names": ["aws"]}) is None
    messages = [each["message"] for each in desk.ok("/api/events/list", {})]
    assert {"backend configured: aws", "backend deleted: aws"} <= set(messages), messages
    assert desk.ok("P/backends/list") == [] and desk.ok("/api/projects/main/get")["backends"] == []
    assert "no backend 'aws'" in desk.refused("P/backends/aws/config_info")
    assert "no backend 'aws'" in desk.refused("P/backends/delete", {"backends_names": ["aws"]})


def test_nulls_mean_unset_as_genuine_clients_send_them(desk: Desk) -> None:
    desk.add(regions=None, vpc_name=None, default_vpcs=None, public_ips=None, tags=None, os_images=None)
    assert desk.ok("P/backends/aws/config_info").keys() == {"type", "creds"}


def test_yaml_goes_in_and_comes_back_without_secrets(desk: Desk) -> None:
    text = "type: aws\nregions: [eu-west-1]\ncreds: {type: access_key, access_key: AKIA-GOOD-1, secret_key: hush}\n"
    assert desk.ok("P/backends/create_yaml", {"config_yaml": text}) is None
    shown = desk.ok("P/backends/aws/get_yaml")
    assert shown["name"] == "aws" and "hush" not in shown["config_yaml"] and "(hidden)" in shown["config_yaml"]
    changed = shown["config_yaml"].replace("eu-west-1", "us-east-1")
    assert desk.ok("P/backends/update_yaml", {"config_yaml": changed}) is None
    assert desk.ok("P/backends/aws/config_info")["regions"] == ["us-east-1"]
    assert desk.accounts.of(desk.project.id, "aws") is desk.clouds.made[-1] and desk.clouds.made[-1].key == SECRETS[0]
    error = desk.refused("P/backends/update_yaml", {"config_yaml": "type: aws\ncreds: hush-hush\nregion: x\n"})
    assert "creds: expected a mapping" in error and "did you mean `regions`?" in error and "hush" not in error


def test_an_sdk_that_is_missing_is_a_refusal_with_the_extra_in_every_call(desk: Desk) -> None:
    desk.add()
    lacking = {"aws": replace(BACKENDS["aws"], sdk=("no_such_sdk",))}
    object.__setattr__(desk.world.plane, "account_work", CheckedHere(providers(table=lacking)))
    yaml = "type: aws\ncreds: {type: access_key, access_key: AKIA-GOOD-1, secret_key: hush}\n"
    for call, body in (
        ("update", config()),
        ("update_yaml", {"config_yaml": yaml}),
        ("aws/check", None),
        ("create", config()),
        ("create_yaml", {"config_yaml": yaml}),
    ):
        if call == "create":
            desk.ok("P/backends/delete", {"backends_names": ["aws"]})
        error = desk.refused(f"P/backends/{call}", body)
        assert "no_such_sdk" in error and "with its extra `aws`" in error, call
    assert desk.ok("P/backends/list") == []


def test_so_is_every_call_of_the_engine(desk: Desk) -> None:
    """To a backend that was stored while its SDK was there."""
    desk.add()
    lacking = providers(table={"aws": replace(BACKENDS["aws"], sdk=("no_such_sdk",))})
    stored = StoredAccounts(desk.world.store, Sealer(b"k" * 32), desk.world.clock, lacking)
    backend = stored.of(desk.project.id, "aws")
    for call in (
        backend.offers,
        lambda: list(backend.list_owned()),
        lambda: backend.terminate(Handle(kind="vm", id="i-1")),
    ):
        with pytest.raises(BackendError, match=r"no_such_sdk.*with its extra `aws`"):
            call()


@pytest.mark.parametrize(("key", "message"), [("bad", "doesn't know these keys"), ("poor", "lack ec2:RunInstances")])
def test_what_the_provider_refuses_is_not_stored(desk: Desk, key: str, message: str) -> None:
    reply = desk.call("/api/project/main/backends/create", config(key))
    [entry] = reply.json["detail"]
    assert reply.status == 400 and message in entry["msg"] and entry["fields"] == ["creds"]
    assert desk.ok("P/backends/list") == []
    desk.add()
    assert message in desk.refused("P/backends/update", config(key))
    assert desk.accounts.of(desk.project.id, "aws").key == SECRETS[0]
    assert all(cloud.closed for cloud in desk.clouds.made if cloud.key == key)


def test_a_field_that_is_wrong_is_named_and_no_secret_repeated(desk: Desk) -> None:
    error = desk.refused("P/backends/create", {**config(), "creds": {"type": "access_key", "secret_key": ["hush"]}})
    assert "creds.access_key" in error and "creds.secret_key" in error and "hush" not in error
    assert "`aws`" in desk.refused("P/backends/create", {"type": "awz"})
    assert "isn't built yet" in desk.refused(
        "P/backends/create", {"type": "lambda", "creds": {"type": "api_key", "api_key": "k"}}
    )
    assert "JSON object" in desk.refused("P/backends/create", [1])


def test_the_control_planes_own_credentials_are_a_global_admins_to_give(desk: Desk) -> None:
    own = {"type": "aws", "creds": {"type": "default"}}
    token = desk.user("ann", ProjectRole.admin)
    reply = desk.call("/api/project/main/backends/create", own, token=token)
    assert reply.status == 400 and b"only a global admin" in reply.body and b"creds.type" in reply.body
    desk.ok("P/backends/create", config(), token=token)
    assert desk.call("/api/project/main/backends/update", own, token=token).status == 400
    desk.ok("P/backends/update", own)


@pytest.mark.parametrize("field", ["filename", "in_cluster"])
def test_a_kubeconfig_of_the_control_plane_is_a_global_admins_to_give(desk: Desk, field: str) -> None:
    object.__setattr__(desk.world.plane, "providers", providers())
    object.__setattr__(desk.world.plane, "account_work", CheckedHere(providers()))
    own = {"type": "kubernetes", "kubeconfig": {field: "/no/such/file" if field == "filename" else True}}
    token = desk.user("ann", ProjectRole.admin)
    reply = desk.call("/api/project/main/backends/create", own, token=token)
    assert reply.status == 400 and b"only a global admin" in reply.body
    assert f"kubeconfig.{field}".encode() in reply.body
    near = "{server: 'http://127.0.0.1:9'}"
    text = (
        "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], "
        f"clusters: [{{name: a, cluster: {near}}}], users: [{{name: a, user: {{token: t}}}}]}}"
    )
    reply = desk.call(
        "/api/project/main/backends/create", {"type": "kubernetes", "kubeconfig": {"data": text}}, token=token
    )
    assert reply.status == 400 and b"only a global admin" in reply.body and b"kubeconfig.data" in reply.body
    why = {"filename": "No such file", "in_cluster": "doesn't run in a Kubernetes cluster"}
    assert why[field] in desk.refused("P/backends/create", own), "their own is used for them"


def test_a_session_token_is_a_secret_that_an_update_keeps_or_leaves_out(desk: Desk) -> None:
    keys = {"type": "access_key", "access_key": "ASIA-1", "secret_key": "hush-hush-1"}
    desk.ok("P/backends/create", {"type": "aws", "creds": {**keys, "session_token": "token-of-an-hour"}})
    stored = desk.stored()
    assert stored is not None and "token-of-an-hour" not in stored.config
    shown = desk.ok("P/backends/aws/config_info")
    assert shown["creds"]["session_token"] == "(hidden)"

    def opened() -> Any:
        found = desk.stored()
        assert found is not None
        return backends.opened(desk.world.plane, found)["creds"]

    desk.ok("P/backends/update", {**shown, "regions": ["us-east-1"]})
    assert opened() == {**keys, "session_token": "token-of-an-hour"}
    desk.ok("P/backends/update", {"type": "aws", "creds": keys})
    assert opened() == keys


def test_hidden_secrets_are_kept_by_an_update_and_refused_in_a_new_one(desk: Desk) -> None:
    assert "secret that isn't known" in desk.refused("P/backends/create", config("(hidden)"))
    desk.add()
    desk.ok("P/backends/update", config("(hidden)", "(hidden)", regions=["us-east-1"]))
    backend = desk.accounts.of(desk.project.id, "aws")
    assert backend.key == SECRETS[0]
    assert desk.ok("P/backends/aws/config_info")["regions"] == ["us-east-1"]


def test_secrets_are_nowhere_at_rest_and_in_no_event(desk: Desk) -> None:
    desk.add()
    desk.world.clock.pass_(1)
    desk.ok("P/backends/update", config("AKIA-GOOD-2", SECRETS[1] + "2"))
    stored = b"".join(path.read_bytes() for path in desk.world.folder.rglob("*") if path.is_file())
    assert all(secret.encode() not in stored for secret in SECRETS)
    events = desk.ok("/api/events/list", {"target_projects": [desk.project.id]})
    changes = [(event["message"], event["actor_user"]) for event in events]
    assert changes[:2] == [("backend changed: aws", "admin"), ("backend configured: aws", "admin")]
    assert not any(secret in repr(events) for secret in SECRETS)
    assert all({t["type"] for t in event["targets"]} <= {"project", "user"} for event in events)


def test_a_copied_record_does_not_open_elsewhere(desk: Desk) -> None:
    desk.add()
    known, other = desk.stored(), desk.another_project("other")
    assert known is not None
    roster = nouns.find(desk.world.store, BackendRoster, keys.ROSTER)
    assert roster is not None
    desk.save(known.with_(project_id=other.id, version=0), roster.with_(rows=(*roster.rows, (other.id, "aws"))))
    desk.accounts.invalidate()
    assert "isn't" not in repr(desk.accounts.of(desk.project.id, "aws"))
    with pytest.raises(Exception, match="doesn't open"):
        desk.accounts.of(other.id, "aws").check()


def test_settings_that_this_version_no_longer_takes_make_only_their_backend_unusable(desk: Desk) -> None:
    desk.add()
    known = desk.stored()
    assert known is not None
    raw = {**json.loads(known.config), "tags": {f"tag-{number}": "hush" for number in range(40)}}
    desk.save(known.with_(config=json.dumps(raw)))
    away = StoredAccounts(desk.world.store, Sealer(b"k" * 32), desk.world.clock, desk.clouds.providers)
    with pytest.raises(InvalidCredentials, match=r"aws.*refuses tags: configure it again") as raised:
        away.of(desk.project.id, "aws").check()
    assert "hush" not in str(raised.value)


def test_the_accounts_follow_the_store(desk: Desk) -> None:
    """A second process sees a new backend at once, a change within seconds, and keeps what hasn't changed."""
    world, clouds = desk.world, desk.clouds
    away = StoredAccounts(world.store, Sealer(b"k" * 32), world.clock, clouds.providers)
    assert away.facts(desk.project.id) == {} and away.accounts() == ()
    desk.add(key="first")
    assert away.facts(desk.project.id) == {}, "looked a moment ago"
    made = away.of(desk.project.id, "aws")
    assert made.key == "first" and away.of(desk.project.id, "aws") is made, "whoever needs it looks again"
    desk.ok("P/backends/update", config("second"))
    world.clock.pass_(6)
    with away.held():
        assert away.of(desk.project.id, "aws").key == "second"
        desk.ok("P/backends/delete", {"backends_names": ["aws"]})
        world.clock.pass_(60)
        assert away.facts(desk.project.id).keys() == {"aws"}, "one set for the whole pass"
    assert away.facts(desk.project.id) == {}
    assert not made.closed, "somebody may still be calling it"
    away.close()
    assert made.closed


def test_a_look_reads_one_record_while_nothing_changes(desk: Desk) -> None:
    desk.add()
    world, read = desk.world, []

    class Counting:
        def get(self, key: Any) -> Any:
            read.append(key)
            return world.store.get(key)

        def get_many(self, wanted: Any) -> Any:
            read.extend(wanted)
            return world.store.get_many(wanted)

    away = StoredAccounts(Counting(), Sealer(b"k" * 32), world.clock, desk.clouds.providers)  # type: ignore[arg-type]
    for _ in range(3):
        away.accounts()
        away.facts(desk.project.id)
        world.clock.pass_(6)
    assert read.count(keys.ROSTER) == 3 and len(read) == 4


def test_a_type_that_the_operator_stands_in_for_stays_his(desk: Desk) -> None:
    desk.add()
    world = desk.world
    own = Account(BackendFacts(name="aws"), lambda: desk.clouds.make(read_backend(config())))
    away = StoredAccounts(world.store, Sealer(b"k" * 32), world.clock, desk.clouds.providers, [own])
    assert away.accounts(desk.project.id) == (own,)
    object.__setattr__(world.plane, "backends", away)
    assert "stands in" in desk.refused("P/backends/update", config())


def test_a_backend_in_use_is_not_deleted(desk: Desk) -> None:
    desk.add()
    desk.clouds.owned.append(desk.machine())
    assert "in use: pool-0" in desk.refused("P/backends/delete", {"backends_names": ["aws"]})
    assert desk.stored() is not None


class Late:
    """A store whose indexes don't show anything yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def query(self, index: str, *args: Any, **more: Any) -> Page:
        return self._store.query(index, *args, **more) if index == "main" else Page((), None)


class Elsewhere:
    """Another process, which looked at the accounts a moment ago and now executes what it committed."""

    def __init__(self, desk: Desk) -> None:
        self.desk, world = desk, desk.world
        self.accounts = StoredAccounts(world.store, Sealer(b"k" * 32), world.clock, desk.clouds.providers)
        self.cloud = self.accounts.of(desk.project.id, "aws")
        self.here = EffectContext(world.store, world.clock, self.accounts, "install", b"k" * 32)

    def order(self) -> Instance:
        """A machine that is about to be bought."""
        fleet = b.fleet("pool", next_instance_num=1).with_(project_id=self.desk.project.id)
        act_until = self.desk.world.clock.now() + 60 * SECOND
        id_ = derive(fleet.id, "instance", 0)
        offer = b.offer("sim.2cpu", backend="aws", region="sim-east")
        ordered = b.machine(0, fleet, status=InstanceStatus.pending, offer=offer, act_until=act_until)
        instance = ordered.with_(id=id_)
        self.desk.save(fleet, instance)
        self.desk.world.store.commit([nouns.pointer(keys.fleet_name(self.desk.project.id, fleet.name), fleet.id)])
        return instance

    def buy(self, instance: Instance) -> Any:
        until = instance.act_until or 0
        return Purchases(self.here).create(Create(f"instance/{instance.id}", "aws", until, instance.project_id))


def test_a_backend_that_was_deleted_a_moment_ago_buys_nothing(desk: Desk) -> None:
    desk.add()
    elsewhere = Elsewhere(desk)
    desk.ok("P/backends/delete", {"backends_names": ["aws"]})
    assert elsewhere.accounts.of(desk.project.id, "aws") is elsewhere.cloud, "it hasn't looked since"
    outcome = elsewhere.buy(elsewhere.order())
    assert isinstance(outcome, NotBought) and "isn't configured" in outcome.message
    assert elsewhere.cloud.machines() == []


def test_a_volume_is_not_created_with_a_backend_that_was_just_deleted(desk: Desk) -> None:
    desk.add()
    elsewhere = Elsewhere(desk)
    desk.ok("P/backends/delete", {"backends_names": ["aws"]})
    until = desk.world.clock.now() + 60 * SECOND
    volume = d.volume("data", backend="aws", status=VolumeStatus.submitted, act_until=until, handle=None)
    desk.save(volume.with_(version=0, project_id=desk.project.id))
    outcome = VolumeEffects(elsewhere.here).create(CreateVolume(volume.unit, "aws", until, desk.project.id))
    assert isinstance(outcome, VolumeNotCreated) and "isn't configured" in outcome.message


def test_what_was_ordered_just_before_takes_a_deletion_back(desk: Desk) -> None:
    """Even if the index doesn't show it yet."""
    desk.add()
    elsewhere = Elsewhere(desk)
    instance = elsewhere.order()
    plane = desk.world.plane
    object.__setattr__(plane, "read", Reader(Late(plane.store)))
    assert "in use: pool-0" in desk.refused("P/backends/delete", {"backends_names": ["aws"]})
    assert isinstance(elsewhere.buy(instance), Bought)
    assert len(elsewhere.cloud.machines()) == 1


def test_a_volume_keeps_its_backend(desk: Desk) -> None:
    desk.add()
    volume = d.volume("data", backend="aws").with_(version=0, project_id=desk.project.id)
    desk.save(volume)
    desk.world.store.commit([nouns.pointer(keys.volume_name(desk.project.id, "data"), volume.id)])
    assert "volume data" in desk.refused("P/backends/delete", {"backends_names": ["aws"]})


def test_new_credentials_keep_the_machines_and_those_of_another_account_are_refused(desk: Desk) -> None:
    desk.add()
    desk.clouds.owned.append(desk.machine())
    error = desk.refused("P/backends/update", config("other-account"))
    assert "pool-0 can't be seen" in error
    assert desk.accounts.of(desk.project.id, "aws").key == SECRETS[0]
    desk.ok("P/backends/update", config("rotated"))
    assert desk.accounts.of(desk.project.id, "aws").key == "rotated"


def test_what_ends_or_has_just_begun_need_not_be_seen(desk: Desk) -> None:
    desk.add()
    desk.machine()  # that the provider doesn't list
    fleet = nouns.find_target(desk.world.store, keys.fleet_name(desk.project.id, "pool"))
    assert fleet is not None
    [machine] = desk.world.plane.read.instances(fleet[0])
    assert "can't be seen" in desk.refused("P/backends/update", config("rotated"))
    desk.save(machine.with_(created_at=desk.world.clock.now()))
    desk.ok("P/backends/update", config("rotated"))
    desk.world.clock.pass_(600)
    assert "can't be seen" in desk.refused("P/backends/update", config("again"))
    desk.save(desk.world.again(machine).with_(status=InstanceStatus.terminating))
    desk.ok("P/backends/update", config("again"))


def test_one_that_does_not_open_any_more_is_replaced_as_a_whole(desk: Desk) -> None:
    desk.add()
    anew = Sealer(b"n" * 32)
    object.__setattr__(desk.world.plane, "seal", anew)
    object.__setattr__(desk.world.plane, "account_work", CheckedHere(desk.clouds.providers, anew))
    assert "secret that isn't known" in desk.refused("P/backends/update", config("(hidden)", "(hidden)"))
    desk.ok("P/backends/update", config("anew"))
    assert desk.ok("P/backends/aws/config_info")["creds"]["access_key"] == "(hidden)"


def test_the_control_planes_own_credentials_are_tried_like_any(desk: Desk) -> None:
    """By who has them: whatever works on the account."""
    own = {"type": "aws", "creds": {"type": "default"}}
    desk.ok("P/backends/create", own)
    desk.ok("P/backends/update", own)
    assert desk.ok("P/backends/aws/check") is None
    assert [cloud.key for cloud in desk.clouds.made] == ["default"] * 3


def test_a_configuration_is_checked_where_the_sdk_is_and_travels_sealed(desk: Desk) -> None:
    sent: list[ConfigurationCheck] = []

    class Elsewhere(NoAccountWork):
        def check(self, configuration_check: ConfigurationCheck) -> None:
            sent.append(configuration_check)
            raise Throttled("too many calls", retry_after=7)

    object.__setattr__(desk.world.plane, "account_work", Elsewhere())
    reply = desk.call("/api/project/main/backends/create", config())
    assert reply.status == 400 and reply.json["detail"][0]["fields"] == ["creds"]
    assert desk.stored() is None and desk.clouds.made == [], "and made nowhere else"
    [configuration_check] = sent
    assert configuration_check.account == f"aws-{desk.project.id}" and "hush-hush" not in configuration_check.config
    assert orjson.loads(configuration_check.config)["creds"]["secret_key"].startswith("sealed.")


def test_a_check_asks_the_provider_with_what_is_stored(desk: Desk) -> None:
    assert "no backend" in desk.refused("P/backends/aws/check")
    desk.add()
    made = len(desk.clouds.made)
    assert desk.ok("P/backends/aws/check") is None
    assert [cloud.key for cloud in desk.clouds.made[made:]] == [SECRETS[0]]


def test_a_deleted_projects_backend_goes_with_it_and_the_roster_forgets_it(desk: Desk) -> None:
    other = desk.another_project("other")
    desk.ok("/api/project/other/backends/create", config())
    world = desk.world
    admin = nouns.find_target(world.store, keys.user_name("admin"))
    user = nouns.find(world.store, User, keys.user(admin[0])) if admin else None
    assert user is not None
    delete_projects(world.plane, user, ["other"])
    closing = nouns.find(world.store, Closing, keys.closing(other.id))
    assert closing is not None
    desk.save(closing.with_(due_at=None))  # nothing of it runs any more
    world.clock.pass_(30 * 86_400)
    blobs, logs, clock = world.plane.blobs, world.plane.logs, world.clock
    Eraser(world.store, blobs, logs, clock, Retention()).run()
    assert world.store.get(keys.backend(other.id, "aws")) is None
    desk.accounts.invalidate()
    assert desk.accounts.accounts(other.id) == ()
    desk.add()
    roster = nouns.find(desk.world.store, BackendRoster, keys.ROSTER)
    assert roster is not None and roster.rows == ((desk.project.id, "aws"),)
