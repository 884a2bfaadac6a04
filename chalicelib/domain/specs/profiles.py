"""Profile parameters: where a run may go, for how long, at what price; inline on runs, or in `profiles.yml`."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from chalicelib.domain.bounds import MOST_AMOUNT
from chalicelib.domain.specs import cron
from chalicelib.domain.specs.providers import BackendName, ProviderUnion
from chalicelib.domain.specs.quantities import Duration, IdleDuration, OffableDuration
from chalicelib.domain.specs.reading import TAG, Integer, Number, Reads, Spec, fault, faults
from chalicelib.domain.specs.references import EntityReference, InstanceSelector

SpotPolicy = Literal["spot", "on-demand", "auto"]

_TAG_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_TAG_TEXT = re.compile(r"[A-Za-z0-9 .:/=_\-+@]{0,256}")
_OUR_TAGS = "dstack-"  # they say whose a resource is


def _tags(tags: dict[str, str]) -> dict[str, str]:
    wrong = []
    for name, text in tags.items():
        if not _TAG_NAME.fullmatch(name):
            hint = "1 to 60 letters, digits, `_` and `-`"
            wrong.append(("invalid-tag", f"`{name[:70]}` can't be the name of a tag", hint, name))
        elif name.lower().startswith(_OUR_TAGS):
            why = f"`{name}` can't be set: the control plane itself uses the tags whose names begin with `{_OUR_TAGS}`"
            wrong.append(("invalid-tag", why, "choose another name", name))
        if not _TAG_TEXT.fullmatch(text):
            hint = "at most 256 letters, digits, spaces and `. : / = _ - + @`"
            wrong.append(("invalid-tag", f"`{text[:70]}` can't be the value of a tag", hint, name))
    if wrong:
        raise faults(wrong)
    return tags


Tags = Annotated[dict[str, str], AfterValidator(_tags)]


class ProfileRetry(Spec):
    """When to retry, and for how long."""

    on_events: tuple[Literal["no-capacity", "interruption", "error"], ...] | None = Field(
        default=None, description="What to retry on; all three unless set.", min_length=1
    )
    duration: Duration | None = Field(default=None, description="How long to keep trying; an hour unless set.")


def _retry_arm(written: Any) -> str:
    return TAG + ("ProfileRetry" if isinstance(written, dict | ProfileRetry) else "bool")


# Told apart by shape, so that a mistake is reported for the form that was meant and not for both.
Retrying = Annotated[
    Annotated[ProfileRetry, Tag(TAG + "ProfileRetry")] | Annotated[bool, Tag(TAG + "bool")], Discriminator(_retry_arm)
]


def _window(value: int) -> int:
    if value < 300:
        raise fault("too-small", f"the window is at least five minutes, got {value} s", "for example `time_window: 5m`")
    return value


class UtilizationPolicy(Spec):
    """Stops a run whose GPUs are underused."""

    min_gpu_utilization: Integer = Field(
        description="Percent; a GPU below it for the whole window ends the run.", ge=0, le=100
    )
    time_window: Annotated[Duration, AfterValidator(_window)] = Field(description="How long to look back, at least 5m.")


def _cron(written: Any) -> Any:
    """One expression or several; always read as a list."""
    listed = [written] if isinstance(written, str) else written
    if not isinstance(listed, list | tuple):
        raise fault("invalid-cron", "expected a cron expression or a list of them", cron.EXAMPLE)
    if not listed:
        raise fault("invalid-cron", "a schedule needs at least one cron expression", cron.EXAMPLE)
    found = [cron.problem(item) or ("", "") if isinstance(item, str) else ("not text", cron.EXAMPLE) for item in listed]
    if wrong := [("invalid-cron", message, hint, "") for message, hint in found if message]:
        raise faults(wrong)
    return listed


def _zone(name: str) -> str:
    if wrong := cron.zone_problem(name):
        raise fault("invalid-timezone", *wrong)
    return name


class Schedule(Spec):
    """When to start, repeatedly."""

    cron: Annotated[
        tuple[str, ...],
        Reads(_cron, ({"type": "string", "pattern": r"^ *[^@ ]+( +[^ ]+){4} *$", "examples": ["0 9 * * mon-fri"]},)),
    ] = Field(description="Five fields, minute hour day month weekday; one expression or several. Monday is 0.")
    timezone: Annotated[str, AfterValidator(_zone)] | None = Field(
        default=None, description="Of these times, such as `Europe/Berlin`; UTC unless set.", max_length=60
    )

    @model_serializer(mode="wrap")
    def _omit_unset_zone(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The genuine client doesn't know `timezone`, so it is there only if it is set."""
        written: dict[str, Any] = write(self)
        if self.timezone is None:
            written.pop("timezone", None)
        return written


