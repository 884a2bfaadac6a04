"""A task's repository: cloned on the host before the task starts, then moved to the path that its spec names.

The clone, at the requested commit and with the user's patch, is made in a folder of its own. A complete clone is moved
into place for a plain process, and packed for a container. So an image needs no git, and a clone that fails leaves
nothing behind. git runs as the task's own user, which has no process yet. The credentials are in a file of the task's
folder until they are used, never in its spec.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any, Dict, List, Tuple, cast

from ..kernel import process_tree
from ..kernel.task_runtime import TaskContext, TaskError
from ..kernel.tasks import FULL, TaskFolder, delete_tree, read_json, write_atomic
from . import files
from .accounts import TaskAccount
from .git import Git, GitOutput, GitTimeout, check_url, is_key_of, over_ssh, ssh_host

if TYPE_CHECKING:
    from ...contract.agent import Task, TaskRepo
    from ..kernel.tasks import StoredRepo

SECONDS = 900.0  # for a clone and all its submodules
CREDENTIALS = ("oauth_token", "private_key")
LINE_MOST = 300  # characters of a line of git's output in a message
HOSTS_MOST = 1000  # the most host keys to store
LOST_AND_FOUND = "lost+found"  # in a fresh volume
BRANCH = re.compile(r"[^\s\-~^:?*\[\\\x00-\x20\x7f][^\s~^:?*\[\\\x00-\x20\x7f]*")
COMMIT = re.compile(r"[0-9a-fA-F]{4,64}")
NO_BRANCH = re.compile(r"Remote branch .* not found")
UNREACHABLE = re.compile(
    r"Could not resolve|Failed to connect|Couldn't connect|Connection (refused|timed out|reset|closed)|No route to host"
    r"|Network is unreachable|[Tt]imed? ?out|too slow|Temporary failure in name|CONNECT"
)
CHANGED = re.compile(r"Host key verification failed|HOST IDENTIFICATION HAS CHANGED")
DENIED = re.compile(
    r"could not read (Username|Password)|Authentication failed|[Pp]ermission denied|[Aa]ccess denied|[Nn]ot [Ff]ound"
    r"|returned error: 40[134]|does not appear to be a git repository|correct access rights"
)
DISK = re.compile(r"No space left on device|Disk quota exceeded")
FULL_DISK = "the disk of this machine is full"
NO_SSH = re.compile(r"cannot run ssh|ssh: not found|ssh: command not found")
NO_ACCOUNT = re.compile(r"No user exists for uid")
TRANSPORT = re.compile(r"transport '.*' not allowed")
CREDENTIALS_LOST = (
    "the preparation of this task was interrupted after its repository's credentials were erased: apply the run again"
)


# Files in the task's folder -------------------------------------------------------------------------------------------


def store_credentials(folder: TaskFolder, spec: Task) -> Task:
    """Store the credentials of the spec's repository in a file that can be erased; returns the spec without them."""
    repo = spec.get("repo")
    if not isinstance(repo, dict):
        return spec
    secret = {name: str(value) for name, value in repo.items() if name in CREDENTIALS and value}
    if secret:
        write_atomic(secret_path(folder), json.dumps(secret))
    kept = {name: value for name, value in repo.items() if name not in CREDENTIALS}
    return {**spec, "repo": cast("StoredRepo", {**kept, "secret": bool(secret)})}


def secret_path(folder: TaskFolder) -> str:
    return os.path.join(folder.path, "repository-credentials")


def erase(folder: TaskFolder) -> None:
    if os.path.exists(secret_path(folder)):
        os.unlink(secret_path(folder))


def code_path(folder: TaskFolder) -> str:
    return os.path.join(folder.files, "code")


# The target ----------------------------------------------------------------------------------------------------------


def must_bring(repo: TaskRepo, target: str, occupied: bool) -> bool:
    """Must the repository be brought to this target? Raises TaskError if an occupied target isn't to be skipped."""
    if occupied and repo.get("if_exists") != "skip":
        raise TaskError(
            "executor_error",
            "repository: %s exists and isn't empty: choose another `path`, or keep what is there with "
            "`if_exists: skip`" % target,
        )
    return not occupied


def is_occupied(target: str) -> bool:
    try:
        return any(name != LOST_AND_FOUND for name in os.listdir(target))
    except FileNotFoundError:
        return False
    except OSError as problem:
        raise TaskError("executor_error", "repository: %s: %s" % (target, problem.strerror)) from None


