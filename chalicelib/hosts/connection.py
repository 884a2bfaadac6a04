"""SSH connections to hosts, direct or through a jump host, for running commands and writing files.

A host's key is pinned at first contact. A different key later is refused, with both fingerprints, because its holder
would receive the program that we run as root. paramiko is imported with the first connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from chalicelib.configuration.private_keys import fingerprint, loaded, plain, public
from chalicelib.errors import Transient, Unfit
from chalicelib.hosts.inspection import HostReport
from chalicelib.hosts.shared_connections import Shared, SharedUse

CONNECT_TIMEOUT = 10.0  # seconds, each for reaching the host, its greeting and the login
SILENCE = 120.0  # seconds that sent bytes may stay unacknowledged before the other end counts as lost
WINDOW = 1024 * 1024  # bytes that the host may send on a channel before we read some
MOST_WAITING = 16  # calls from a host that wait for a handler
MOST_OUTPUT = 1024 * 1024  # bytes that a command may write to each output: ours write a few lines
_CHUNK = 32 * 1024
_AFTER = 99  # the exit status of a command that wrote its files, but failed in the script that follows


@dataclass(frozen=True)
class HostLogin:
    """Where and how to log in."""

    hostname: str
    port: int
    user: str
    private_key: str = field(repr=False)
    pinned: str = ""  # the host's public key, `type base64`; empty at first contact
    jump: HostLogin | None = None

    def expecting(self, shown: Sequence[str]) -> HostLogin:
        """This login with the keys that the jump host and the host must show, outermost first."""
        *before, last = shown
        jump = replace(self.jump, pinned=before[0]) if self.jump is not None and before else self.jump
        return replace(self, pinned=last, jump=jump)

    def __str__(self) -> str:
        if self.port == 22:
            return f"{self.user}@{self.hostname}"
        return (
            f"{self.user}@[{self.hostname}]:{self.port}"
            if ":" in self.hostname
            else f"{self.user}@{self.hostname}:{self.port}"
        )


@dataclass(frozen=True)
class File:
    path: str
    data: bytes = field(repr=False)
    mode: int  # without execute permission, whatever this says


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """Its last line of output, for error messages."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"exit status {self.status}"


