"""The command line of a gateway's control program: `agent gateway --data FOLDER`."""

from __future__ import annotations

import argparse
import os
import pwd
import resource
import signal
from typing import List

from ..kernel.log import log
from ..kernel.tasks import take_lock
from .nginx import Listens, Nginx
from .plane import PlaneClient
from .program import GatewayProgram

WORKERS = "www-data"  # the user of Debian's nginx
FILES = 65536


def main(arguments: List[str]) -> int:
    options = make_parser().parse_args(arguments)
    folder = os.path.abspath(options.folder or options.data.rstrip("/") + "-gateway")
    os.makedirs(folder, exist_ok=True)
    if not take_folder(folder):
        log("a gateway is already running in %s" % folder)
        return 0
    raise_files()
    listens = Listens(options.http or ["80"], options.https or [])
    nginx = Nginx(folder, listens, options.workers, options.user)
    gateway = GatewayProgram(folder, nginx, PlaneClient(os.path.abspath(options.data)), log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: gateway.stop())
    gateway.run()
    return 0


def take_folder(folder: str) -> bool:
    """Lock the folder until this process ends; False if another process has it. The lock holds the pid to signal."""
    lock = take_lock(os.path.join(folder, "lock"))
    if lock is None:
        return False
    os.ftruncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
    return True


def raise_files() -> None:
    """Raise the limit of open files: streams to three hundred replicas take more than the default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("agent gateway", description="Runs a gateway: nginx, configured by the server.")
    parser.add_argument("--data", required=True, help="the folder of this machine's agent, with server and credential")
    parser.add_argument("--folder", help="the gateway's own folder; the agent's with `-gateway` unless given")
    parser.add_argument("--http", action="append", metavar="[ADDRESS:]PORT", help="where to listen; 80 unless given")
    parser.add_argument("--https", action="append", metavar="[ADDRESS:]PORT", help="where to listen with TLS")
    parser.add_argument("--workers", default="auto", help="nginx's worker processes; one a core unless given")
    parser.add_argument(
        "--user", type=existing_user, default=default_user(), help="the workers' user if root starts them"
    )
    return parser


def default_user() -> str:
    return WORKERS if os.geteuid() == 0 else ""


def existing_user(name: str) -> str:
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise argparse.ArgumentTypeError("there is no user %r" % name) from None
    return name
