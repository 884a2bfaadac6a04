"""`dstack apply`: its flags, and what they do to a configuration. The work is in `cli.runs` and `cli.fleets`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chalicelib.errors import NotSupported
from cli.clouds import apply_gateway, apply_volume
from cli.definition import RUN_TYPES, load_definition
from cli.fleets import apply_fleet
from cli.parameters import ProjectOption, YesOption, command, new_group
from cli.runs import ApplyOptions, Submission
from cli.session import completer, open_session

if TYPE_CHECKING:
    from chalicelib.configuration.overrides import Overrides

app = new_group("Create or change what a configuration file describes.")

Text = str | None
Texts = list[str] | None
Switch = bool
FileOption = Annotated[
    Text, typer.Option("-f", "--file", metavar="FILE", help="The configuration; `-` for standard input (with -y).")
]
NOT_YET = "Not available yet."


@command(
    app,
    "apply",
    "dstack apply -f train.dstack.yml",
    "dstack apply -f train.dstack.yml -y -d --gpu A100:80GB --max-price 3 -e EPOCHS=10",
    "dstack apply -f train.dstack.yml -- --lr 0.001",
)
def apply(
    ctx: typer.Context,
    *,
    args: Annotated[
        Texts, typer.Argument(metavar="ARGS", help="What follows `--`: for `${{ run.args }}` in commands.")
    ] = None,
    project: ProjectOption = None,
    file: FileOption = None,
    yes: YesOption = False,
    detach: Annotated[Switch, typer.Option("-d", "--detach", help="Submit and leave.")] = False,
    force: Annotated[Switch, typer.Option("--force", help="Replace what is active even if nothing changed.")] = False,
    verbose: Annotated[Switch, typer.Option("--verbose", "-v", help="Show every line of the plan.")] = False,
    as_json: Annotated[Switch, typer.Option("--json", help="Print what was submitted as JSON; needs -y.")] = False,
    name: Annotated[Text, typer.Option("-n", "--name", metavar="NAME", help="Instead of the file's.")] = None,
    env: Annotated[
        Texts, typer.Option("-e", "--env", metavar="K[=V]", help="A variable; without a value, yours. Repeatable.")
    ] = None,
    cpu: Annotated[Text, typer.Option("--cpu", metavar="SPEC", help="As 4, 8.., arm:2.")] = None,
    gpu: Annotated[Text, typer.Option("--gpu", metavar="SPEC", help="As A100:80GB:2, 24GB.., 0..1.")] = None,
    memory: Annotated[Text, typer.Option("--memory", metavar="RANGE", help="As 16GB.., 64GB..128GB.")] = None,
    disk: Annotated[Text, typer.Option("--disk", metavar="RANGE", help="As 200GB.., or 500GB.")] = None,
    max_offers: Annotated[int, typer.Option("--max-offers", min=1, metavar="N", help="How many offers to show.")] = 3,
    full_offers: Annotated[
        Switch, typer.Option("--full-offers", help="Whole machines, not the share asked for.")
    ] = False,
    unallocated: Annotated[Switch, typer.Option("--unallocated", help="Only what is free of each machine.")] = False,
    profile: Annotated[Text, typer.Option("--profile", metavar="NAME", help="Of .dstack/profiles.yml.")] = None,
    no_profile: Annotated[Switch, typer.Option("--no-profile", help="Not even the default profile.")] = False,
    max_price: Annotated[
        float | None, typer.Option("--max-price", min=0, metavar="PRICE", help="Dollars an hour, a machine.")
    ] = None,
    max_duration: Annotated[Text, typer.Option("--max-duration", metavar="TIME", help="As 2h, or off.")] = None,
    backend: Annotated[Texts, typer.Option("-b", "--backend", metavar="NAME", help="Only there. Repeatable.")] = None,
    region: Annotated[Texts, typer.Option("-r", "--region", metavar="NAME", help="Only there. Repeatable.")] = None,
    instance_type: Annotated[
        Texts, typer.Option("--instance-type", metavar="NAME", help="Only such machines. Repeatable.")
    ] = None,
    fleet: Annotated[
        Texts,
        typer.Option("--fleet", metavar="NAME", help="Only in it. Repeatable.", autocompletion=completer("fleet")),
    ] = None,
    reuse: Annotated[Switch, typer.Option("-R", "--reuse", help="Only on a machine that is there already.")] = False,
    dont_destroy: Annotated[Switch, typer.Option("--dont-destroy", help="Keep a new machine after the run.")] = False,
    idle_duration: Annotated[
        Text, typer.Option("--idle-duration", metavar="TIME", help="How long a new machine may idle.")
    ] = None,
    spot: Annotated[Switch, typer.Option("--spot", help="Only spot machines.")] = False,
    on_demand: Annotated[Switch, typer.Option("--on-demand", help="No spot machines.")] = False,
    spot_auto: Annotated[Switch, typer.Option("--spot-auto", help="Either, the cheapest.")] = False,
    spot_policy: Annotated[
        Literal["spot", "on-demand", "auto"] | None,
        typer.Option("--spot-policy", metavar="POLICY", help="spot, on-demand or auto."),
    ] = None,
    retry: Annotated[bool | None, typer.Option("--retry/--no-retry", help="Try again after failures.")] = None,
    retry_duration: Annotated[Text, typer.Option("--retry-duration", metavar="TIME", help="How long.")] = None,
    ssh_identity: Annotated[
        Text, typer.Option("--ssh-identity", metavar="KEY", help="Your private key for the run.")
    ] = None,
    port: Annotated[Texts, typer.Option("-p", "--port", metavar="MAP", help="As 8080, 80:8080. Repeatable.")] = None,
    host: Annotated[Text, typer.Option("--host", metavar="ADDR", help=NOT_YET)] = None,
    repo: Annotated[Text, typer.Option("-P", "--repo", metavar="REPO", help=NOT_YET)] = None,
    repo_branch: Annotated[Text, typer.Option("--repo-branch", metavar="NAME", help=NOT_YET)] = None,
    repo_hash: Annotated[Text, typer.Option("--repo-hash", metavar="HASH", help=NOT_YET)] = None,
    no_repo: Annotated[Switch, typer.Option("--no-repo", help="No repository, even if the file has one.")] = False,
    token: Annotated[Text, typer.Option("-t", "--token", metavar="TOKEN", help=NOT_YET)] = None,
    git_identity: Annotated[Text, typer.Option("--git-identity", metavar="KEY", help=NOT_YET)] = None,
) -> None:
    """Create or change what a configuration file describes.

    Without -f it takes .dstack.yml of this folder. Shows the plan, asks, and submits. A run is then followed until it
    ends, and dstack exits as its job did; Ctrl-C asks whether to stop it. Flags win over the file, the file over the
    profile. A list given by flags replaces the file's.
    """
    flags: Mapping[str, Any] = ctx.params
    _refuse_unbuilt(flags)
    for group in EXCLUSIVE:
        given = [flag for flag in group if flags[group[flag]] not in (None, False)]
        if len(given) > 1:
            raise typer.BadParameter(f"{' and '.join(given)} contradict each other.", ctx=ctx)
    if file == "-" and not yes:
        raise typer.BadParameter("Reading from standard input needs -y: nobody could answer there.", ctx=ctx)
    if as_json and not yes:
        raise typer.BadParameter("--json needs -y: a question would stand amidst the JSON.", ctx=ctx)
    session = open_session(ctx, project)
    definition = load_definition(
        session.terminal, file, overrides(flags), arguments=args or [], profile=profile, no_profile=no_profile
    )
    if no_repo:
        definition.configuration["repos"] = []
    if definition.kind in RUN_TYPES:
        options = ApplyOptions(yes, force, detach, verbose, as_json, max_offers, full_offers, unallocated, ssh_identity)
        raise typer.Exit(Submission(session, definition, options).apply())
    if definition.kind == "preset":
        raise NotSupported("type: preset isn't available yet.", hint="Describe the service in a file of its own.")
    if profile:
        hint = "only the default one counts for it" if definition.kind == "fleet" else "leave the flag out"
        raise typer.BadParameter(f"A {definition.kind} takes no --profile; {hint}.", ctx=ctx)
    carry_out = {"fleet": apply_fleet, "volume": apply_volume, "gateway": apply_gateway}[definition.kind]
    raise typer.Exit(carry_out(session, definition, ApplyOptions(yes, force, detach, verbose, as_json)))


EXCLUSIVE: tuple[dict[str, str], ...] = (  # flag: parameter
    {"--profile": "profile", "--no-profile": "no_profile"},
    {"--reuse": "reuse", "--dont-destroy": "dont_destroy", "--idle-duration": "idle_duration"},
    {"--spot": "spot", "--on-demand": "on_demand", "--spot-auto": "spot_auto", "--spot-policy": "spot_policy"},
    {"--repo": "repo", "--no-repo": "no_repo"},
)
UNBUILT = {  # parameter: flag, and why
    "host": ("--host", "forwarding ports of jobs isn't available yet"),
    "repo": ("--repo", "sending a Git repository along isn't available yet"),
    "repo_branch": ("--repo-branch", "sending a Git repository along isn't available yet"),
    "repo_hash": ("--repo-hash", "sending a Git repository along isn't available yet"),
    "token": ("--token", "sending a Git repository along isn't available yet"),
    "git_identity": ("--git-identity", "sending a Git repository along isn't available yet"),
}


def _refuse_unbuilt(flags: Mapping[str, Any]) -> None:
    for parameter, (flag, why) in UNBUILT.items():
        if flags.get(parameter):
            raise NotSupported(f"{flag}: {why}.", hint="Leave the flag out.")


def overrides(flags: Mapping[str, Any]) -> Overrides:
    """The flags as the configuration language takes them; those that a command doesn't have are left open."""
    from chalicelib.configuration.overrides import Overrides

    if flags.get("retry") is False and flags.get("retry_duration"):
        raise typer.BadParameter("--no-retry and --retry-duration contradict each other.")
    policy = next((word for flag, word in SPOT_FLAGS.items() if flags.get(flag)), flags.get("spot_policy"))
    return Overrides(
        name=flags.get("name"),
        env=tuple(flags.get("env") or ()),
        cpu=flags.get("cpu"),
        gpu=flags.get("gpu"),
        memory=flags.get("memory"),
        disk=flags.get("disk"),
        backends=tuple(flags.get("backend") or ()),
        regions=tuple(flags.get("region") or ()),
        instance_types=tuple(flags.get("instance_type") or ()),
        fleets=tuple(flags.get("fleet") or ()),
        ports=tuple(flags.get("port") or ()),
        spot_policy=policy,
        retry=flags.get("retry"),
        retry_duration=flags.get("retry_duration"),
        max_price=flags.get("max_price"),
        max_duration=flags.get("max_duration"),
        idle_duration="off" if flags.get("dont_destroy") else flags.get("idle_duration"),
        creation_policy="reuse" if flags.get("reuse") else None,
    )


SPOT_FLAGS = {"spot": "spot", "on_demand": "on-demand", "spot_auto": "auto"}
