"""A cloud that stands in for a provider whose accounts have keys: the key says how it answers.

`good`, or anything else, works; `bad` isn't known there; `poor` lacks a permission. What starts with `other` is another
account: it shows none of the machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.simulated.script import Script
from chalicelib.backends.spi import Owned
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.specs.reading import Spec
from chalicelib.engine.ports import ConfigurationCheck
from chalicelib.errors import InvalidCredentials, MissingPermission
from chalicelib.runtime.accounts import check
from chalicelib.store.seal import Sealer
from chalicelib.usecases.context import NoAccountWork, Providers

FACTS = BackendFacts(name="aws", title="AWS")


class Keyed(FakeCloud):
    def __init__(self, key: str, owned: list[Owned]) -> None:
        super().__init__(lambda: 0, script=Script(), facts=FACTS)
        self.key, self.owned, self.closed = key, owned, False

    def check(self) -> None:
        if self.key == "bad":
            raise InvalidCredentials("the provider doesn't know these keys")
        if self.key == "poor":
            raise MissingPermission("these keys lack ec2:RunInstances")

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        yield from () if self.key.startswith("other") else self.owned

    def close(self) -> None:
        self.closed = True


@dataclass
class Keys:
    """Makes such clouds from configurations of the type `aws`."""

    owned: list[Owned] = field(default_factory=list)
    made: list[Keyed] = field(default_factory=list)

    def make(self, config: Spec) -> Keyed:
        creds: Any = config.__dict__["creds"]
        self.made.append(Keyed(getattr(creds, "access_key", "default"), self.owned))
        return self.made[-1]

    @property
    def providers(self) -> Providers:
        return Providers(frozenset({"aws"}), self.make, lambda _: FACTS)


@dataclass
class CheckedHere(NoAccountWork):
    """Checks by whoever asks, with the key of the tests' worlds."""

    providers: Providers
    seal: Sealer = field(default_factory=lambda: Sealer(b"k" * 32))

    def check(self, calls: ConfigurationCheck) -> None:
        check(calls, self.seal, self.providers, "install")


def config(key: str = "good", secret: str = "hush-hush", **more: Any) -> dict[str, Any]:
    return {"type": "aws", "creds": {"type": "access_key", "access_key": key, "secret_key": secret}, **more}
