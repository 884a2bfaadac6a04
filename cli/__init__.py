"""The command line: typer commands over a small HTTP client, and tables that are pure functions of JSON.

`main`          the entry point; loads a command group only when it is used, so that `--help` and `ps` stay cheap.
`commands`      one file per command group.
`applying`      configurations: reading, planning, confirming, applying and following them.
`presets`       a language model proposes services, each is measured, and the best one is kept.
`repositories`  the code of a run: its commit, the changes since then, and folders packed as archives.
`ssh`           SSH to jobs: keys, routes, the SSH configuration, forwarded ports.
`connection`    `~/.dstack/config.yml`, HTTP and streams; error responses become sentences that say what to do.
`tables`        one file per noun: JSON in, a table out.
`screen`        input and output: options, the terminal, tables of a given width, progress, `--json`.
`reference`     the pages of commands and flags, generated.
"""
