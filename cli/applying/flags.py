"""Flags shared by several commands, each declared once, and their meaning in the configuration language.

A command takes groups of them with `@taking(RESOURCES, SPOT)`: they join its parameters and arrive in `**flags`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from cli.connection.session import completer
from cli.screen.parameters import Flags, Value, given

if TYPE_CHECKING:
    from chalicelib.configuration.overrides import Overrides

F = TypeVar("F", bound=Callable[..., object])
Flag = inspect.Parameter


def flag(*spellings: str, kind: Value = str | None, default: Value = None, **settings: Value) -> Flag:
    """One flag; its parameter is named after its last spelling."""
    name = spellings[-1].partition("/")[0].removeprefix("--").replace("-", "_")
    option = Annotated[kind, typer.Option(*spellings, **settings)]
    return Flag(name, Flag.KEYWORD_ONLY, default=default, annotation=option)


def switch(*spellings: str, help: str) -> Flag:
    return flag(*spellings, kind=bool, default=False, help=help)


def several(*spellings: str, help: str, **settings: Value) -> Flag:
    return flag(*spellings, kind=list[str] | None, metavar="NAME", help=f"{help} Repeatable.", **settings)


RESOURCES = (
    flag("--cpu", metavar="SPEC", help="CPUs: 4, 8.., arm:2."),
    flag("--gpu", metavar="SPEC", help="GPUs: A100:80GB:2, 24GB.., 0..1."),
    flag("--memory", metavar="RANGE", help="Memory: 16GB.., 64GB..128GB."),
    flag("--disk", metavar="RANGE", help="Disk size: 200GB.., 500GB."),
)
SHARES = (
    switch("--full-offers", help="Show whole machines, not the requested share."),
    switch("--unallocated", help="Show only the free part of each machine."),
)
PROFILE = (
    flag("--profile", metavar="NAME", help="From .dstack/profiles.yml; default $DSTACK_PROFILE."),
    switch("--no-profile", help="Use no profile, not even the default."),
)
PLACES = (
    flag("--max-price", kind=float | None, metavar="PRICE", help="Dollars per machine per hour, above 0."),
    several("-b", "--backend", help="Use only this backend."),
    several("-r", "--region", help="Use only this region."),
    several("--instance-type", help="Use only this instance type."),
)
LIMIT = (flag("--max-duration", metavar="TIME", help="Stop after this time: 2h, or off."),)
FLEETS = (
    several("--fleet", help="Use only this fleet.", autocompletion=completer("fleet")),
    switch("-R", "--reuse", help="Use existing machines only."),
)
IDLE = (
    switch("--dont-destroy", help="Never remove a new machine for idling."),
    flag("--idle-duration", metavar="TIME", help="How long a new machine may idle: 1h."),
)
SPOT = (
    switch("--spot", help="Use only spot machines."),
    switch("--on-demand", help="Use no spot machines."),
    switch("--spot-auto", help="Use whichever is cheapest."),
    flag(
        "--spot-policy",
        kind=Literal["spot", "on-demand", "auto"] | None,
        metavar="POLICY",
        help="spot, on-demand or auto.",
    ),
)
RETRY = (
    switch("--retry", help="Retry after failures."),
    switch("--no-retry", help="Don't retry, whatever the file says."),
    flag("--retry-duration", metavar="TIME", help="Keep retrying for this long."),
)
PRESETS = (
    switch("--keep-service", help="Presets: leave the best service running at the end."),
    flag("--trials", kind=int | None, min=1, metavar="N", help="Presets: how many services to try."),
    flag(
        "--previous",
        kind=list[str] | None,
        metavar="ID",
        help="Presets: an earlier one to learn from. Repeatable.",
    ),
)
PLANNED = (
    *RESOURCES,
    *SHARES,
    *PROFILE,
    *PLACES,
    *LIMIT,
    *FLEETS,
    *IDLE,
    *SPOT,
    *RETRY,
)  # flags on which a plan depends

EXCLUSIVE = (
    ("profile", "no_profile"),
    ("reuse", "dont_destroy", "idle_duration"),
    ("spot", "on_demand", "spot_auto", "spot_policy"),
    ("retry", "no_retry"),
    ("no_retry", "retry_duration"),
)
SPOT_POLICIES = {"spot": "spot", "on_demand": "on-demand", "spot_auto": "auto"}


def max_offers(default: int) -> tuple[Flag]:
    return (flag("--max-offers", kind=int, default=default, min=1, metavar="N", help="How many offers to show."),)


def taking(*groups: tuple[Flag, ...]) -> Callable[[F], F]:
    """Adds the flags of `groups` to a command's parameters, in place of its `**flags`."""

    def add(function: F) -> F:
        own = inspect.signature(function, eval_str=True)
        named = [found for found in own.parameters.values() if found.kind is not Flag.VAR_KEYWORD]
        added = [found for group in groups for found in group]
        function.__signature__ = own.replace(parameters=[*named, *added])  # type: ignore[attr-defined]
        return function

    return add


def overrides(ctx: typer.Context) -> Overrides:
    """The flags of a command as the configuration language takes them; flags it doesn't have stay unset."""
    from chalicelib.configuration.overrides import Overrides

    refuse_contradictions(ctx)
    params: Flags = ctx.params
    return Overrides(
        name=params.get("name"),
        env=tuple(params.get("env") or ()),
        ports=tuple(params.get("port") or ()),
        **{field: params.get(field) for field in ("cpu", "gpu", "memory", "disk")},
        backends=tuple(params.get("backend") or ()),
        regions=tuple(params.get("region") or ()),
        instance_types=tuple(params.get("instance_type") or ()),
        fleets=tuple(params.get("fleet") or ()),
        spot_policy=next(
            (policy for name, policy in SPOT_POLICIES.items() if params.get(name)), params.get("spot_policy")
        ),
        retry=True if params.get("retry") else False if params.get("no_retry") else None,
        retry_duration=params.get("retry_duration"),
        max_price=params.get("max_price"),
        max_duration=params.get("max_duration"),
        idle_duration="off" if params.get("dont_destroy") else params.get("idle_duration"),
        creation_policy="reuse" if params.get("reuse") else None,
    )


def refuse_contradictions(ctx: typer.Context) -> None:
    for names in EXCLUSIVE:
        both = [flag_name for name in names if (flag_name := given(ctx, name))]
        if len(both) > 1:
            raise typer.BadParameter(f"{' and '.join(both)} contradict each other.", ctx=ctx)
