"""The host's `git`, run on untrusted repositories with secret credentials.

The host's settings aren't used: git's home is a private folder with a configuration of the agent's. No hook and no
credential helper of the host runs, and only https and ssh are allowed, whatever an address or a submodule names. Tokens
and keys are in files of that folder, which no other user may read: never in an argument, a variable or the checkout.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from typing import BinaryIO, Callable, Dict, List, NamedTuple, Optional, Tuple

from ..kernel import namespaces, process_tree
from ..kernel.task_runtime import TaskError
from ..kernel.tasks import delete_tree, read_text
from .accounts import TaskAccount

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OUTPUT_MOST = 1 << 16  # bytes of git's output that are kept of its beginning, and as many of its end
# The variables that configure a host's access to the internet, which git gets of the agent's environment.
PASSED: Tuple[str, ...] = ("http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY")
PASSED += ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
CONFIG = """\
[core]
	hooksPath = /dev/null
	fsmonitor = false
	quotePath = false
[advice]
	detachedHead = false
[gc]
	auto = 0
[maintenance]
	auto = false
[http]
	lowSpeedLimit = 1000
	lowSpeedTime = 120
[credential]
	helper =
"""
# The token is for one host; a redirection or a submodule elsewhere gets none.
HELPER = """\
[credential "%s"]
	helper = "!f() { cat %s; }; f"