class HostConnection:
    """One login. `shown`: the keys that the jump host and the host have shown, outermost first."""

    def __init__(
        self, login: HostLogin, transport: Any, jump: Any = None, leave: Callable[[], None] = lambda: None
    ) -> None:
        """`jump`: the transport to the jump host, which may be shared; `leave` is called when it is no longer used."""
        self.login, self.transport = login, transport
        self.shown = tuple(_line(each.get_remote_server_key()) for each in (jump, transport) if each is not None)
        self.report: HostReport | None = None  # an inspection by an earlier user of this connection
        self.port = 0  # on the host's loopback, once `listen` was called
        self._leave, self._lock, self._closed = leave, threading.Lock(), False
        self._take: Callable[[Any], object] | None = None
        self._calls: list[Any] = []  # calls that wait for a handler

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 60.0) -> Ran:
        """Run a shell command to its end. Raises Transient when the connection breaks or it takes longer."""
        import paramiko

        try:
            with self._ended_after(timeout):
                channel = self.transport.open_session(timeout=CONNECT_TIMEOUT)
                with contextlib.closing(channel):
                    channel.exec_command(command)
                    channel.sendall(stdin)
                    channel.shutdown_write()
                    # One after the other: our commands write far less to either stream than a channel holds (2 MiB).
                    out, err = self._all(channel.recv), self._all(channel.recv_stderr)
                    return Ran(channel.recv_exit_status(), out, err)
        except TimeoutError:
            raise Transient(f"{self.login}: a command took longer than {timeout:.0f} s") from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise Transient(f"{self.login}: the connection broke ({_message(error)})") from None

    @contextlib.contextmanager
    def _ended_after(self, timeout: float) -> Iterator[None]:
        """Close the connection after so many seconds, and raise TimeoutError: paramiko waits for some responses while
        the connection is open, and a host may send each byte just in time."""
        import paramiko

        late = threading.Event()

        def end() -> None:
            late.set()
            self.close()

        timer = threading.Timer(timeout, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (paramiko.SSHException, OSError, EOFError):
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
        if late.is_set():
            raise TimeoutError

    def _all(self, receive: Callable[[int], bytes]) -> str:
        """Read one output to its end."""
        found = bytearray()
        while more := receive(_CHUNK):
            found += more
            if len(found) > MOST_OUTPUT:
                raise Transient(f"{self.login}: a command wrote more than {MOST_OUTPUT >> 20} MiB")
        return found.decode("utf-8", "replace")

    def put(self, *files: File, sudo: str = "", first: str = "", then: str = "", timeout: float = 120.0) -> None:
        """Write files by one command, each completely or not at all, even if the connection breaks half-way, which the
        host sees as an end of input. `sudo`: a prefix of the command. `first`: a script that must succeed before
        anything is written; `then`: one that runs afterwards. Raises Transient with the last line of output."""
        sent = b"".join(file.data for file in files)
        bundle, start = f"{shlex.quote(files[0].path)}.all.$$", 1
        drafts = [f"{shlex.quote(file.path)}.$$" for file in files]  # in the same folders, for an atomic rename
        script = f"set -e; (\n{first}\n) </dev/null\n" if first else "set -e\n"
        script += f"umask 077; trap 'rm -f \"$@\"' EXIT; set -- {bundle} {' '.join(drafts)}\n"
        script += f"cat > {bundle}\n"
        script += f'[ "$(sha256sum < {bundle})" = "{hashlib.sha256(sent).hexdigest()}  -" ]\n'
        for file, draft in zip(files, drafts, strict=True):
            rest = f"tail -c +{start} {bundle}"
            part = rest if file is files[-1] else f"{rest} | head -c {len(file.data)}"
            script += f"umask {0o777 ^ file.mode:03o}; {part} > {draft}; mv -f {draft} {shlex.quote(file.path)}\n"
            start += len(file.data)
        if then:
            script += f"umask 077\n(\n{then}\n) </dev/null || exit {_AFTER}\n"
        ran = self.run(f"{sudo} sh -c {shlex.quote(script)}".strip(), stdin=sent, timeout=timeout)
        if ran.status == _AFTER:
            raise Transient(f"{self.login}: {ran.last_line}")
        if ran.status:
            named = ", ".join(file.path for file in files)
            raise Transient(f"{self.login}: {named} couldn't be written ({ran.last_line})")

    def listen(self) -> int:
        """Listen for calls on the host's loopback, and return the port. Calls wait until `calls_go_to` is called."""
        import paramiko

        if not self.port:
            self.transport.default_window_size = WINDOW
            try:
                with self._ended_after(CONNECT_TIMEOUT):
                    self.port = self.transport.request_port_forward("127.0.0.1", 0, self._called)
            except TimeoutError:
                raise Transient(f"{self.login}: no answer to a request for a port on its loopback") from None
            except (paramiko.SSHException, OSError, EOFError) as error:
                raise Transient(
                    f"{self.login}: its SSH server gives us no port on its loopback for the agent ({_message(error)}); "
                    "to fix it, set `AllowTcpForwarding yes` in /etc/ssh/sshd_config, then: sudo systemctl reload ssh"
                ) from None
        return self.port

    def calls_go_to(self, take: Callable[[Any], object]) -> None:
        with self._lock:
            self._take, waiting = take, self._calls
            self._calls = []
        for channel in waiting:
            take(channel)

    def _called(self, channel: Any, *_: object) -> None:
        """Handle a call, on paramiko's own thread. Every user of the host can make calls."""
        with self._lock:
            take = self._take
            if take is None and len(self._calls) < MOST_WAITING:
                self._calls.append(channel)
                return
        if take is None:
            channel.close()
        else:
            take(channel)

    def close(self) -> None:
        with self._lock:
            before, self._closed = self._closed, True
        if not before:
            try:
                with contextlib.suppress(OSError, EOFError):  # the connection to the jump host is lost already
                    self.transport.close()
            finally:
                self._leave()


class HostLogins(Protocol):
    """Opens connections to hosts."""

    def connect(
        self, login: HostLogin, *, again: bool = False
    ) -> contextlib.AbstractContextManager[HostConnection]: ...


class SshLogins:
    """Opens SSH connections. The only implementation outside the tests.

    Every login costs a host a session. So consecutive steps of a workflow may share one connection: it stays open for
    `keep_open` seconds if its user announces a next step. All hosts behind a jump host share one login there.
    """

    def __init__(self, keep_open: float = 0.0) -> None:
        self._keep_open = keep_open
        self._heads: Shared[HostLogin, Any] = Shared(_direct)
        self._idle: dict[HostLogin, HostConnection] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def connect(self, login: HostLogin, *, again: bool = False) -> Iterator[HostConnection]:
        """A connection with this login. `again`: the same login will be used again at once. Raises Transient if the
        host can't be reached, and Unfit if it refuses the login or its key has changed."""
        connection = self._idle_connection(login) or self._connected(login)
        succeeded = False
        try:
            yield connection
            succeeded = True
        finally:
            if not (succeeded and again and self._put(login, connection)):
                connection.close()

    def _idle_connection(self, login: HostLogin) -> HostConnection | None:
        """The idle connection with this login, if it is still open and its hosts have shown the right keys."""
        with self._lock:
            idle = self._idle.pop(login.expecting([""] * 2), None)
        if idle is None:
            return None
        pins = [each.pinned for each in (login.jump, login) if each is not None]
        if idle.transport.is_active() and all(pin in ("", key) for pin, key in zip(pins, idle.shown, strict=True)):
            return idle
        idle.close()
        return None

    def _put(self, login: HostLogin, connection: HostConnection) -> bool:
        if not self._keep_open or not connection.transport.is_active():
            return False
        key = login.expecting([""] * 2)
        with self._lock:
            if key in self._idle:
                return False
            self._idle[key] = connection
        timer = threading.Timer(self._keep_open, self._drop, (key, connection))
        timer.daemon = True
        timer.start()
        return True

    def _drop(self, key: HostLogin, connection: HostConnection) -> None:
        with self._lock:
            if self._idle.get(key) is not connection:
                return  # in use, or replaced by another one
            del self._idle[key]
        connection.close()

    def _connected(self, login: HostLogin) -> HostConnection:
        if login.jump is None:
            return HostConnection(login, _direct(login))
        share, tunnel = self._through(login, login.jump)
        leave = partial(self._heads.leave, share)
        try:
            return HostConnection(login, _opened(login, tunnel), share.it, leave)
        except BaseException:
            leave()
            raise

    def _through(self, login: HostLogin, jump: HostLogin) -> tuple[SharedUse[Any], Any]:
        """A tunnel through the jump host. If the shared login fails, a separate one shows the reason: paramiko may
        report one user's error to another, and a broken shared connection takes a while to be noticed."""
        try:
            return self._tunnel_through(login, jump)
        except (Transient, Unfit):
            return self._tunnel_through(login, jump, alone=True)

    def _tunnel_through(self, login: HostLogin, jump: HostLogin, *, alone: bool = False) -> tuple[SharedUse[Any], Any]:
        share = self._heads.take(jump, alone=alone)
        try:
            return share, _tunnel(login, share.it)
        except BaseException:
            self._heads.leave(share)
            raise


def _direct(login: HostLogin) -> Any:
    return _opened(login, _socket(login))


def _opened(login: HostLogin, over: Any) -> Any:
    import paramiko

    transport = paramiko.Transport(over)
    transport.banner_timeout = transport.auth_timeout = CONNECT_TIMEOUT
    try:
        if login.pinned:
            transport.get_security_options().key_types = _algorithms(login.pinned)
        try:
            transport.start_client(timeout=CONNECT_TIMEOUT)
        except paramiko.ssh_exception.IncompatiblePeer as error:
            if login.pinned and "host key" in str(error):
                raise _changed(login, "none of that type") from None
            raise Unfit(
                f"{login}: its SSH server accepts no algorithm that this server has ({_message(error)}). Allow those "
                "that OpenSSH has by default, or at least one of them, in its sshd_config"
            ) from None
        shown = _line(transport.get_remote_server_key())
        if login.pinned and shown != login.pinned:
            raise _changed(login, fingerprint(shown))
        transport.auth_publickey(login.user, _key(login.private_key))
        transport.set_keepalive(30)
    except paramiko.AuthenticationException:
        transport.close()
        known = public(login.private_key)
        raise Unfit(
            f"{login} refuses the key {fingerprint(known)}; add it to ~{login.user}/.ssh/authorized_keys there: {known}"
        ) from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        transport.close()
        # Before its greeting it may be any service, whose output must not be repeated, as paramiko would.
        reason = _message(error) if transport.remote_version else "no SSH server greets there"
        raise Transient(f"{login}: no SSH connection ({reason})") from None
    except BaseException:
        transport.close()
        raise
    return transport


def _socket(login: HostLogin) -> socket.socket:
    try:
        sock = socket.create_connection((login.hostname, login.port), timeout=CONNECT_TIMEOUT)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # elsewhere the system's own limit applies, which is much longer
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(SILENCE * 1000))
        return sock
    except socket.gaierror:
        raise Transient(f"{login.hostname}: the server can't resolve this host name") from None
    except TimeoutError:
        raise Transient(f"{login}: no answer within {CONNECT_TIMEOUT:.0f} s") from None
    except OSError as error:
        raise Transient(f"{login}: {_message(error)}") from None


