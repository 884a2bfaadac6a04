"""Gateways: how services are reached, with domains, certificates and several replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.providers import HOSTS, BackendName, ProviderUnion
from chalicelib.domain.specs.reading import Integer, Spec, faults, unset
from chalicelib.domain.specs.secrecy import Confidential, Secret

Port = Annotated[Integer, Field(ge=1, le=65_535)]
Fault = tuple[str, str, str, str]  # code, message, hint, field


class LetsEncryptGatewayCertificate(Spec):
    """A certificate by Let's Encrypt."""

    type: Literal["lets-encrypt"] = Field(default="lets-encrypt", description="`lets-encrypt`.")


class ProviderGatewayCertificate(Spec):
    """A certificate that a provider keeps. Each kind is a subclass of this model in its backend."""

    BACKEND: ClassVar[str] = ""
    OWNER: ClassVar[str] = ""  # the provider's name

    type: str


class GivenGatewayCertificate(Confidential):
    """A certificate that you have; it must be for `*.` and the gateway's domain."""

    type: Literal["given"] = Field(default="given", description="`given`.")
    certificate: str = Field(
        description="The certificate and those that lead to its authority: a PEM file, its text, or "
        "`${{ secrets.NAME }}`.",
        min_length=1,
        max_length=100_000,
    )
    key: Secret = Field(description="Its private key, likewise.")


class ALBGatewayLoadBalancer(Spec):
    """The cloud's application load balancer."""

    type: Literal["alb"] = Field(description="`alb`.")


_OWN = {"lets-encrypt": LetsEncryptGatewayCertificate, "given": GivenGatewayCertificate}
Certificate = Annotated[
    LetsEncryptGatewayCertificate | GivenGatewayCertificate | ProviderGatewayCertificate,
    ProviderUnion("certificate", by="type", general=ProviderGatewayCertificate, own=_OWN),
]


_OF_MACHINES = ("instance_type", "load_balancer", "tags")  # of machines that are bought
_OF_HOSTS = ("http_port", "https_port")


class GatewayConfiguration(Spec):
    """A gateway, on hosts of a fleet or on machines of a backend."""

    type: Literal["gateway"] = Field(default="gateway", description="`gateway`.")
    name: str | None = Field(default=None, description="The name of the gateway; a random one unless set.")
    default: bool | None = Field(
        default=None, description="Make it the default; unless set, the first gateway is.", exclude_if=unset
    )
    fleet: str | None = Field(
        default=None,
        description="The SSH fleet, or the server's own, on whose hosts it runs; instead of `backend` and `region`.",
        min_length=1,
        exclude_if=unset,
    )
    backend: BackendName | None = Field(
        default=None, description="The backend to create it in; `remote` for an SSH fleet, which `region` then names."
    )
    region: str | None = Field(default=None, description="The region to create it in.")
    instance_type: str | None = Field(
        default=None, description="The instance type; a small one unless set.", min_length=1
    )
    domain: str | None = Field(
        default=None,
        description="The domain whose subdomains the services get; can contain `${{ run.project_name }}`.",
    )
    http_port: Port | None = Field(
        default=None, description="On hosts: the port for http; 80 unless set.", exclude_if=unset
    )
    https_port: Port | None = Field(
        default=None, description="On hosts: the port for https; 443 unless set.", exclude_if=unset
    )
    public_ip: bool = Field(default=True, description="Give it a public address.")
    load_balancer: ALBGatewayLoadBalancer | None = Field(
        default=None, description="Put a load balancer in front of it.", exclude_if=unset
    )
    certificate: Certificate | None = Field(
        default=LetsEncryptGatewayCertificate(), description="The certificate; null for none."
    )
    replicas: Integer | None = Field(default=None, description="How many machines; 1 unless set.", ge=1, le=9)
    tags: Tags | None = Field(default=None, description="Tags for its resources in the cloud.")

    @property
    def hosts(self) -> str:
        """The name of the fleet whose hosts it runs on; empty: it is created in a backend."""
        return self.fleet or (str(self.region) if self.backend == HOSTS else "")

    @model_validator(mode="after")
    def _together(self) -> GatewayConfiguration:
        found = [*self._place(), *self._certified()]
        if found:
            raise faults(found)
        return self

    def _place(self) -> Iterator[Fault]:
        if self.fleet is not None:
            for field, same in (("backend", HOSTS), ("region", self.fleet)):  # as clients are shown it
                if getattr(self, field) not in (None, same):
                    why = f"with `fleet`, it runs on existing hosts, so `{field}` has no meaning"
                    yield "exclusive", why, f"remove `{field}`, or `fleet`", field
        elif self.backend is None or self.region is None:
            missing = [field for field in ("backend", "region") if getattr(self, field) is None]
            both = "`fleet`, or `backend` and `region`"
            text = f"a gateway needs {both}" if len(missing) > 1 else f"`backend` needs `{missing[0]}`"
            text = "`region` needs `backend`" if missing == ["backend"] else text
            hint = f"write {both}" if len(missing) > 1 else f"write `{missing[0]}`, or name a `fleet` instead"
            yield "missing", text, hint, "" if len(missing) > 1 else missing[0]
        for field in _OF_MACHINES if self.hosts else _OF_HOSTS:
            if getattr(self, field):
                what = "machines that are bought for a gateway" if self.hosts else "hosts, which may use the others"
                yield "exclusive", f"`{field}` is for {what}", f"remove `{field}`", field
        if self.hosts and not self.public_ip:
            why = "a host keeps its own addresses"
            yield "exclusive", why, "remove `public_ip`", "public_ip"
        if self.certificate and (self.http_port or 80) == (self.https_port or 443):
            yield "exclusive", "http and https need a port each", "write another `https_port`", "https_port"

    def _certified(self) -> Iterator[Fault]:
        kind = self.certificate.type if self.certificate else None
        if kind is None and self.https_port is not None:
            yield "exclusive", "without a certificate there is no https", "remove `https_port`", "https_port"
        if kind == "lets-encrypt" and not self.public_ip:
            yield "exclusive", "Let's Encrypt must reach the gateway", "remove `public_ip`", "public_ip"
        managed = self.certificate if isinstance(self.certificate, ProviderGatewayCertificate) else None
        if managed and managed.BACKEND not in ("", self.backend):
            why = f"`{kind}` is a certificate of {managed.OWNER}"
            yield "exclusive", why, "use `lets-encrypt`", "certificate"


class GatewaySpec(Spec):
    """A gateway as it is submitted."""

    configuration: GatewayConfiguration
    configuration_path: str | None = None