def bring(context: TaskContext, account: TaskAccount, scratch: str, target: str, bound_files: Dict[str, str]) -> None:
    """Clone the task's repository, if it has one, to `target`, with the task's own rights: for a plain process."""
    repo = context.spec.get("repo")
    if not repo:
        return
    try:
        with account.acting():
            occupied = is_occupied(target)
        if not must_bring(repo, target, occupied):
            return
        if not repo.get("url"):
            files.unpack(code_path(context.folder), target, True, account.acting)
            return
        tree = clone(context, account, scratch, bound_files)
        with account.acting():
            place(tree, target)
            delete_tree(os.path.dirname(tree))
    except OSError as problem:
        raise unwritable(target, problem) from None
    finally:
        erase(context.folder)


def place(tree: str, target: str) -> None:
    """Move all of the tree's entries to the target, or none."""
    os.makedirs(target, exist_ok=True)
    names = os.listdir(tree)
    try:
        for name in names:
            shutil.move(os.path.join(tree, name), os.path.join(target, name))
    except OSError:
        for name in names:
            path = os.path.join(target, name)
            if os.path.isdir(path) and not os.path.islink(path):
                delete_tree(path)
            elif os.path.lexists(path):
                os.unlink(path)
        raise


def unwritable(place: str, problem: OSError) -> TaskError:
    why = problem.args[0][0][2] if isinstance(problem, shutil.Error) else problem.strerror or str(problem)
    full = problem.errno in FULL or DISK.search(why)
    return TaskError("executor_error", "repository: %s: %s" % (place, FULL_DISK if full else why))


# The clone ------------------------------------------------------------------------------------------------------------


