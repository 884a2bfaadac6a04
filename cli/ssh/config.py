"""The SSH configuration of the runs that this machine is attached to, so that plain `ssh RUN` works.

Each run has a folder `~/.dstack/ssh/runs/RUN` with its own `config` and `known_hosts`. The user's `~/.ssh/config`
includes them all, on its first line: SSH takes the first value that it finds, so a `Host *` above would win. Every
job's SSH server is at `localhost:PORT` of some machine, so each has a `HostKeyAlias` and known hosts of its own: two
jobs would otherwise be taken for one whose key has changed. Whatever else a `Host *` might say that would keep SSH from
getting there, or from running what was asked for, is set as well. What is a matter of taste stays the user's.

Names, addresses and keys come from a server, and a line break in one of them would be a line of configuration: `Hop`
and `JobHops` accept only what can be nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import itertools
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from chalicelib.errors import Refused
from cli.connection.server_values import checked

ALIAS = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|[0-9A-Fa-f:]{2,45}(%[A-Za-z0-9._-]{1,20})?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]{0,63}\$?")
_KEY = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]{1,50} [A-Za-z0-9+/]{16,4000}={0,3}")
# An algorithm that is among OpenSSH's own anyway: `+` means those and this one, whatever the user's file says.
OWN = (
    "AddKeysToAgent no",
    "AddressFamily any",
    "CanonicalizeHostname no",
    "CheckHostIP no",
    "Ciphers +aes128-ctr",
    "ClearAllForwardings no",
    "ControlMaster no",  # a shared connection would be shared by every job at `localhost`
    "ControlPath none",
    "ExitOnForwardFailure no",  # a port of the user's own forwards may be in use
    "GlobalKnownHostsFile none",
    "KexAlgorithms +ecdh-sha2-nistp256",
    "MACs +hmac-sha2-256",
    "NoHostAuthenticationForLocalhost no",
    "PKCS11Provider none",
    "PermitLocalCommand no",
    "ProxyUseFdpass no",
    "PubkeyAcceptedKeyTypes +rsa-sha2-256",  # the name that old and new clients know
    "PubkeyAuthentication yes",
    "RemoteCommand none",
    "RequestTTY auto",
    "RevokedHostKeys none",
    "Tunnel no",
    "UpdateHostKeys no",
    "VerifyHostKeyDNS no",
    "ServerAliveInterval 10",
    "ServerAliveCountMax 3",
    "ConnectTimeout 10",
)
ANY_AUTHENTICATION = "gssapi-with-mic,hostbased,publickey,keyboard-interactive,password"  # as OpenSSH has it
OF_RSA = "rsa-sha2-512,rsa-sha2-256,ssh-rsa"
# To a client that doesn't know them, these would be mistakes in the file. Each with what `ssh -G` shows if it does.
NEWER = {
    "ForkAfterAuthentication no": "forkafterauthentication",
    "KnownHostsCommand none": "sessiontype",  # it came before that, and isn't shown
    "RequiredRSASize 1024": "requiredrsasize",
    "SessionType default": "sessiontype",
    "StdinNull no": "stdinnull",
}
END_SECONDS = 5.0  # for an `ssh` that was left
INCLUDED = "ssh/runs/*/config"  # below the folder of our configuration
WHY = "# The runs that dstack is attached to. First, because SSH takes the first value it finds."


@dataclass(frozen=True)
class Hop:
    """An SSH server and how to log in to it."""

    host: str
    port: int
    user: str
    host_key: str = ""  # `ssh-ed25519 AAAA…`; empty: whatever it shows first, from then on the same
    identities: tuple[str, ...] = ()  # files of private keys
    identities_only: bool = True  # not the user's other keys as well

    def __post_init__(self) -> None:
        checked(_HOST, self.host, "a host's name")
        checked(_USER, self.user, "a user's name")
        if isinstance(self.port, bool) or not isinstance(self.port, int) or not 1 <= self.port <= 65535:
            checked(re.compile("$^"), self.port, "a port")
        if self.host_key:
            checked(_KEY, self.host_key, "a host's key")


@dataclass(frozen=True)
class JobHops:
    """The way to a job: its own SSH server, and the hops before it, first hop first.

    Without hops, `proxy` is the command that carries the bytes.
    """

    alias: str
    job: Hop
    hops: tuple[Hop, ...] = ()
    proxy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked(ALIAS, self.alias, "a run's name")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the hops: the run's name with `_jump_host` or `_host`, as no run can be called. For people they are
        `RUN-jump-host` and `RUN-host`, which may be runs, too."""
        return tuple(f"{self.alias}{name}" for name in ("_jump_host", "_host")[-len(self.hops) :]) if self.hops else ()


