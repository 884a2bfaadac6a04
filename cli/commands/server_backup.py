"""`dstack server backup`, `backups`, `restore` and `restored`: they work on a data folder of this machine, and need no
server. Only `restored` may ask one, since nobody has the folder of a control plane in AWS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.domain.instants import SECOND, Micros, iso
from chalicelib.errors import Refused
from cli.commands.server_packages import check_packages
from cli.connection import calls
from cli.connection.session import open_session
from cli.screen.parameters import command, new_group
from cli.screen.since import seconds_of
from cli.screen.terminal import Terminal, terminal
from cli.tables.usage import size

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.runtime.drill import Drilled
    from chalicelib.store.backups import Backups

app = new_group("Back up a server, and restore it.")

TargetArgument = Annotated[
    str, typer.Argument(metavar="PLACE", help="A folder, s3://bucket/prefix, or a file that ends in .zip.")
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="The key of the backups; or $DSTACK_BACKUP_KEY_FILE."),
]
DataOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="The data folder; ~/.dstack/server.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="The last backup up to this time, such as 2026-11-21T08:00Z.")
]
KeepOption = Annotated[
    str | None, typer.Option("--keep", metavar="TIME", help="Delete older backups, as in 7d; by default all are kept.")
]
GoOnOption = Annotated[bool, typer.Option("--go-on", help="Let the server act again: it ends what isn't recorded.")]
AskedOption = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="Ask this project's server, as for one in AWS: for global admins."),
]
SHOWN = 30  # of what a restored server has met


@command(
    app,
    "backup",
    "dstack server backup /backups/dstack --key-file /root/dstack-backup.key",
    "dstack server backup s3://my-bucket/dstack --keep 7d",
    "dstack server backup ~/before-upgrade.zip",
)
def backup(
    ctx: typer.Context,
    place: TargetArgument,
    *,
    key_file: KeyOption = None,
    data_dir: DataOption = None,
    keep: KeepOption = None,
) -> None:
    """Back up a server, which may be running.

    A backup is encrypted with a key of its own: a file, which the first backup makes, or the passphrase in
    DSTACK_BACKUP_PASSPHRASE. Keep the key apart from the backups: without it they can't be read. After the first
    one, a backup to the same folder or bucket stores only what has changed.

    A running server makes backups by itself if DSTACK_BACKUP_TO is set, every DSTACK_BACKUP_EVERY (1h), and keeps
    them for DSTACK_BACKUP_KEEP (7d).
    No --json: it prints one line.
    """
    from chalicelib.runtime.backup import back_up

    here, folder, oldest = terminal(ctx), _folder(data_dir), None if keep is None else seconds_of(keep, "--keep")
    with _opened(here, place, key_file, folder) as found:
        done = back_up(folder, found, _now)
        pruned = 0 if oldest is None else found.prune(_now() - oldest * SECOND, _now())
    counts = f"{done.counts.get('records', 0)} records and {done.counts.get('files', 0)} files"
    here.print(f"Backup {done.name}: {counts}, {size(done.added)} of them new, to {place}")
    if pruned:
        here.print(f"Deleted {pruned} older backups")


@command(app, "backups", "dstack server backups /backups/dstack", "dstack server backups s3://my-bucket/dstack")
def backups(ctx: typer.Context, place: TargetArgument, *, key_file: KeyOption = None) -> None:
    """List the backups in a place, oldest first.

    No --json: each line is a backup's name, which begins with its time and which `restore --at` takes.
    """
    here = terminal(ctx)
    with _opened(here, place, key_file) as found:
        for name in found.moments():
            moment = found.moment(name)
            here.print(
                f"{name}  {moment.counts.get('records', 0)} records  {size(moment.counts.get('bytes', 0))}"
                f"  by {moment.program}"
            )


@command(
    app,
    "restore",
    "dstack server restore /backups/dstack --data-dir /srv/dstack",
    "dstack server restore s3://my-bucket/dstack --at 2026-11-21T08:00Z",
    "dstack server restore /backups/dstack --drill",
)
def restore(
    ctx: typer.Context,
    place: TargetArgument,
    *,
    key_file: KeyOption = None,
    data_dir: DataOption = None,
    at: AtOption = None,
    revoke_tokens: Annotated[
        bool, typer.Option("--revoke-tokens", help="Make all tokens of people and programs invalid.")
    ] = False,
    wanted_drill: Annotated[
        bool, typer.Option("--drill", help="Only try: restore into a temporary folder, check it, delete it.")
    ] = False,
) -> None:
    """Restore a server's data folder as it was at the last backup, or at an earlier one.

    The folder must be new or empty. The server that starts there first only looks, for an hour or until `dstack server
    restored --go-on`: it ends no machine and no job that its records don't know or know otherwise. Tokens that were
    revoked since the backup are valid again, unless --revoke-tokens is given: then set a new token for the admin with
    DSTACK_SERVER_ADMIN_TOKEN at the next start.
    No --json: it prints lines for whoever restores.
    """
    here, until = terminal(ctx), None if at is None else _moment(at)
    if wanted_drill and revoke_tokens:
        raise typer.BadParameter("--drill and --revoke-tokens contradict each other.", ctx=ctx)
    with _opened(here, place, key_file) as found:
        if wanted_drill:
            _drill(here, found, until)
            return
        from chalicelib.runtime.clock import random_token
        from chalicelib.runtime.restore import restore as restored_from

        folder = _folder(data_dir)
        done = restored_from(found, folder, _now(), until=until, revoke=random_token if revoke_tokens else None)
    here.print(f"Restored {folder} as it was at {_shown(done.moment.at)}: {done.records} records, {done.files} files")
    if revoke_tokens:
        here.print(f"Revoked {done.revoked} tokens. Start the server with DSTACK_SERVER_ADMIN_TOKEN set to a new one")
    else:
        here.print("Tokens that were revoked since then are valid again; --revoke-tokens makes all invalid")
    here.print("Its server ends nothing for an hour. See what it meets: dstack server restored")


def _drill(here: Terminal, found: Backups, until: Micros | None) -> None:
    from chalicelib.runtime.drill import drill

    done = drill(found, _now(), until)
    here.print(f"The backup of {_shown(done.moment.at)} was restored into a temporary folder, which is deleted again")
    _report(here, done, "The drill went well: this backup can be restored")


def _report(here: Terminal, done: Drilled, good: str) -> None:
    here.print("Checked: " + ", ".join(f"{number} {what}" for what, number in sorted(done.counts.items()) if number))
    for line in done.problems[:SHOWN]:
        here.warn(line)
    if done.problems:
        raise Refused(
            f"{len(done.problems)} problems were found.",
            hint="Report them with the version that wrote the folder; an earlier backup is tried with --at.",
        )
    here.print(good)


@command(
    app,
    "upgrade",
    "dstack server upgrade /backups/dstack",
    "dstack server upgrade ~/before-upgrade.zip --data-dir /srv/dstack",
)
def upgrade(
    ctx: typer.Context, place: TargetArgument, *, key_file: KeyOption = None, data_dir: DataOption = None
) -> None:
    """Prepare the upgrade of a server to this version, which is installed already.

    Backs the data folder up, and rehearses: restores the backup into a temporary folder, where this version reads and
    checks everything. Then says what the first start changes, and the way back. The server may run meanwhile; restart
    it afterwards.
    No --json: it prints lines for whoever upgrades.
    """
    from chalicelib.runtime.backup import program
    from chalicelib.runtime.upgrade import prepare

    here, folder = terminal(ctx), _folder(data_dir)
    with _opened(here, place, key_file, folder) as found:
        done = prepare(folder, found, _now())
    here.print(f"Backup {done.backup.name}: {done.backup.counts.get('records', 0)} records, to {place}")
    _report(here, done.rehearsal, f"Version {program()} reads all of it")
    for line in done.changes or ["nothing in the folder changes its format"]:
        here.print(f"At the first start: {line}")
    here.print("Restart the server now. Agents go on, and get their new program when they have no tasks")
    here.print(f"The way back: install the earlier version, and restore {done.backup.name} into a new folder")


@command(
    app,
    "restored",
    "dstack server restored",
    "dstack server restored --data-dir /srv/dstack --go-on",
    "dstack server restored --project main --go-on",
)
def restored(
    ctx: typer.Context,
    *,
    data_dir: DataOption = None,
    project: AskedOption = None,
    go_on: GoOnOption = False,
) -> None:
    """Show what a restored server has met, and let it act again.

    Machines that nobody recorded are ended once it acts: two sweeps must agree, some minutes apart. Jobs that their
    agents don't list any more fail, and are tried again if their runs say so.
    No --json: it prints lines for whoever restores.
    """
    here = terminal(ctx)
    if project is None:
        found = _of_folder(_folder(data_dir), go_on=go_on)
    elif data_dir is not None:
        raise typer.BadParameter("--project asks a server, and --data-dir reads a folder: give one.", ctx=ctx)
    else:
        client = open_session(ctx, project).client
        found = (calls.server_go_on if go_on else calls.server_get_restoration)(client)["restored"]
    if found is None:
        here.print("This server wasn't restored from a backup.")
        return
    here.print(f"Restored at {_second(found['at'])} as it was at {_second(found['as_of'])}.")
    for each in found["met"][:SHOWN]:
        here.print(f"  {each['says']}")
    if len(found["met"]) > SHOWN:
        here.print(f"  … and {len(found['met']) - SHOWN} more")
    if not found["met"]:
        here.print("  Everything it met is as its records say.")
    here.print(_standing(found, "" if project is None else f" --project {project}"))


def _of_folder(folder: Path, *, go_on: bool) -> contract.ServerRestoration | None:
    check_packages()
    from chalicelib.api.wire.restorations import restoration_json
    from chalicelib.runtime.restored import restoration

    return restoration_json(*restoration(folder, go_on=go_on))["restored"]


def _standing(found: contract.ServerRestoration, where: str) -> str:
    if not found["whole"]:
        return "Not all records are back, so it only looks: run `python -m infra.restore` again, with the same --at"
    if found["went_on_at"] is not None:
        return f"It acts since {_second(found['went_on_at'])}, by an operator's word."
    if found["looking"]:
        return f"It only looks until {_second(found['looks_until'])}, or until: dstack server restored{where} --go-on"
    return f"It acts since {_second(found['looks_until'])}."


@contextmanager
def _opened(here: Terminal, place: str, key_file: Path | None, folder: Path | None = None) -> Iterator[Backups]:
    """The backups in a place. `folder`: the data folder of a new backup."""
    check_packages()
    from chalicelib.runtime.backup_keys import backups_of
    from chalicelib.runtime.settings import backup_settings

    with backups_of(backup_settings(to=place, key_file=key_file), here.warn, folder=folder) as found:
        yield found


def _folder(data_dir: Path | None) -> Path:
    from chalicelib.runtime.settings import server_settings

    return server_settings(data_dir=data_dir).data_dir


def _moment(text: str) -> Micros:
    from chalicelib.runtime.backup import moment_of

    try:
        return moment_of(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a time such as 2026-11-21T08:00Z nor the name of a backup.", param_hint="--at"
        ) from None


def _now() -> Micros:
    return time.time_ns() // 1000


def _shown(at: Micros) -> str:
    return _second(iso(at))


def _second(text: str) -> str:
    return f"{text[:19]}Z"
