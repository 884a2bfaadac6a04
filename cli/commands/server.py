"""`dstack server`: starts the embedded control plane (`chalicelib.runtime`).

Its commands are in modules of their own, named in `COMMANDS`: each has an `app` whose commands join this group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.commands import server_backup, server_info, server_install, server_migrate
from cli.commands.server_packages import check_packages
from cli.main import other_dstack
from cli.screen.parameters import epilog, new_group
from cli.screen.terminal import STANDARD_INPUT, Terminal, terminal

COMMANDS = (server_info, server_backup, server_install, server_migrate)
HELP = """\
Start the control plane on this machine.

Adds its project to ~/.dstack/config.yml, unless that names another server's project with the same name: -y
replaces it. Remote machines report to --public-url, or by default to the address the server listens on.

Jobs run in containers if Docker answers. Otherwise they are plain processes: each as a user of its own if root
runs the server (DSTACK_SERVER_JOB_USERS, 61000-61999), else as the server's user and for admins only; with
--trust-jobs for all members.

Each flag overrides a variable: DSTACK_SERVER_HOST, DSTACK_SERVER_PORT, DSTACK_SERVER_URL,
DSTACK_SERVER_DIR, DSTACK_SERVER_CONFIG, DSTACK_SERVER_LOG_LEVEL, DSTACK_SERVER_ADMIN_TOKEN,
DSTACK_SERVER_ENTER_PROJECT (on for -y, off for -n), DSTACK_SERVER_LOCAL_FLEET, DSTACK_SERVER_LOCAL_BLOCKS,
DSTACK_SERVER_LOCAL_HOSTS, DSTACK_SERVER_FAKE_CLOUD, DSTACK_SERVER_FAKE_CLOUD_NAME, DSTACK_SERVER_STOP_JOBS,
DSTACK_SERVER_TRUST_JOBS, DSTACK_SERVER_SERVICES_DOMAIN, DSTACK_SERVER_TLS_CERT, DSTACK_SERVER_TLS_KEY,
DSTACK_SERVER_TLS_ACME, DSTACK_SERVER_TRUSTED_PROXIES, DSTACK_SERVER_PAIR.
DSTACK_PAIR_EVERY is how often the server of a pair that decides copies itself to their place (10s), DSTACK_PAIR_LEASE
for how long it decides while it can't reach that place (15s), and DSTACK_BACKUP_KEY_FILE seals the copies.
DSTACK_SERVER_LOG_FORMAT is text or json, and DSTACK_SERVER_LOG_REQUESTS the level of its lines about requests: info in
JSON, debug in text.
DSTACK_SERVER_AUDIT_FILE names a file to which each event is appended, for `dstack audit verify`; after
DSTACK_SERVER_AUDIT_FILE_MB megabytes a new one begins. DSTACK_SERVER_AUDIT_S3 names a bucket, as s3://bucket/prefix,
and DSTACK_SERVER_AUDIT_SYSLOG a server, as tls://host, tcp://host, udp://host or unix:///dev/log, for the same.
OTEL_EXPORTER_OTLP_ENDPOINT names whoever collects traces of runs.
DSTACK_CATALOG_FILE names a CSV of prices for clouds that may not be asked for them, DSTACK_CATALOG_URL a published
catalogue of such prices.
DSTACK_ACME_SERVER names the directory of another certificate authority than Let's Encrypt, for gateways and --tls-acme,
DSTACK_ACME_CA a file of certificates to trust about it, DSTACK_ACME_EAB_KID and DSTACK_ACME_EAB_HMAC_KEY an account
there. DSTACK_SERVER_ACME_PORT is the port at which the authority asks, if port 80 is forwarded to another.
DSTACK_RETAIN_EVENTS, _METRICS, _LOGS, _DELETED, _FLEETS and _ARCHIVES say for how many days things are kept.
No --json: it runs until it is stopped; its log goes to standard error.
"""

app = new_group(
    HELP,
    invoke_without_command=True,
    epilog=epilog(
        "dstack server",
        "dstack server --port 3100 --data-dir /srv/dstack --log-level debug",
        "dstack server --public-url https://dstack.example.com",
        "dstack server --fake-cloud --no-local-fleet",
    ),
)


@app.callback()
def server(
    ctx: typer.Context,
    *,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDR", help="The address to listen on; 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("-p", "--port", min=0, max=65535, metavar="N", help="The port; 3000. 0 picks a free one."),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option("--public-url", metavar="URL", help="Where remote machines reach this server."),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert", metavar="FILE", help="Answer to https, with this certificate; followed as it changes."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's private key.")
    ] = None,
    tls_acme: Annotated[
        str | None,
        typer.Option(
            "--tls-acme", metavar="HOST", help="Answer to https, with a certificate got by ACME for this host."
        ),
    ] = None,
    pair: Annotated[
        str | None,
        typer.Option(
            "--pair",
            metavar="PLACE",
            help="Be one of two servers: one decides, the other takes over. A folder of neither, or s3://bucket/prefix.",
        ),
    ] = None,
    trusted_proxies: Annotated[
        str | None,
        typer.Option(
            "--trusted-proxies", metavar="NETS", help="Proxies that say for whom they ask: 10.0.0.5,10.1.0.0/24."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="The data folder; ~/.dstack/server.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The config.yml; the one in the data folder.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option("-l", "--log-level", metavar="LEVEL", help="debug, info, warning or error."),
    ] = None,
    debug: Annotated[bool, typer.Option("-d", "--debug", help="The same as --log-level debug.")] = False,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", help="The admin's token; `-` reads it from standard input."),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Add the project to ~/.dstack/config.yml.")] = False,
    no: Annotated[bool, typer.Option("-n", "--no", help="Don't change ~/.dstack/config.yml.")] = False,
    local_fleet: Annotated[
        bool | None, typer.Option("--local-fleet/--no-local-fleet", help="Whether this machine may run jobs.")
    ] = None,
    local_blocks: Annotated[
        str | None, typer.Option("--local-blocks", metavar="N|auto", help="How many jobs may share this machine.")
    ] = None,
    local_hosts: Annotated[
        int | None,
        typer.Option(
            "--local-hosts",
            min=1,
            max=64,
            metavar="N",
            help="Make this machine a cluster of N hosts, to try tasks with several nodes.",
        ),
    ] = None,
    fake_cloud: Annotated[
        bool | None, typer.Option("--fake-cloud", help="Add a simulated cloud; its machines are local processes.")
    ] = None,
    fake_cloud_name: Annotated[
        str | None,
        typer.Option("--fake-cloud-name", metavar="TYPE", help="The backend that the simulated cloud stands in for."),
    ] = None,
    services_domain: Annotated[
        str | None,
        typer.Option("--services-domain", metavar="NAME", help="Services are RUN.PROJECT.NAME; localhost."),
    ] = None,
    stop_jobs: Annotated[
        bool | None, typer.Option("--stop-jobs", help="Stop this machine's jobs when the server stops.")
    ] = None,
    trust_jobs: Annotated[
        bool | None,
        typer.Option("--trust-jobs", help="Without containers, run every member's jobs as the server's own user."),
    ] = None,
) -> None:
    """Start the control plane on this machine."""
    if ctx.invoked_subcommand is not None:
        return
    if debug and log_level not in (None, "debug"):
        raise typer.BadParameter(f"--debug and --log-level {log_level} contradict each other.")
    if yes and no:
        raise typer.BadParameter("-y and -n contradict each other.", ctx=ctx)
    check_packages()
    if other := other_dstack():
        terminal(ctx).warn(other)
    from chalicelib.runtime.serve import serve
    from chalicelib.runtime.settings import server_settings

    settings = server_settings(
        host=host,
        port=port,
        public_url=public_url,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_acme=tls_acme,
        trusted_proxies=trusted_proxies,
        pair_place=pair,
        data_dir=data_dir,
        server_config=config,
        log_level="debug" if debug else log_level,
        admin_token=_admin_token(terminal(ctx), token),
        enter_project=True if yes else False if no else None,
        local_fleet=local_fleet,
        local_blocks=local_blocks,
        local_hosts=local_hosts,
        fake_cloud=fake_cloud,
        fake_cloud_name=fake_cloud_name,
        services_domain=services_domain,
        stop_jobs=stop_jobs,
        trust_jobs=trust_jobs,
    )
    if fake_cloud_name and not settings.fake_cloud:
        raise typer.BadParameter("--fake-cloud-name needs --fake-cloud.", ctx=ctx)
    raise typer.Exit(serve(settings))


def _admin_token(here: Terminal, token: str | None) -> str | None:
    """The token of `--token`, with a warning: everyone on the machine can read the server's command line."""
    if token not in (None, "", STANDARD_INPUT):
        here.warn(
            "Anyone on this machine can read what --token says in the process list. Use "
            "DSTACK_SERVER_ADMIN_TOKEN, or --token - with the token on standard input."
        )
    return here.secret(token, "--token") if token else None


for module in COMMANDS:
    app.add_typer(module.app)
