"""The backends in `server/config.yml`, applied to the store again and again, beside those of the API."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.configuration.server import parse_server
from chalicelib.domain import keys
from chalicelib.domain.backends import Configured
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.tenants import Project, User
from chalicelib.errors import Refused
from chalicelib.runtime.accounts import StoredAccounts
from chalicelib.runtime.server_file import ServerFile
from chalicelib.runtime.settings import server_settings
from chalicelib.store import nouns
from chalicelib.store.seal import Sealer
from chalicelib.usecases.operator import backends
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.operator.server_config import ensure_backends, ensure_projects
from tests.world import nouns as b
from tests.world.keyed import CheckedHere, Keys
from tests.world.plane import World

KEY = Sealer(b"k" * 32)


def text(key: str = "good", project: str = "main", *, backend: str = "aws", more: str = "") -> str:
    creds = f"{{type: access_key, access_key: {key}, secret_key: hush}}"
    return f"projects:\n- name: {project}\n  backends:\n  - type: {backend}\n    creds: {creds}\n{more}"


class Shop:
    def __init__(self, folder: Path) -> None:
        self.clouds = Keys()
        work = CheckedHere(self.clouds.providers)
        self.world = World.in_folder(folder, providers=self.clouds.providers, account_work=work)
        self.plane = self.world.plane
        self.accounts = StoredAccounts(self.world.store, KEY, self.world.clock, self.clouds.providers)
        object.__setattr__(self.plane, "backends", self.accounts)
        _, self.main = first_start(self.plane)
        user = nouns.find(self.world.store, User, keys.user(self.main.owner_id))
        assert user is not None
        self.admin = user

    def apply(self, written: str) -> tuple[str, ...]:
        config = parse_server(written).config
        ensure_projects(self.plane, self.admin, config)
        return ensure_backends(self.plane, config)

    def stored(self, project: Project | None = None) -> Configured | None:
        return nouns.find(self.world.store, Configured, keys.backend((project or self.main).id, "aws"))

    def key(self) -> Any:
        return self.accounts.of(self.main.id, "aws").key  # type: ignore[attr-defined]

    def buy(self) -> None:
        fleet = b.fleet("pool").with_(project_id=self.main.id)
        self.world.save(fleet, b.machine(0, fleet, offer=b.offer("x", backend="aws")))
        self.world.store.commit([nouns.pointer(keys.fleet_name(self.main.id, fleet.name), fleet.id)])

    def release(self) -> None:
        fleet = nouns.find_target(self.world.store, keys.fleet_name(self.main.id, "pool"))
        assert fleet is not None
        [machine] = self.plane.read.instances(fleet[0])
        self.world.save(machine.with_(status=InstanceStatus.terminated, due_at=None))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.world.store.close()


def test_the_files_backends_are_the_projects(shop: Shop) -> None:
    assert shop.apply(text()) == () and shop.key() == "good"
    before = shop.stored()
    shop.world.clock.pass_(60)
    assert shop.apply(text()) == () and shop.stored() == before, "nothing changed, nothing is written"
    assert shop.apply(text("rotated")) == () and shop.key() == "rotated"
    assert shop.apply("projects: [{name: main}]") == () and shop.stored() is None
    assert shop.accounts.accounts() == ()
    shop.apply(text())
    assert shop.apply("projects: []") == () and shop.stored() is None


def test_one_of_another_project_is_its_own(shop: Shop) -> None:
    both = text() + text("theirs", "research").removeprefix("projects:\n")
    shop.apply(both)
    other = nouns.find_target(shop.world.store, keys.project_name("research"))
    assert other is not None and shop.key() == "good"
    assert shop.accounts.of(other[0], "aws").key == "theirs"  # type: ignore[attr-defined]


def test_what_the_api_configured_is_not_replaced_by_the_file_nor_removed(shop: Shop) -> None:
    config = parse_server(text("api-key")).config.projects[0].backends
    assert config is not None
    backends.create_backend(shop.plane, shop.main, shop.admin, config[0])
    [message] = shop.apply(text("file-key"))
    assert "configured over the API" in message and "dstack backend delete aws --project main" in message
    assert shop.key() == "api-key"
    assert shop.apply("projects: []") == () and shop.key() == "api-key"
    backends.delete_backends(shop.plane, shop.main, shop.admin, ["aws"])
    assert shop.apply(text("file-key")) == () and shop.key() == "file-key"


def test_what_the_file_has_is_changed_only_there(shop: Shop) -> None:
    shop.apply(text())
    config = parse_server(text("api-key")).config.projects[0].backends
    assert config is not None
    with pytest.raises(Refused, match=r"server/config\.yml"):
        backends.update_backend(shop.plane, shop.main, shop.admin, config[0])
    with pytest.raises(Refused, match=r"server/config\.yml"):
        backends.delete_backends(shop.plane, shop.main, shop.admin, ["aws"])
    assert shop.key() == "good"


def test_one_that_is_in_use_stays_until_its_machines_are_gone(shop: Shop) -> None:
    shop.apply(text())
    shop.buy()
    [message] = shop.apply("projects: []")
    assert "stays until these are gone: pool-0" in message and shop.key() == "good"
    shop.release()
    assert shop.apply("projects: []") == () and shop.stored() is None


def test_one_that_another_key_sealed_is_sealed_anew(shop: Shop) -> None:
    shop.apply(text())
    object.__setattr__(shop.plane, "seal", Sealer(b"n" * 32))
    assert shop.apply(text()) == ()
    stored = shop.stored()
    assert stored is not None and backends.opened(shop.plane, stored)["creds"]["access_key"] == "good"


# --- while the server runs --------------------------------------------------------------------------------------------


def test_a_running_server_follows_its_file(shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "config.yml"
    path.write_text(text("k1"))
    read = parse_server(path.read_text()).config
    file = ServerFile(server_settings({}, data_dir=tmp_path), shop.plane, shop.admin, read)
    file.start()
    assert shop.key() == "k1"
    path.write_text(text("k-22"))
    file.check_file()
    assert shop.key() == "k-22" and "is applied" in caplog.text
    caplog.clear()
    path.write_text("projects: [{name: main, backends: [{type: aws, creds: hush}]}]")
    file.check_file()
    assert "can't be used" in caplog.text and "projects.0.backends.0.creds" in caplog.text and "hush" not in caplog.text
    assert shop.key() == "k-22"
    caplog.clear()
    file.check_file()
    path.unlink()
    file.check_file()
    assert caplog.text.count("is gone") == 1 and shop.key() == "k-22"
    path.write_text(text("k-333", more="default_permissions: {allow_non_admins_create_projects: false}\n"))
    file.check_file()
    assert "at the next start" in caplog.text and shop.key() == "k-333"


def test_what_is_left_is_told_once_and_done_when_it_can_be(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "config.yml"
    path.write_text("projects: []\n")
    shop.apply(text())
    shop.buy()
    file = ServerFile(
        server_settings({}, data_dir=tmp_path), shop.plane, shop.admin, parse_server("projects: []").config
    )
    file.start()
    file.check_file()
    assert caplog.text.count("stays until") == 1 and shop.stored() is not None
    shop.release()
    file.check_file()
    assert shop.stored() is None


def test_a_server_that_skips_its_file_follows_none(shop: Shop, tmp_path: Path) -> None:
    shop.apply(text())
    settings = server_settings({"DSTACK_SERVER_CONFIG_DISABLED": "1"}, data_dir=tmp_path)
    file = ServerFile(settings, shop.plane, shop.admin, parse_server("projects: []").config)
    file.start()
    (tmp_path / "config.yml").write_text("projects: []\n")
    file.check_file()
    assert shop.key() == "good"