def config_text(layout: JobHops, known_hosts: Path, first_seen: Path, options: Collection[str] = ()) -> str:
    """`known_hosts`: the pinned keys of this run. `first_seen`: where keys of other hosts are kept at first contact.
    `options`: what this machine's SSH knows, in small letters."""
    common = [*OWN, *(line for line, shown in NEWER.items() if shown in options)]
    blocks, before = [], ""
    for name, hop in zip(layout.names, layout.hops, strict=True):
        blocks.append(_block(name, hop, known_hosts, first_seen, [*_jump(before, hop), *common]))
        before = name
    proxy = ["ProxyCommand " + shlex.join(layout.proxy).replace("%", "%%")]
    reach = proxy if layout.proxy else _jump(before, layout.job)
    blocks.append(_block(layout.alias, layout.job, known_hosts, first_seen, [*reach, *common]))
    return "\n".join(blocks)


def known_hosts_text(layout: JobHops) -> str:
    pairs = [*zip(layout.names, layout.hops, strict=True), (layout.alias, layout.job)]
    return "".join(f"{name} {hop.host_key}\n" for name, hop in pairs if hop.host_key)


def _jump(name: str, hop: Hop) -> list[str]:
    """Over the hop before it; without one it is reached from the address that its network suggests."""
    if name:
        return [f"ProxyJump {name}"]
    return ["ProxyCommand none", *(f"BindAddress {address}" for address in _any_address(hop.host))]


def _any_address(host: str) -> list[str]:
    """What makes `BindAddress` say nothing; there is no such value for a name that has to be looked up."""
    if host == "localhost":
        return [host]
    try:
        return ["::" if ipaddress.ip_address(host).version == 6 else "0.0.0.0"]  # noqa: S104 - nothing listens
    except ValueError:
        return []


def _block(name: str, hop: Hop, known_hosts: Path, first_seen: Path, more: list[str]) -> str:
    lines = [f"HostName {hop.host.replace('%', '%%')}", f"Port {hop.port}", f"User {hop.user}"]
    lines += [f"IdentityFile {quoted(Path(path))}" for path in hop.identities]
    if hop.identities_only:
        lines += [*(["IdentitiesOnly yes"] if hop.identities else []), "PreferredAuthentications publickey"]
    else:
        lines += [f"PreferredAuthentications {ANY_AUTHENTICATION}"]
    if hop.host_key:
        lines += [f"HostKeyAlias {name}", f"UserKnownHostsFile {quoted(known_hosts)}", "StrictHostKeyChecking yes"]
        kind = hop.host_key.split()[0]
        lines += [f"HostKeyAlgorithms {OF_RSA if kind == 'ssh-rsa' else kind}"]
    else:
        lines += [f"HostKeyAlias {hop.host if hop.port == 22 else f'[{hop.host}]:{hop.port}'}"]
        lines += [f"UserKnownHostsFile {quoted(first_seen)}", "StrictHostKeyChecking accept-new"]
        lines += ["HostKeyAlgorithms +ecdsa-sha2-nistp256"]
    shown = name.replace("_", "-")
    begin = f"Host {name if shown == name else f'{name} {shown}'}\n"
    return begin + "".join(f"    {line}\n" for line in [*lines, *more])


def quoted(path: Path) -> str:
    """A path as a value; `%` would begin a token."""
    text = str(path)
    if '"' in text or "\n" in text:
        raise Refused(f"SSH can't read a path with quotes or line breaks: {text!r}.", hint="Use another home folder.")
    text = text.replace("%", "%%")
    return f'"{text}"' if re.search(r"[\s#]", text) else text


# --- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attached:
    """A run's files. They last while the lock is held, by this process or another that is attached to the same job."""

    folder: Path
    lock: IO[bytes]
    named: bool = True  # is it the one that `ssh ALIAS` leads to, and not a namesake of it?

    @property
    def config(self) -> Path:
        return self.folder / ("config" if self.named else "namesake")


