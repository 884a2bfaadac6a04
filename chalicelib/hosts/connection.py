"""An SSH login to a host, direct or through a jump host, with which commands are run and files written.

A host's key is pinned at first contact. A different key later is refused, showing both fingerprints, because whoever
holds it would receive the program that we run as root. paramiko is imported with the first connection.
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
SILENCE = 120.0  # seconds that what we sent may stay unacknowledged: then the other end is gone
WINDOW = 1024 * 1024  # bytes that the host may send on a channel before we take some
MOST_WAITING = 16  # calls of a host that nobody takes yet
MOST_SAID = 1024 * 1024  # bytes that a command may write to each output: ours write a few lines
_CHUNK = 32 * 1024
_AFTER = 99  # the exit status of a command that wrote its files, where what came then failed


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
        """This login with the keys that the hosts on the way must show, outermost first."""
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
    mode: int  # nobody can execute it, whatever this says


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Its last line of output, for people."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"exit status {self.status}"


class HostConnection:
    """One login. `shown` are the keys of the hosts on the way, outermost first."""

    def __init__(
        self, login: HostLogin, transport: Any, way: Any = None, leave: Callable[[], None] = lambda: None
    ) -> None:
        """`way`: the transport to the jump host, which others may use, too; `leave` says that we no longer do."""
        self.login, self.transport = login, transport
        self.shown = tuple(_line(each.get_remote_server_key()) for each in (way, transport) if each is not None)
        self.seen: HostReport | None = (
            None  # of the host, by whoever used it before: for the next, who needs no other look
        )
        self.port = 0  # on the host's loopback, once `listen` was called
        self._leave, self._lock, self._closed = leave, threading.Lock(), False
        self._take: Callable[[Any], object] | None = None
        self._calls: list[Any] = []  # that nobody takes yet

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
            raise Transient(f"{self.login}: the connection broke ({_words(error)})") from None

    @contextlib.contextmanager
    def _ended_after(self, timeout: float) -> Iterator[None]:
        """Close the connection after so many seconds: paramiko waits for some answers as long as it is open, and a
        host may send each byte just in time. Raises TimeoutError then."""
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
        """One output to its end."""
        found = bytearray()
        while more := receive(_CHUNK):
            found += more
            if len(found) > MOST_SAID:
                raise Transient(f"{self.login}: a command said more than {MOST_SAID >> 20} MiB")
        return found.decode("utf-8", "replace")

    def put(self, *files: File, sudo: str = "", first: str = "", then: str = "", timeout: float = 120.0) -> None:
        """Write files by one command, each whole or not at all, even if the connection breaks half-way: then the host
        sees an end, too. `sudo` comes before the command. `first`: a script without which nothing is written; `then`:
        one that runs once all is. Raises Transient with the last words of what failed."""
        sent = b"".join(file.data for file in files)
        all_of_it, start = f"{shlex.quote(files[0].path)}.all.$$", 1
        drafts = [f"{shlex.quote(file.path)}.$$" for file in files]  # beside their files, to be put in place at once
        script = f"set -e; (\n{first}\n) </dev/null\n" if first else "set -e\n"
        script += f"umask 077; trap 'rm -f \"$@\"' EXIT; set -- {all_of_it} {' '.join(drafts)}\n"
        script += f"cat > {all_of_it}\n"
        script += f'[ "$(sha256sum < {all_of_it})" = "{hashlib.sha256(sent).hexdigest()}  -" ]\n'
        for file, draft in zip(files, drafts, strict=True):
            rest = f"tail -c +{start} {all_of_it}"
            part = rest if file is files[-1] else f"{rest} | head -c {len(file.data)}"
            script += f"umask {0o777 ^ file.mode:03o}; {part} > {draft}; mv -f {draft} {shlex.quote(file.path)}\n"
            start += len(file.data)
        if then:
            script += f"umask 077\n(\n{then}\n) </dev/null || exit {_AFTER}\n"
        ran = self.run(f"{sudo} sh -c {shlex.quote(script)}".strip(), stdin=sent, timeout=timeout)
        if ran.status == _AFTER:
            raise Transient(f"{self.login}: {ran.words}")
        if ran.status:
            named = ", ".join(file.path for file in files)
            raise Transient(f"{self.login}: {named} couldn't be written ({ran.words})")

    def listen(self) -> int:
        """The port on the host's loopback where calls come from now on. They wait for `calls_go_to`."""
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
                    f"{self.login}: its SSH server gives us no port on its loopback for the agent ({_words(error)}); "
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
        """On paramiko's own thread. Whoever has an account on the host can call."""
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
                with contextlib.suppress(OSError, EOFError):  # the way there is gone, and it with that
                    self.transport.close()
            finally:
                self._leave()


