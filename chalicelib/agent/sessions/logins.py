"""A job's SSH server: the machine's sshd or a carrier's (`openssh`), for the job's keys only, in the job's network. No
image needs a package.

A separate process listens on a port of the host's loopback and starts one sshd for each connection (`sshd -i`), so it
knows the connections. It belongs to neither the agent nor the supervisor, so killing those cuts no session. It ends
with the job: sessions are hung up, none begins, and for LINGER seconds clients can still read the log through their
connections. If the job was a plain process, new connections can do so, too; a container's network ends with it.

A second port, at the address where the nodes of a job reach each other, is for the other nodes: it accepts only the key
of their attempt, which the users' port doesn't accept, and no forwarding. It closes when the job ends, and its
connections aren't reported.

| in the task's folder | |
|---|---|
| `sessions.json` | the report: port, user and host key, or the problem; connections; since when there are none; |
|  | `nodes`: why other nodes can't log in |
| `sessions.lock` | held by the living process, whose pid it contains |
| `ssh/` | sshd's configuration, the host key and the job's keys; the same for the nodes |

The keys that may log in can change while the job runs: the agent writes them to a file and sends SIGHUP. A connection
whose key isn't among the job's any more is cut, with everything that was started through it.

LC_ALL is set here because clients' locale variables may name files, which would be loaded while the session still runs
as root.

sshd needs a user with an account and a valid shell, and the host's root may be locked; so a list of users is mounted
for it over the host's, and empty files over the host's records of logins. The session itself is `session_command`,
which takes on the job's rights.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..kernel import interpreter, namespaces, networks, process_tree
from ..kernel.task_runtime import TaskRuntime, micros
from ..kernel.tasks import FINAL, TaskFolder, read_json, read_text, take_lock, write_atomic, write_slot
from ..runtimes import accounts
from . import authorized, openssh
from .login_connections import LoginConnection, LoginPort
from .openssh import NoServer, OpenSsh
from .protocol import CUT, SFTP

LINGER = 10.0  # seconds for which connections, old and new, outlive their job
READY_SECONDS = 10.0
CHECK_EVERY = 1.0  # seconds between checks for the job's end after its supervisor was killed
CONNECTIONS_MOST, SESSIONS_MOST = 32, 10  # of a job, and in each connection: a session is some host processes
NODES_MOST, NODE_SESSIONS = 256, 4  # the same from other nodes, which have one or two connections each
LOGGING_IN_MOST = 32  # connections from one address before their login, so that idle ones don't exclude nodes
LOCK_TRIES, LOCK_PAUSE = 20, 0.05  # a check whether the server lives holds its lock for a moment
UNREACHABLE = "the other nodes can't reach this one by ssh: %s"
REPORTED = ("ssh", "connections", "idle_since")
LOGIN_SECONDS = 20
LOG_MOST = 65536  # bytes of the log of errors
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
SetEnv {variables}
ClientAliveInterval 30
ClientAliveCountMax 4
LoginGraceTime {grace}
MaxSessions {most}
PidFile none
LogLevel INFO
Subsystem sftp {subsystem}
ForceCommand {command}
"""


class TaskLogins:
    """The supervisor's end of a socket pair with the server, whose closing shows that the supervisor has ended."""

    def __init__(self, line: Optional[socket.socket]) -> None:
        self._line = line

    def settle(self) -> None:
        """Wait until the server is ready, or has failed."""
        if self._line is not None:
            select.select([self._line], [], [], READY_SECONDS)


def begin(folder: TaskFolder, runtime: TaskRuntime) -> TaskLogins:
    """Start the job's SSH server, if the job has keys and no server runs yet. The caller must have one thread and hold
    no lock, which the server would inherit."""
    if not folder.authorized_keys() and not folder.launch()["spec"].get("node_ssh"):
        return TaskLogins(None)
    near, far = socket.socketpair()
    child = os.fork()
    if child == 0:
        near.close()
        _detach(folder, runtime, far)
    os.waitpid(child, 0)
    far.close()
    return TaskLogins(near)


