"""The files of one checkout as its user sees them, compared with a commit.

Git gets a private folder for this: the checkout's objects, a copy of its index, and a configuration with only the
settings for how files are stored. So nothing is run that the checkout's own configuration names (file system monitors,
filters, hooks, fetches for a partial clone), nothing in the checkout is written, and no diff settings apply. Changes to
files that Git is configured to ignore (`assume-unchanged`, `skip-worktree`) are included.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from chalicelib.errors import DstackError
from cli.repositories.git import GitResult, git
from cli.repositories.remotes import fault

FITTING = (
    "--binary",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-relative",
    "--unified=3",
    "--inter-hunk-context=0",
    "--ignore-submodules=all",  # they are compared as checkouts of their own
)
STORAGE = (
    r"core\.(autocrlf|eol|filemode|ignorecase|symlinks|precomposeunicode|excludesfile|attributesfile|trustctime"
    r"|checkstat)|extensions\.objectformat"
)
PRIVATE = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_CONFIG_PARAMETERS": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LITERAL_PATHSPECS": "1",
}
TRUE = ("true", "yes", "on", "1")
SUBMODULE = "160000"
FILES = ("100644", "100755")
OTHERS_FOLDER = "detected dubious ownership"


@dataclass(frozen=True)
class Entry:
    """The entry of a commit or the index at a path."""

    mode: str
    id: str


@dataclass(frozen=True)
class GitFolder:
    """A folder in a checkout, in which git runs with the checkout's own configuration."""

    folder: Path
    env: Mapping[str, str]
    named_by: str  # the flag or field that named it

    def git(self, *arguments: str) -> GitResult:
        return git(*arguments, env=self.env, folder=self.folder, also={"GIT_OPTIONAL_LOCKS": "0"})

    def must(self, *arguments: str) -> str:
        result = self.git(*arguments)
        if result.status:
            raise self.refused(f"git {arguments[0]} failed: {result.why}", "see whether `git status` works there")
        return os.fsdecode(result.out)

    def refused(self, what: str, hint: str) -> DstackError:
        return fault(self.named_by, what, hint)

    def top(self) -> str:
        """The top folder of the checkout that the folder is in."""
        found = self.git("rev-parse", "--show-toplevel")
        if found.status and "work tree" in found.err:
            raise self.refused(f"{self.folder} is a bare repository", "name a checkout of it")
        if found.status and OTHERS_FOLDER in found.err:
            raise self.refused(
                f"{self.folder} belongs to another user, so git doesn't read it",
                f"if you trust it, run `git config --global --add safe.directory {quote(str(self.folder.resolve()))}`",
            )
        if found.status:
            raise self.refused(
                f"{self.folder} isn't a checkout of a Git repository ({found.why})",
                "upload other folders with `files`",
            )
        return os.fsdecode(found.out).removesuffix("\n")

    def settings(self, pattern: str) -> dict[str, str]:
        """The settings that match a pattern: the most specific value, but the first address of a remote."""
        result = self.git("config", "--null", "--get-regexp", f"^({pattern})$")
        found: dict[str, str] = {}
        for entry in filter(None, os.fsdecode(result.out).split("\0")):
            name, given, value = entry.partition("\n")
            if not name.startswith("remote.") or name not in found:
                found[name] = value if given else "true"
        return found


