"""The command line: typer commands over a small HTTP client, and tables that are pure functions of JSON.

`main`          the entry point; loads a command group only when it is used, so that `--help` and `ps` stay cheap.
`commands`      one file per command group.
`applying`      from a configuration to what it describes: read, planned, confirmed, applied and followed.
`repositories`  the code of a run: which commit, what changed since, and folders packed as archives.
`ssh`           the way to a job over SSH: keys, routes, the SSH configuration, forwarded ports.
`connection`    `~/.dstack/config.yml`, HTTP and streams; an error response becomes a sentence that says what to do.
`tables`        one file per noun: JSON in, a table out.
`screen`        what a user types and sees: options, the terminal, tables of a given width, progress, `--json`.
`reference`     the pages of commands and flags, generated.
"""