@dataclass(frozen=True)
class SshFolder:
    """Our SSH folder, `~/.dstack/ssh`."""

    folder: Path

    def attach(self, alias: str, run_id: str = "") -> Attached:
        """Claims the folder of a job. What killed processes have left behind is removed. A run of another project may
        have the same name: then the second one gets a folder that the user's configuration doesn't include."""
        checked(ALIAS, alias, "a run's name")
        runs = self.folder / "runs"
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._alone():
            for left in [one for one in runs.iterdir() if one.is_dir()]:
                self._forget(left)
            names = itertools.chain([alias], (f"{alias}@{number}" for number in itertools.count(2)))
            folder = next(folder for name in names if _owner(folder := runs / name) in (None, run_id))
            folder.mkdir(mode=0o700, exist_ok=True)
            replace_file(folder / "run", run_id)
            lock = (folder / "lock").open("ab")
            fcntl.flock(lock, fcntl.LOCK_SH)
        return Attached(folder, lock, folder.name == alias)

    def write(
        self,
        attached: Attached,
        layout: JobHops,
        endpoint: dict[str, Any] | None = None,
        options: Collection[str] = (),
    ) -> None:
        """The job's configuration, last, so that nobody reads it before what it refers to is there."""
        known_hosts = attached.folder / "known_hosts"
        with self._alone():
            if endpoint is not None:
                replace_file(attached.folder / "endpoint.json", json.dumps(endpoint))
            replace_file(known_hosts, known_hosts_text(layout))
            replace_file(attached.config, config_text(layout, known_hosts, self.folder / "known_hosts", options))

    def note(self, attached: Attached, pid: int) -> None:
        """An `ssh` of this process, which would outlive it if it were killed."""
        replace_file(attached.folder / f"{os.getpid()}.ssh", str(pid))

    def detach(self, attached: Attached) -> None:
        """Removes the files, unless another process is attached to the same job."""
        attached.lock.close()
        with self._alone():
            self._forget(attached.folder)

    def _forget(self, folder: Path) -> None:
        if folder.is_symlink():
            folder.unlink()  # what it leads to isn't ours
            return
        if not (folder / "lock").exists():
            shutil.rmtree(folder)
            return
        with (folder / "lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            for noted in folder.glob("*.ssh"):
                end_ssh(int(noted.read_text()), folder)
            shutil.rmtree(folder)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _owner(folder: Path) -> str | None:
    """The run whose folder it is; None: nobody's."""
    try:
        return (folder / "run").read_text()
    except FileNotFoundError:
        return None


def end_ssh(pid: int, folder: Path) -> None:
    """Ends the process if it is an `ssh` with this folder's configuration; another may have its number by now."""
    until = time.monotonic() + END_SECONDS
    while f"ssh -F {folder}/" in _command(pid) and time.monotonic() < until:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.02)  # its ports are wanted again


def _command(pid: int) -> str:
    """How a process was started; empty if it has ended."""
    command = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def replace_file(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file whole: readers see the old text or the new one."""
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        Path(beside).chmod(mode)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def include_in(user_config: Path, ours: Path) -> None:
    """Makes the user's SSH configuration include ours, first and once. The rest of it stays as it is, as do its mode
    and a symbolic link. Raises OSError if it can't be read or changed."""
    target = user_config.resolve()
    try:
        text = target.read_bytes().decode("utf-8", "surrogateescape")  # with its own line ends
        mode = target.stat().st_mode & 0o7777
    except FileNotFoundError:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text, mode = "", 0o600
    wanted = with_include(text, f"Include {_from_home(ours)}/{INCLUDED}")
    if wanted != text:
        replace_file(target, wanted, mode)


def with_include(text: str, include: str) -> str:
    """The configuration with this line before everything that SSH would obey."""
    lines = text.splitlines(keepends=True)
    if _first_setting(lines) == include:
        return text
    remaining = [line for line in lines if line.strip() not in (include, WHY)]
    return f"{WHY}\n{include}\n{''.join(remaining)}"


def _first_setting(lines: Sequence[str]) -> str:
    stripped = (line.strip() for line in lines)
    return next((line for line in stripped if line and not line.startswith("#")), "")


def _from_home(path: Path) -> str:
    """As a pattern: SSH takes `~` for the home of the account, whatever HOME says, and `?` for any character."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    if path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return re.sub(r"[\s%\"'#\\\[\]]", "?", str(path))