@dataclass(frozen=True)
class WorkTree:
    source: GitFolder
    private: Path  # the private folder
    objects: str  # the checkout's
    prefix: str = ""  # of paths in the patch: `folder/` for a repository inside another

    @property
    def folder(self) -> Path:
        return self.source.folder

    def try_git(self, *arguments: str, given: bytes = b"", index: str = "index") -> GitResult:
        """Runs git on the checkout. `index`: the name of a private index."""
        also = {
            **PRIVATE,
            "GIT_DIR": str(self.private),
            "GIT_WORK_TREE": str(self.folder),
            "GIT_INDEX_FILE": str(self.private / index),
            "GIT_OBJECT_DIRECTORY": str(self.private / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self.objects),
        }
        return git(*arguments, env=self.source.env, folder=self.folder, given=given, also=also)

    def git(self, *arguments: str, given: bytes = b"", index: str = "index") -> bytes:
        result = self.try_git(*arguments, given=given, index=index)
        if result.status:
            raise self.source.refused(f"git {arguments[0]} failed in {self.folder}: {result.why}", self._advice())
        return result.out

    def names(self, *arguments: str, given: bytes = b"") -> list[str]:
        """The names in the output of a command with `-z`."""
        return [name for name in os.fsdecode(self.git(*arguments, given=given)).split("\0") if name]

    def _advice(self) -> str:
        if self.source.settings(r"extensions\.partialclone|remote\..*\.promisor"):
            return "it is a partial clone: `git diff @{upstream}` there fetches what it lacks"
        return "see whether `git status` works there"

    def has(self, commit: str) -> bool:
        return self.try_git("cat-file", "-e", f"{commit}^{{tree}}").status == 0

    def empty(self) -> str:
        """The id of a tree without files."""
        return self.git("hash-object", "-t", "tree", "--stdin").decode().strip()

    def index(self) -> dict[str, Entry]:
        return _entries(self.names("ls-files", "--stage", "-z"))

    def tree(self, commit: str) -> dict[str, Entry]:
        return _entries(self.names("ls-tree", "-r", "-z", "--full-tree", commit))

    def notice_everything(self) -> None:
        """Include files that are marked as unchanged or to be skipped, unless they are absent from a sparse checkout:
        the job gets those from the repository."""
        sparse = self.source.settings(r"core\.sparsecheckout").get("core.sparsecheckout", "").lower() in TRUE
        tagged = self.names("ls-files", "-v", "-z")
        assumed = [line[2:] for line in tagged if line[0].islower()]
        skipped = [line[2:] for line in tagged if line[0] in "Ss"]
        if sparse:
            skipped = [name for name in skipped if os.path.lexists(self.folder / name)]
        for flag, names in (("--no-assume-unchanged", assumed), ("--no-skip-worktree", skipped)):
            if names:
                self.git("update-index", flag, "-z", "--stdin", given=joined(names))

    def unknown(self) -> tuple[list[str], list[str]]:
        """The files that Git neither tracks nor ignores, and folders among them that are repositories."""
        listed = self.names("ls-files", "--others", "--exclude-standard", "-z")
        return [name for name in listed if name[-1] != "/"], [name[:-1] for name in listed if name[-1] == "/"]

    def set_entries(self, entries: Mapping[str, Entry]) -> None:
        """Write entries to the private index, so that the files are read whatever their times are."""
        lines = [f"{entry.mode} {entry.id}\t{name}" for name, entry in entries.items()]
        self.git("update-index", "-z", "--index-info", given=joined(lines))

    def patch(self, base: str, new: list[str], links: Collection[str]) -> bytes:
        """The patch from `base` to the files as they are, including `new` ones that Git doesn't track, without `links`
        to submodules."""
        if links:
            self.git("update-index", "--force-remove", "-z", "--stdin", given=joined(links))
        # With a prefix, the patch would have a renamed file's old name without it.
        renames = "--no-renames" if self.prefix else "--find-renames"
        arguments = ("diff", *FITTING, f"--src-prefix=a/{self.prefix}", f"--dst-prefix=b/{self.prefix}", renames)
        changes = self.git(*arguments, base)
        if not new:
            return changes
        (self.private / "index").unlink(missing_ok=True)  # so that a file that was removed from the index is a new one
        self.git("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul", given=joined(new))
        return changes + self.git(*arguments)


def open_work_tree(source: GitFolder, private: Path, prefix: str = "") -> WorkTree:
    """A work tree. `private`: a new folder. The index is copied with its time, which tells Git which files to read."""
    result = source.must("rev-parse", "--absolute-git-dir", "--git-common-dir", "--git-path", "objects")
    own, shared, objects = result.removesuffix("\n").split("\n")
    git_folder, common = Path(own), source.folder / shared
    for name in ("refs", "objects"):
        (private / name).mkdir(parents=True)
    (private / "HEAD").write_text("ref: refs/heads/none\n")
    settings = source.settings(STORAGE)
    (private / "config").write_bytes(os.fsencode(_config(settings)))
    if (common / "info").is_dir():
        (private / "info").symlink_to((common / "info").resolve())
    if (git_folder / "index").is_file():
        shutil.copy2(git_folder / "index", private / "index")
    for part in git_folder.glob("sharedindex.*"):
        (private / part.name).symlink_to(part)
    return WorkTree(source, private, str(source.folder.resolve() / objects), prefix)


def links_of(entries: Mapping[str, Entry]) -> dict[str, str]:
    """The commits of submodules, by their folders."""
    return {name: entry.id for name, entry in entries.items() if entry.mode == SUBMODULE}


def joined(names: Iterable[str]) -> bytes:
    """The names as the input of a command with `-z`."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def _entries(listed: list[str]) -> dict[str, Entry]:
    """The entries in the output of `ls-files` (mode, id, stage) or `ls-tree` (mode, type, id)."""
    found = {}
    for line in listed:
        arguments, _, name = line.partition("\t")
        mode, first, second = arguments.split()
        found[name] = Entry(mode, second if len(first) < len(second) else first)
    return found


def _config(settings: Mapping[str, str]) -> str:
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = false"]
    for name, value in settings.items():
        section, _, key = name.partition(".")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines += [f"[{section}]", f'\t{key} = "{escaped}"']
    return "\n".join(lines) + "\n"


def _quoted(path: str) -> str:
    """A path in a list separated by colons."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
