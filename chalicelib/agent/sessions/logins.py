"""A job's SSH server: the host's sshd, for the job's keys only, in the job's network. No image needs a package.

A process of its own waits on a port of the host's loopback and starts one sshd a connection (`sshd -i`), so it knows
who is connected. It belongs to neither the agent nor the supervisor: killing them cuts no session. It ends with the
job: sessions are hung up, no new one begins, and for LINGER seconds clients can still read the log through their
connections. Where the job was a plain process, new connections can do so, too; a container's network is gone with it.

The nodes of a job let each other in through a second port, at the address where they reach each other: with the key of
their attempt only, which the users' port doesn't take, and without forwarding. It closes when the job ends, and nobody
counts who comes through it.

| in the task's folder | |
|---|---|
| `sessions.json` | what the agent reports: port, user and host key, or the problem; connections; since when none |
|  | and `nodes`: why other nodes can't come in |
| `sessions.lock` | held while the process lives, whose id it has |
| `ssh/` | its configuration, its host key, the job's keys; the same for the nodes |

Who may log in can change while the job runs: the agent writes it down and sends SIGHUP. A connection whose key isn't
among the job's any more is cut, with all that was begun through it.

LC_ALL is set here: clients' locale variables may name files, which would be loaded while the session still runs as
root.

sshd wants a user with an account and a valid shell, and host root may be locked; so it sees a list of users of ours,
and doesn't see the host's records of logins. The session itself is `session_command`, which takes on the job's rights.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..kernel import interpreter, namespaces, networks, process_tree
from ..kernel.task_runtime import TaskRuntime, micros
from ..kernel.tasks import FINAL, TaskFolder, read_json, read_text, take_lock, write_atomic, write_slot
from ..runtimes import accounts
from . import authorized
from .login_connections import LoginConnection, LoginPort
from .protocol import CUT, SFTP

LINGER = 10.0  # seconds for which connections outlive their job, and new ones come in
READY_SECONDS = 10.0
LOOK_EVERY = 1.0  # while nobody tells us of the job's end, because its supervisor was killed
CONNECTIONS_MOST, SESSIONS_MOST = 32, 10  # of a job, and in each of them: a session is some processes of the host
NODES_MOST, NODE_SESSIONS = 256, 4  # the same from other nodes, each of which may have one or two connections here
LOGGING_IN_MOST = 32  # at once and from one address: there, who connects and says nothing takes no node's place
LOCK_TRIES, LOCK_PAUSE = 20, 0.05  # whoever asks whether a server lives holds its lock for a moment
UNREACHABLE = "the other nodes can't reach this one by ssh: %s"
REPORTED = ("ssh", "connections", "idle_since")
LOGIN_SECONDS = 20
LOG_MOST = 65536  # bytes of notes on what went wrong
PLACES = "/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/usr/local/bin:/bin"
PRIVSEP_FOLDER = "/run/sshd"
RECORDS = ("/var/log/lastlog", "/var/log/wtmp", "/run/utmp", "/var/run/utmp")  # of logins to the host itself

CONFIGURATION = """\
HostKey "{folder}/{host_key}"
AuthorizedKeysFile "{folder}/{keys}"
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
HostbasedAuthentication no
PermitRootLogin prohibit-password
AllowUsers {user}
StrictModes no
PermitUserRC no
PermitUserEnvironment no
AllowTcpForwarding {forwarding}
PermitOpen localhost:* 127.0.0.1:* [::1]:*
AllowStreamLocalForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PrintMotd no
PrintLastLog no
UseDNS no
AcceptEnv LANG LC_* COLORTERM
SetEnv LC_ALL=C.UTF-8
ClientAliveInterval 30
ClientAliveCountMax 4
LoginGraceTime {grace}
MaxSessions {most}
PidFile none
LogLevel INFO
Subsystem sftp {subsystem}
ForceCommand {command}
"""


class NoServer(Exception):
    """This host can't serve sessions; the reason is for the job's user."""


class TaskLogins:
    """The supervisor's side: it waits until the port is known, and by its end says that the job may be over."""

    def __init__(self, line: Optional[socket.socket]) -> None:
        self._line = line

    def settle(self) -> None:
        """Returns when the server is ready, or can't be."""
        if self._line is not None:
            select.select([self._line], [], [], READY_SECONDS)


