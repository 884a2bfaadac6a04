"""Fleets: cloud machines, created when needed, or existing hosts, reached over SSH."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from chalicelib.domain.bounds import MOST_AMOUNT
from chalicelib.domain.specs.env import Env
from chalicelib.domain.specs.profiles import BackendOptions, Profile, Retrying, SpotPolicy, Tags
from chalicelib.domain.specs.providers import BackendName
from chalicelib.domain.specs.quantities import IdleDuration
from chalicelib.domain.specs.reading import TAG, Integer, JsonSchema, Number, Reads, Spec, fault, faults, from_file
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.domain.specs.secrecy import Confidential, Secret

Placement = Literal["any", "cluster"]
_MOST = 100_000
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}


class FleetNodesSpec(Spec):
    """How many machines: never fewer than `min`, `target` at first, never more than `max`."""

    min: Integer = Field(default=0, description="The minimum; 0 unless set.", ge=0, le=_MOST)
    target: Integer = Field(default=0, description="The initial number; `min` unless set.", ge=0, le=_MOST)
    max: Integer | None = Field(default=None, description="The maximum; no limit if null.", ge=0, le=_MOST)

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (
        _COUNT,
        _TEXT | {"pattern": r"^ *([0-9]+|[0-9]+ *\.\. *[0-9]*|\.\. *[0-9]+) *$", "examples": ["2", "0..4", "1.."]},
    )

    @classmethod
    def read(cls, written: Any) -> Any:
        if isinstance(written, int) and not isinstance(written, bool):
            return {"min": written, "target": written, "max": written}
        if isinstance(written, str):
            low, dots, high = (part.strip() for part in written.partition(".."))
            if not (low or high) or not all(part.isdecimal() or not part for part in (low, high)):
                raise fault(
                    "invalid-range", f"`{written[:40]}` isn't a number of nodes", "for example `2`, `0..4` or `1..`"
                )
            return {"min": low or "0", "target": low or "0", "max": (high or None) if dots else low}
        if isinstance(written, dict):
            least = written["min"] if written.get("min") is not None else 0
            target = least if written.get("target") is None else written["target"]
            return {**written, "min": least, "target": target}
        return written

    @model_validator(mode="after")
    def _ordered(self) -> FleetNodesSpec:
        if self.max is not None and self.max < self.min:
            raise fault(
                "invalid-range", f"`max` is {self.max}, less than `min`, {self.min}", f"write `{self.max}..{self.min}`"
            )
        if self.target < self.min or (self.max is not None and self.target > self.max):
            high = "" if self.max is None else f" and at most {self.max}"
            raise fault(
                "invalid-range", f"a target of {self.target} is out of range", f"at least {self.min}{high}", at="target"
            )
        return self

    @model_serializer(mode="wrap")
    def _leave_out_target(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Clients of this line send `target` only if it differs from `min`."""
        fields: dict[str, Any] = dump(self)
        if self.target == self.min:
            del fields["target"]
        return fields


class SSHKey(Confidential):
    """A key pair, filled in by the client from `identity_file`."""

    public: str
    private: Secret | None = None


class SSHProxyParams(Spec):
    """A jump host."""

    hostname: str = Field(description="Its address.", min_length=1)
    port: Integer | None = Field(default=None, description="The port of its SSH server; 22 unless set.", ge=1, le=65535)
    user: str = Field(description="The user to log in as.")
    identity_file: str = Field(description="The private key to log in with.")
    ssh_key: SSHKey | None = Field(default=None, description="Filled in from `identity_file`.")


def _private_address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise fault("invalid-address", f"`{text[:60]}` isn't an IP address", "for example `10.0.0.5`") from None
    if not address.is_private:
        raise fault(
            "invalid-address",
            f"{text} is a public address",
            "the address on the network the hosts share, such as `10.0.0.5`",
        )
    return text


def _private_network(text: str) -> str:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise fault("invalid-address", f"`{text[:60]}` isn't a network", "for example `10.0.0.0/24`") from None
    if not network.is_private:
        raise fault(
            "invalid-address", f"{text} is a public network", "the network the hosts share, such as `10.0.0.0/24`"
        )
    return text


_BLOCKS = "How many parts the machine can be split into; `auto` for one per GPU."


def _blocks(written: Any) -> Any:
    if written == "auto" or written is None:
        return written
    text = str(written)
    if isinstance(written, bool | float) or not text.isdecimal() or not 1 <= len(text) <= 6 or int(text) < 1:
        raise fault("invalid-value", f"`{text[:40]}` isn't a number of blocks", "1 or more, or `auto`")
    return int(text)


Blocks = Annotated[
    Literal["auto"] | Annotated[int, Field(ge=1, le=999_999)], Reads(_blocks, ({"type": "integer", "minimum": 1},))
]


class SSHHostParams(Spec):
    """A host of an SSH fleet."""

    hostname: str = Field(description="Its address.", min_length=1)
    port: Integer | None = Field(default=None, description="The port of its SSH server.", ge=1, le=65535)
    user: str | None = Field(default=None, description="The user to log in as.")
    identity_file: str | None = Field(default=None, description="The private key to log in with.")
    proxy_jump: SSHProxyParams | None = Field(default=None, description="A jump host.")
    internal_ip: Annotated[str, AfterValidator(_private_address)] | None = Field(
        default=None, description="Its address on the hosts' shared network; for all hosts or for none."
    )
    ssh_key: SSHKey | None = Field(default=None, description="Filled in from `identity_file`.")
    blocks: Blocks | None = Field(default=None, description=_BLOCKS)


