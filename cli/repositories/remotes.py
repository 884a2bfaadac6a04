"""Addresses of repositories. A repository has several, over https and ssh, and one id for all of them.

Every client derives the same id from host and path, so that credentials stored by one client are found by the next.
"""

from __future__ import annotations

import hashlib
import re
import string
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from chalicelib.errors import DstackError, Invalid, Problem, Refused

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
SCP = re.compile(r"(?P<user>[\w.+-]+)@(?P<host>[\w.-]+):(?P<path>[^:].*)", re.ASCII)
HOST = re.compile(r"[a-z0-9_][a-z0-9_.-]*|[0-9a-f:.]*:[0-9a-f:.]*", re.ASCII)
PORTS = {"https": 443, "ssh": 22}
DIGITS = string.digits + string.ascii_lowercase
EXAMPLE = "it looks like https://github.com/me/app.git or git@github.com:me/app.git"


OVER_HTTP = (
    "serve it over https (agents trust the authority that their GIT_SSL_CAINFO names) or over ssh, or upload the code "
    "with `files`"
)


@dataclass(frozen=True)
class Remote:
    host: str
    path: str  # as in a URL, without the leading slash
    https_port: int | None = None  # if it isn't the default
    ssh_port: int | None = None
    ssh_user: str = "git"
    ssh_key: str | None = None  # from ~/.ssh/config for the host

    @property
    def https(self) -> str:
        return f"https://{self._host}{_port(self.https_port)}/{self.path}"

    @property
    def ssh(self) -> str:
        return f"ssh://{self.ssh_user}@{self._host}{_port(self.ssh_port)}/{self.path}"

    @property
    def name(self) -> str:
        return self._plain.rpartition("/")[2] or "unknown"

    @property
    def id(self) -> str:
        full_path = f"{self._host}/{self._plain}" if self._plain else self._host
        number = int.from_bytes(hashlib.sha256(full_path.encode()).digest(), "little") // 36**24
        return f"{self.name}-{''.join(DIGITS[number // 36**place % 36] for place in range(7, -1, -1))}"

    @property
    def _plain(self) -> str:
        return self.path.rstrip("/").removesuffix(".git")

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def _port(number: int | None) -> str:
    return f":{number}" if number else ""


def fault(named_by: str, what: str, hint: str) -> DstackError:
    """The error for a repository named by a flag or a field of the configuration."""
    if named_by.startswith("--"):
        return Refused(f"{named_by}: {what}.", hint=f"{hint[0].upper()}{hint[1:]}.")
    return Invalid([Problem(what, named_by, hint=hint)])


def is_address(text: str) -> bool:
    """Is this meant as an address, valid or not, and not as a path?"""
    return bool(URL.match(text) or SCP.fullmatch(text))


def parse_remote(text: str, home: Path, *, named_by: str) -> Remote:
    """The repository at an address, with the settings of ~/.ssh/config for its host."""
    text = text.strip()
    if found := SCP.fullmatch(text):
        remote = Remote(found["host"].lower(), _quoted(found["path"]), ssh_user=found["user"])
        return _configured(remote, home, user_is_given=True)
    if not URL.match(text):
        raise fault(named_by, f"{text} isn't the address of a repository", EXAMPLE)
    parts = urlsplit(text)
    if parts.scheme not in PORTS:
        hint = OVER_HTTP if parts.scheme == "http" else EXAMPLE
        raise fault(named_by, f"{text} uses {parts.scheme}; jobs can clone only over https and ssh", hint)
    try:
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise fault(named_by, f"{text} has an invalid port ({str(error).lower()})", EXAMPLE) from None
    if not HOST.fullmatch(host):
        raise fault(named_by, f"{text} has no host", EXAMPLE)
    port = None if port == PORTS[parts.scheme] else port
    remote = Remote(host, _quoted(unquote(parts.path.removeprefix("/"))))
    if parts.scheme == "https":  # without a user and a password, which the server must not get
        return _configured(replace(remote, https_port=port), home, user_is_given=False)
    remote = replace(remote, ssh_port=port, ssh_user=parts.username or "git")
    return _configured(remote, home, user_is_given=parts.username is not None)


def _quoted(path: str) -> str:
    return quote(path, safe="/~@:+,;=!$&'()*")


def _configured(remote: Remote, home: Path, *, user_is_given: bool) -> Remote:
    """The remote with the host, port, user and key of ~/.ssh/config, as the `ssh` program reads it."""
    config = home / ".ssh" / "config"
    if not config.is_file():
        return remote
    unset = "Host *\nUser git\nIdentityFile none\n"  # the first value wins, so these mean "not set"
    try:
        done = subprocess.run(
            ["ssh", "-G", "-F", "/dev/stdin", "--", remote.host],
            input=f'Include "{config}"\n{unset}',
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return remote  # then none of its keys could be used, either
    if done.returncode:
        first = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise Refused(
            f"{config} can't be used: {first}.", hint="Fix it; `ssh -G HOST` shows how it is read for a host."
        )
    settings: dict[str, str] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        settings.setdefault(key, value)
    port, key_file = int(settings.get("port", "22")), settings.get("identityfile", "none")
    return replace(
        remote,
        host=settings.get("hostname", remote.host).lower(),
        ssh_port=remote.ssh_port or (None if port == PORTS["ssh"] else port),
        ssh_user=remote.ssh_user if user_is_given else settings.get("user", "git"),
        ssh_key=None if key_file == "none" else key_file.replace("%d", str(home)),
    )
