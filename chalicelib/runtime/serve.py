"""`dstack server` from start to end: the resources that it acquires, in order, and releases."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial

from chalicelib.api.routes import load_handlers
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain import keys
from chalicelib.domain.tenants import Project, User
from chalicelib.errors import DstackError
from chalicelib.runtime.addresses import listen, local_end
from chalicelib.runtime.backup_keys import check_schedule
from chalicelib.runtime.clock import random_id
from chalicelib.runtime.connection_admission import raise_descriptors
from chalicelib.runtime.data_folder import locked, private_file
from chalicelib.runtime.embedded import PROGRAM_FILE, EmbeddedRoot
from chalicelib.runtime.entrances import Entrances, opened
from chalicelib.runtime.local_fleet import ensure_fleet
from chalicelib.runtime.local_host import LocalAgent, LocalAgents, isolation_here, resources_here
from chalicelib.runtime.migration.signpost import fenced, show_the_way
from chalicelib.runtime.pair.pair import Pair, paired
from chalicelib.runtime.pair.standby import stand_by
from chalicelib.runtime.pair.tenure import Tenure
from chalicelib.runtime.request_log import RequestLog, RequestMeter
from chalicelib.runtime.server_file import ServerFile, declared
from chalicelib.runtime.server_log import JSON, set_up_log
from chalicelib.runtime.settings import ServerSettings
from chalicelib.runtime.startup_message import restored_lines, startup_lines
from chalicelib.runtime.ticker import Ticker
from chalicelib.runtime.upgrade import check_records
from chalicelib.runtime.web import WebServer
from chalicelib.store import nouns
from chalicelib.store.fences import decides
from chalicelib.store.port import Store
from chalicelib.usecases.context import Plane
from chalicelib.usecases.operator.first_start import first_start

log = logging.getLogger("dstack.server")

TOKEN_FILE = "admin.token"  # noqa: S105 - its name
FOLLOW_EVERY = 2.0  # seconds between two checks of the server's file
MOVE_EVERY = 1.0  # seconds between two checks whether the control plane moves elsewhere
HANDED_OVER = 30.0  # seconds for which the command that has moved it here may still hold the folder
STOP_PATIENCE = 60.0  # seconds for jobs to end on SIGTERM, with --stop-jobs


def serve(settings: ServerSettings, kind: type[EmbeddedRoot] = EmbeddedRoot) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status; an error that the user can fix is one line on stderr."""
    set_up_log(settings.log_level, settings.log_format)
    raise_descriptors()
    try:
        if settings.pair_place:
            with listen(settings.host, settings.port) as listener:
                return _serve_paired(settings, listener, kind)
        config = declared(settings)
        with listen(settings.host, settings.port) as listener:
            return _serve(settings, config, listener, kind)
    except DstackError as error:
        print(f"dstack server: {error}", file=sys.stderr)
        return 1


def _serve_paired(settings: ServerSettings, listener: socket.socket, kind: type[EmbeddedRoot]) -> int:
    """Stand by until it is this server's turn, then decide for as long as the lease is its."""
    with paired(settings, partial(print, flush=True)) as pair:
        tenure = pair.begin()
        if tenure is None:
            with opened(settings, listener.dup()) as entrances:
                standby = stand_by(pair, entrances, settings.trusted_proxies)
            if standby.tenure is None:
                return 0
            with standby.tenure.renewed():
                standby.restore()
                _decide(settings, listener, kind, pair, standby.tenure)
        else:
            with tenure.renewed():
                _decide(settings, listener, kind, pair, tenure)
    return 0


def _decide(
    settings: ServerSettings, listener: socket.socket, kind: type[EmbeddedRoot], pair: Pair, tenure: Tenure
) -> None:
    """Raises Fenced if this ends because the lease is lost."""
    copier = pair.copier(tenure)
    with copier.copying():
        _serve(settings, declared(settings), listener, kind, tenure)
    copier.rest()


def _serve(
    settings: ServerSettings,
    config: ServerConfig,
    listener: socket.socket,
    kind: type[EmbeddedRoot],
    tenure: Tenure | None = None,
) -> int:
    """Be a server as long as the folder's control plane decides, and a signpost while it doesn't."""
    patience = 0.0
    while True:
        if fenced(settings.data_dir) is not None:
            patience = HANDED_OVER
            with opened(settings, listener.dup()) as entrances:
                if not show_the_way(settings.data_dir, entrances, settings.trusted_proxies):
                    return 0
        with locked(settings.data_dir, patience=patience):
            check_schedule(settings.data_dir, settings.backups)
            with opened(settings, listener.dup()) as entrances:  # serving closes what it listens at
                if not _run(settings, config, entrances, kind, tenure):
                    return 0


