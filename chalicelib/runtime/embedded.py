"""The control plane on one machine: `dstack server`.

SQLite, files, one reconciler thread and an ASGI server around the same Chalice app, use cases and engine that run in
Lambda. Everything durable is in the data folder, so a server that was killed goes on where it stood.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from chalicelib.backends.spi import Backend
from chalicelib.domain.ids import derive
from chalicelib.domain.specs.server import ServerConfig
from chalicelib.domain.tenants import Permissions, Project, User
from chalicelib.engine.ports import News
from chalicelib.engine.reconcile import Reconciler
from chalicelib.errors import DstackError, Refused
from chalicelib.runtime.asgi import Gateway, Polls
from chalicelib.runtime.clock import SystemClock, random_id, random_token
from chalicelib.runtime.local_fleet import ensure_fleet
from chalicelib.runtime.local_host import LocalAgent
from chalicelib.runtime.loop import EffectPool, Loop, Ticker
from chalicelib.runtime.server_file import declared
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store import keys, nouns
from chalicelib.usecases.context import Plane

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger(__name__)

API_THREADS = 4
PROGRAM_FILE = "agent.pyz"
SWEEP_EVERY = 300.0  # seconds between two looks for what belongs to nobody
STOP_PATIENCE = 60.0  # seconds for jobs to end on SIGTERM, with --stop-jobs


def serve(settings: ServerSettings) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status; what a person can mend is said in one line on stderr."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        config = declared(settings)
        listener = _listen(settings.host, settings.port)
        with listener, _folder(settings.data_dir):
            return _run(settings, config, listener)
    except DstackError as error:
        print(f"dstack server: {error}", file=sys.stderr)
        return 1


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Refused(
                f"Port {port} on {host} is in use by another program.",
                hint="Choose another with --port, or --port 0 for any.",
            ) from error
        raise Refused(f"Can't listen on {host}:{port}: {error.strerror}.") from error
    return listener


def _folder(path: Path) -> IO[str]:
    """Make the data folder private and take its lock, which the kernel gives back however this process ends."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        lock = os.fdopen(os.open(path / "server.lock", os.O_RDWR | os.O_CREAT, 0o600), "w")
    except OSError as error:
        raise Refused(
            f"Can't use the data folder {path}: {error.strerror}.", hint="Choose another with --data-dir."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise Refused(
            f"Another server is using the data folder {path}.", hint="Stop it first, or choose another with --data-dir."
        ) from error
    return lock


def kept_secret(path: Path) -> bytes:
    """32 random bytes, made once and kept private. The folder is ours alone, so nobody else makes them meanwhile."""
    if not path.exists():
        draft = path.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)  # whole or not at all: half a key would seal what nothing opens
    try:
        kept = bytes.fromhex(path.read_text())
    except ValueError:
        kept = b""
    if len(kept) != 32:
        raise Refused(
            f"{path} isn't the key that was made there: it must hold 64 hexadecimal digits.",
            hint="Put it back from a copy of the data folder; what it sealed can't be read with another.",
        )
    return kept


@dataclass(frozen=True)
class Parts:
    """The assembled plane, and what must be stopped when it ends."""

    plane: Plane
    loop: Loop
    effects: EffectPool
    backends: Mapping[str, Backend]
    passes: Reconciler
    sweeps: Ticker

    def close(self) -> None:
        self.sweeps.stop()
        self.loop.stop()
        self.effects.stop()
        for backend in self.backends.values():
            backend.close()
        self.plane.store.close()


def compose(settings: ServerSettings, config: ServerConfig, url: str, ring: News) -> Parts:
    """Name every implementation, once."""
    from chalicelib.backends.registry import simulated
    from chalicelib.catalog.offers import StoredCatalog
    from chalicelib.engine.execute import Executor
    from chalicelib.engine.sweep import Sweeper
    from chalicelib.store.blobs import FileBlobs
    from chalicelib.store.log_files import FileLogs
    from chalicelib.store.seal import Sealer
    from chalicelib.store.sqlite import SqliteStore
    from chalicelib.usecases.agent_files import PROGRAM
    from chalicelib.usecases.server_config import sealing_keys

    folder = settings.data_dir
    store = SqliteStore(folder / "plane.db")
    install_key = kept_secret(folder / "install.key")
    install_id = derive(install_key.hex(), "install")
    clock, blobs = SystemClock(), FileBlobs(folder / "blobs")
    loop = Loop(clock, store.next_due)
    program = agent_program(folder)
    blobs.put(PROGRAM, program.read_bytes())
    backends = simulated(folder / "fake-cloud", url, program) if settings.fake_cloud else {}
    facts = {name: backend.facts for name, backend in backends.items()}
    catalog = StoredCatalog(blobs, clock)
    catalog.refresh(backends)
    executor = Executor(
        store,
        clock,
        backends,
        install_id=install_id,
        install_key=install_key,
        wake=loop.wake,
        server_url=url,
        news=ring,
    )
    effects = EffectPool(executor.execute)
    plane = Plane(
        store=store,
        blobs=blobs,
        logs=FileLogs(folder / "logs"),
        seal=Sealer(*sealing_keys(config, kept_secret(folder / "master.key"))),
        catalog=catalog,
        clock=clock,
        wake=loop.wake,
        news=ring,
        random_id=random_id,
        random_token=random_token,
        install_id=install_id,
        install_key=install_key,
        facts=facts,
        server_url=url,
        embedded=True,
        sync_fast=0.0,
        limits=settings.limits,
        images=settings.images,
        permissions=config.default_permissions.meant if config.default_permissions else Permissions(),
    )
    passes = Reconciler(store, clock, wake=loop.wake, news=ring, effects=effects, catalog=catalog, facts=facts)
    sweeper = Sweeper(store, clock, backends, install_id=install_id)
    return Parts(plane, loop, effects, backends, passes, Ticker(SWEEP_EVERY, sweeper.run))