def _detach(folder: TaskFolder, runtime: TaskRuntime, line: socket.socket) -> None:
    """Serve in a process that isn't below the supervisor, which would end it with the job. Doesn't return."""
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server handles it, which reads the keys afterwards
        if os.fork() == 0:
            held = patient_lock(os.path.join(folder.path, "sessions.lock"))
            if held is not None:
                os.ftruncate(held, 0)
                os.write(held, b"%d\n" % os.getpid())
                serve(folder, runtime, line)
                os.close(held)
                folder.notify_agent()  # which may now remove the task
    except Exception:
        import traceback  # here, because it takes time

        traceback.print_exc()
    finally:
        os._exit(0)


def patient_lock(path: str, pause: Callable[[float], None] = time.sleep) -> Optional[int]:
    """Take the lock; None if a living server has it."""
    for _ in range(LOCK_TRIES):
        held = take_lock(path)
        if held is not None:
            return held
        pause(LOCK_PAUSE)
    return None


def serve(folder: TaskFolder, runtime: TaskRuntime, line: socket.socket) -> None:
    login_report = LoginReport(folder)
    try:
        programs = programs_for(folder, line)
        server = LoginServer(folder, runtime, line, login_report, programs)
    except NoServer as problem:
        unreachable = UNREACHABLE % problem if folder.launch()["spec"].get("node_ssh") else None
        login_report.update(ssh={"problem": str(problem)}, nodes=unreachable)
        return
    try:
        server.run()
    finally:
        server.close()


def programs_for(folder: TaskFolder, line: socket.socket) -> OpenSsh:
    """Raises NoServer."""
    place = os.path.join(folder.path, "ssh")
    if folder.launch().get("runtime") != "inside":
        return OpenSsh(place)
    carrier = interpreter.carrier()
    if not openssh.complete(carrier) and not openssh.installed():
        with contextlib.suppress(OSError):  # the supervisor was killed
            line.sendall(b"fetching")  # the job doesn't wait for it
        from . import carrier_fetching  # here, because HTTP takes as long to import as all else that a supervisor needs

        carrier = carrier_fetching.bring(folder.data)
    return OpenSsh(place, carrier if openssh.complete(carrier) else "", "image")


def report(folder: TaskFolder) -> Dict[str, Any]:
    """The report about a task's sessions, for the agent."""
    return read_json(os.path.join(folder.path, "sessions.json")) or {}


def check_listed(uid: int) -> None:
    """Raise NoServer unless the host lists the user, as sshd requires."""
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
    """The pid of the task's SSH server, below which all its connections are; None if none runs."""
    text = read_text(os.path.join(folder.path, "sessions.lock")) or ""
    return int(text) if text.strip() and not over(folder) else None


def end(folder: TaskFolder) -> None:
    """Have the server of an ended job end without lingering. That may take a moment."""
    found = process(folder)
    if found is not None:
        process_tree.send([found], signal.SIGTERM)


def rekey(folder: TaskFolder) -> None:
    """Have the server reread the job's keys. A server that is starting reads the new ones by itself."""
    found = process(folder)
    if found is not None:
        process_tree.send([found], signal.SIGHUP)


def remove(folder: TaskFolder, withdraw: Callable[[str, str], None] = authorized.withdraw) -> None:
    """End the server, and remove the keys that a killed one left on the host."""
    end(folder)
    host_user = folder.launch().get("spec", {}).get("host_user")
    if host_user and os.getuid() == 0:
        withdraw(host_user, folder.task)


class LoginReport:
    """The report about a task's sessions, written for the agent, which is notified of changes."""

    def __init__(self, folder: TaskFolder) -> None:
        self._folder, self._fields = folder, {"connections": 0, "idle_since": micros()}  # type: TaskFolder, Dict[str, Any]

    def update(self, **fields: Any) -> None:
        self._fields.update(fields)
        if os.path.isdir(self._folder.path):
            write_slot(os.path.join(self._folder.path, "sessions.json"), self._fields)
            self._folder.notify_agent()


