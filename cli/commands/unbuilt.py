"""Commands that other versions have and this one doesn't yet: each says so in one line and exits with 1."""

from __future__ import annotations

import typer

from chalicelib.errors import NotSupported
from cli.screen.parameters import command, new_group

REASONS = {
    "preset": ("Presets aren't available yet.", "Describe the service in a configuration file."),
}


def _refusing(name: str, message: str, hint: str) -> typer.Typer:
    app = new_group(message)

    @command(app, name, f"dstack {name}", f"dstack {name} list", ignore_unknown_options=True, allow_extra_args=True)
    def refuse(ctx: typer.Context) -> None:
        raise NotSupported(message, hint=hint)

    refuse.__doc__ = message
    app.registered_commands[0].help = f"{message}\n\n{hint} No --json: there is nothing to print."
    return app


apps = {name: _refusing(name, message, hint) for name, (message, hint) in REASONS.items()}
