"""`dstack init`: an example configuration in this folder, and the schema that lets an editor check it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from chalicelib.errors import NotSupported
from cli.parameters import command, new_group
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


@command(app, "init", "dstack init", "dstack init --schema")
def init(
    ctx: typer.Context,
    *,
    schema: Annotated[
        bool, typer.Option("--schema", help="Write the schema that editors check the files with.")
    ] = False,
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Not available yet.")] = None,
    repo: Annotated[str | None, typer.Option("-P", "--repo", metavar="REPO", help="Not available yet.")] = None,
    token: Annotated[str | None, typer.Option("-t", "--token", metavar="TOKEN", help="Not available yet.")] = None,
    git_identity: Annotated[
        str | None, typer.Option("--git-identity", metavar="KEY", help="Not available yet.")
    ] = None,
) -> None:
    """Prepare this folder: an example configuration, and the schema for your editor.

    The example is .dstack.yml, a task that runs; one that is here already is left as it is. With --schema also
    .dstack/configuration.schema.json, and a first line in .dstack.yml that names it to editors.
    No --json: it prints what it wrote.
    """
    for flag, value in (("--project", project), ("--repo", repo), ("--token", token), ("--git-identity", git_identity)):
        if value:
            raise NotSupported(f"{flag}: sending a Git repository along isn't available yet.", hint="Leave it out.")
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