class LoginServer:
    def __init__(
        self,
        folder: TaskFolder,
        runtime: TaskRuntime,
        line: socket.socket,
        login_report: LoginReport,
        programs: OpenSsh,
    ) -> None:
        self._folder, self._runtime, self._report, self._programs = folder, runtime, login_report, programs
        self._line: Optional[socket.socket] = line
        launch = folder.launch()
        self._spec, self._in_container = launch["spec"], launch.get("runtime") == "docker"
        self._ssh_folder = os.path.join(folder.path, "ssh")
        self._connections: List[LoginConnection] = []
        self._in_use = 0
        self._allowed: Set[str] = set()  # the fingerprints of the keys that may log in
        self._until = float("inf")  # when the connections are cut, after the job
        self._log = os.open(os.path.join(folder.path, "sessions.log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        process_tree.become_subreaper()
        self._woken, self._wakeup = os.pipe()
        for fd in (self._woken, self._wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        user = accounts.server_user()
        if not programs.carrier:
            check_listed(os.getuid())
        os.makedirs(self._ssh_folder, mode=0o700, exist_ok=True)
        self._bound_files = self._private_files(user)
        key = self._host_key()
        keys = self._read_keys()
        config = self._configure(user, "", "local", SESSIONS_MOST, keys)
        self._users = LoginPort(self._listen(), config, CONNECTIONS_MOST)
        self._nodes = self._open_node_port(user)
        port = self._users.listener.getsockname()[1]
        self._allow_host_logins(port)
        login_report.update(ssh={"port": port, "username": user, "host_key": key})
        with contextlib.suppress(OSError):  # the supervisor was killed; the sessions don't need it
            line.sendall(b"ready")

    # Start ------------------------------------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        """Listen on the port of an earlier server of the job, if it is still free."""
        earlier = int((report(self._folder).get("ssh") or {}).get("port") or 0)
        try:
            return networks.listen(None, earlier)
        except OSError as problem:
            if not earlier or problem.errno != errno.EADDRINUSE:
                raise NoServer("attaching isn't possible: no port of this host's loopback: %s" % problem) from None
        return networks.listen(None, 0)

    def _host_key(self) -> str:
        path = os.path.join(self._ssh_folder, "host_key")
        if not os.path.exists(path + ".pub"):
            result = subprocess.run(
                [*self._programs.keygen(), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._programs.environment(),
                check=False,
            )
            if result.returncode:
                output = result.stdout.decode("utf-8", "replace").strip()
                raise NoServer("attaching isn't possible: ssh-keygen failed: %s" % output)
        with open(path + ".pub") as file:
            return file.read().strip()

    def _open_node_port(self, user: str) -> Optional[LoginPort]:
        node_ssh = self._spec.get("node_ssh")
        if not node_ssh:
            return None
        node = node_ssh["nodes"][node_ssh["rank"]]
        try:
            listener = networks.listen(None, node["port"], node["address"])
        except OSError as problem:
            why = "port %d of %s: %s" % (node["port"], node["address"], problem.strerror)
            self._report.update(nodes=UNREACHABLE % why)
            return None
        write_atomic(os.path.join(self._ssh_folder, "nodes_host_key"), node_ssh["host_private_key"])
        config = self._configure(user, "nodes_", "no", NODE_SESSIONS, [node_ssh["public_key"]])
        return LoginPort(listener, config, NODES_MOST)

    def _configure(self, user: str, prefix: str, forwarding: str, sessions: int, keys: List[str]) -> str:
        """Write an sshd configuration and its keys; returns the configuration's path."""
        text = CONFIGURATION.format(
            folder=self._ssh_folder,
            host_key=prefix + "host_key",
            keys=prefix + "authorized_keys",
            forwarding=forwarding,
            user=user,
            grace=LOGIN_SECONDS,
            most=sessions,
            variables=self._programs.session_variables(),
            subsystem=SFTP,
            command=" ".join(shlex.quote(argument) for argument in self._session_command()),
        )
        write_atomic(os.path.join(self._ssh_folder, prefix + "authorized_keys"), "".join(key + "\n" for key in keys))
        path = os.path.join(self._ssh_folder, prefix + "sshd_config")
        write_atomic(path, text)
        return path

    def _session_command(self) -> List[str]:
        return [*interpreter.command(), sys.argv[0], "session", self._folder.path, str(os.getpid())]

    def _read_keys(self) -> List[str]:
        keys = [key for key in (authorized.plain_key(key) for key in self._folder.authorized_keys()) if key]
        self._allowed = {authorized.fingerprint(key) for key in keys}
        return keys

    def _private_files(self, user: str) -> Dict[str, str]:
        """Write sshd's lists of users; returns the files to mount for it over the host's, `{place: file}`: none without
        root, which may mount, or for a carrier's sshd, which needs no mounts."""
        if self._programs.carrier or os.getuid() == 0:
            self._programs.write_lists(user, self._session_command())
        if self._programs.carrier or os.getuid() != 0:
            return {}
        files = {"/etc/passwd": self._ssh_folder + "/passwd", "/etc/shadow": self._ssh_folder + "/shadow"}
        write_atomic(os.path.join(self._ssh_folder, "records"), "")
        files.update({place: self._ssh_folder + "/records" for place in RECORDS})
        return {os.path.realpath(place): file for place, file in files.items() if os.path.exists(place)}

    def _allow_host_logins(self, port: int) -> None:
        """Let the keys log in through the host's own SSH server, if users reach that."""
        user = self._spec.get("host_user")
        if not user:
            return
        if os.getuid() != 0:
            raise NoServer(
                "attaching isn't possible: the agent of this host isn't root, so it can't let users of jobs in"
            )
        try:
            authorized.allow(user, self._folder.authorized_keys(), self._folder.task, port)
        except (KeyError, OSError) as problem:
            raise NoServer("attaching isn't possible: the keys of %s on this host: %s" % (user, problem)) from None

    # Service ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while time.monotonic() < self._until:
            poll = select.poll()
            for fd in self._watched():
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(self._patience())}
            if self._woken in ready:
                self._reap()
            for connection in [each for each in self._connections if each.stderr in ready]:
                if not connection.read():
                    self._remove(connection)
                elif self._is_barred(connection):
                    self._cut(connection)
            self._count()
            if self._line is not None and self._line.fileno() in ready:  # the supervisor has ended
                self._line.close()
                self._line = None
            if self._line is None and self._until == float("inf") and self._job_over():
                self._wind_down()
            for port in [each for each in self._ports() if each.listener.fileno() in ready]:
                self._accept(port)

    def _watched(self) -> List[int]:
        found = [self._woken, *(each.stderr for each in self._connections)]
        found += [port.listener.fileno() for port in self._ports() if len(self._connections_of(port)) < port.most]
        return found if self._line is None else [*found, self._line.fileno()]

    def _ports(self) -> List[LoginPort]:
        return [self._users] if self._nodes is None else [self._users, self._nodes]

    def _connections_of(self, port: LoginPort) -> List[LoginConnection]:
        return [each for each in self._connections if each.port is port]

    def _patience(self) -> Optional[int]:
        if self._until < float("inf"):
            return max(0, int((self._until - time.monotonic()) * 1000) + 1)
        return int(CHECK_EVERY * 1000) if self._line is None else None

    def _job_over(self) -> bool:
        return self._folder.state().get("state") in (FINAL, None)  # None: its folder is deleted

    def _accept(self, port: LoginPort) -> None:
        try:
            call, (peer, *_) = port.listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the caller has gone already
        except OSError as problem:  # for instance too many open files
            self._log_error("accepting: %s" % problem)
            return
        with call:
            if sum(each.peer == peer and not each.accepted for each in self._connections_of(port)) >= LOGGING_IN_MOST:
                self._log_error("refused: %d from %s haven't logged in yet" % (LOGGING_IN_MOST, peer))
                return
            try:
                with networks.open_network(lambda: self._runtime.network(self._folder)) as network:
                    self._connections.append(LoginConnection(*self._start(call, network, port), port, peer))
            except (OSError, LookupError) as problem:
                self._log_error("a connection: %s" % problem)

    def _start(self, call: socket.socket, network: Optional[int], port: LoginPort) -> Tuple[int, int]:
        """Start an sshd for a connection; returns its pid and a descriptor of its standard error."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._child(call.fileno(), writer, network, port.config)
        os.close(writer)
        os.set_blocking(reader, False)
        return pid, reader

    def _child(self, connection: int, stderr: int, network: Optional[int], config: str) -> None:
        """Runs between fork and exec; sshd closes all other descriptors."""
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
            if self._bound_files:
                self._bind_over()
            argv = self._programs.sshd()
            os.execve(argv[0], [*argv, "-i", "-e", "-f", config], self._programs.environment())
        except OSError as problem:
            os.write(2, ("starting sshd: %s\n" % problem).encode())
        finally:
            os._exit(127)

    def _bind_over(self) -> None:
        try:
            namespaces.bind_over(self._bound_files)
        except OSError as problem:  # root may not mount, as in some containers: sshd uses the host's own lists
            os.write(2, ("%s\n" % problem).encode())

    def _count(self) -> None:
        in_use = sum(each.accepted for each in self._connections_of(self._users))
        if in_use != self._in_use:
            self._in_use = in_use
            self._report.update(connections=in_use, idle_since=None if in_use else micros())

    def _remove(self, connection: LoginConnection) -> None:
        os.close(connection.stderr)
        self._connections.remove(connection)
        if not connection.accepted:
            self._log_error("no login: %s" % connection.last_output())

    def _is_barred(self, connection: LoginConnection) -> bool:
        """Did it log in with a key that isn't, or is no longer, among the job's?"""
        users = connection.port is self._users
        return users and bool(connection.fingerprint) and connection.fingerprint not in self._allowed

    def _cut(self, connection: LoginConnection) -> None:
        """End a connection with all its processes. Those in a container aren't below it: their session ends them."""
        found = process_tree.stopped(connection.pid)
        sessions = [pid for pid in found if not _is_sshd(pid)] if self._in_container else []
        process_tree.send(sessions, CUT)
        process_tree.send([pid for pid in found if pid not in sessions], signal.SIGKILL)
        process_tree.send(sessions, signal.SIGCONT)

    def _rekey(self) -> None:
        keys = self._read_keys()
        write_atomic(os.path.join(self._ssh_folder, "authorized_keys"), "".join(key + "\n" for key in keys))
        for connection in self._connections:
            if self._is_barred(connection):
                self._cut(connection)
        self._allow_host_logins(self._users.listener.getsockname()[1])

    def _reap(self) -> None:
        signals = _drain(self._woken)
        if signal.SIGTERM in signals:
            self._until = 0.0
        if signal.SIGHUP in signals:
            try:
                self._rekey()
            except (OSError, NoServer) as problem:
                self._log_error("changing the keys: %s" % problem)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return

    def _log_error(self, message: str) -> None:
        if os.fstat(self._log).st_size < LOG_MOST:
            os.write(self._log, ("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%S"), message)).encode())

    # End --------------------------------------------------------------------------------------------------------

    def _wind_down(self) -> None:
        self._until = time.monotonic() + LINGER
        below = process_tree.descendants(os.getpid())
        process_tree.send([pid for pid in below if not _is_sshd(pid)], signal.SIGHUP)
        if self._nodes is not None:
            for each in self._connections_of(self._nodes):
                process_tree.send([*process_tree.descendants(each.pid), each.pid], signal.SIGKILL)
            self._nodes.listener.close()
            self._nodes = None

    def close(self) -> None:
        """End all processes and remove the keys."""
        for port in self._ports():
            port.listener.close()
        until = time.monotonic() + LINGER
        remaining = process_tree.descendants(os.getpid())
        while remaining and time.monotonic() < until:
            process_tree.send(remaining, signal.SIGKILL)
            self._reap()
            time.sleep(0.005)
            remaining = process_tree.descendants(os.getpid())
        self._report.update(connections=0)
        host_user = self._spec.get("host_user")
        if host_user:
            authorized.withdraw(host_user, self._folder.task)


def _is_sshd(pid: int) -> bool:
    try:
        with open("/proc/%d/comm" % pid) as file:
            return re.match(r"sshd", file.read()) is not None
    except OSError:
        return False


def _drain(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b""
