"""How a job can read a repository: the first access that works from here, tried with `git ls-remote`.

Access without credentials is tried first, then the credentials of the command line or those stored on the server. Only
if there are neither, this machine's own credentials for the host are tried: the key of ~/.ssh/config, the token of the
GitHub CLI, ~/.ssh/id_rsa. Credentials that work are sent to the server, since the job's machine clones with them, and
a message says so.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import Refused
from cli.connection.server_values import private_key, token
from cli.repositories.git import git
from cli.repositories.remotes import Remote
from cli.screen.terminal import Terminal
from cli.ssh.keys import read_key

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract.bodies import Creds

# The environment of a machine that has nothing of this user.
PLAIN = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_DIR": "/dev/null"}
SSH = (
    "ssh -F none -i {key} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes -o ConnectTimeout=20 "
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
)
HELPER = '!f() { echo username=anything; echo "password=$DSTACK_REPO_TOKEN"; }; f'  # a token in a URL shows in `ps`


@dataclass(frozen=True)
class RemoteAccess:
    """One way to read a repository. `description` is shown to the user."""

    description: str
    private_key: str | None = None
    token: str | None = None

    def credentials(self, remote: Remote) -> Creds:
        address = remote.ssh if self.private_key else remote.https
        return {"clone_url": address, "private_key": self.private_key, "oauth_token": self.token}


ANYBODY = RemoteAccess("without credentials")


@dataclass(frozen=True)
class GivenCredentials:
    """The credentials of the command line."""

    token: str | None = None
    identity: str | None = None  # a private key's file

    def access(self, terminal: Terminal) -> RemoteAccess | None:
        if self.identity:
            key = read_key(self.identity, terminal.cwd, terminal.home, named_by="--git-identity")
            return RemoteAccess("with --git-identity", private_key=key["private"])
        if self.token:
            if not self.token.isprintable() or " " in self.token:
                raise Refused("--token: a token has no spaces or line breaks.", hint="Copy it again, in quotes.")
            return RemoteAccess("with --token", token=self.token)
        return None


def stored_access(credentials: contract.RepoCreds | None) -> RemoteAccess | None:
    """Access with the credentials stored on the server; None if there are none, or none with a secret."""
    result = "with the credentials that the server keeps for you"
    if credentials and credentials.get("private_key"):
        return RemoteAccess(result, private_key=private_key(credentials["private_key"]))
    if credentials and credentials.get("oauth_token"):
        return RemoteAccess(result, token=token(credentials["oauth_token"]))
    return None


def working_access(
    remote: Remote, candidates: list[RemoteAccess], terminal: Terminal, *, branch: str | None
) -> RemoteAccess:
    """The first of `candidates` that can read the repository, which must have `branch`."""
    tried = []
    for access in candidates:
        listed, why = _list_remote(remote, access, terminal, branch)
        if listed is None:
            tried.append(f"  {access.description}: {why}")
            continue
        if branch and not any(line.endswith((f"refs/heads/{branch}", f"refs/tags/{branch}")) for line in listed):
            raise Refused(
                f"{remote.https} has no branch {branch}.", hint=f"See them with `git ls-remote --heads {remote.https}`."
            )
        return access
    raise Refused("\n".join([f"The repository {remote.https} can't be read:", *tried]), hint=_advice(candidates[-1]))


def _advice(last: RemoteAccess) -> str:
    if last.description == "with --git-identity":
        return "Is the key known there, and the address right?"
    if last.description == "with --token":
        return "Can the token read this repository, and is the address right?"
    return "Is the address right? A private one needs --token TOKEN (try `$(gh auth token)`) or --git-identity KEY."


def own_accesses(remote: Remote, terminal: Terminal) -> list[RemoteAccess]:
    """Access with this machine's credentials for the repository's host, the likeliest first."""
    found = []
    if remote.ssh_key:
        found += _key_access(remote.ssh_key, "of ~/.ssh/config", terminal)
    if token := _github_token(remote.host, terminal.home):
        found.append(RemoteAccess("with the token of the GitHub CLI", token=token))
    return found + _key_access("~/.ssh/id_rsa", "by default", terminal)


def _key_access(name: str, why: str, terminal: Terminal) -> list[RemoteAccess]:
    """Access with the key in a file, if a job could use it: the key exists and has no passphrase."""
    try:
        key = read_key(name, terminal.cwd, terminal.home)
    except Refused:
        return []  # the user didn't name this key; the list of attempts shows that it failed
    return [RemoteAccess(f"with the key {name}, {why}", private_key=key["private"])]


def _github_token(host: str, home: Path) -> str | None:
    import yaml

    try:
        known = yaml.safe_load((home / ".config" / "gh" / "hosts.yml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None  # another program's file, which is absent or has an unknown format
    entry = known.get(host) if isinstance(known, dict) else None
    token = entry.get("oauth_token") if isinstance(entry, dict) else None
    return token if isinstance(token, str) and token else None


def _list_remote(
    remote: Remote, access: RemoteAccess, terminal: Terminal, branch: str | None
) -> tuple[list[str] | None, str]:
    """The refs that the remote lists, or why it doesn't."""
    wanted = ["HEAD", *([f"refs/heads/{branch}", f"refs/tags/{branch}"] if branch else [])]
    if not access.private_key:
        helper = ["-c", f"credential.helper={HELPER}"] if access.token else []
        arguments = ["-c", "credential.helper=", *helper, "ls-remote", remote.https, *wanted]
        result = git(*arguments, env=terminal.env, also={**PLAIN, "DSTACK_REPO_TOKEN": access.token or ""})
    else:
        with _as_file(access.private_key) as path:
            command = SSH.format(key=shlex.quote(str(path)))
            also = {**PLAIN, "GIT_SSH_COMMAND": command}
            result = git("ls-remote", remote.ssh, *wanted, env=terminal.env, also=also)
    return (None, result.why) if result.status else (result.text.splitlines(), "")


@contextmanager
def _as_file(private_key: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dstack-") as scratch:
        path = Path(scratch) / "key"
        path.touch(0o600)
        path.write_text(private_key, encoding="utf-8")
        yield path