"""
SSH = (
    "ssh -F /dev/null -o BatchMode=yes -o IdentityAgent=none -o IdentitiesOnly=yes -o ConnectTimeout=20 "
    "-o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o StrictHostKeyChecking=accept-new -o HashKnownHosts=no "
    "-o UpdateHostKeys=no -o LogLevel=ERROR"
)
# The host goes into git's configuration and ssh's arguments, so it must not have characters with a meaning there.
HOST = r"(?:[^\W_][\w.-]*|\[[0-9A-Fa-f:.]+\])"
OVER_HTTPS = re.compile(r"https://(?:\w[\w.~+%-]*@)?(?P<host>" + HOST + r"(?::[0-9]{1,5})?)/\S+")
OVER_SSH = re.compile(r"ssh://(?:\w[\w.~+%-]*@)?" + HOST + r"(?::[0-9]{1,5})?/\S+|\w[\w.-]*@" + HOST + r":[^\s-]\S*")
SSH_HOST = re.compile(r"(?:ssh://)?(?:[^@/]*@)?(?P<host>" + HOST + r")(?::(?P<port>[0-9]{1,5})(?=/))?")
PASSWORD = re.compile(r"\w+://[^/\s@]*:[^/\s@]*@")


class GitOutput(NamedTuple):
    status: int
    text: str  # standard output and errors together


class GitTimeout(Exception):
    """git took too long."""


def over_ssh(url: str) -> bool:
    return bool(OVER_SSH.fullmatch(url))


def ssh_host(url: str) -> Tuple[str, str]:
    """The host of an ssh address, and the port unless it is 22."""
    found = SSH_HOST.match(url)
    assert found is not None  # callers pass ssh addresses only
    port = (found.group("port") or "") if url.startswith("ssh://") else ""
    return found.group("host").strip("[]").lower(), "" if port in ("", "22") else port


def is_key_of(line: str, host: str, port: str) -> bool:
    """Is this line of a list of known hosts a key of that host?"""
    return ("[%s]:%s" % (host, port) if port else host) in line.partition(" ")[0].split(",")


def check_url(url: str) -> None:
    """Refuse an address that git would take for another transport or an option, or that contains a password."""
    if PASSWORD.match(url):
        raise TaskError("executor_error", "the repository's address holds a password: store it with `dstack init -t`")
    if not url.isprintable() or not (over_ssh(url) or OVER_HTTPS.fullmatch(url)):
        raise TaskError("executor_error", "repository %s: only https and ssh addresses can be cloned" % url[:200])


class Git:
    """git with a private folder, until a deadline (monotonic). The folder is used with the rights of `account` only,
    which git runs as: the account's other processes may put links above it. `bound_files`: the files to mount for git
    (`name_service`)."""

    def __init__(
        self,
        private: str,
        account: TaskAccount,
        task: str,
        pause: Callable[[float], None],
        until: float,
        bound_files: Optional[Dict[str, str]] = None,
    ) -> None:
        self._private, self._account, self._task, self._bound_files = private, account, task, bound_files or {}
        self._pause, self._until = pause, until
        self._ssh = ""
        self.known_hosts = os.path.join(private, "known_hosts")

    def prepare(self, url: str, token: str, key: str, known_hosts: str) -> None:
        """Make the private folder with git's configuration and credentials. `known_hosts`: the host keys so far."""
        with self._account.acting():
            self._prepare(url, token, key, known_hosts)

    def _prepare(self, url: str, token: str, key: str, known_hosts: str) -> None:
        os.mkdir(self._private, 0o700)
        config, found = CONFIG, OVER_HTTPS.fullmatch(url)
        if token and token.isprintable() and found:
            path = self._write("token", "username=oauth2\npassword=%s\n" % token)
            config += HELPER % ("https://" + found.group("host"), shlex.quote(path))
        self._write(".gitconfig", config)
        self._write("known_hosts", known_hosts)
        self._ssh = "%s -o UserKnownHostsFile=%s" % (SSH, shlex.quote(self.known_hosts))
        if key:
            text = key.replace("\r\n", "\n").rstrip("\n") + "\n"
            self._ssh += " -i %s" % shlex.quote(self._write("key", text))

    def _write(self, name: str, text: str) -> str:
        path = os.path.join(self._private, name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def forget(self) -> None:
        """Delete the private folder with the credentials."""
        with self._account.acting():
            delete_tree(self._private)

    def read_known_hosts(self) -> str:
        with self._account.acting():
            return read_text(self.known_hosts) or ""

    def learn_host_key(self, host: str, port: str) -> str:
        """Connect to an ssh host for its key, as a line of known hosts: before the clone, since a repository's content
        might change that list. Empty if the host doesn't answer, which git will report."""
        ssh = shlex.split(self._ssh)
        if shutil.which(ssh[0]) is None:
            return ""
        options = ["-o", "PreferredAuthentications=none", "-p", port or "22"]
        self._wait_for([*ssh, *options, host, "exit"], self._private, None)
        return "".join(line for line in self.read_known_hosts().splitlines(True) if is_key_of(line, host, port))

    def run(self, *arguments: str, folder: str, stdin: Optional[BinaryIO] = None) -> GitOutput:
        """Run one command. Raises Interrupted when the task should end, GitTimeout when it takes too long."""
        return self._wait_for(["git", *arguments], folder, stdin)

    def _wait_for(self, argv: List[str], folder: str, stdin: Optional[BinaryIO]) -> GitOutput:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        child: Optional[subprocess.Popen[bytes]] = None
        try:
            try:
                child = subprocess.Popen(
                    argv,
                    cwd=folder,
                    env=self._environment(),
                    stdin=stdin if stdin is not None else subprocess.DEVNULL,
                    stdout=writing,
                    stderr=writing,
                    start_new_session=True,
                    preexec_fn=self._become,  # noqa: PLW1509 - a supervisor has one thread
                )
            except FileNotFoundError:
                raise TaskError(
                    "executor_error",
                    "git isn't installed on this machine, whose agent clones the repositories of its jobs: install it "
                    "there (if the machine is a container, in the job's image), or upload the code with `files`",
                ) from None
            finally:
                os.close(writing)
            return self._follow(child, reading)
        finally:
            os.close(reading)
            if child is not None and child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def _become(self) -> None:
        os.umask(0o022)
        if self._bound_files:
            namespaces.bind_over(self._bound_files)
        self._account.become()

    def _environment(self) -> Dict[str, str]:
        passed = {name: os.environ[name] for name in PASSED if os.environ.get(name)}
        return {
            **passed,
            "PATH": os.environ.get("PATH") or PATH,
            "HOME": self._private,
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": "https:ssh",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_SSH_COMMAND": self._ssh,
            process_tree.MARK: self._task,
        }

    def _follow(self, child: "subprocess.Popen[bytes]", reading: int) -> GitOutput:
        output, wait = b"", 0.002
        while True:
            ended = child.poll() is not None
            output = excerpt(output + read_all(reading))
            if ended:
                return GitOutput(child.returncode, output.decode("utf-8", "replace"))
            if time.monotonic() > self._until:
                raise GitTimeout()
            self._pause(wait)
            wait = min(0.05, wait * 1.5)


def read_all(fd: int) -> bytes:
    """Read the output that is ready, up to 64 times `OUTPUT_MOST` bytes."""
    parts: List[bytes] = []
    while len(parts) < 64:
        try:
            part = os.read(fd, OUTPUT_MOST)
        except BlockingIOError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def excerpt(output: bytes) -> bytes:
    return output if len(output) <= 2 * OUTPUT_MOST else output[:OUTPUT_MOST] + output[-OUTPUT_MOST:]