def begin(folder: TaskFolder, runtime: TaskRuntime) -> TaskLogins:
    """Starts the job's SSH server, if it has keys and none runs yet. Its caller has one thread and holds no lock, which
    the server would hold too."""
    if not folder.authorized_keys() and not folder.launch()["spec"].get("node_ssh"):
        return TaskLogins(None)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _detached(folder, runtime, theirs)
    os.waitpid(child, 0)
    theirs.close()
    return TaskLogins(ours)


def _detached(folder: TaskFolder, runtime: TaskRuntime, line: socket.socket) -> None:
    """In a child that isn't the supervisor's: what that ends at the job's end must not be this. Doesn't return."""
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server listens for it, and reads the keys after that
        if os.fork() == 0:
            held = patient_lock(os.path.join(folder.path, "sessions.lock"))
            if held is not None:
                os.ftruncate(held, 0)
                os.write(held, b"%d\n" % os.getpid())
                serve(folder, runtime, line)
                os.close(held)
                folder.notify_agent()  # which may now remove the task
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


def patient_lock(path: str, pause: Callable[[float], None] = time.sleep) -> Optional[int]:
    """The lock, unless a living server has it."""
    for _ in range(LOCK_TRIES):
        held = take_lock(path)
        if held is not None:
            return held
        pause(LOCK_PAUSE)
    return None


def serve(folder: TaskFolder, runtime: TaskRuntime, line: socket.socket) -> None:
    news = LoginNews(folder)
    try:
        server = LoginServer(folder, runtime, line, news)
    except NoServer as problem:
        unreachable = UNREACHABLE % problem if folder.launch()["spec"].get("node_ssh") else None
        news.tell(ssh={"problem": str(problem)}, nodes=unreachable)
        return
    try:
        server.run()
    finally:
        server.close()


def report(folder: TaskFolder) -> Dict[str, Any]:
    """What there is to report about a task's sessions."""
    return read_json(os.path.join(folder.path, "sessions.json")) or {}


def check_listed(uid: int) -> None:
    """sshd lets in only users of the host's list. Raises NoServer."""
    if not accounts.listed_user(uid):
        raise NoServer(
            "attaching isn't possible: the agent of this host runs as uid %d, which isn't in its list of users; add it "
            "to /etc/passwd, or run the agent as another user" % uid
        )


def over(folder: TaskFolder) -> bool:
    """Has the job's SSH server ended, with all that it started?"""
    if not os.path.exists(os.path.join(folder.path, "sessions.lock")):
        return True
    held = take_lock(os.path.join(folder.path, "sessions.lock"))
    if held is not None:
        os.close(held)
    return held is not None


def process(folder: TaskFolder) -> Optional[int]:
    """The process below which everything of the task's SSH server is, forwarded connections too; None if none runs."""
    said = read_text(os.path.join(folder.path, "sessions.lock")) or ""
    return int(said) if said.strip() and not over(folder) else None


def end(folder: TaskFolder) -> None:
    """Asks the server of an ended job to wait for nobody. It may take a moment."""
    found = process(folder)
    if found is not None:
        process_tree.send([found], signal.SIGTERM)


def rekey(folder: TaskFolder) -> None:
    """The keys of the job have changed. A server that begins just now reads the new ones."""
    found = process(folder)
    if found is not None:
        process_tree.send([found], signal.SIGHUP)


def remove(folder: TaskFolder, withdraw: Callable[[str, str], None] = authorized.withdraw) -> None:
    """Ends the server, and takes out what a killed one left on the host, however early that was."""
    end(folder)
    host_user = folder.launch().get("spec", {}).get("host_user")
    if host_user and os.getuid() == 0:
        withdraw(host_user, folder.task)


class LoginNews:
    """What the agent reads, and the agent's wake-up."""

    def __init__(self, folder: TaskFolder) -> None:
        self._folder, self._said = folder, {"connections": 0, "idle_since": micros()}  # type: TaskFolder, Dict[str, Any]

    def tell(self, **news: Any) -> None:
        self._said.update(news)
        if os.path.isdir(self._folder.path):
            write_slot(os.path.join(self._folder.path, "sessions.json"), self._said)
            self._folder.notify_agent()