def agent_program(folder: Path) -> Path:
    """The agent as one file in the data folder, built from the package when this server starts."""
    from chalicelib.agent.build import write

    program = folder / PROGRAM_FILE
    write(str(program))
    program.chmod(0o700)
    return program


def _run(settings: ServerSettings, config: ServerConfig, listener: socket.socket) -> int:
    from chalicelib.runtime import deps
    from chalicelib.usecases.bootstrap import first_start
    from chalicelib.usecases.server_config import ensure_projects

    url = _url_of(listener)
    polls = Polls()
    parts = compose(settings, config, url, polls.ring)
    deps.set_plane(lambda: parts.plane)
    try:
        token, project = first_start(parts.plane, settings.admin_token)
        owner = nouns.find(parts.plane.store, User, keys.user(project.owner_id))
        assert owner is not None, "the first start made the admin"
        ensure_projects(parts.plane, owner, config)
        agent = _local_agent(settings, parts.plane, project, url)
        parts.loop.start(parts.passes)
        if parts.backends:
            parts.sweeps.start()

        def ready() -> None:
            _welcome(settings, url, token, owner)
            if agent is not None:
                agent.start()

        def drain() -> None:
            if settings.stop_jobs and agent is not None:
                agent.stop_jobs(project, patience=STOP_PATIENCE)
            polls.close()  # or the long polls would hold the shutdown for a minute

        server = _server(_uvicorn_config(_gateway(parts.plane, polls, ready)), drain)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # uvicorn raises the signal again once it has drained
        server.run(sockets=[listener])
        if agent is not None and not agent.busy():  # a busy one goes on: jobs need no server
            agent.stop()
    finally:
        parts.close()
    return 0


def _server(config: uvicorn.Config, drain: Callable[[], None]) -> uvicorn.Server:
    """Uvicorn, but draining before it stops listening, and asleep while nothing happens: its own loop wakes ten times a
    second to look at a flag and the date."""
    import uvicorn

    class Server(uvicorn.Server):  # type: ignore[misc]  # the type checker skips uvicorn
        async def main_loop(self) -> None:
            self._loop, self._leaving = asyncio.get_running_loop(), asyncio.Event()
            await self._leaving.wait()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            threading.Thread(target=self._leave, args=(sig, frame), daemon=True).start()

        def _leave(self, sig: int, frame: FrameType | None) -> None:
            drain()
            super().handle_exit(sig, frame)
            self._loop.call_soon_threadsafe(self._leaving.set)

    return Server(config)


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _uvicorn_config(application: Any) -> uvicorn.Config:
    import uvicorn

    from chalicelib.runtime.connection import Connection

    return uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        lifespan="on",
        http=Connection,
        ws="none",
        server_header=False,
        date_header=False,
        timeout_keep_alive=90,
        timeout_graceful_shutdown=5,
    )


def _gateway(plane: Plane, polls: Polls, ready: Callable[[], None]) -> Gateway:
    import app
    from chalicelib.usecases.agent import has_news

    threads = ThreadPoolExecutor(API_THREADS, thread_name_prefix="api")
    return Gateway(app.app, threads, polls, body_limit=plane.limits.body, has_news=has_news, on_ready=ready)


def _local_agent(settings: ServerSettings, plane: Plane, project: Project, url: str) -> LocalAgent | None:
    if not settings.local_fleet:
        return None
    place = ensure_fleet(plane, project, settings.local_blocks)
    folder = "agent" if place.first else f"agent-{place.instance_id[:8]}"  # a folder belongs to one instance
    program = settings.data_dir / PROGRAM_FILE
    options = ("--runtime", settings.agent_runtime, "--docker-socket", str(settings.docker_socket))
    return LocalAgent(plane, settings.data_dir / folder, place.instance_id, url, program, options)


def _welcome(settings: ServerSettings, url: str, token: str | None, admin: User) -> None:
    from chalicelib.runtime.announce import first_words

    lines = first_words(settings.config_path, url, token, admin.token_hash, settings.enter_project)
    print("\n".join(lines), flush=True)
