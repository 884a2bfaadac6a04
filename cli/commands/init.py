"""`dstack init`: an example configuration, and the schema that lets an editor check it; or a repository made known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from chalicelib.errors import NotSupported
from cli.parameters import ProjectOption, command, new_group
from cli.repos import RepoFlags, register
from cli.session import open_session
from cli.terminal import Terminal, terminal

SCHEMA = Path(".dstack") / "configuration.schema.json"
EXAMPLE = """\
type: task
name: hello

commands:
  - echo "Hello from $(hostname)"

resources:
  cpu: 1..
  memory: 0.5GB..
  disk: 1GB..
"""

app = new_group("Prepare this folder: an example configuration, and the schema for your editor.")


@command(app, "init", "dstack init", "dstack init --schema", "dstack init -P . -t TOKEN")
def init(
    ctx: typer.Context,
    *,
    schema: Annotated[
        bool, typer.Option("--schema", help="Write the schema that editors check the files with.")
    ] = False,
    project: ProjectOption = None,
    repo: Annotated[
        str | None, typer.Option("-P", "--repo", metavar="REPO", help="Make this checkout or address known instead.")
    ] = None,
    token: Annotated[str | None, typer.Option("-t", "--token", metavar="TOKEN", help="To read the repository.")] = None,
    git_identity: Annotated[
        str | None, typer.Option("--git-identity", metavar="KEY", help="A private key, to read the repository.")
    ] = None,
) -> None:
    """Prepare this folder: an example configuration, and the schema for your editor.

    The example is .dstack.yml, a task that runs; one that is here already is left as it is. With --schema also
    .dstack/configuration.schema.json, and a first line in .dstack.yml that names it to editors.
    With -P, -t or --git-identity it writes nothing, and leaves the address of a repository, and what it takes to read
    it, on the server instead. No --json: it prints what it wrote.
    """
    if repo or token or git_identity or project:
        if schema:
            raise typer.BadParameter("--schema is about this folder, the other flags about a repository.", ctx=ctx)
        remote = register(open_session(ctx, project), RepoFlags(repo, token=token, identity=git_identity))
        terminal(ctx).say(f"The server knows {remote.https} now, as {remote.id}.")
        return
    here = terminal(ctx)
    target = here.cwd / ".dstack.yml"
    if schema:
        _write_schema(here)
    if target.exists():
        here.say(f"{target.name} is here already and was left as it is.")
        if schema:
            here.say(f"For your editor, put this on its first line:\n{_modeline()}")
        return
    target.write_text((_modeline() + "\n" if schema else "") + EXAMPLE, encoding="utf-8")
    here.say(f"Wrote {target.name}. Run it: dstack apply")


def _modeline() -> str:
    return f"# yaml-language-server: $schema={SCHEMA.as_posix()}"


def _write_schema(here: Terminal) -> None:
    try:
        from chalicelib.configuration.schema import configuration_schema
    except ImportError:
        raise NotSupported("--schema isn't available yet.", hint="`dstack apply` checks a file too.") from None
    path = here.cwd / SCHEMA
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(configuration_schema(), indent=1) + "\n", encoding="utf-8")
    here.say(f"Wrote {SCHEMA.as_posix()}.")
