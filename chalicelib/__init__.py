"""The control plane: its packages, and their rooms.

`domain`           pure nouns: specs a user writes, runs, jobs, fleets, instances, events. Frozen pydantic models.
`configuration`    pure: the `*.dstack.yml` language, text to spec, with errors that name line, cause and fix.
`machines`         pure tables: one state machine per file, the only way to a new status.
`billing`          pure: what runs and volumes cost their users, and a control plane its operator.
`planning`         pure decisions: snapshot in, plan out; no clock, no socket.
    `kernel`       plans, transitions, the rules that every plan keeps, purchases, workflows
    `volumes`      creation, attachment and deletion, and where a job can mount them
    `matching`     which machines and offers meet what a run and its fleet ask for
    `placing`      the queue: which job goes where, what is bought for it, what waits, and why
    `machines`     instances and fleets, hosts that people own, orphans
    `gateways`     gateways, their machines and their certificates
    `jobs`         from the spec of a run to those of its jobs
    `runs`         replicas, retries, schedules, ends; services with rollouts and scaling
    `projects`     deletion, erasure, and subscriptions to events
`backends`         effects: one protocol, one package per provider, a simulated cloud; accounts say who uses them.
    `kit`          what providers share: a REST client, limits, start scripts
`hosts`            effects: hosts that people own: logging in over SSH, setting them up, clearing them again.
`store`            effects: one small port, SQLite and DynamoDB behind it, blobs beside it.
`carrier`          effects: a Python for the agent in containers whose image has none, made of Debian's packages.
`registries`       effects: what registries of images say about an image.
`catalog`          offers as snapshots with their age, and what markets answer that have no lists.
`engine`           the shell: due, load, decide, lint, commit, execute; `engine/kinds.py` is the table of nouns.
    `effects`      what a committed plan does outside: machines, volumes, workflows, certificates
`usecases`         what the API does: authorise, validate, write intent, wake the engine.
    `people`       users and projects, rights, signing on, secrets, quotas
    `machines`     fleets, hosts, instances, volumes, and hosts that projects lend each other
    `services`     services and gateways: who may call, where they are, certificates, traffic
    `runs`         plans, submission, code, logs, metrics, streams, and rules that act on events
    `operator`     backends, the server's file, its first start, costs, numbers for Prometheus
    `agents`       what the programs on machines ask and report
    `live`         what has changed since a caller last asked
`contract`         types of the JSON that the API answers with, for type checkers, the OpenAPI document and tests.
`api`              HTTP: `api/routes`, and in `api/wire` the JSON that clients rely on.
`console`          the web console: what runs in browsers, and its files for `api`.
`identity`         effects: signing on at OpenID Connect providers, and certificates from authorities that speak ACME.
`serving`          effects: the server's own door to services: who may call, where to, how much, and passing it on.
`runtime`          composition roots: the only place that names implementations or reads the environment.
`agent`            the program on every instance: standard library only, shipped as one file, imported by nothing here.
    `kernel`       tasks on disk, processes and namespaces, the connection to the server
    `volumes`      disks and folders: found, checked, mounted
    `runtimes`     a task as a plain process or in a container; its files, repositories and GPUs
    `sessions`     SSH into a job
    `streams`      ports, logs and sessions over WebSockets
    `replicas`     replicas of services on this machine: probes, queues, routers
    `program`      the agent's process, its supervisors, and what it tells the server
    `gateway`      nginx, and the program that configures it

Imports go one way, between packages and between rooms (import-linter enforces it):

    functions, app.py        cli -> api.wire, configuration, domain
         |
      runtime -> engine -> planning -> machines -> domain
         |          +-> backends.spi, backends.accounts, store.port      (no implementation)
         +-> backends.*, hosts.*, store.*
         +-> api -> usecases -> store.port, catalog, planning, configuration; wake ports of engine

Each package may raise from `errors`, clean texts with `printable`, know own addresses by `loopback`, trace by `otlp`.
"""
