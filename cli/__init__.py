"""The command line: typer commands over a small HTTP client, and tables that are pure functions of JSON.

`main`        the entry point; loads a command group only when it is used, so that `--help` and `ps` stay cheap.
`parameters`  what every command shares: options, help with examples, conversion of values without a model library.
`terminal`    what a command takes from the process that runs it: screen, folder, environment, clock.
`config`      `~/.dstack/config.yml`, and which server, token and project a command uses.
`client`      HTTP: three connection attempts, and error responses turned into a sentence that says what to do.
`render`      tables as text of a given width; `tables/` has one file per noun.
`commands/`   one file per command group.
"""