def _run(
    settings: ServerSettings,
    config: ServerConfig,
    entrances: Entrances,
    kind: type[EmbeddedRoot],
    tenure: Tenure | None = None,
) -> bool:
    """Serve until a signal comes, or until this server has lost its lease. Returns True if it ends because the control
    plane moves to another place."""
    found, listener = entrances.addresses, entrances.all[0].listener
    root = kind(settings, config, found.remote, tenure=tenure)
    try:
        plane = root.plane
        check_records(plane.store)
        token, project = first_start(plane, settings.admin_token)
        owner = nouns.find(plane.store, User, keys.user(project.owner_id))
        assert owner is not None, "the first start created the admin"
        file = ServerFile(settings, plane, owner, config, root.subscribers.follow)
        file.start()
        following = Ticker(FOLLOW_EVERY, file.check_file)
        agents = _local_agents(settings, plane, project, found.local)
        isolation = isolation_here(settings) if agents is not None else ""  # asked before there are threads
        root.start()
        root.carry(local_end(listener))
        following.start()

        say = partial(_say, settings)

        def ready() -> None:
            lines = startup_lines(settings.config_path, found.shown, token, owner.token_hash, settings.enter_project)
            notes = filter(None, (found.note, found.warning, isolation))
            say([*lines, *notes, *restored_lines(root.hold.mark, root.hold.looking)], token)
            if agents is not None:
                agents.start()
            if entrances.certificate is not None:
                entrances.certificate.start()

        def drain() -> None:
            if settings.log_format == JSON:
                log.info("The server is stopping")
            if settings.stop_jobs and agents is not None:
                agents.stop_jobs(project, patience=STOP_PATIENCE)
            root.polls.close()  # or the long polls would hold the shutdown for a minute
            root.door.close()

        _prepare_process()
        requests = RequestLog(settings.request_level, random_id, served=RequestMeter(root.counters, root.measures))
        web = WebServer(
            root, entrances.all, ready=ready, drain=drain, requests=requests, proxies=settings.trusted_proxies
        )
        _serve_until_moved(web, plane.store, entrances, tenure)
        following.stop()
        if entrances.certificate is not None:
            entrances.certificate.stop()
        if agents is not None:
            agents.stop()
        if not decides(plane.store):
            return True
        if tenure is None or tenure.decides:
            say(root.rest())
    finally:
        root.close()
    if settings.log_format == JSON:
        log.info("The server has stopped")
    return False


def _prepare_process() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again once it has drained
    load_handlers()
    gc.freeze()  # what the start created stays, so no collection needs to check it again,
    gc.set_threshold(10_000)  # and nearly everything that requests create is freed without one
    sys.setswitchinterval(0.001)  # seconds: while threads compute, the event loop gets its turn sooner


def _serve_until_moved(web: WebServer, store: Store, entrances: Entrances, tenure: Tenure | None) -> None:
    told = False

    def check() -> None:
        nonlocal told
        if tenure is not None and (why := tenure.why()):
            if not told:
                told = True
                log.error("%s", why)
                web.leave()
        elif not decides(store):
            log.info("The control plane moves to another place")
            web.leave()

    moving = Ticker(MOVE_EVERY, check)
    moving.start()
    web.run(sockets=[each.listener for each in entrances.all])
    moving.stop()


def _say(settings: ServerSettings, lines: Sequence[str], token: str | None = None) -> None:
    """Print lines for whoever runs the server; in JSON they are the log's, and a new `token` goes to a private file,
    because a log is kept and read by others."""
    if settings.log_format != JSON:
        if lines:
            print("\n".join(lines), flush=True)
        return
    if token is not None and token != settings.admin_token:
        path = settings.data_dir / TOKEN_FILE
        private_file(path, token)
        lines = [*lines, f"The admin token is in {path}: delete the file once you have stored it elsewhere"]
    for line in lines:
        if not any(secret and secret in line for secret in (token, settings.admin_token)) and "--token" not in line:
            log.info("%s", line)


def _local_agents(settings: ServerSettings, plane: Plane, project: Project, url: str) -> LocalAgents | None:
    if not settings.local_fleet:
        return None
    program = settings.data_dir / PROGRAM_FILE
    options = ["--runtime", settings.agent_runtime, "--docker-socket", str(settings.docker_socket)]
    options += ["--users", settings.agent_users]
    agents = []
    here = partial(resources_here, settings.data_dir)
    for place in ensure_fleet(plane, project, settings.local_blocks, settings.local_hosts, here):
        folder = "agent" if place.first else f"agent-{place.instance_id[:8]}"  # a folder belongs to one instance
        agents.append(LocalAgent(plane, settings.data_dir / folder, place.instance_id, url, program, options))
    return LocalAgents(settings.data_dir, agents)
