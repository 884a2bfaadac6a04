"""`dstack apply`: its flags, and how they change a configuration. The work is in `cli.applying`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.applying.definition import RUN_TYPES, load_definition
from cli.applying.flags import (
    FLEETS,
    IDLE,
    LIMIT,
    PLACES,
    PLANNED,
    PRESETS,
    PROFILE,
    RESOURCES,
    RETRY,
    SPOT,
    max_offers,
    overrides,
    taking,
)
from cli.applying.fleets import apply_fleet
from cli.applying.runs import ApplyOptions, LoadedConfiguration, Submission
from cli.applying.volumes_and_gateways import apply_gateway, apply_volume
from cli.connection.session import Session, open_session
from cli.repositories.repos import RepoFlags
from cli.screen.parameters import Command, ProjectOption, Value, WebOption, YesOption, command, given, new_group
from cli.ssh.attachment import AttachOptions

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter

app = new_group("Create or change what a configuration file describes.")

Text = str | None
Texts = list[str] | None
Switch = bool
FileOption = Annotated[
    Text, typer.Option("-f", "--file", metavar="FILE", help="The configuration; `-` for standard input (with -y).")
]

OF_ALL = ("project", "file", "yes", "detach", "force", "verbose", "as_json", "help", "name")
OF_FLEETS = tuple(flag.name for group in (RESOURCES, PLACES, SPOT, IDLE, RETRY) for flag in group)
OF_PRESETS = tuple(
    flag.name for group in (PRESETS, PROFILE, PLACES, LIMIT, FLEETS, SPOT, IDLE, RETRY) for flag in group
)
HELP_OF = {
    **dict.fromkeys(RUN_TYPES),  # these take all flags
    "fleet": (*OF_ALL, "env", "no_profile", *OF_FLEETS),
    **dict.fromkeys(("volume", "gateway"), OF_ALL),
    "preset": (*(name for name in OF_ALL if name not in ("force", "verbose")), "env", "max_offers", *OF_PRESETS),
}


class Apply(Command):
    """`-h TYPE` shows only the flags that apply to that type."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        help_at = next((at for at, argument in enumerate(args) if argument in ("-h", "--help")), len(args))
        kind = next(iter(args[help_at + 1 : help_at + 2]), "-")
        if kind in HELP_OF:
            ctx.meta[__name__] = HELP_OF[kind]
        elif not kind.startswith("-"):
            raise typer.BadParameter(f"{kind!r} is not a type; the types are {', '.join(HELP_OF)}.", ctx=ctx)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Context) -> list[Parameter]:
        shown = ctx.meta.get(__name__)
        return [param for param in super().get_params(ctx) if shown is None or param.name in shown]


@command(
    app,
    "apply",
    "dstack apply -f train.dstack.yml",
    "dstack apply -f train.dstack.yml -y -d --gpu A100:80GB --max-price 3 -e EPOCHS=10",
    "dstack apply -f train.dstack.yml -- --lr 0.001",
    cls=Apply,
)
@taking(max_offers(3), PLANNED, PRESETS)
def apply(
    ctx: typer.Context,
    *,
    args: Annotated[
        Texts, typer.Argument(metavar="ARGS", help="Everything after `--`; replaces `${{ run.args }}`.")
    ] = None,
    project: ProjectOption = None,
    file: FileOption = None,
    yes: YesOption = False,
    detach: Annotated[Switch, typer.Option("-d", "--detach", help="Submit and return at once.")] = False,
    force: Annotated[Switch, typer.Option("--force", help="Apply even if nothing changed.")] = False,
    verbose: Annotated[Switch, typer.Option("--verbose", "-v", help="Show every line of the plan.")] = False,
    as_json: Annotated[Switch, typer.Option("--json", help="Print what was submitted as JSON; needs -y.")] = False,
    web: WebOption = False,
    name: Annotated[Text, typer.Option("-n", "--name", metavar="NAME", help="Overrides the name in the file.")] = None,
    env: Annotated[
        Texts,
        typer.Option(
            "-e",
            "--env",
            metavar="K[=V]",
            help="A variable; without a value, copied from your environment. Repeatable.",
        ),
    ] = None,
    ssh_identity: Annotated[
        Text, typer.Option("--ssh-identity", metavar="KEY", help="Your private key for the run.")
    ] = None,
    port: Annotated[
        Texts, typer.Option("-p", "--port", metavar="MAP", help="A port: 8080 or 80:8080. Repeatable.")
    ] = None,
    host: Annotated[
        Text,
        typer.Option(
            "--host", metavar="ADDR", help="This machine's address for forwarded ports; localhost unless set."
        ),
    ] = None,
    repo: Annotated[
        Text, typer.Option("-P", "--repo", metavar="REPO", help="The folder of a checkout, or a URL.")
    ] = None,
    repo_branch: Annotated[Text, typer.Option("--repo-branch", metavar="NAME", help="The branch to use.")] = None,
    repo_hash: Annotated[Text, typer.Option("--repo-hash", metavar="HASH", help="The commit to use.")] = None,
    no_repo: Annotated[Switch, typer.Option("--no-repo", help="Use no repository, even if the file has one.")] = False,
    token: Annotated[
        Text, typer.Option("-t", "--token", metavar="TOKEN", help="A token to read the repository.")
    ] = None,
    git_identity: Annotated[
        Text, typer.Option("--git-identity", metavar="KEY", help="A private key to read the repository.")
    ] = None,
    lfs_pointers: Annotated[
        Switch, typer.Option("--lfs-pointers", help="Leave unchanged Git LFS files of a checkout as pointers.")
    ] = False,
    **flags: Value,
) -> None:
    """Create or change what a configuration file describes.

    Without -f it reads .dstack.yml in this folder. It shows the plan, asks, and submits. It then follows a run until it
    ends, and exits with the exit status of its job; Ctrl-C asks whether to stop the run. Flags override the file, and
    the file overrides the profile. A list given by flags replaces the one in the file. `-h fleet` shows the flags for a
    fleet, and so on for each type. A preset is created by a process of its own, which Ctrl-C leaves or stops.
    """
    _refuse_contradictions(ctx)
    session = open_session(ctx, project)
    definition = load_definition(
        session.terminal,
        file,
        overrides(ctx),
        arguments=args or [],
        profile=flags["profile"],
        no_profile=flags["no_profile"],
    )
    if no_repo:
        definition.configuration["repos"] = []
    shown = {name: flags[name] for name in SHOWN_OFFERS}
    brought = RepoFlags(repo, repo_branch, repo_hash, no_repo, token, git_identity, lfs_pointers)
    attached = AttachOptions(ssh_identity, host or "localhost", ())
    options = ApplyOptions(yes, force, detach, verbose, as_json, attached=attached, repo=brought, web=web, **shown)
    if definition.kind == "preset":
        raise typer.Exit(_apply_preset(ctx, session, definition))
    _refuse_those_of_presets(ctx, definition.kind)
    if definition.kind in RUN_TYPES:
        with definition.places.locating():
            raise typer.Exit(Submission(session, definition, options).apply())
    _refuse_those_of_runs(ctx, definition.kind)
    carry_out = {"fleet": apply_fleet, "volume": apply_volume, "gateway": apply_gateway}[definition.kind]
    with definition.places.locating():
        raise typer.Exit(carry_out(session, definition, options))


