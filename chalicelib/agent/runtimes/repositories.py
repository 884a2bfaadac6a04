"""A task's repository: cloned on the host before the task starts, then put where its spec says.

The clone, at the wanted commit and with the user's patch, is made in a folder of its own and handed over whole: to a
plain process by moving it, to a container by packing it. So an image needs no git, and a clone that fails leaves
nothing behind. git runs as the task's own user, which has no process yet. The credentials lie in a file of the task's
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
from typing import Any, BinaryIO, Dict, List, Tuple

from ..kernel import process_tree
from ..kernel.task_runtime import TaskContext, TaskError
from ..kernel.tasks import FULL, TaskFolder, delete_tree, read_json, write_atomic
from . import files
from .accounts import TaskAccount
from .git import Git, GitOutput, TooLate, check_url, is_of, over_ssh, ssh_host

SECONDS = 900.0  # for a clone and all its submodules
CREDENTIALS = ("oauth_token", "private_key")
WORDS_MOST = 300
HOSTS_MOST = 1000  # whose keys are remembered
NOT_THERE = "lost+found"  # a fresh volume has this
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
LOST = (
    "the preparation of this task was interrupted after its repository's credentials were erased: apply the run again"
)


# What a task's folder has ---------------------------------------------------------------------------------------------


def store_credentials(folder: TaskFolder, spec: Dict[str, Any]) -> Dict[str, Any]:
    """The spec without the credentials of its repository, which go into a file that can be erased."""
    repo = spec.get("repo")
    if not isinstance(repo, dict):
        return spec
    secret = {name: str(repo[name]) for name in CREDENTIALS if repo.get(name)}
    if secret:
        write_atomic(secret_path(folder), json.dumps(secret))
    return dict(spec, repo=dict({name: repo[name] for name in repo if name not in CREDENTIALS}, secret=bool(secret)))


def secret_path(folder: TaskFolder) -> str:
    return os.path.join(folder.path, "repository-credentials")


def erase(folder: TaskFolder) -> None:
    if os.path.exists(secret_path(folder)):
        os.unlink(secret_path(folder))


def code_path(folder: TaskFolder) -> str:
    return os.path.join(folder.files, "code")


# What is at the target ------------------------------------------------------------------------------------------------


def wanted(repo: Dict[str, Any], target: str, taken: bool) -> bool:
    """Is the repository to be brought to a target that is `taken`?"""
    if taken and repo.get("if_exists") != "skip":
        raise TaskError(
            "executor_error",
            "repository: %s exists and isn't empty: choose another `path`, or keep what is there with "
            "`if_exists: skip`" % target,
        )
    return not taken


def taken(target: str) -> bool:
    try:
        return any(name != NOT_THERE for name in os.listdir(target))
    except FileNotFoundError:
        return False
    except OSError as problem:
        raise TaskError("executor_error", "repository: %s: %s" % (target, problem.strerror)) from None


def bring(context: TaskContext, account: TaskAccount, scratch: str, target: str, seen: Dict[str, str]) -> None:
    """The task's repository, if it has one, for a plain process: made and put there with the task's own rights."""
    repo = context.spec.get("repo")
    if not repo:
        return
    try:
        with account.acting():
            occupied = taken(target)
        if not wanted(repo, target, occupied):
            return
        if not repo.get("url"):
            files.unpack(code_path(context.folder), target, True, account.acting)
            return
        tree = clone(context, account, scratch, seen)
        with account.acting():
            place(tree, target)
            delete_tree(os.path.dirname(tree))
    except OSError as problem:
        raise unwritable(target, problem) from None
    finally:
        erase(context.folder)


def place(tree: str, target: str) -> None:
    """All of the tree, or nothing."""
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
    context: TaskContext, account: TaskAccount, scratch: str, seen: Dict[str, str], seconds: float = SECONDS
) -> str:
    """The folder with the checkout, which belongs to the account. The caller deletes the folder above it. `seen`: which
    files git sees in the places of which (`name_service`)."""
    repo, folder = context.spec["repo"], context.folder
    check_url(repo["url"])
    secret = read_json(secret_path(folder)) or {}
    if repo.get("secret") and not secret:
        raise TaskError("executor_error", LOST)
    context.report("pulling")
    process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)  # a killed supervisor's git
    stage = os.path.join(scratch or folder.path, "repository")
    with account.acting():
        delete_tree(stage)
        os.mkdir(stage, 0o700)
    git = Git(os.path.join(stage, "git"), account, folder.task, context.pause, time.monotonic() + seconds, seen)
    known = KnownHosts(folder.data)
    try:
        git.settle(repo["url"], secret.get("oauth_token", ""), secret.get("private_key", ""), known.read())
        if over_ssh(repo["url"]) and not known.has(*ssh_host(repo["url"])):
            known.add(git.greet(*ssh_host(repo["url"])))
        tree = Cloning(git, repo, stage, secret).whole(code_path(folder) if repo.get("code") else "")
        git.forget()
    except BaseException as problem:
        with account.acting():
            delete_tree(stage)
        if isinstance(problem, TooLate):
            words = "repository %s: it wasn't cloned in %d minutes" % (repo["url"], seconds // 60)
            raise TaskError("executor_error", words) from None
        raise
    return tree


class KnownHosts:
    """The keys of ssh hosts, as this machine saw them first. A host whose key is another one later isn't trusted. Of
    very many, the oldest are forgotten."""

    def __init__(self, data: str) -> None:
        self._data, self._path = data, os.path.join(data, "known_hosts")

    def read(self) -> str:
        if not os.path.exists(self._path):
            return ""
        with open(self._path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def has(self, host: str, port: str) -> bool:
        return any(is_of(line, host, port) for line in self.read().splitlines())

    def add(self, text: str) -> None:
        with open(self._path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.read().splitlines()
            new = [line for line in text.splitlines() if line not in before]
            if new:
                write_atomic(self._path, "".join(line + "\n" for line in (before + new)[-HOSTS_MOST:]))


class Cloning:
    """The steps from an address to a checkout; each can fail with a reason for the task's user."""

    def __init__(self, git: Git, repo: Dict[str, Any], stage: str, secret: Dict[str, Any]) -> None:
        self._git, self._repo, self._stage, self._secret = git, repo, stage, secret
        self._url, self._branch, self._commit = repo["url"], repo.get("branch") or "", repo.get("hash") or ""
        self._tree = os.path.join(stage, "tree")

    def whole(self, patch: str) -> str:
        if self._branch and not BRANCH.fullmatch(self._branch):
            raise self._failed("`%s` can't be the name of a branch" % self._branch)
        if self._commit and not COMMIT.fullmatch(self._commit):
            raise self._failed("`%s` isn't the hash of a commit" % self._commit)
        self._fetch()
        if self._commit:
            self._find_commit()
        if self._has(self._commit or "HEAD"):  # else it is empty
            self._must("reset", "--quiet", "--hard", self._commit or "HEAD")
        if os.path.lexists(os.path.join(self._tree, ".gitmodules")):
            self._must("submodule", "--quiet", "update", "--init", "--recursive", what="a submodule: ")
        for key, name in (("user.name", "user_name"), ("user.email", "user_email")):
            value = "".join(each for each in self._repo.get(name) or "" if each.isprintable())
            if value:
                self._must("config", key, value)
        if patch:
            self._apply(patch)
        return self._tree

    def _fetch(self) -> None:
        scope = "--single-branch" if self._repo.get("single_branch") else "--no-single-branch"
        words = ["clone", "--quiet", "--no-checkout", "--template=", scope]
        words += ["--branch", self._branch] if self._branch else []
        said = self._git.run(*words, "--", self._url, self._tree, folder=self._stage)
        if said.status:
            raise self._why(said)

    def _find_commit(self) -> None:
        """A commit that no fetched branch has is asked for by itself, which many hosts allow."""
        if self._has(self._commit):
            return
        if len(self._commit) >= 40:
            said = self._git.run("fetch", "--quiet", "--no-tags", "origin", self._commit, folder=self._tree)
            if said.status == 0 and self._has(self._commit):
                return
        where = " on the branch `%s`" % self._branch if self._branch and self._repo.get("single_branch") else ""
        raise self._failed("it has no commit %s%s (was it pushed?)" % (self._commit, where))

    def _has(self, commit: str) -> bool:
        words = ("rev-parse", "--verify", "--quiet", commit + "^{commit}")
        return self._git.run(*words, folder=self._tree).status == 0

    def _must(self, *words: str, what: str = "") -> None:
        said = self._git.run(*words, folder=self._tree)
        if said.status:
            raise self._why(said, what)

    def _apply(self, patch: str) -> None:
        with open(patch, "rb") as given:
            said = self._patched(given)
        if said.status == 0:
            return
        if DISK.search(said.text):
            raise self._why(said)
        lines = self._lines(said)
        found = [line[len("error: ") :] for line in lines if line.startswith("error: ")] or lines or ["no reason given"]
        at = re.match(r"patch failed: (.+):(\d+)$", found[0])
        first = "%s, line %s" % (at.group(1), at.group(2)) if at else found[0]
        raise self._failed("the patch with the uncommitted changes doesn't fit: %s" % first)

    def _patched(self, given: BinaryIO) -> GitOutput:
        return self._git.run("apply", "--whitespace=nowarn", "-", folder=self._tree, given=given)

    # Reasons ----------------------------------------------------------------------------------------------------

    def _failed(self, why: str) -> TaskError:
        return TaskError("executor_error", "repository %s: %s" % (self._url, why))

    def _why(self, said: GitOutput, what: str = "") -> TaskError:
        lines = self._lines(said)
        for pattern, words in self._reasons():
            line = next((line for line in lines if pattern.search(line)), None)
            if line is not None:
                return self._failed(what + words.replace("{git}", line))
        said_last = (lines or ["no reason given"])[-1]
        first = next((line for line in lines if line.startswith(("fatal:", "error:"))), said_last)
        return self._failed("%sgit failed: %s" % (what, first))

    def _reasons(self) -> List[Tuple["re.Pattern[str]", str]]:
        if not self._secret:
            denied = "it can't be read without credentials ({git}): if it is private, store some with `dstack init`"
        else:
            what = "key" if self._secret.get("private_key") else "token"
            denied = "the stored %s can't read it ({git}): store another with `dstack init`" % what
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

    def _lines(self, said: GitOutput) -> List[str]:
        """git's words, printable, and without the credentials, should a server repeat them. No semicolon: it would part
        one reason from the next."""
        text = said.text
        for value in self._secret.values():
            text = text.replace(value, "(hidden)")
        lines = ("".join(each if each.isprintable() else " " for each in line) for line in text.splitlines())
        return [line.strip()[:WORDS_MOST].replace("; ", ", ") for line in lines if line.strip()]
