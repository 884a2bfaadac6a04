"""The command line: `run` the agent (the default), `supervise` one task, print the machine's `facts`, `clear` what the
agent and its tasks left on the machine, or `leave` the fleet that the machine joined by itself. `gateway` runs the
gateway's program beside the agent. With `--inside` the machine is the container that the agent runs in.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Dict, List, Optional

from .. import VERSION
from ..kernel import interpreter
from ..kernel.lazy import load_all
from ..kernel.log import log
from ..kernel.task_runtime import TaskRuntime, isolation
from ..kernel.tasks import TaskFolder, read_text, take_lock, tidy, write_atomic
from ..runtimes.users import DEFAULT, TRUSTING, id_range

if TYPE_CHECKING:
    import argparse

    from .first_process import FirstProcess

DOCKER_SOCKET = "/var/run/docker.sock"
FOLDER_IN_USE = 3  # exit status: another instance has the folder, or an agent runs on it
ENDED = 4  # exit status: the instance has ended, so there is nothing to start again
FINAL = (ENDED, FOLDER_IN_USE, 2)  # exit statuses that a restart wouldn't change; 2: the command line is wrong


def main(arguments: List[str]) -> int:
    os.umask(0o077)  # what the agent writes is private unless a call sets another mode
    interpreter.hide_locale()
    if arguments[:1] == ["supervise"]:
        return supervise(arguments[1])
    if arguments[:1] == ["session"]:
        from ..sessions import session_command

        load_all()
        return session_command.main(arguments[1], int(arguments[2]))
    if arguments[:1] == ["gateway"]:
        from ..gateway import command

        return command.main(arguments[1:])
    options = make_parser().parse_args(arguments)
    if options.command == "facts":
        from .inventory import Inventory

        print(json.dumps(Inventory(options.data or "/").facts(isolation(runtimes(options.data or "/", options)))))
        return 0
    if options.command == "clear" and options.data:
        return clear(options)
    if options.inside:
        return inside(options)
    if options.command == "leave":
        from . import leaving

        return leaving.leave(options, runtimes)
    if not options.data or not options.instance:
        make_parser().error("--data and --instance are needed")
    return run(options)


def make_parser() -> argparse.ArgumentParser:
    import argparse  # here, because sessions and supervisors do without it

    from .notices import SOURCES

    parser = argparse.ArgumentParser("agent", description="Runs the tasks that a server gives to this machine.")
    parser.add_argument("command", nargs="?", choices=["run", "facts", "clear", "leave"], default="run")
    parser.add_argument("--server", help="the server's URL; stored in the data folder and read from there afterwards")
    parser.add_argument("--data", help="the agent's folder: tasks, their output, the credential")
    parser.add_argument("--instance", help="the id of this machine's instance")
    parser.add_argument("--token-file", help="a file with the bootstrap token (or DSTACK_AGENT_TOKEN)")
    parser.add_argument("--runtime", choices=["auto", "docker", "process"], default="auto")
    parser.add_argument(
        "--inside",
        action="store_true",
        help="be the first process of a container, whose one task runs in it too; settings come from DSTACK_SERVER, "
        "DSTACK_INSTANCE and DSTACK_TOKEN unless they are given",
    )
    parser.add_argument("--docker-socket", default=DOCKER_SOCKET)
    parser.add_argument(
        "--users",
        type=user_ids,
        default=DEFAULT,
        metavar="FIRST-LAST|%s" % TRUSTING,
        help="the user ids for plain processes where root runs the agent, or `%s`: all run as its own user" % TRUSTING,
    )
    parser.add_argument(
        "--unit", help="the systemd unit that runs this agent; it leaves the machine once it isn't wanted"
    )
    parser.add_argument(
        "--notices", choices=sorted(SOURCES), help="the metadata service to poll for spot interruption notices"
    )
    parser.add_argument("--force", action="store_true", help="leave: also end tasks, and without the server's answer")
    parser.add_argument("--wait", type=float, default=25.0, help="how long a poll may wait, in seconds")
    parser.add_argument("--version", action="version", version=VERSION)
    return parser


def user_ids(text: str) -> str:
    import argparse

    if text != TRUSTING:
        try:
            id_range(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None
    return text


def supervise(path: str) -> int:
    from . import supervisor

    data, task = os.path.dirname(os.path.dirname(path)), os.path.basename(path)
    if not supervisor.detach():
        return 0
    folder = TaskFolder(data, task)
    launch = folder.launch()
    runtime = make_runtime(launch["runtime"], data, launch["socket"], launch.get("users", ""))
    load_all()
    supervisor.run(folder, runtime)
    return 0


def make_runtime(name: str, data: str, socket: str, users: str) -> TaskRuntime:
    if name == "docker":
        from ..runtimes.docker import DockerRuntime

        return DockerRuntime(os.path.realpath(data), socket, users)
    if name == "inside":
        from ..runtimes.inside import InsideRuntime

        return InsideRuntime()
    from ..runtimes.process import ProcessRuntime

    return ProcessRuntime(users)


def runtimes(data: str, options: argparse.Namespace) -> Dict[str, TaskRuntime]:
    """The runtimes that work here. `auto` prefers Docker, which isolates tasks. Exits if none works."""
    names = ["inside"] if options.inside else {"auto": ["docker", "process"]}.get(options.runtime, [options.runtime])
    found = {name: make_runtime(name, data, options.docker_socket, options.users) for name in names}
    usable = {name: runtime for name, runtime in found.items() if not runtime.problem()}
    if not usable:
        sys.exit("; ".join(runtime.problem() for runtime in found.values()))
    return usable


def clear(options: argparse.Namespace) -> int:
    from . import build, clearing
    from .roster import Roster

    data = os.path.abspath(options.data)
    if not os.path.isdir(data):
        return 0
    lock = take_lock(os.path.join(data, "lock"))
    if lock is None:
        print("an agent is running on %s; stop it first" % data, file=sys.stderr)
        return FOLDER_IN_USE
    usable = runtimes(data, options)
    roster = Roster(data, usable, sorted(usable)[0], lambda: build.unpack(data), options.docker_socket, options.users)
    problem = clearing.clear(data, usable, roster)
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


def inside(options: argparse.Namespace) -> int:
    """Run the agent as a container's first process; returns the container's exit status."""
    from ..runtimes.inside import data_candidates, data_folder, read_status
    from .first_process import FirstProcess

    options.server = options.server or os.environ.get("DSTACK_SERVER")
    options.instance = options.instance or os.environ.get("DSTACK_INSTANCE")
    if not options.instance:
        make_parser().error("--instance or DSTACK_INSTANCE is needed")
    if not options.token_file:
        os.environ.setdefault("DSTACK_AGENT_TOKEN", os.environ.get("DSTACK_TOKEN", ""))
    try:
        options.data = options.data or data_folder(data_candidates(os.environ))
    except OSError as problem:
        print(problem, file=sys.stderr)
        return 1
    if read_status(options.data) is None:  # else the provider has restarted the container
        status = FirstProcess(lambda status: status in FINAL).run(lambda first: run(options, first))
        if status != ENDED:
            return status
    return read_status(options.data) or 0


def run(options: argparse.Namespace, first: Optional[FirstProcess] = None) -> int:
    """`first`: the container's first process, if the machine is a container."""
    from . import build, notices, program
    from .address import followed
    from .inventory import Inventory
    from .roster import Roster

    data = os.path.abspath(options.data)
    os.makedirs(os.path.join(data, "tasks"), mode=0o711, exist_ok=True)
    owner = (read_text(os.path.join(data, "instance")) or options.instance).strip()
    if owner != options.instance:
        print(
            "%s belongs to instance %s, not %s; choose another --data" % (data, owner, options.instance),
            file=sys.stderr,
        )
        return FOLDER_IN_USE
    store(data, "instance", options.instance)
    if options.server:
        store(data, "server", followed(data, options.server))
    if options.unit:
        store(data, "unit", options.unit)
    token = read_text(options.token_file) if options.token_file else os.environ.pop("DSTACK_AGENT_TOKEN", None)
    if token:
        store(data, "token", token.strip())
    if not read_text(os.path.join(data, "server")):
        make_parser().error("--server is needed the first time")
    lock = take_lock(os.path.join(data, "lock"))
    if lock is None:
        print(
            "an agent is already running on %s; it continues with %s" % (data, options.server or "its server"),
            file=sys.stderr,
        )
        return 0
    os.ftruncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())  # the process to signal to stop
    leave_group()
    usable = runtimes(data, options)
    try:
        tidy(data, lambda: build.unpacked_path(data))
    except OSError as problem:  # what remains only takes up space
        log("tidying %s: %s" % (data, problem))
    roster = Roster(data, usable, sorted(usable)[0], lambda: build.unpack(data), options.docker_socket, options.users)
    session = program.new_session(data, options.instance, roster, VERSION, options.wait)
    inventory = Inventory(data, facts_file=os.environ.get("DSTACK_AGENT_FACTS"))
    poller = notices.NoticePoller(notices.SOURCES[options.notices](), log) if options.notices else None
    agent = program.AgentProgram(data, options.instance, session, roster, usable, inventory, notices=poller)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop() if first is None else agent.interrupt())
    if first is not None and first.warned:
        agent.interrupt()
    listed = ", ".join("%s (isolation: %s)" % item for item in sorted(isolation(usable).items()))
    log("agent %s of instance %s, runtimes: %s" % (VERSION, options.instance, listed))
    ended = agent.run()
    if ended and options.unit:
        from . import leaving

        leaving.start(data)
    # Threads may be stuck in a poll or a slow fetch; everything that matters is on disk.
    os._exit(ENDED if ended else 0)


def leave_group() -> None:
    """Leave the starter's process group, whose signals aren't meant for the agent. A leader stays in its own group."""
    if os.getpgrp() != os.getpid():
        os.setsid()


def store(data: str, name: str, value: str) -> None:
    if (read_text(os.path.join(data, name)) or "").strip() != value:
        write_atomic(os.path.join(data, name), value + "\n", durable=True)
