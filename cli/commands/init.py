"""`dstack init`: writes an example configuration, the schema for editors, a skill for coding agents; or registers a
repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from chalicelib.errors import Invalid, NotSupported
from cli.connection.session import open_session
from cli.repositories.repos import RepoFlags, register
from cli.screen.parameters import ProjectOption, command, new_group
from cli.screen.terminal import Terminal, terminal

SKILL = Path(__file__).parents[2] / "skills" / "dstack" / "SKILL.md"
# The folder of the open standard for skills, and that of Claude Code; other agents read one of these.
AGENTS_LOOK_IN = (Path(".agents") / "skills" / "dstack", Path(".claude") / "skills" / "dstack")
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

app = new_group("Set up this folder with an example configuration and an editor schema.")


@command(app, "init", "dstack init", "dstack init --schema", "dstack init --skill", "dstack init -P . -t TOKEN")
def init(
    ctx: typer.Context,
    *,
    schema: Annotated[bool, typer.Option("--schema", help="Also write the JSON Schema that editors use.")] = False,
    skill: Annotated[
        bool, typer.Option("--skill", help="Write what coding agents need to know about dstack, and nothing else.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="With --skill: replace a copy that was changed.")] = False,
    project: ProjectOption = None,
    repo: Annotated[
        str | None, typer.Option("-P", "--repo", metavar="REPO", help="Register this checkout or URL instead.")
    ] = None,
    token: Annotated[
        str | None, typer.Option("-t", "--token", metavar="TOKEN", help="A token to read the repository.")
    ] = None,
    git_identity: Annotated[
        str | None, typer.Option("--git-identity", metavar="KEY", help="A private key to read the repository.")
    ] = None,
) -> None:
    """Set up this folder with an example configuration and an editor schema.

    Writes .dstack.yml, a task that runs; an existing file is left unchanged. --schema also writes
    .dstack/configuration.schema.json, and a first line in .dstack.yml that points editors to it. --skill writes only
    a page for coding agents, to the folders where they look for skills.
    With -P, -t or --git-identity it writes no files, and registers the address and the credentials of a repository
    on the server instead. No --json: it prints what it wrote.
    """
    if force and not skill:
        raise typer.BadParameter("--force belongs to --skill.", ctx=ctx)
    if repo or token or git_identity or project:
        if schema or skill:
            raise typer.BadParameter(
                "--schema and --skill set up this folder, the other flags register a repository; use one or the other.",
                ctx=ctx,
            )
        remote = register(open_session(ctx, project), RepoFlags(repo, token=token, identity=git_identity))
        terminal(ctx).print(f"Registered {remote.https} as {remote.id}.")
        return
    here = terminal(ctx)
    if skill:
        _write_skill(here, force=force)
        if not schema:
            return
    target = here.cwd / ".dstack.yml"
    if schema:
        _write_schema(here)
    if target.exists():
        here.print(f"{target.name} already exists and was left unchanged.")
        if schema:
            here.print(f"For your editor, put this on its first line:\n{_modeline()}")
        return
    target.write_text((_modeline() + "\n" if schema else "") + EXAMPLE, encoding="utf-8")
    here.print(f"Wrote {target.name}. Run it: dstack apply")


def _write_skill(here: Terminal, *, force: bool) -> None:
    """Both copies, or none if one was changed."""
    text = SKILL.read_text(encoding="utf-8")
    copies = [here.cwd / folder / SKILL.name for folder in AGENTS_LOOK_IN]
    changed = [copy for copy in copies if copy.exists() and copy.read_text(encoding="utf-8") != text]
    if changed and not force:
        names = " and ".join(copy.relative_to(here.cwd).as_posix() for copy in changed)
        raise Invalid(
            f"{names} differs from the skill of this version, and may have been edited; nothing was written.",
            hint="Add --force to replace it.",
        )
    for copy in copies:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        here.print(f"Wrote {copy.relative_to(here.cwd).as_posix()}.")


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
    here.print(f"Wrote {SCHEMA.as_posix()}.")
