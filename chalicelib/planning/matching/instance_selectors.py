"""The instances that a run names in `instances`: by name, by the address of their host, or by fleet and number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from chalicelib.domain.instances import Instance
from chalicelib.domain.specs.references import InstanceHostnameSelector, InstanceNameSelector, InstanceSelector


class Selector(NamedTuple):
    """The properties that an instance must have; an empty field requires nothing."""

    name: str = ""
    address: str = ""
    fleet: str = ""  # `project/name` for one of another project
    num: int = 0

    def takes(self, instance: Instance, fleet: str) -> bool:
        if self.name:
            return instance.name == self.name
        if self.address:
            reached = instance.host.hostname if instance.host is not None else ""
            return self.address in (instance.hostname, instance.internal_ip, reached)
        return fleet == self.fleet and instance.num == self.num

    def __str__(self) -> str:
        return self.name or self.address or f"number {self.num} of fleet {self.fleet}"


def selectors(named: Iterable[InstanceSelector] | None) -> tuple[Selector, ...]:
    return tuple([_selector(each) for each in named or ()])


def _selector(named: InstanceSelector) -> Selector:
    if isinstance(named, InstanceNameSelector):
        return Selector(name=named.name)
    if isinstance(named, InstanceHostnameSelector):
        return Selector(address=named.hostname)
    return Selector(fleet=str(named.fleet), num=named.instance)


def selects(named: tuple[Selector, ...], instance: Instance, fleet: str) -> bool:
    """May a run that names these take the instance? One that names none may take any. `fleet`: the name by which the
    run's project knows the instance's fleet."""
    return not named or any([each.takes(instance, fleet) for each in named])
