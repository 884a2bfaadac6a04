"""The control plane, package by package.

`domain`         pure nouns: specs a user writes, runs, jobs, fleets, instances, events. Frozen pydantic models.
`configuration`  pure: the `*.dstack.yml` language, text to spec, with errors that name line, cause and fix.
`machines`       pure tables: one state machine a file, the only way to a new status.
`planning`       pure decisions: a snapshot goes in, a plan comes out; never a clock, never a socket.
`backends`       effects: one protocol, one file a provider, and a scripted fake cloud.
`agent`          the program on every instance: standard library only, shipped as one file, imported by nobody.
`store`          effects: one small port, SQLite and DynamoDB behind it, blobs beside it.
`catalog`        offers as snapshots with their age; plans never ask a cloud live.
`engine`         the shell: due, load, decide, lint, commit, execute.
`usecases`       what the API does: authorise, validate, write intent, wake the engine.
`api`            HTTP: routes, and the JSON contract that clients rely on.
`runtime`        composition roots: the only place that names implementations or reads the environment.

Arrows point one way (import-linter holds them):

    functions, app.py        cli -> api.wire, configuration, domain
         |
      runtime -> engine -> planning -> machines -> domain
         |          +-> backends.spi, store.port      (protocols only)
         +-> backends.*, store.*
         +-> api -> usecases -> store.port, catalog, planning, configuration; wake ports of engine

Everybody may raise from `errors`.
"""
