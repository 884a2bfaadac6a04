"""The sweep: compares the resources at a provider with those in the store, in both directions.

It should never find anything: every purchase is committed before it is made, its resources are recorded one by one, and
silent machines are checked. We sweep all the same, because a missed machine costs money until somebody reads a bill.
`planning.machines.orphans` decides; this module lists, commits and acts. Each account is swept by itself, where its
provider's SDK is, so that a slow provider delays no other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from chalicelib.backends.spi import Backend, Owned, OwnedGroup, OwnedVolume, PlacementGroups, Volumes
from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.noun import Noun
from chalicelib.domain.owner import same_install
from chalicelib.domain.restorations import Met
from chalicelib.domain.sightings import Sighting
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import Volume
from chalicelib.engine.effects.context import translated
from chalicelib.engine.execute import Executor
from chalicelib.engine.read import owners
from chalicelib.errors import BackendError, Conflict, Gone, StorageFull
from chalicelib.planning.machines import orphans
from chalicelib.planning.machines.orphans import AccountSweep, Finding
from chalicelib.store import nouns
from chalicelib.store.listing import all_of, every

if TYPE_CHECKING:
    from chalicelib.backends.accounts import Account

log = logging.getLogger(__name__)

N = TypeVar("N", bound=Noun)
OwnedResource = Owned | OwnedGroup | OwnedVolume


@dataclass
class Swept:
    """The results of a sweep."""

    released: list[OwnedResource] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # ids of instances and volumes whose machine or disk is gone


class Sweeper:
    def __init__(self, executor: Executor) -> None:
        """`executor` commits the outcome for an instance that has lost its machine."""
        self._executor, self._here = executor, executor.here
        self._store, self._clock, self._read = self._here.store, self._here.clock, executor.load.read

    def run(self, account: Account) -> Swept:
        done = Swept()
        with _apart(f"the sweep of {account.key}"):
            for finding in list(orphans.decide_sweep(self._view(account))):
                with _apart(f"what a sweep of {account.key} found"):
                    self._act(account, finding, done)
        return done

    def look(self, account: Account) -> list[Met]:
        """What a sweep would find, without an effect: for a server that was restored from a backup."""
        view, title = self._view(account), account.facts.title or account.facts.name
        found = [Met(kind=_KINDS[type(each)], id=each.handle.id, says=_says(each, title)) for each in view.strays]
        gone: list[Instance | Volume] = [*(instance for instance, _ in view.absent), *view.diskless]
        return found + [
            Met(kind="missing", id=each.id, says=f"{title} doesn't list the {each.kind} {each.name} of the records.")
            for each in gone
        ]

    # --- listing -----------------------------------------------------------------------------------------------------

    def _view(self, account: Account) -> AccountSweep[OwnedResource]:
        install_id, began = self._here.install_id, self._clock.now()
        with translated(account.key):
            listed = list(account.backend.list_owned())  # before the owners are read, or new resources would have none
            groups = list(self._groups(account))
            disks = list(self._disks(account))
        now = self._clock.now()
        instance_ids = sorted({one.instance_id for one in listed if same_install(one.install, install_id)})
        owners = {instance.id: instance for instance in self._found(Instance, map(keys.instance, instance_ids))}
        lag = account.facts.visibility_lag
        strays: list[OwnedResource] = []
        strays += orphans.strays(listed, owners, install_id=install_id, now=now, lag=lag)
        fleets = {fleet.id: fleet for fleet in self._found(Fleet, {keys.fleet(one.fleet_id) for one in groups})}
        strays += orphans.stray_groups(groups, fleets, install_id=install_id)
        volume_ids = sorted({one.volume_id for one in disks if same_install(one.install, install_id)})
        volumes = {volume.id: volume for volume in self._found(Volume, map(keys.volume, volume_ids))}
        strays += orphans.stray_volumes(disks, volumes, install_id=install_id, now=now, lag=lag)
        # An index may show an old instance: it is only a reason to read the instance by key.
        suspects = [keys.instance(each.id) for each in orphans.unlisted(listed, self._instances(account))]
        absent = orphans.unlisted(listed, self._found(Instance, suspects))
        presences = {each.instance_id: each for each in self._found(Presence, (keys.presence(i.id) for i in absent))}
        missed = [keys.volume(each.id) for each in orphans.without_disk(disks, self._volumes(account))]
        projects = self._found(Project, {keys.project(stray.project_id) for stray in strays})
        return AccountSweep(
            account=account.key,
            facts=account.facts,
            began=began,
            now=now,
            strays=strays,
            absent=[(instance, presences.get(instance.id)) for instance in absent],
            diskless=orphans.without_disk(disks, self._found(Volume, missed)),
            projects={project.id: project for project in projects if not project.deleted},
            sightings=[nouns.read(Sighting, r) for r in all_of(self._store, "main", keys.sightings_of(account.key))],
        )

    def _groups(self, account: Account) -> Iterator[OwnedGroup]:
        backend = account.backend
        if isinstance(backend, PlacementGroups):
            yield from backend.list_owned_groups()

    def _disks(self, account: Account) -> Iterator[OwnedVolume]:
        backend = account.backend
        if isinstance(backend, Volumes):
            yield from backend.list_owned_volumes()

    def _projects(self, account: Account) -> list[str]:
        """The ids of the projects that the account serves."""
        if account.project_id is not None:
            return [account.project_id]
        return [nouns.pointed(record) for record in every(self._store, "projects", "name/")]

    def _volumes(self, account: Account) -> Iterator[Volume]:
        """The volumes that should have a disk in this account."""
        for project_id in self._projects(account) if account.facts.volumes else ():
            for record in all_of(self._store, "gsi1", keys.volumes_of(project_id)):
                volume = nouns.read(Volume, record)
                if volume.backend == account.facts.name and not volume.deleted:
                    yield volume

    def _instances(self, account: Account) -> Iterator[Instance]:
        """The instances that should have a machine in this account."""
        for project_id in self._projects(account):
            for owner in owners(self._store, project_id):
                for instance in self._read.instances(owner):
                    if instance.offer.backend == account.facts.name:
                        yield instance

    # --- acting ------------------------------------------------------------------------------------------------------

    def _act(self, account: Account, finding: Finding[OwnedResource], done: Swept) -> None:
        try:
            self._store.commit([nouns.put(noun) for noun in (*finding.step.saves, *finding.step.events)])
        except Conflict:
            log.info("another sweep of %s was faster", account.key)
            return
        if finding.end is not None:
            self._release(account, finding.end, done)
        elif finding.gone is not None:
            log.warning("%s doesn't list the %s %s", account.key, finding.gone.kind, finding.gone.name)
            done.lost.append(finding.gone.id)
        for effect in finding.step.effects:
            self._executor.execute(effect)

    def _release(self, account: Account, orphan: OwnedResource, done: Swept) -> None:
        what = f"{orphan.handle.kind} {orphan.handle.id}"
        log.warning("%s of %s is an orphan: terminating it", what, account.key)
        try:
            with translated(what):
                _end(account.backend, orphan)
        except Gone:
            log.info("%s was gone already", what)
        except BackendError as error:
            log.warning("%s couldn't be terminated: %s", what, error)
            return
        done.released.append(orphan)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _found(self, kind: type[N], missing_keys: Iterable[keys.Key]) -> list[N]:
        found = list(missing_keys)
        return [noun for noun in nouns.find_many(self._store, kind, found) if noun is not None] if found else []


_KINDS: dict[type[object], str] = {Owned: "machine", OwnedGroup: "group", OwnedVolume: "disk"}


def _says(stray: OwnedResource, title: str) -> str:
    return f"{title} has the {stray.handle.kind} {stray.handle.id}, which no record names."


def _end(backend: Backend, orphan: OwnedResource) -> None:
    if isinstance(orphan, Owned):
        backend.terminate(orphan.handle)
    elif isinstance(orphan, OwnedVolume):
        if isinstance(backend, Volumes):
            backend.delete_volume(orphan.handle)
    elif isinstance(backend, PlacementGroups):
        backend.delete_group(orphan.handle)


@contextmanager
def _apart(what: str) -> Iterator[None]:
    """Isolates a failure: it is logged and left to the next sweep, and the other findings are still handled."""
    try:
        yield
    except BackendError as error:
        log.warning("%s failed: %s", what, error)
    except StorageFull as error:
        log.error("%s failed: %s", what, error)
    except Exception:  # a bug, or the store
        log.exception("%s failed", what)
