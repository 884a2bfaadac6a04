"""What a control plane has that can't move, or that is different at the other place. It is found before anything is
changed, and each finding says what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.contacts import Contact
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.keys import STATUS
from chalicelib.domain.services import SERVER
from chalicelib.store import copying, nouns
from chalicelib.store.blobs import Blobs
from chalicelib.store.port import Record, Store
from chalicelib.usecases.agents.downloads import served
from chalicelib.usecases.operator.server_config import sealing_keys


@dataclass(frozen=True)
class Finding:
    what: str
    hint: str
    stops: bool = True  # the migration is refused because of it


def to_stage(store: Store, config: ServerConfig, blobs: tuple[Blobs, Blobs], known: Collection[str]) -> list[Finding]:
    """What keeps a folder's control plane from moving to a stage. `blobs`: the folder's and the stage's. `known`: the
    simulated backends that both have."""
    return [*_records(store, _machine_to_stage, known), *_releases(*blobs), *_settings(config)]


def to_folder(store: Store, known: Collection[str]) -> list[Finding]:
    """The same for a stage's, which moves to a folder."""
    return list(_records(store, _bought_nowhere, known))


Check = Callable[[Instance, Collection[str]], Iterator[Finding]]


def _records(store: Store, check: Check, known: Collection[str]) -> Iterator[Finding]:
    configured = {*known}
    live: list[Instance] = []
    for page in copying.pages(store):
        for record in page:
            place, _, sort = record.key.pk.partition("/")[0], *record.key.sk.partition("/")[::2]
            if place == "project" and record.key.sk.startswith("backend/"):
                configured.add(sort)
            elif place == "instance" and record.key.sk == STATUS:
                instance = nouns.read(Instance, record)
                live += [instance] if instance.status is not InstanceStatus.terminated else []
            else:
                yield from _carried(record)
    for instance in live:
        yield from check(instance, configured)


def _machine_to_stage(instance: Instance, configured: Collection[str]) -> Iterator[Finding]:
    if instance.local:
        yield Finding(
            f"the instance {instance.name} is the server's own machine",
            "end its jobs, start the server with --no-local-fleet, and run `dstack fleet delete "
            f"{instance.fleet_name}`",
        )
    yield from _bought_nowhere(instance, configured)


def _bought_nowhere(instance: Instance, configured: Collection[str]) -> Iterator[Finding]:
    if instance.bought and instance.offer.backend not in configured:
        yield Finding(
            f"the instance {instance.name} is a machine of the simulated cloud, which only this control plane knows",
            f"run `dstack fleet delete {instance.fleet_name}`",
        )


def _carried(record: Record) -> Iterator[Finding]:
    if record.key.pk.startswith("instance/") and record.key.sk == "contact":
        contact = nouns.read(Contact, record)
        if contact.tunnel or contact.relay is not None:
            how = "over the server's SSH connection" if contact.tunnel else "through its head node"
            yield Finding(
                f"the calls of the host with the instance {contact.instance_id} reach this server {how}, and can't "
                "reach another place that way",
                "let the host reach the internet, or remove it from its fleet before the migration",
            )
    elif record.key.pk.startswith("traffic/") and record.key.sk == SERVER:
        yield Finding(
            f"the service with the run {record.key.pk.partition('/')[2]} is called at the server itself, and no "
            "function in AWS passes requests on",
            "give it a gateway before, or expect it to be unreachable from the migration on",
            stops=False,
        )


def _releases(folder: Blobs, stage: Blobs) -> Iterator[Finding]:
    here, there = served(folder), served(stage)
    if here != there:
        yield Finding(
            "the stage and this folder's server have agents of different releases",
            "deploy the stage from the release that the server runs, and start that server once",
        )


def _settings(config: ServerConfig) -> Iterator[Finding]:
    if len(sealing_keys(config, b"")) > 1:
        yield Finding(
            "secrets are sealed with the keys under `encryption` in server/config.yml, which a stage doesn't have",
            "remove these keys, and set the secrets and the backends that need them again",
        )
    for name, given, instead in (
        (
            "sign_on",
            config.sign_on,
            "put the section into the parameter `sign-on` of the stage: see docs/guides/sign-on.md",
        ),
        ("webhooks", config.webhooks, "deploy the stage with --set Bus=on, and have EventBridge deliver them"),
        ("rules", config.rules, "deploy them with the stage: see docs/guides/automation.md"),
    ):
        if given:
            yield Finding(f"`{name}` in server/config.yml isn't read by a stage", instead, stops=False)
