"""Services: a port, replicas, and the settings for requests: models, limits, probes, scaling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, GetJsonSchemaHandler, Tag
from pydantic_core import CoreSchema

from chalicelib.domain.bounds import MOST_AMOUNT
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.mounts import ServicePort
from chalicelib.domain.specs.profiles import SpotPolicy
from chalicelib.domain.specs.quantities import Duration
from chalicelib.domain.specs.reading import TAG, Integer, JsonSchema, Number, Reads, Spec, TextPattern, fault, unset
from chalicelib.domain.specs.references import EntityReference
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.domain.specs.workloads import Fault, GroupName, Python, RunConfiguration, doubled_names, number_groups

_TEXT = {"type": "string"}
_SWITCHES = {word: True for word in ("true", "yes", "on", "1", "t", "y")}
_SWITCHES |= {word: False for word in ("false", "no", "off", "0", "f", "n")}


def _window(value: int) -> int:
    if value not in (30, 60, 300):
        raise fault("invalid-value", f"the window can't be {value} s", "one of `30s`, `1m` and `5m`")
    return value


class ScalingSpec(Spec):
    """When to add and remove replicas."""

    metric: Literal["rps", "queue"] = Field(
        description="`rps`: requests a second; `queue`: requests under way or waiting."
    )
    target: Number = Field(description="How much of it one replica should get.", gt=0, le=MOST_AMOUNT)
    window: Annotated[Duration, AfterValidator(_window)] | None = Field(
        default=None, description="The averaging window: 30s, 1m or 5m; a minute unless set."
    )
    scale_up_delay: Duration = Field(
        default=300, description="How long to wait after a change before adding a replica."
    )
    scale_down_delay: Duration = Field(default=600, description="How long to wait after a change before removing one.")


class HTTPHeaderSpec(Spec):
    name: str = Field(description="The name of the header.", min_length=1, max_length=256)
    value: str = Field(description="Its value.", min_length=1, max_length=2048)


def _at_least_a_second(value: int) -> int:
    if value < 1:
        raise fault("too-small", f"at least a second, got {value} s", "for example `10s`")
    return value


Patience = Annotated[Duration, AfterValidator(_at_least_a_second)]


def _probe_url(url: str) -> str:
    if not url.startswith("/") or not url.isprintable():
        raise fault("invalid-path", f"`{url[:60]}` isn't a path of a URL", "for example `/health`")
    return url


class ProbeConfig(Spec):
    """A request that succeeds if a replica is healthy."""

    type: Literal["http"] = Field(description="`http`.")
    url: Annotated[str, AfterValidator(_probe_url), TextPattern("^/")] | None = Field(
        default=None, description="The path; `/` unless set.", max_length=2048
    )
    method: Literal["get", "post", "put", "delete", "patch", "head"] | None = Field(
        default=None, description="`get` unless set."
    )
    headers: tuple[HTTPHeaderSpec, ...] = Field(default=(), description="Headers to send.", max_length=16)
    body: str | None = Field(default=None, description="The body to send.", min_length=1, max_length=2048)
    timeout: Patience | None = Field(default=None, description="How long to wait for a response; 10s unless set.")
    interval: Patience | None = Field(default=None, description="The time between probes; 15s unless set.")
    ready_after: Integer | None = Field(
        default=None, description="How many successes in a row make it ready; 1 unless set.", ge=1, le=10_000
    )
    until_ready: bool | None = Field(default=None, description="Stop probing once ready.")


def _probes(probes: tuple[ProbeConfig, ...]) -> tuple[ProbeConfig, ...]:
    if len(probes) > 10:
        raise fault("too-large", f"{len(probes)} probes are too many", "at most 10")
    for place, probe in enumerate(probes):
        if probe.body is not None and probe.method in ("get", "head"):
            raise fault(
                "exclusive", f"a {probe.method} request has no body", "write `method: post`", at=f"{place}.body"
            )
        if probe in probes[:place]:
            raise fault("duplicate", "this probe appears twice", "remove one of the two", at=str(place))
    return probes


class IPAddressPartitioningKey(Spec):
    type: Literal["ip_address"] = "ip_address"


class HeaderPartitioningKey(Spec):
    type: Literal["header"] = "header"
    header: str = Field(
        description="The header whose value tells clients apart.", max_length=500, pattern="^[a-zA-Z0-9-_]+$"
    )


def _key_arm(value: Any) -> str:
    found = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return TAG + {"ip_address": "IPAddressPartitioningKey", "header": "HeaderPartitioningKey"}.get(str(found), "")


PartitioningKey = Annotated[
    Annotated[IPAddressPartitioningKey, Tag(TAG + "IPAddressPartitioningKey")]
    | Annotated[HeaderPartitioningKey, Tag(TAG + "HeaderPartitioningKey")],
    Discriminator(_key_arm, custom_error_type="unknown-type", custom_error_message="one of `ip_address` and `header`"),
]


def _prefix(prefix: str) -> str:
    if not re.fullmatch(r"/[^\s\\{}]*", prefix):
        raise fault(
            "invalid-path",
            f"`{prefix[:60]}` isn't a prefix of a path",
            "begin with `/`; no spaces, backslashes or braces",
        )
    return prefix


class RateLimit(Spec):
    """How many requests per second one client may send."""

    prefix: Annotated[str, AfterValidator(_prefix), TextPattern("^/")] = Field(
        default="/", description="The paths it applies to; the longest prefix wins.", max_length=4094
    )
    key: PartitioningKey = Field(default=IPAddressPartitioningKey(), description="What tells clients apart.")
    rps: Number = Field(description="Requests per second, at least one a minute.", ge=1 / 60, le=2**63 / 60)
    burst: Integer = Field(default=0, description="How many extra requests may come at once.", ge=0, le=2**63 - 1)


def _limits(limits: tuple[RateLimit, ...]) -> tuple[RateLimit, ...]:
    seen: set[str] = set()
    for place, limit in enumerate(limits):
        if limit.prefix in seen:
            message = f"the prefix `{limit.prefix[:60]}` has a limit already"
            raise fault("duplicate", message, "keep one of them", at=str(place))
        seen.add(limit.prefix)
    return limits


class OpenAIChatModel(Spec):
    """A model with an API like OpenAI's."""

    type: Literal["chat"] = "chat"
    name: str = Field(description="The name clients ask for.")
    format: Literal["openai"] = Field(description="`openai`.")
    prefix: str = Field(default="/v1", description="Where the API begins.")

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (_TEXT | {"examples": ["meta-llama/Llama-3.1-8B-Instruct"]},)


