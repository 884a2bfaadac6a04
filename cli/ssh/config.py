"""The SSH configuration of the runs that this machine is attached to, so that plain `ssh RUN` works.

Each run has a folder `~/.dstack/ssh/runs/RUN` with its own `config` and `known_hosts`. The user's `~/.ssh/config`
includes them all, on its first line: SSH takes the first value that it finds, so a `Host *` above would win. Every
job's SSH server is at `localhost:PORT` of some machine, so each has its own `HostKeyAlias` and known hosts: otherwise
two jobs would look like one whose key has changed. Other options with which a `Host *` could break the connection or
the command are set as well. Options that are a matter of taste remain the user's.

Names, addresses and keys come from a server, and a line break in one of them would be a line of configuration: `Hop`
and `JobHops` accept only values that can't be misread.
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from chalicelib.errors import Refused
from cli.connection.server_values import checked

ALIAS = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|[0-9A-Fa-f:]{2,45}(%[A-Za-z0-9._-]{1,20})?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]{0,63}\$?")
_KEY = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]{1,50} [A-Za-z0-9+/]{16,4000}={0,3}")
# An algorithm that is one of OpenSSH's defaults: `+` means these and this one, whatever the user's file says.
OWN = (
    "AddKeysToAgent no",
    "AddressFamily any",
    "CanonicalizeHostname no",
    "CheckHostIP no",
    "Ciphers +aes128-ctr",
    "ClearAllForwardings no",
    "ControlMaster no",  # it would be shared by all jobs, which are at `localhost`
    "ControlPath none",
    "ExitOnForwardFailure no",  # a port that the user's own settings forward may be in use
    "GlobalKnownHostsFile none",
    "KexAlgorithms +ecdh-sha2-nistp256",
    "MACs +hmac-sha2-256",
    "NoHostAuthenticationForLocalhost no",
    "PKCS11Provider none",
    "PermitLocalCommand no",
    "ProxyUseFdpass no",
    "PubkeyAcceptedKeyTypes +rsa-sha2-256",  # a name that old and new clients know
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
ANY_AUTHENTICATION = "gssapi-with-mic,hostbased,publickey,keyboard-interactive,password"  # OpenSSH's default
OF_RSA = "rsa-sha2-512,rsa-sha2-256,ssh-rsa"
# Options that are errors for clients that don't know them, each with the option in `ssh -G` that shows if it is known.
NEWER = {
    "ForkAfterAuthentication no": "forkafterauthentication",
    "KnownHostsCommand none": "sessiontype",  # which is newer; `ssh -G` doesn't show this one
    "RequiredRSASize 1024": "requiredrsasize",
    "SessionType default": "sessiontype",
    "StdinNull no": "stdinnull",
}
END_SECONDS = 5.0  # for an `ssh` process that was left over to end
INCLUDED = "ssh/runs/*/config"  # relative to the folder of our configuration
WHY = "# The runs that dstack is attached to. First, because SSH takes the first value it finds."


@dataclass(frozen=True)
class Hop:
    """An SSH server and how to log in to it."""

    host: str
    port: int
    user: str
    host_key: str = ""  # `ssh-ed25519 AAAA…`; empty: trusted on first use
    identities: tuple[str, ...] = ()  # files of private keys
    identities_only: bool = True  # don't offer the user's other keys

    def __post_init__(self) -> None:
        checked(_HOST, self.host, "a host's name")
        checked(_USER, self.user, "a user's name")
        if isinstance(self.port, bool) or not isinstance(self.port, int) or not 1 <= self.port <= 65535:
            checked(re.compile("$^"), self.port, "a port")
        if self.host_key:
            checked(_KEY, self.host_key, "a host's key")


@dataclass(frozen=True)
class JobHops:
    """The route to a job: its own SSH server, and the hops before it, first hop first. Without hops, `proxy` is the
    command that carries the connection."""

    alias: str
    job: Hop
    hops: tuple[Hop, ...] = ()
    proxy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked(ALIAS, self.alias, "a run's name")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hops: the run's name with `_jump_host` or `_host`, which can't be names of runs. People may
        also use `RUN-jump-host` and `RUN-host`, which can."""
        return tuple(f"{self.alias}{name}" for name in ("_jump_host", "_host")[-len(self.hops) :]) if self.hops else ()


def config_text(layout: JobHops, known_hosts: Path, first_seen: Path, options: Collection[str] = ()) -> str:
    """The SSH configuration of a route. `known_hosts`: the pinned keys of this run. `first_seen`: the file for keys of
    other hosts, which are trusted on first use. `options`: the options that this machine's SSH knows, in lower case."""
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
    """The lines to reach a host over the hop before it or, without one, from the default local address."""
    if name:
        return [f"ProxyJump {name}"]
    return ["ProxyCommand none", *(f"BindAddress {address}" for address in _any_address(hop.host))]


