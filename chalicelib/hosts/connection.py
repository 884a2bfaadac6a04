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
from typing import Any

from chalicelib.configuration.private_keys import fingerprint, loaded, plain, public
from chalicelib.errors import Transient, Unfit

CONNECT_TIMEOUT = 10.0  # seconds, each for reaching the host, its greeting and the login
MOST_SAID = 1024 * 1024  # bytes that a command may write to each output: ours write a few lines
_CHUNK = 32 * 1024


@dataclass(frozen=True)
class Login:
    """Where and how to log in."""

    hostname: str
    port: int
    user: str
    private_key: str = field(repr=False)
    pinned: str = ""  # the host's public key, `type base64`; empty at first contact
    jump: Login | None = None

    def expecting(self, shown: Sequence[str]) -> Login:
        """This login with the keys that the hosts on the way must show, outermost first."""
        *before, last = shown
        jump = replace(self.jump, pinned=before[0]) if self.jump is not None and before else self.jump
        return replace(self, pinned=last, jump=jump)

    def __str__(self) -> str:
        return f"{self.user}@{self.hostname}" + (f":{self.port}" if self.port != 22 else "")


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


class Connection:
    """One login. `shown` are the keys of the hosts on the way, outermost first."""

    def __init__(self, login: Login, transports: list[Any]) -> None:
        self.login, self._transports = login, transports
        self.shown = tuple(_line(transport.get_remote_server_key()) for transport in transports)

    @property
    def transport(self) -> Any:
        return self._transports[-1]

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

    def put(self, path: str, data: bytes, mode: int, *, sudo: str = "", timeout: float = 120.0) -> None:
        """Write a file whole or not at all, even if the connection breaks half-way: then the host sees an end, too.
        `sudo` comes before each command."""
        draft, target, digest = f"{shlex.quote(path)}.$$", shlex.quote(path), hashlib.sha256(data).hexdigest()
        script = (
            f"umask 077; cat > {draft}; "
            f'if [ "$(sha256sum < {draft})" = "{digest}  -" ] && chmod {mode:o} {draft}; '
            f"then mv -f {draft} {target}; else rm -f {draft}; exit 1; fi"
        )
        ran = self.run(f"{sudo} sh -c {shlex.quote(script)}".strip(), stdin=data, timeout=timeout)
        if ran.status:
            raise Transient(f"{self.login}: {path} couldn't be written ({ran.words})")

    def close(self) -> None:
        for transport in reversed(self._transports):
            transport.close()


class Ssh:
    """Opens connections. The only implementation outside the tests."""

    @contextlib.contextmanager
    def connect(self, login: Login) -> Iterator[Connection]:
        """Raises Transient if the host can't be reached, Unfit if it refuses us or its key has changed."""
        transports: list[Any] = []
        try:
            for each in (login.jump, login):
                if each is not None:
                    transports.append(_opened(each, transports[-1] if transports else None))
            yield Connection(login, transports)
        finally:
            for transport in reversed(transports):
                transport.close()


def _opened(login: Login, through: Any | None) -> Any:
    import paramiko

    transport = paramiko.Transport(_socket(login) if through is None else _tunnel(login, through))
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


def _socket(login: Login) -> socket.socket:
    try:
        return socket.create_connection((login.hostname, login.port), timeout=CONNECT_TIMEOUT)
    except socket.gaierror:
        raise Transient(f"{login.hostname}: the server can't resolve this host name") from None
    except TimeoutError:
        raise Transient(f"{login}: no answer within {CONNECT_TIMEOUT:.0f} s") from None
    except OSError as error:
        raise Transient(f"{login}: {_words(error)}") from None


def _tunnel(login: Login, through: Any) -> Any:
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
        raise Transient(f"{login}: the jump host can't reach it ({_words(error)})") from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise Transient(f"{login}: no connection through the jump host ({_words(error)})") from None


def _changed(login: Login, now: str) -> Unfit:
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
    return str(error).strip() or type(error).__name__