class TGIChatModel(Spec):
    """A model served by Text Generation Inference."""

    type: Literal["chat"] = "chat"
    name: str = Field(description="The name clients ask for.")
    format: Literal["tgi"] = Field(description="`tgi`.")
    chat_template: str | None = Field(default=None, description="The chat template; the model's own unless set.")
    eos_token: str | None = Field(default=None, description="The end-of-response token; the model's own unless set.")


def _read_model(written: Any) -> Any:
    return {"type": "chat", "name": written, "format": "openai"} if isinstance(written, str) else written


def _model_arm(value: Any) -> str:
    found = value.get("format") if isinstance(value, dict) else getattr(value, "format", None)
    return TAG + {"openai": "OpenAIChatModel", "tgi": "TGIChatModel"}.get(str(found), "")


ServiceModel = Annotated[
    Annotated[OpenAIChatModel, Tag(TAG + "OpenAIChatModel")] | Annotated[TGIChatModel, Tag(TAG + "TGIChatModel")],
    Discriminator(_model_arm, custom_error_type="unknown-format", custom_error_message="`openai` or `tgi`"),
    Reads(_read_model),
]


def _replicas(written: Range[int]) -> Range[int]:
    if written.max is None:
        raise fault("invalid-range", "replicas need an upper bound", f"for example `replicas: {written.min or 1}..4`")
    if (written.min or 0) < 0 or written.max > 10_000:
        raise fault("invalid-range", f"{written} isn't a number of replicas", "0 to 10000")
    return Range[int](min=written.min or 0, max=written.max)


_GROUPS = {"type": "array", "items": {"$ref": "#/$defs/ReplicaGroup"}}  # an older way to write `groups`
Replicas = Annotated[Range[int], AfterValidator(_replicas)]