def clone(
    context: TaskContext, account: TaskAccount, scratch: str, bound_files: Dict[str, str], seconds: float = SECONDS
) -> str:
    """Clone the repository; returns the folder with the checkout, which belongs to the account. The caller deletes the
    folder above it. `bound_files`: the files to mount for git (`name_service`)."""
    repo, folder = cast("StoredRepo", context.spec["repo"]), context.folder
    check_url(repo["url"])
    secret = read_json(secret_path(folder)) or {}
    if repo.get("secret") and not secret:
        raise TaskError("executor_error", CREDENTIALS_LOST)
    context.report("pulling")
    process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)  # a killed supervisor's git
    stage = os.path.join(scratch or folder.path, "repository")
    with account.acting():
        delete_tree(stage)
        os.mkdir(stage, 0o700)
    git = Git(os.path.join(stage, "git"), account, folder.task, context.pause, time.monotonic() + seconds, bound_files)
    hosts = KnownHosts(folder.data)
    try:
        git.prepare(repo["url"], secret.get("oauth_token", ""), secret.get("private_key", ""), hosts.read())
        if over_ssh(repo["url"]) and not hosts.has(*ssh_host(repo["url"])):
            hosts.add(git.learn_host_key(*ssh_host(repo["url"])))
        tree = Clone(git, repo, stage, secret).run(code_path(folder) if repo.get("code") else "")
        git.forget()
    except BaseException as problem:
        with account.acting():
            delete_tree(stage)
        if isinstance(problem, GitTimeout):
            message = "repository %s: it wasn't cloned in %d minutes" % (repo["url"], seconds // 60)
            raise TaskError("executor_error", message) from None
        raise
    return tree


class KnownHosts:
    """The keys of ssh hosts from their first connection. A host that presents another key later isn't trusted. At most
    `HOSTS_MOST` keys are stored, the newest."""

    def __init__(self, data: str) -> None:
        self._data, self._path = data, os.path.join(data, "known_hosts")

    def read(self) -> str:
        if not os.path.exists(self._path):
            return ""
        with open(self._path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def has(self, host: str, port: str) -> bool:
        return any(is_key_of(line, host, port) for line in self.read().splitlines())

    def add(self, text: str) -> None:
        with open(self._path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.read().splitlines()
            new = [line for line in text.splitlines() if line not in before]
            if new:
                write_atomic(self._path, "".join(line + "\n" for line in (before + new)[-HOSTS_MOST:]))


class Clone:
    """The steps from an address to a checkout. Each can fail with a TaskError for the task's user."""

    def __init__(self, git: Git, repo: TaskRepo, stage: str, secret: Dict[str, Any]) -> None:
        self._git, self._repo, self._stage, self._secret = git, repo, stage, secret
        self._url, self._branch, self._commit = repo["url"], repo.get("branch") or "", repo.get("hash") or ""
        self._tree = os.path.join(stage, "tree")

    def run(self, patch: str) -> str:
        if self._branch and not BRANCH.fullmatch(self._branch):
            raise self._failed("`%s` can't be the name of a branch" % self._branch)
        if self._commit and not COMMIT.fullmatch(self._commit):
            raise self._failed("`%s` isn't the hash of a commit" % self._commit)
        self._fetch()
        if self._commit:
            self._find_commit()
        if self._has(self._commit or "HEAD"):  # else the repository is empty
            self._git_or_fail("reset", "--quiet", "--hard", self._commit or "HEAD")
        if os.path.lexists(os.path.join(self._tree, ".gitmodules")):
            self._git_or_fail("submodule", "--quiet", "update", "--init", "--recursive", subject="a submodule: ")
        committer = (("user.name", self._repo.get("user_name")), ("user.email", self._repo.get("user_email")))
        for key, given in committer:
            value = "".join(each for each in given or "" if each.isprintable())
            if value:
                self._git_or_fail("config", key, value)
        if patch:
            self._apply(patch)
        return self._tree

    def _fetch(self) -> None:
        scope = "--single-branch" if self._repo.get("single_branch") else "--no-single-branch"
        arguments = ["clone", "--quiet", "--no-checkout", "--template=", scope]
        arguments += ["--branch", self._branch] if self._branch else []
        result = self._git.run(*arguments, "--", self._url, self._tree, folder=self._stage)
        if result.status:
            raise self._error_of(result)

    def _find_commit(self) -> None:
        """Fetch the commit by itself if no fetched branch has it, which many hosts allow."""
        if self._has(self._commit):
            return
        if len(self._commit) >= 40:
            result = self._git.run("fetch", "--quiet", "--no-tags", "origin", self._commit, folder=self._tree)
            if result.status == 0 and self._has(self._commit):
                return
        scope = " on the branch `%s`" % self._branch if self._branch and self._repo.get("single_branch") else ""
        raise self._failed("it has no commit %s%s (was it pushed?)" % (self._commit, scope))

    def _has(self, commit: str) -> bool:
        arguments = ("rev-parse", "--verify", "--quiet", commit + "^{commit}")
        return self._git.run(*arguments, folder=self._tree).status == 0

    def _git_or_fail(self, *arguments: str, subject: str = "") -> None:
        result = self._git.run(*arguments, folder=self._tree)
        if result.status:
            raise self._error_of(result, subject)

    def _apply(self, patch: str) -> None:
        with open(patch, "rb") as source:
            result = self._git.run("apply", "--whitespace=nowarn", "-", folder=self._tree, stdin=source)
        if result.status == 0:
            return
        if DISK.search(result.text):
            raise self._error_of(result)
        lines = self._lines(result)
        found = [line[len("error: ") :] for line in lines if line.startswith("error: ")] or lines or ["no reason given"]
        at = re.match(r"patch failed: (.+):(\d+)$", found[0])
        first = "%s, line %s" % (at.group(1), at.group(2)) if at else found[0]
        raise self._failed("the patch with the uncommitted changes doesn't fit: %s" % first)

    # Errors -----------------------------------------------------------------------------------------------------

    def _failed(self, why: str) -> TaskError:
        return TaskError("executor_error", "repository %s: %s" % (self._url, why))

    def _error_of(self, result: GitOutput, subject: str = "") -> TaskError:
        lines = self._lines(result)
        for pattern, text in self._reasons():
            line = next((line for line in lines if pattern.search(line)), None)
            if line is not None:
                return self._failed(subject + text.replace("{git}", line))
        last = (lines or ["no reason given"])[-1]
        first = next((line for line in lines if line.startswith(("fatal:", "error:"))), last)
        return self._failed("%sgit failed: %s" % (subject, first))

    def _reasons(self) -> List[Tuple["re.Pattern[str]", str]]:
        if not self._secret:
            denied = "it can't be read without credentials ({git}): if it is private, store some with `dstack init`"
        else:
            kind = "key" if self._secret.get("private_key") else "token"
            denied = "the stored %s can't read it ({git}): store another with `dstack init`" % kind
        return [
            (NO_BRANCH, "it has no branch `%s`" % self._branch),
            (DISK, FULL_DISK + " ({git})"),
            (NO_SSH, "ssh isn't installed on this machine: install it there, or use an https address"),
            (NO_ACCOUNT, "over ssh only where the agent may mount (CAP_SYS_ADMIN), which gives the job's user a name "
             "({git})"),
            (TRANSPORT, "only https and ssh are allowed ({git})"),
            (CHANGED, "its host has another ssh key than this machine saw first: if that is right, delete the host's "
             "line from `known_hosts` in the agent's folder"),
            (UNREACHABLE, "its host can't be reached from this machine ({git})"),
            (DENIED, denied),
        ]  # fmt: skip

    def _lines(self, result: GitOutput) -> List[str]:
        """The printable lines of git's output, without the credentials, in case a server repeats them, and without
        semicolons, which separate the reasons of a task's end."""
        text = result.text
        for value in self._secret.values():
            text = text.replace(value, "(hidden)")
        lines = ("".join(each if each.isprintable() else " " for each in line) for line in text.splitlines())
        return [line.strip()[:LINE_MOST].replace("; ", ", ") for line in lines if line.strip()]
