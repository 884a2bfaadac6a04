"""`dstack preset`: the presets on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.errors import NotSupported, Refused
from cli.applying.flags import FLEETS, IDLE, LIMIT, PLACES, PRESETS, PROFILE, RETRY, SPOT, overrides, taking
from cli.connection.session import open_session
from cli.presets import records
from cli.presets.records import KEEP, PROGRESS, UNFINISHED, Folder
from cli.screen.parameters import (
    JsonOption,
    ProjectOption,
    Value,
    VerboseOption,
    WatchOption,
    YesOption,
    command,
    new_group,
)
from cli.screen.render import as_json, render
from cli.screen.terminal import Terminal, terminal
from cli.tables.presets import presets_table

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Manage presets: measured ways to serve a model.", invoke_without_command=True)


def complete_ids(incomplete: str) -> list[str]:
    """For completion."""
    return [folder.id for folder in records.every(Path.home()) if folder.id.startswith(incomplete)]


IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The preset's id or name.", autocompletion=complete_ids)]
KeepOption = Annotated[bool, typer.Option("--keep-service", help="Leave the best service running at the end.")]
OfProjectOption = Annotated[str | None, typer.Option("--project", metavar="NAME", help="Only those of this project.")]
AllOption = Annotated[bool, typer.Option("-a", "--all", help="Include finished presets.")]
LastOption = Annotated[
    int | None, typer.Option("-n", "--last", min=1, metavar="N", help="The newest N presets, finished ones included.")
]
BaseOption = Annotated[str | None, typer.Option("--base", metavar="MODEL", help="Only those of this base model.")]
RepoOption = Annotated[
    str | None, typer.Option("--repo", metavar="REPO", help="Only those that serve this repository.")
]
WATCH_SECONDS = 2.0


@app.callback()
def preset(
    ctx: typer.Context,
    *,
    project: OfProjectOption = None,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    as_json_: JsonOption = False,
    everything: AllOption = False,
    last: LastOption = None,
    base: BaseOption = None,
    repo: RepoOption = None,
) -> None:
    """Manage presets: measured ways to serve a model."""
    if ctx.invoked_subcommand is None:
        list_presets(
            ctx,
            project=project,
            verbose=verbose,
            watching=watching,
            as_json_=as_json_,
            everything=everything,
            last=last,
            base=base,
            repo=repo,
        )


@command(app, "list", "dstack preset list", "dstack preset list -a -v --base Qwen/Qwen3-32B")
def list_presets(
    ctx: typer.Context,
    *,
    project: OfProjectOption = None,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    as_json_: JsonOption = False,
    everything: AllOption = False,
    last: LastOption = None,
    base: BaseOption = None,
    repo: RepoOption = None,
) -> None:
    """List the presets on this machine, the newest first.

    Shows those that are being created or were interrupted; if there are none, the last one. --project shows only those
    of that project.
    """
    if watching and as_json_:
        raise typer.BadParameter("--watch and --json contradict each other: a table that changes, and one document.")
    if base and repo:
        raise typer.BadParameter("--base and --repo contradict each other.", ctx=ctx)
    screen = terminal(ctx)

    def shown() -> list[contract.Preset]:
        found = [folder.read() for folder in reversed(records.every(screen.home))]
        found = [one for one in found if (not project or one["project"] == project) and _serves(one, base, repo)]
        if not everything and last is None:
            found = [one for one in found if one["status"] in UNFINISHED] or found[:1]
        return found[:last]

    if as_json_:
        document: contract.PresetList = {"presets": shown()}
        screen.print(as_json(document))
        return
    try:
        while True:
            if watching and screen.watched:
                screen.write(b"\x1b[2J\x1b[H\n")
            _print(screen, shown(), verbose)
            if not watching:
                return
            screen.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        if not watching:
            raise
        raise typer.Exit(0) from None


def _print(screen: Terminal, found: list[contract.Preset], verbose: bool) -> None:
    screen.print(render(presets_table(found, screen.now(), verbose), screen.width, screen.colour))
    if not found:
        screen.warn("No presets. Describe one in a file (`type: preset`) and run `dstack apply -f FILE`.")


def _serves(preset: contract.Preset, base: str | None, repo: str | None) -> bool:
    if base:
        return preset["base"] == base
    served = next((trial["repo"] for trial in preset["trials"] if trial["number"] == preset["best"]), None)
    return not repo or repo in (preset["repo"], served)


@command(app, "get", "dstack preset get qwen", "dstack preset get qwen --json | jq .service")
def get(ctx: typer.Context, name: IdArgument, as_json_: JsonOption = False) -> None:
    """Show one preset and its trials, or in full with --json."""
    from cli.presets.creation import show

    screen = terminal(ctx)
    found = records.find(screen.home, name).read()
    if as_json_:
        screen.print(as_json(found))
        return
    show(screen, found)


@command(
    app, "create", "dstack preset create -f qwen.dstack.yml", "dstack preset create -f qwen.dstack.yml -y --trials 6"
)
@taking(PROFILE, PLACES, LIMIT, FLEETS, IDLE, SPOT, RETRY, PRESETS)
def create(
    ctx: typer.Context,
    *,
    file: Annotated[str, typer.Option("-f", "--file", metavar="FILE", help="The configuration of the preset.")],
    name: Annotated[
        str | None, typer.Option("-n", "--name", metavar="NAME", help="Overrides the name in the file.")
    ] = None,
    project: ProjectOption = None,
    yes: YesOption = False,
    **flags: Value,
) -> None:
    """Create a preset: an older spelling of `dstack apply`.

    No --json: `dstack apply -y --json` prints it.
    """
    from cli.applying.definition import load_definition
    from cli.presets.creation import Creation

    session = open_session(ctx, project)
    session.terminal.warn("`dstack preset create` is an older spelling of `dstack apply`.")
    definition = load_definition(
        session.terminal, file, overrides(ctx), profile=flags["profile"], no_profile=flags["no_profile"]
    )
    if definition.kind != "preset":
        raise Refused(
            f"{file} describes a {definition.kind}, not a preset.", hint=f"`dstack apply -f {file}` applies it."
        )
    wanted = {field: flags[field] for field in ("keep_service", "trials")}
    raise typer.Exit(Creation(session, definition, yes, previous=flags["previous"] or (), **wanted).apply())


@command(app, "logs", "dstack preset logs qwen", "dstack preset logs qwen -f")
def logs(
    ctx: typer.Context,
    name: IdArgument,
    *,
    following: Annotated[bool, typer.Option("-f", "--follow", help="Follow it until it ends.")] = False,
    keep_service: KeepOption = False,
) -> None:
    """Print how the creation of a preset went, and follow it with -f.

    Ctrl-C while following leaves it going on. No --json: it prints lines of text; `dstack preset get --json` has the
    trials.
    """
    screen = terminal(ctx)
    folder = records.find(screen.home, name)
    if keep_service and not following:
        raise typer.BadParameter("--keep-service goes with --follow.", ctx=ctx)
    if following:
        from cli.presets.creation import follow

        if keep_service:
            if not folder.is_busy():
                hint = f"`dstack preset export {folder.id} -f FILE` and `dstack apply` start its service."
                raise Refused(f"--keep-service: preset {folder.id} isn't being created any more.", hint=hint)
            folder.request(KEEP)
        raise typer.Exit(follow(screen, folder, asks=False))
    for line in folder.lines(PROGRESS):
        screen.print(f"{line['time']}  {line['text']}")


@command(app, "stop", "dstack preset stop qwen", "dstack preset stop qwen -y")
def stop(ctx: typer.Context, name: IdArgument, yes: YesOption = False) -> None:
    """Stop creating a preset: its run is stopped, and its trials are kept.

    `dstack preset resume` goes on with it. No --json: it prints one line.
    """
    from cli.presets.creation import stop as stop_creation

    screen = terminal(ctx)
    folder = records.find(screen.home, name)
    if not yes and not screen.confirm(f"Stop creating preset {folder.id}?"):
        screen.print("Nothing was stopped.")
        return
    screen.print(stop_creation(screen, folder))


@command(app, "resume", "dstack preset resume qwen", "dstack preset resume qwen --keep-service")
def resume(ctx: typer.Context, name: IdArgument, keep_service: KeepOption = False) -> None:
    """Go on with a preset that was stopped, was interrupted or failed, and follow it.

    What its worker left running is stopped first; a trial that was cut off is made again. No --json: it follows.
    """
    from cli.presets.creation import resume as resume_creation

    screen = terminal(ctx)
    raise typer.Exit(resume_creation(screen, records.find(screen.home, name), keep_service=keep_service))


@command(
    app,
    "export",
    "dstack preset export qwen -f service.dstack.yml",
    "dstack preset export qwen -f service.dstack.yml -n chat",
)
def export(
    ctx: typer.Context,
    name: IdArgument,
    *,
    file: Annotated[str, typer.Option("-f", "--file", metavar="FILE", help="The file to write.")],
    new_name: Annotated[
        str | None,
        typer.Option("-n", "--name", metavar="NAME", help="The service's name; that of the preset unless set."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the best trial as a service's configuration, for `dstack apply`.

    It asks for machines like the one that it was measured on. Variables that came from your environment are named
    without their values. No --json: it writes a file.
    """
    from cli.presets.export import text_of
    from cli.tables.presets import best_of

    screen = terminal(ctx)
    found = records.find(screen.home, name).read()
    trial = best_of(found)
    if trial is None:
        raise Refused(f"Preset {found['id']} has no trial that keeps to all limits.", hint=found["reason"])
    path, text = screen.cwd / Path(file).expanduser(), text_of(found, trial, new_name)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise Refused(f"{file} exists.", hint="Add --force to replace it.") from None
    except OSError as error:
        raise Refused(f"{file} can't be written: {error.strerror}.") from error
    screen.print(f"Wrote {file}. Apply it with `dstack apply -f {file}`.")