def _scaling_faults(replicas: Range[int] | None, scaling: ScalingSpec | None, at: str = "") -> list[Fault]:
    at = f"{at}." if at else ""
    if replicas is None:
        return []
    fixed = replicas.min == replicas.max
    if scaling is not None and fixed:
        hint = f"write `replicas: 1..{max(2, replicas.max or 2)}`"
        return [("exclusive", "a fixed number of replicas doesn't scale", hint, f"{at}scaling")]
    if scaling is None and not fixed:
        hint = "for example `scaling: {metric: rps, target: 10}`"
        return [("missing", "a range of replicas needs `scaling`", hint, f"{at}replicas")]
    return []


def _router_type(written: Any) -> Any:
    """`smg` was called `sglang`, and clients of this line still send the old name."""
    return "sglang" if written == "smg" else written


class ReplicaGroupRouterConfig(Spec):
    """Makes a group the router of the others."""

    type: Annotated[Literal["sglang", "dynamo"], Reads(_router_type, ({"const": "smg"},))] = Field(
        default="sglang", description="`smg` (once called `sglang`) or `dynamo`."
    )


class ReplicaGroup(Spec):
    """Identical replicas of a service."""

    name: GroupName | None = Field(default=None, description="Its name; its position in the list unless set.")
    replicas: Replicas = Field(description="How many, a number or a range.")
    scaling: ScalingSpec | None = Field(default=None, description="When to scale; needed with a range.")
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What each machine must have; nothing is inherited."
    )
    spot_policy: SpotPolicy | None = Field(default=None, description="As for the service; in one of the two places.")
    reservation: str | None = Field(default=None, description="As for the service; in one of the two places.")
    commands: tuple[str, ...] = Field(default=(), description="The commands of its replicas.")
    image: str | None = Field(default=None, description="As for the service; in one of the two places.")
    python: Python | None = Field(default=None, description="As for the service; in one of the two places.")
    nvcc: bool | None = Field(default=None, description="As for the service; in one of the two places.")
    docker: bool | None = Field(default=None, description="As for the service; in one of the two places.")
    privileged: bool | None = Field(default=None, description="As for the service; in one of the two places.")
    router: ReplicaGroupRouterConfig | None = Field(
        default=None, description="Makes this group the router of the others."
    )

    @classmethod
    def read(cls, written: Any) -> Any:
        """Read `count`, the former name of `replicas`."""
        if isinstance(written, dict) and written.get("count") is not None:
            if written.get("replicas") is not None:
                message = "`count` is an older word for `replicas`, which is there too"
                raise fault("exclusive", message, "keep `replicas`", at="count")
            return {k: v for k, v in written.items() if k not in ("count", "replicas")} | {"replicas": written["count"]}
        return written

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        full = super().__get_pydantic_json_schema__(core, handler)
        full["properties"]["count"] = full["properties"]["replicas"] | {"description": "An older word for `replicas`."}
        del full["required"]
        return full | {"anyOf": [{"required": ["replicas"]}, {"required": ["count"]}]}


def _read_gateway(written: Any) -> Any:
    return _SWITCHES.get(written.lower(), written) if isinstance(written, str) else written


def _gateway_arm(value: Any) -> str:
    return TAG + ("bool" if isinstance(value, bool) else "EntityReference")


GatewayChoice = Annotated[
    Annotated[bool, Tag(TAG + "bool")] | Annotated[EntityReference, Tag(TAG + "EntityReference")],
    Discriminator(_gateway_arm),
    Reads(_read_gateway),
]
_EITHER_LEVEL = ("image", "docker", "privileged", "python", "nvcc", "spot_policy", "reservation")