class HostLogins(Protocol):
    """Whoever opens connections."""

    def connect(
        self, login: HostLogin, *, again: bool = False
    ) -> contextlib.AbstractContextManager[HostConnection]: ...


class SshLogins:
    """Opens connections. The only implementation outside the tests.

    Every login costs a host a session. So the steps of a workflow, one right after the other, may use one connection:
    it is kept for `keep` seconds if its user says that the next step comes. And all hosts behind a jump host share one
    login there."""

    def __init__(self, keep: float = 0.0) -> None:
        self._keep = keep
        self._heads: Shared[HostLogin, Any] = Shared(_direct)
        self._kept: dict[HostLogin, HostConnection] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def connect(self, login: HostLogin, *, again: bool = False) -> Iterator[HostConnection]:
        """Raises Transient if the host can't be reached, Unfit if it refuses us or its key has changed. `again`: the
        same login follows at once."""
        connection = self._taken(login) or self._connected(login)
        well = False
        try:
            yield connection
            well = True
        finally:
            if not (well and again and self._put(login, connection)):
                connection.close()

    def _taken(self, login: HostLogin) -> HostConnection | None:
        """The connection kept for this login, if it still stands and its hosts have shown the right keys."""
        with self._lock:
            kept = self._kept.pop(login.expecting([""] * 2), None)
        if kept is None:
            return None
        pins = [each.pinned for each in (login.jump, login) if each is not None]
        if kept.transport.is_active() and all(pin in ("", key) for pin, key in zip(pins, kept.shown, strict=True)):
            return kept
        kept.close()
        return None

    def _put(self, login: HostLogin, connection: HostConnection) -> bool:
        if not self._keep or not connection.transport.is_active():
            return False
        key = login.expecting([""] * 2)
        with self._lock:
            if key in self._kept:
                return False
            self._kept[key] = connection
        timer = threading.Timer(self._keep, self._drop, (key, connection))
        timer.daemon = True
        timer.start()
        return True

    def _drop(self, key: HostLogin, connection: HostConnection) -> None:
        with self._lock:
            if self._kept.get(key) is not connection:
                return  # in use, or kept anew for somebody else
            del self._kept[key]
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
        """If the shared way fails, one of our own says why. Of several who ask one transport at a time, paramiko may
        tell one what was said to another; and it may be the way that is broken, which takes a while to be noticed."""
        try:
            return self._asked(login, jump)
        except (Transient, Unfit):
            return self._asked(login, jump, alone=True)

    def _asked(self, login: HostLogin, jump: HostLogin, *, alone: bool = False) -> tuple[SharedUse[Any], Any]:
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
        except paramiko.ssh_exception.IncompatiblePeer:
            raise _changed(login, "none of that type") from None
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
        # Before its greeting it may be any service, whose words are nobody's here: paramiko would repeat them.
        words = _words(error) if transport.remote_version else "no SSH server greets there"
        raise Transient(f"{login}: no SSH connection ({words})") from None
    except BaseException:
        transport.close()
        raise
    return transport


def _socket(login: HostLogin) -> socket.socket:
    try:
        made = socket.create_connection((login.hostname, login.port), timeout=CONNECT_TIMEOUT)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # where there is none, the system's own limit ends it, much later
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(SILENCE * 1000))
        return made
    except socket.gaierror:
        raise Transient(f"{login.hostname}: the server can't resolve this host name") from None
    except TimeoutError:
        raise Transient(f"{login}: no answer within {CONNECT_TIMEOUT:.0f} s") from None
    except OSError as error:
        raise Transient(f"{login}: {_words(error)}") from None


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
        raise Transient(f"{login}: no connection through the jump host ({_words(error)})") from None


def _changed(login: HostLogin, now: str) -> Unfit:
    return Unfit(
        f"{login.hostname} shows a different host key than at first contact: {now}, not {fingerprint(login.pinned)}. "
        "Another machine may be answering. If the host was reinstalled, remove it from the fleet and add it again"
    )


def _key(text: str) -> Any:
    import paramiko

    kind = public(text).split()[0]
    if kind == "ssh-rsa":
        return paramiko.RSAKey(key=loaded(text))  # it would check a file's for being prime
    return (paramiko.Ed25519Key if kind == "ssh-ed25519" else paramiko.ECDSAKey)(file_obj=io.StringIO(plain(text)))


def _line(key: Any) -> str:
    return f"{key.get_name()} {key.get_base64()}"


def _algorithms(pinned: str) -> tuple[str, ...]:
    name = pinned.split(maxsplit=1)[0]
    return ("rsa-sha2-512", "rsa-sha2-256") if name == "ssh-rsa" else (name,)


def _words(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error).strip() or type(error).__name__