@command(app, "push", "dstack preset push qwen main/qwen", "dstack preset push 1a2b3c4d main/qwen")
def push(
    ctx: typer.Context,
    name: IdArgument,
    target: Annotated[str, typer.Argument(metavar="PROJECT/NAME", help="Its name in the registry.")],
) -> None:
    """Not available: there is no registry of presets.

    `dstack preset export` writes a file to share. No --json: there is nothing to print.
    """
    raise _no_registry(
        f"{name} can't be pushed to {target}", f"Share the file of `dstack preset export {name} -f FILE`."
    )


@command(app, "pull", "dstack preset pull main/qwen", "dstack preset pull main/1a2b3c4d")
def pull(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="PROJECT/NAME", help="Its name in the registry.")],
) -> None:
    """Not available: there is no registry of presets.

    No --json: there is nothing to print.
    """
    raise _no_registry(f"{source} can't be pulled", "Apply the file that its owner exported, which is a service.")


def _no_registry(what: str, hint: str) -> NotSupported:
    return NotSupported(f"{what}: this control plane has no registry of presets.", hint=hint)


@command(app, "delete", "dstack preset delete qwen", "dstack preset delete --base Qwen/Qwen3-32B -y")
def delete(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The preset's id or name.", autocompletion=complete_ids)
    ] = None,
    base: BaseOption = None,
    repo: RepoOption = None,
    yes: YesOption = False,
) -> None:
    """Delete presets with all that is known of them: one, or those of a base model or a repository.

    One that is being created must be stopped first. No --json: it prints one line.
    """
    from cli.presets.creation import delete as delete_folder

    if sum(map(bool, (name, base, repo))) != 1:
        raise typer.BadParameter("Give an ID, --base or --repo, and only one of them.", ctx=ctx)
    screen = terminal(ctx)
    found = [records.find(screen.home, name)] if name else _all_of(screen, base, repo)
    if not found:
        raise Refused(f"No preset on this machine is of {base or repo}.", hint="See them with `dstack preset -a`.")
    what = f"preset{'s' if len(found) > 1 else ''} {', '.join(folder.id for folder in found)}"
    if not yes and not screen.confirm(f"Delete {what}?"):
        screen.print("Nothing was deleted.")
        return
    for folder in found:
        delete_folder(screen, folder)
    screen.print(f"Deleted {what}.")


def _all_of(screen: Terminal, base: str | None, repo: str | None) -> list[Folder]:
    return [folder for folder in records.every(screen.home) if _serves(folder.read(), base, repo)]