class ServiceConfiguration(RunConfiguration):
    """A command that listens on a port, with one replica or many."""

    type: Literal["service"] = Field(default="service", description="`service`.")
    port: ServicePort = Field(description="The port it listens on.")
    gateway: GatewayChoice | None = Field(
        default=None, description="A gateway, true for the default one, false for none."
    )
    strip_prefix: bool = Field(
        default=True, description="Without a gateway: hide the path's `/proxy/services/...` from the service."
    )
    model: ServiceModel | None = Field(default=None, description="The model it serves, for the chat endpoint.")
    https: Annotated[bool | Literal["auto"] | None, Reads(lambda v: v)] = Field(
        default=None, description="true, false, or `auto` to follow the gateway."
    )
    auth: bool = Field(default=True, description="Require a token with access to the project.")
    scaling: ScalingSpec | None = Field(default=None, description="When to scale; needed with a range.")
    rate_limits: Annotated[tuple[RateLimit, ...], AfterValidator(_limits)] = Field(
        default=(), description="Limits per client."
    )
    probes: Annotated[tuple[ProbeConfig, ...], AfterValidator(_probes)] | None = Field(
        default=None, description="How to check that a replica is healthy; `[]` for no checks."
    )
    replicas: Annotated[Replicas, Reads(lambda written: written, (_GROUPS,))] | None = Field(
        default=None, description="How many, a number or a range; 1 unless set."
    )
    groups: Annotated[tuple[ReplicaGroup, ...], Field(min_length=1), Reads(number_groups)] | None = Field(
        default=None,
        description="Groups of replicas that differ; instead of `replicas`.",
        exclude_if=unset,
    )
    commands: tuple[str, ...] = Field(default=(), description="The commands, one after the other.")

    @classmethod
    def read(cls, written: Any) -> Any:
        """Read a list under `replicas`, the former form of `groups`."""
        written = super().read(written)
        if isinstance(written, dict) and isinstance(written.get("replicas"), list) and written.get("groups") is None:
            return {k: v for k, v in written.items() if k != "replicas"} | {"groups": written["replicas"]}
        return written

    def _faults(self) -> list[Fault]:
        found = super()._faults()
        if self.groups is None:
            if not self.commands and not self.image:
                found.append(
                    (
                        "missing",
                        "a service needs `commands`, or an `image` that has its own",
                        "add `commands: [...]`",
                        "",
                    )
                )
            return found + _scaling_faults(self.replicas, self.scaling)
        for field in ("replicas", "scaling", "commands"):
            if getattr(self, field):
                found.append(("exclusive", f"with `groups`, `{field}` belong to a group", "move it there", field))
        for place, group in enumerate(self.groups):
            found += self._group_faults(f"groups.{place}", group)
        routers = [group for group in self.groups if group.router]
        if len(routers) > 1:
            found.append(
                ("too-many", "one group at most may be the router", "remove `router` from the others", "groups")
            )
        if any(group.router and group.router.type == "dynamo" for group in routers) and self.retry:
            found.append(("exclusive", "a `dynamo` router can't be retried", "remove `retry`", "retry"))
        return found + doubled_names([group.name for group in self.groups])

    def _group_faults(self, at: str, group: ReplicaGroup) -> list[Fault]:
        found = _scaling_faults(group.replicas, group.scaling, at)
        if not group.commands and not group.image and not self.image:
            found.append(("missing", "a group needs commands or an image", "add `commands: [...]` to the group", at))
        for field in _EITHER_LEVEL:
            if getattr(group, field) is not None and getattr(self, field):
                hint = "keep it in the groups, or at the top"
                found.append(("exclusive", f"`{field}` is set for the service too", hint, f"{at}.{field}"))
        if group.docker and group.privileged is False:
            found.append(
                ("exclusive", "`docker` needs a privileged container", "remove `privileged: false`", f"{at}.privileged")
            )
        sources = [field for field in ("image", "docker", "python") if getattr(group, field) or getattr(self, field)]
        if len(sources) > 1:
            hint = f"keep one of {', '.join(sources)}"
            found.append(("exclusive", "the image is chosen in more than one way", hint, f"{at}"))
        if group.router and (group.replicas.min, group.replicas.max) != (1, 1):
            found.append(("invalid-value", "a router is exactly one replica", "write `replicas: 1`", f"{at}.replicas"))
        return found


_OWN_OF_GROUPS = ("spot_policy", "reservation", "image", "python", "nvcc", "docker", "privileged")


def of_group(config: RunConfiguration, name: str) -> RunConfiguration:
    """The configuration as the replicas of one group have it."""
    if not isinstance(config, ServiceConfiguration) or config.groups is None:
        return config
    group = named_group(config.groups, name)
    own = {field: value for field in _OWN_OF_GROUPS if (value := getattr(group, field)) is not None}
    return config.with_(commands=group.commands, resources=group.resources, **own)


def named_group(groups: Sequence[ReplicaGroup], name: str) -> ReplicaGroup:
    return next(group for at, group in enumerate(groups) if (group.name or str(at)) == name)
