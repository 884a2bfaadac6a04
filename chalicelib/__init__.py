"""The control plane, package by package.

`domain`         pure nouns: specs a user writes, runs, jobs, fleets, instances, events. Frozen pydantic models.
`configuration`  pure: the `*.dstack.yml` language, text to spec, with errors that name line, cause and fix.
`machines`       pure tables: one state machine per file, the only way to a new status.
`planning`       pure decisions: snapshot in, plan out; no clock, no socket.
`backends`       effects: one protocol, one package per provider, a kit of what they share, a simulated cloud.
`hosts`          effects: hosts that people own: logging in over SSH, setting them up, clearing them again.
`agent`          the program on every instance: standard library only, shipped as one file, imported by nothing here.
`store`          effects: one small port, SQLite and DynamoDB behind it, blobs beside it.
`catalog`        offers as snapshots with their age; plans never call a cloud.
`engine`         the shell: due, load, decide, lint, commit, execute; `engine/kinds.py` is the table of nouns.
`usecases`       what the API does: authorise, validate, write intent, wake the engine.
`api`            HTTP: routes, and the JSON contract that clients rely on.
`identity`       effects: signing on at OpenID Connect providers, and certificates from authorities that speak ACME.
`serving`        effects: the server's own door to services: who may call, where to, how much, and passing it on.
`runtime`        composition roots: the only place that names implementations or reads the environment.

Imports go one way (import-linter enforces it):

    functions, app.py        cli -> api.wire, configuration, domain
         |
      runtime -> engine -> planning -> machines -> domain
         |          +-> backends.spi, backends.accounts, store.port      (no implementation)
         +-> backends.*, hosts.*, store.*
         +-> api -> usecases -> store.port, catalog, planning, configuration; wake ports of engine

Every package may raise from `errors`, and clean texts of others with `printable`.
"""