def _refuse_contradictions(ctx: typer.Context) -> None:
    """Refuses flags that exclude each other."""
    flags = ctx.params
    if flags["repo"] and flags["no_repo"]:
        raise typer.BadParameter("--repo and --no-repo contradict each other.", ctx=ctx)
    if flags["file"] == "-" and not flags["yes"]:
        raise typer.BadParameter(
            "Reading the file from standard input needs -y: nobody can answer a question there.", ctx=ctx
        )
    if flags["as_json"] and flags["web"]:
        raise typer.BadParameter("--json and --web contradict each other: one document, and one address.", ctx=ctx)
    if flags["as_json"] and not flags["yes"]:
        raise typer.BadParameter("--json needs -y: a question would break the JSON output.", ctx=ctx)


SHOWN_OFFERS = ("max_offers", "full_offers", "unallocated")
OF_REPO = ("repo", "repo_branch", "repo_hash", "no_repo", "token", "git_identity", "lfs_pointers")
NOT_OF_PRESETS = ("web", "force", "verbose", "full_offers", "unallocated", "ssh_identity", "host", *OF_REPO)


def _refuse_those_of_runs(ctx: typer.Context, kind: str) -> None:
    """Refuses flags of runs for a fleet, a volume or a gateway; flags without a field in the type are found later."""
    if kind == "fleet" and ctx.params["profile"]:
        raise typer.BadParameter("--profile doesn't apply to a fleet, which uses only the default profile.", ctx=ctx)
    of_runs = (*SHOWN_OFFERS, "ssh_identity", "host", *OF_REPO, "profile", *(["no_profile"] if kind != "fleet" else []))
    for flag in (given(ctx, name) for name in of_runs):
        if flag:
            raise typer.BadParameter(f"{flag} doesn't apply to a {kind}; leave the flag out.", ctx=ctx)


def _refuse_those_of_presets(ctx: typer.Context, kind: str) -> None:
    for flag in (given(ctx, found.name) for found in PRESETS):
        if flag:
            raise typer.BadParameter(f"{flag} is for presets, and this is a {kind}; leave the flag out.", ctx=ctx)


def _apply_preset(ctx: typer.Context, session: Session, definition: LoadedConfiguration) -> int:
    from cli.presets.creation import Creation

    for flag in (given(ctx, name) for name in NOT_OF_PRESETS):
        if flag:
            raise typer.BadParameter(f"{flag} doesn't apply to a preset; leave the flag out.", ctx=ctx)
    flags = ctx.params
    wanted = {field: flags[field] for field in ("yes", "detach", "as_json", "keep_service", "trials", "max_offers")}
    return Creation(session, definition, previous=flags["previous"] or (), **wanted).apply()