def program(name: str) -> str:
    """sshd insists on its whole path. Raises NoServer."""
    found = shutil.which(name, path=PLACES)
    if not found:
        raise NoServer(
            "attaching isn't possible: this host has no %s; install its OpenSSH server, for example with "
            "`apt-get install openssh-server`" % name
        )
    return found


class LoginServer:
    def __init__(self, folder: TaskFolder, runtime: TaskRuntime, line: socket.socket, news: LoginNews) -> None:
        self._folder, self._runtime, self._news = folder, runtime, news
        self._line: Optional[socket.socket] = line
        launch = folder.launch()
        self._sshd, self._spec, self._in_container = program("sshd"), launch["spec"], launch.get("runtime") == "docker"
        self._place = os.path.join(folder.path, "ssh")
        self._connections: List[LoginConnection] = []
        self._in_use = 0
        self._allowed: Set[str] = set()  # the fingerprints of the keys that may log in
        self._until = float("inf")  # after the job: when connections are cut
        self._log = os.open(os.path.join(folder.path, "sessions.log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        process_tree.become_subreaper()
        self._woken, self._wakeup = os.pipe()
        for fd in (self._woken, self._wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        user = accounts.server_user()
        check_listed(os.getuid())
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        key = self._host_key()
        keys = self._read_keys()
        config = self._configure(user, "", "local", SESSIONS_MOST, keys)
        self._users = LoginPort(self._listen(), config, CONNECTIONS_MOST)
        self._nodes = self._door_for_nodes(user)
        port = self._users.listener.getsockname()[1]
        self._instead = self._private_files(user)
        self._let_in(port)
        news.tell(ssh={"port": port, "username": user, "host_key": key})
        with contextlib.suppress(OSError):  # the supervisor was killed: the sessions don't need it
            line.sendall(b"ready")

    # Beginning --------------------------------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        """On the port that an earlier server of the job had, if it is still free."""
        known = int((report(self._folder).get("ssh") or {}).get("port") or 0)
        try:
            return networks.listen(None, known)
        except OSError as problem:
            if not known or problem.errno != errno.EADDRINUSE:
                raise NoServer("attaching isn't possible: no port of this host's loopback: %s" % problem) from None
        return networks.listen(None, 0)

    def _host_key(self) -> str:
        path = os.path.join(self._place, "host_key")
        if not os.path.exists(path + ".pub"):
            made = subprocess.run(
                [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            if made.returncode:
                said = made.stdout.decode("utf-8", "replace").strip()
                raise NoServer("attaching isn't possible: ssh-keygen failed: %s" % said)
        with open(path + ".pub") as file:
            return file.read().strip()

    def _door_for_nodes(self, user: str) -> Optional[LoginPort]:
        node_ssh = self._spec.get("node_ssh")
        if not node_ssh:
            return None
        here = node_ssh["nodes"][node_ssh["rank"]]
        try:
            listener = networks.listen(None, here["port"], here["address"])
        except OSError as problem:
            why = "port %d of %s: %s" % (here["port"], here["address"], problem.strerror)
            self._news.tell(nodes=UNREACHABLE % why)
            return None
        write_atomic(os.path.join(self._place, "nodes_host_key"), node_ssh["host_private_key"])
        config = self._configure(user, "nodes_", "no", NODE_SESSIONS, [node_ssh["public_key"]])
        return LoginPort(listener, config, NODES_MOST)

    def _configure(self, user: str, whose: str, forwarding: str, sessions: int, keys: List[str]) -> str:
        """Writes it; returns its path."""
        argv = [*interpreter.command(), sys.argv[0], "session", self._folder.path, str(os.getpid())]
        text = CONFIGURATION.format(
            folder=self._place,
            host_key=whose + "host_key",
            keys=whose + "authorized_keys",
            forwarding=forwarding,
            user=user,
            grace=LOGIN_SECONDS,
            most=sessions,
            subsystem=SFTP,
            command=" ".join(shlex.quote(word) for word in argv),
        )
        write_atomic(os.path.join(self._place, whose + "authorized_keys"), "".join(key + "\n" for key in keys))
        path = os.path.join(self._place, whose + "sshd_config")
        write_atomic(path, text)
        return path

    def _read_keys(self) -> List[str]:
        keys = [key for key in (authorized.bare(key) for key in self._folder.authorized_keys()) if key]
        self._allowed = {authorized.fingerprint(key) for key in keys}
        return keys

    def _private_files(self, user: str) -> Dict[str, str]:
        """What sshd sees in the places of the host's files. Empty without root, which may show it nothing else."""
        if os.getuid() != 0:
            return {}
        ids = ["%s:*:0:0::/:/bin/sh" % user]
        try:
            known = pwd.getpwnam("sshd")
            ids.append("sshd:*:%d:%d::%s:/usr/sbin/nologin" % (known.pw_uid, known.pw_gid, PRIVSEP_FOLDER))
        except KeyError:  # some builds of sshd need no such user, and one that does says so
            pass
        write_atomic(os.path.join(self._place, "passwd"), "".join(line + "\n" for line in ids), 0o644)
        write_atomic(os.path.join(self._place, "shadow"), "%s:*:::::::\n" % user)  # not locked, and without a password
        os.makedirs(PRIVSEP_FOLDER, mode=0o755, exist_ok=True)
        files = {"/etc/passwd": self._place + "/passwd", "/etc/shadow": self._place + "/shadow"}
        write_atomic(os.path.join(self._place, "records"), "")
        files.update({place: self._place + "/records" for place in RECORDS})
        return {os.path.realpath(place): file for place, file in files.items() if os.path.exists(place)}

    def _let_in(self, port: int) -> None:
        """Through the host's own SSH server, if it is one that people reach."""
        user = self._spec.get("host_user")
        if not user:
            return
        if os.getuid() != 0:
            raise NoServer("attaching isn't possible: the agent of this host isn't root, so it can't let in job users")
        try:
            authorized.allow(user, self._folder.authorized_keys(), self._folder.task, port)
        except (KeyError, OSError) as problem:
            raise NoServer("attaching isn't possible: the keys of %s on this host: %s" % (user, problem)) from None

    # Serving ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while time.monotonic() < self._until:
            poll = select.poll()
            for fd in self._watched():
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(self._patience())}
            if self._woken in ready:
                self._reap()
            for connection in [each for each in self._connections if each.said in ready]:
                if not connection.listen():
                    self._gone(connection)
                elif self._barred(connection):
                    self._cut(connection)
            self._count()
            if self._line is not None and self._line.fileno() in ready:  # the supervisor has ended
                self._line.close()
                self._line = None
            if self._line is None and self._until == float("inf") and self._job_over():
                self._wind_down()
            for door in [each for each in self._doors() if each.listener.fileno() in ready]:
                self._accept(door)

    def _watched(self) -> List[int]:
        found = [self._woken, *(each.said for each in self._connections)]
        found += [door.listener.fileno() for door in self._doors() if len(self._through(door)) < door.most]
        return found if self._line is None else [*found, self._line.fileno()]

    def _doors(self) -> List[LoginPort]:
        return [self._users] if self._nodes is None else [self._users, self._nodes]

    def _through(self, door: LoginPort) -> List[LoginConnection]:
        return [each for each in self._connections if each.door is door]

    def _patience(self) -> Optional[int]:
        if self._until < float("inf"):
            return max(0, int((self._until - time.monotonic()) * 1000) + 1)
        return int(LOOK_EVERY * 1000) if self._line is None else None

    def _job_over(self) -> bool:
        return self._folder.state().get("state") in (FINAL, None)  # None: even its folder is gone

    def _accept(self, door: LoginPort) -> None:
        try:
            taken, (peer, *_) = door.listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # gone again
        except OSError as problem:  # too many open files, say; the next one may fare better
            self._note("accepting: %s" % problem)
            return
        with taken:
            if sum(each.peer == peer and not each.accepted for each in self._through(door)) >= LOGGING_IN_MOST:
                self._note("turned away: %d from %s haven't logged in yet" % (LOGGING_IN_MOST, peer))
                return
            try:
                with networks.open_network(lambda: self._runtime.network(self._folder)) as network:
                    self._connections.append(LoginConnection(*self._start(taken, network, door), door, peer))
            except (OSError, LookupError) as problem:
                self._note("a connection: %s" % problem)

    def _start(self, taken: socket.socket, network: Optional[int], door: LoginPort) -> Tuple[int, int]:
        """The process, and where its words are read."""
        said, stderr = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._child(taken.fileno(), stderr, network, door.config)
        os.close(stderr)
        os.set_blocking(said, False)
        return pid, said

    def _child(self, connection: int, stderr: int, network: Optional[int], config: str) -> None:
        """Between fork and exec; sshd closes all other descriptors."""
        try:
            os.setsid()
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(connection, 0)
            os.dup2(connection, 1)
            os.dup2(stderr, 2)
            namespaces.die_with_parent()
            if network is not None:
                namespaces.enter_open({"net": network})
            if self._instead:
                self._bind_over()
            os.execve(self._sshd, [self._sshd, "-i", "-e", "-f", config], {"PATH": PLACES})
        except OSError as problem:
            os.write(2, ("starting sshd: %s\n" % problem).encode())
        finally:
            os._exit(127)

    def _bind_over(self) -> None:
        try:
            namespaces.bind_over(self._instead)
        except OSError as problem:  # root without that right, as in some containers: the host's own users will do
            os.write(2, ("%s\n" % problem).encode())

    def _count(self) -> None:
        in_use = sum(each.accepted for each in self._through(self._users))
        if in_use != self._in_use:
            self._in_use = in_use
            self._news.tell(connections=in_use, idle_since=None if in_use else micros())

    def _gone(self, connection: LoginConnection) -> None:
        os.close(connection.said)
        self._connections.remove(connection)
        if not connection.accepted:
            self._note("no login: %s" % connection.last_words())

    def _barred(self, connection: LoginConnection) -> bool:
        """Did it log in with a key that isn't the job's, or not any more?"""
        users = connection.door is self._users
        return users and bool(connection.fingerprint) and connection.fingerprint not in self._allowed

    def _cut(self, connection: LoginConnection) -> None:
        """End it with all that was begun through it. What runs in a container isn't below: its session ends that."""
        found = process_tree.stopped(connection.pid)
        sessions = [pid for pid in found if not _is_sshd(pid)] if self._in_container else []
        process_tree.send(sessions, CUT)
        process_tree.send([pid for pid in found if pid not in sessions], signal.SIGKILL)
        process_tree.send(sessions, signal.SIGCONT)

    def _rekey(self) -> None:
        keys = self._read_keys()
        write_atomic(os.path.join(self._place, "authorized_keys"), "".join(key + "\n" for key in keys))
        for connection in self._connections:
            if self._barred(connection):
                self._cut(connection)
        self._let_in(self._users.listener.getsockname()[1])

    def _reap(self) -> None:
        signals = _drained(self._woken)
        if signal.SIGTERM in signals:
            self._until = 0.0
        if signal.SIGHUP in signals:
            try:
                self._rekey()
            except (OSError, NoServer) as problem:
                self._note("changing who may log in: %s" % problem)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return

    def _note(self, words: str) -> None:
        if os.fstat(self._log).st_size < LOG_MOST:
            os.write(self._log, ("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%S"), words)).encode())

    # Ending -----------------------------------------------------------------------------------------------------

    def _wind_down(self) -> None:
        self._until = time.monotonic() + LINGER
        below = process_tree.descendants(os.getpid())
        process_tree.send([pid for pid in below if not _is_sshd(pid)], signal.SIGHUP)
        if self._nodes is not None:
            for each in self._through(self._nodes):
                process_tree.send([*process_tree.descendants(each.pid), each.pid], signal.SIGKILL)
            self._nodes.listener.close()
            self._nodes = None

    def close(self) -> None:
        """Leave no process and no key behind."""
        for door in self._doors():
            door.listener.close()
        until = time.monotonic() + LINGER
        left = process_tree.descendants(os.getpid())
        while left and time.monotonic() < until:
            process_tree.send(left, signal.SIGKILL)
            self._reap()
            time.sleep(0.005)
            left = process_tree.descendants(os.getpid())
        self._news.tell(connections=0)
        if self._spec.get("host_user"):
            authorized.withdraw(self._spec["host_user"], self._folder.task)


def _is_sshd(pid: int) -> bool:
    try:
        with open("/proc/%d/comm" % pid) as file:
            return re.match(r"sshd", file.read()) is not None
    except OSError:
        return False


def _drained(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b""