def _any_address(host: str) -> list[str]:
    """The value of `BindAddress` with which it has no effect; empty for a host name, whose address family is
    unknown."""
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
    """A path as a value, with `%` escaped, which would begin a token."""
    text = str(path)
    if '"' in text or "\n" in text:
        raise Refused(f"SSH can't read a path with quotes or line breaks: {text!r}.", hint="Use another home folder.")
    text = text.replace("%", "%%")
    return f'"{text}"' if re.search(r"[\s#]", text) else text


# --- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attached:
    """A run's files. They exist while this process, or another that is attached to the same job, holds the lock."""

    folder: Path
    lock: IO[bytes]
    named: bool = True  # does `ssh ALIAS` lead to it, and not to a run of the same name in another project?

    @property
    def config(self) -> Path:
        return self.folder / ("config" if self.named else "namesake")


@dataclass(frozen=True)
class SshFolder:
    """Our SSH folder, `~/.dstack/ssh`."""

    folder: Path

    def attach(self, alias: str, run_id: str = "") -> Attached:
        """Claims the folder of a job, and removes files of killed processes. If a run of the same name in another
        project is attached, the second one gets a folder that the user's configuration doesn't include."""
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
        endpoint: Mapping[str, object] | None = None,
        options: Collection[str] = (),
    ) -> None:
        """Writes the job's files; its configuration last, after the files to which it refers."""
        known_hosts = attached.folder / "known_hosts"
        with self._alone():
            if endpoint is not None:
                replace_file(attached.folder / "endpoint.json", json.dumps(endpoint))
            replace_file(known_hosts, known_hosts_text(layout))
            replace_file(attached.config, config_text(layout, known_hosts, self.folder / "known_hosts", options))

    def note(self, attached: Attached, pid: int) -> None:
        """Notes an `ssh` of this process, which would outlive a killed parent."""
        replace_file(attached.folder / f"{os.getpid()}.ssh", str(pid))

    def detach(self, attached: Attached) -> None:
        """Removes the files, unless another process is attached to the same job."""
        attached.lock.close()
        with self._alone():
            self._forget(attached.folder)

    def _forget(self, folder: Path) -> None:
        if folder.is_symlink():
            folder.unlink()  # a link: its target isn't ours
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
    """The run that owns the folder; None: no run."""
    try:
        return (folder / "run").read_text()
    except FileNotFoundError:
        return None


def end_ssh(pid: int, folder: Path) -> None:
    """Ends the process if it is an `ssh` with this folder's configuration: the number may belong to another by now."""
    until = time.monotonic() + END_SECONDS
    while f"ssh -F {folder}/" in _command(pid) and time.monotonic() < until:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.02)  # until its ports are free


def _command(pid: int) -> str:
    """A process's command line; empty if it has ended."""
    command = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def replace_file(path: Path, text: str, mode: int = 0o600) -> None:
    """Replaces a file atomically: readers see the old text or the new one."""
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        Path(beside).chmod(mode)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def include_in(user_config: Path, folder: Path) -> None:
    """Makes the user's SSH configuration include the one in `folder`, first and once. The rest stays as it is, as do
    its mode and a symbolic link. Raises OSError if it can't be read or changed."""
    target = user_config.resolve()
    try:
        text = target.read_bytes().decode("utf-8", "surrogateescape")  # with its own line endings
        mode = target.stat().st_mode & 0o7777
    except FileNotFoundError:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text, mode = "", 0o600
    wanted = with_include(text, f"Include {_from_home(folder)}/{INCLUDED}")
    if wanted != text:
        replace_file(target, wanted, mode)


def with_include(text: str, include: str) -> str:
    """The configuration with this line before all settings."""
    lines = text.splitlines(keepends=True)
    if _first_setting(lines) == include:
        return text
    remaining = [line for line in lines if line.strip() not in (include, WHY)]
    return f"{WHY}\n{include}\n{''.join(remaining)}"


def _first_setting(lines: Sequence[str]) -> str:
    stripped = (line.strip() for line in lines)
    return next((line for line in stripped if line and not line.startswith("#")), "")


def _from_home(path: Path) -> str:
    """A path as a pattern. SSH expands `~` to the account's home, whatever HOME is, and `?` matches any character."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    if path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return re.sub(r"[\s%\"'#\\\[\]]", "?", str(path))