class ProviderOptions(Spec):
    """A provider's own way to choose among its offers. Each has a model of its own."""

    type: str


def _unique(options: tuple[ProviderOptions, ...]) -> tuple[ProviderOptions, ...]:
    if len({option.type for option in options}) < len(options):
        raise fault("duplicate", "a backend may have its options once", "merge the entries of the same `type`")
    return options


_OPTIONS = ProviderUnion("options", by="type", general=ProviderOptions)
BackendOptions = Annotated[tuple[Annotated[ProviderOptions, _OPTIONS], ...], AfterValidator(_unique)]
_REGIONS = "Regions to use; any unless set."
_ZONES = "Availability zones to use; any unless set."


class ProfileParams(Spec):
    """What a run and a profile have in common."""

    backends: tuple[BackendName, ...] | None = Field(default=None, description="Backends to use; any unless set.")
    regions: tuple[str, ...] | None = Field(default=None, description=_REGIONS)
    availability_zones: tuple[str, ...] | None = Field(default=None, description=_ZONES)
    instance_types: tuple[str, ...] | None = Field(default=None, description="Instance types to use; any unless set.")
    reservation: str | None = Field(
        default=None,
        description="Reserved capacity to launch machines into, as its provider names it.",
    )
    spot_policy: SpotPolicy | None = Field(
        default=None, description="Spot machines, on-demand ones, or either; `on-demand` unless set."
    )
    retry: Retrying | None = Field(default=None, description="Whether to retry; `true` is all events for an hour.")
    max_duration: OffableDuration = Field(default=None, description="How long a run may be running; `off` unless set.")
    stop_duration: OffableDuration = Field(
        default=None, description="How long a graceful stop may take; `10s` unless set."
    )
    max_price: Number | None = Field(
        default=None, description="The highest price of an instance, dollars an hour.", gt=0, le=MOST_AMOUNT
    )
    creation_policy: Literal["reuse", "reuse-or-create"] | None = Field(
        default=None, description="Whether new instances may be created; `reuse-or-create` unless set."
    )
    idle_duration: IdleDuration = Field(
        default=None, description="How long an idle instance is kept; `5m` for runs and `3d` for fleets unless set."
    )
    utilization_policy: UtilizationPolicy | None = Field(
        default=None, description="Stops a run whose GPUs are underused."
    )
    startup_order: Literal["any", "master-first", "workers-first"] | None = Field(
        default=None, description="The order in which the nodes of a multi-node task start."
    )
    stop_criteria: Literal["all-done", "master-done"] | None = Field(
        default=None, description="When a multi-node task is done."
    )
    schedule: Schedule | None = Field(default=None, description="When to start.")
    fleets: tuple[EntityReference, ...] | None = Field(default=None, description="Fleets to use; any unless set.")
    instances: tuple[InstanceSelector, ...] | None = Field(
        default=None, description="Existing instances to use, and no others.", min_length=1
    )
    tags: Tags | None = Field(default=None, description="Tags for its resources in the cloud.")
    backend_options: BackendOptions | None = Field(default=None, description="Backend-specific options.")


class Profile(ProfileParams):
    """A named set of parameters, in `profiles.yml`."""

    name: str = Field(default="", description="Its name.")
    default: bool = Field(default=False, description="Use this profile if none is chosen.")


class ProfilesConfig(Spec):
    """The file `profiles.yml`."""

    profiles: tuple[Profile, ...] = Field(description="The profiles.")

    @model_validator(mode="after")
    def _names(self) -> ProfilesConfig:
        names = Counter(profile.name for profile in self.profiles)
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise fault("duplicate", f"the profile `{twice[0]}` appears twice", "rename one of them", at="profiles")
        return self