def _host_arm(value: Any) -> str:
    return TAG + ("SSHHostParams" if isinstance(value, dict | SSHHostParams) else "str")


Host = Annotated[
    Annotated[str, Tag(TAG + "str")] | Annotated[SSHHostParams, Tag(TAG + "SSHHostParams")], Discriminator(_host_arm)
]


class SSHParams(Spec):
    """The hosts of an SSH fleet, and how to log in."""

    user: str | None = Field(default=None, description="The user to log in as, for hosts that set none.")
    port: Integer | None = Field(
        default=None, description="The port of the SSH server, for hosts that set none.", ge=1, le=65535
    )
    identity_file: str | None = Field(
        default=None, description="The private key to log in with, for hosts that set none."
    )
    ssh_key: SSHKey | None = Field(default=None, description="Filled in from `identity_file`.")
    proxy_jump: SSHProxyParams | None = Field(default=None, description="A jump host, for hosts that set none.")
    hosts: tuple[Host, ...] = Field(description="The hosts: addresses, or addresses with their own settings.")
    network: Annotated[str, AfterValidator(_private_network)] | None = Field(
        default=None, description="The private network they share; detected unless set."
    )

    @property
    def each(self) -> tuple[SSHHostParams, ...]:
        """The hosts, all in the long form."""
        return tuple(SSHHostParams(hostname=host) if isinstance(host, str) else host for host in self.hosts)

    @model_validator(mode="after")
    def _addresses(self) -> SSHParams:
        inside = [host.internal_ip for host in self.each]
        if any(inside) and not all(inside):
            raise fault("missing", "`internal_ip` is for all hosts or for none", "add it to the others", at="hosts")
        if any(inside) and self.network:
            raise fault(
                "exclusive", "`network` finds the addresses that `internal_ip` gives", "keep one of them", at="network"
            )
        return self


NEEDS_NODES = ("missing", "a fleet needs `nodes` or `ssh_config`", "for example `nodes: 0..2`", "")


class FleetConfiguration(Spec):
    """Cloud machines (`nodes`), or existing hosts (`ssh_config`)."""

    type: Literal["fleet"] = Field(default="fleet", description="`fleet`.")
    name: str | None = Field(default=None, description="The name of the fleet; a random one unless set.")
    placement: Placement | None = Field(
        default=None, description="`cluster` if the machines must be interconnected; `any` unless set."
    )
    blocks: Blocks = Field(default=1, description=_BLOCKS)
    nodes: FleetNodesSpec | None = Field(default=None, description="How many machines, a number or a range.")
    reservation: str | None = Field(
        default=None,
        description="Reserved capacity to launch machines into, as its provider names it.",
    )
    resources: ResourcesSpec | None = Field(default=None, description="What each machine must have.")
    backends: tuple[BackendName, ...] | None = Field(default=None, description="Backends to use; any unless set.")
    regions: tuple[str, ...] | None = Field(default=None, description="Regions to use; any unless set.")
    availability_zones: tuple[str, ...] | None = Field(
        default=None, description="Availability zones to use; any unless set."
    )
    instance_types: tuple[str, ...] | None = Field(default=None, description="Instance types to use; any unless set.")
    spot_policy: SpotPolicy | None = Field(
        default=None, description="Spot machines, on-demand ones, or either; `on-demand` unless set."
    )
    retry: Retrying | None = Field(default=None, description="Whether to retry if there is no capacity.")
    max_price: Number | None = Field(
        default=None, description="The highest price of an instance, dollars an hour.", gt=0, le=MOST_AMOUNT
    )
    idle_duration: IdleDuration = Field(
        default=None, description="How long an idle instance above the minimum is kept; `3d` unless set."
    )
    tags: Tags | None = Field(default=None, description="Tags for its resources in the cloud.")
    backend_options: BackendOptions | None = Field(default=None, description="Backend-specific options.")
    ssh_config: SSHParams | None = Field(default=None, description="Existing hosts.")
    env: Env = Field(default={}, description="Environment variables of every job here; for SSH fleets.")

    @model_validator(mode="after")
    def _one_kind(self, info: ValidationInfo) -> FleetConfiguration:
        found = []
        if self.ssh_config is not None:
            found = [
                (
                    "exclusive",
                    f"`{field}` is for machines of clouds, not for existing hosts",
                    f"remove `{field}`",
                    field,
                )
                for field in _OF_CLOUDS
                if getattr(self, field) is not None
            ]
        elif from_file(info) and self.nodes is None:
            found.append(NEEDS_NODES)
        elif from_file(info) and self.env:
            found.append(("exclusive", "`env` is for SSH fleets", "put it into the configurations of runs", "env"))
        if found:
            raise faults(found)
        return self


_OF_CLOUDS = (
    *(
        "nodes",
        "reservation",
        "resources",
        "backends",
        "regions",
        "availability_zones",
        "instance_types",
        "spot_policy",
    ),
    *("retry", "max_price", "idle_duration", "tags", "backend_options"),
)


class FleetSpec(Spec):
    """A fleet as it is submitted."""

    configuration: FleetConfiguration
    configuration_path: str | None = None
    profile: Profile = Profile()
    autocreated: bool = Field(default=False, exclude_if=lambda made: not made)