def _tunnel(login: HostLogin, through: Any) -> Any:
    import paramiko

    try:
        return through.open_channel(
            "direct-tcpip", (login.hostname, login.port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT
        )
    except paramiko.ChannelException as error:
        if error.code == 1:  # administratively prohibited, RFC 4254 §5.1
            raise Unfit(
                f"the jump host forbids forwarding to {login.hostname}; "
                "set `AllowTcpForwarding yes` in its /etc/ssh/sshd_config and run: sudo systemctl reload ssh"
            ) from None
        raise Transient(f"{login}: the jump host can't reach it ({error.text.lower()})") from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise Transient(f"{login}: no connection through the jump host ({_message(error)})") from None


def _changed(login: HostLogin, now: str) -> Unfit:
    return Unfit(
        f"{login.hostname} shows a different host key than at first contact: {now}, not {fingerprint(login.pinned)}. "
        "Another machine may be answering. If the host was reinstalled, remove it from the fleet and add it again"
    )


def _key(text: str) -> Any:
    import paramiko

    kind = public(text).split()[0]
    if kind == "ssh-rsa":
        return paramiko.RSAKey(key=loaded(text))  # from a file, it would check the primes
    return (paramiko.Ed25519Key if kind == "ssh-ed25519" else paramiko.ECDSAKey)(file_obj=io.StringIO(plain(text)))


def _line(key: Any) -> str:
    return f"{key.get_name()} {key.get_base64()}"


def _algorithms(pinned: str) -> tuple[str, ...]:
    name = pinned.split(maxsplit=1)[0]
    return ("rsa-sha2-512", "rsa-sha2-256") if name == "ssh-rsa" else (name,)


def _message(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error).strip() or type(error).__name__
