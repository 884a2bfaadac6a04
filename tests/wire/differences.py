"""Where we differ from the genuine client on purpose: each with its reason, and a case that proves it.

`python -m tests.wire.differences` writes the page of the documentation; a test compares it with this table.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.wire.corpus import DEFAULT, Case

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"
TASK = "type: task\ncommands: [ls]\n"
SERVICE = "type: service\nport: 80\nimage: i\n"
GATEWAY = "type: gateway\nname: g\nbackend: aws\nregion: r\n"
VOLUME = "type: volume\nname: v\nbackend: aws\nregion: r\n"
SSH = "type: fleet\nssh_config: {user: u, identity_file: key, "
KEY = {"key": "<ed25519 key>"}
CONFIGURATION = "run_spec.configuration"
REPO = {"local_path": ".", "url": None, "branch": None, "hash": None, "path": ".", "if_exists": "error"}
STRICTER, KINDER, OTHERWISE = "Refused here, sent there", "Sent here, refused there", "Sent differently"
INTRODUCTION = """# Differences from dstack 0.22.5

Written by `python -m tests.wire.differences`. The genuine client and ours, given the same file, environment and flags,
send the same request; a test compares them over hundreds of files and flags. These are the exceptions, all on purpose,
and each is tested against the genuine client too.
"""
WORDS = {
    STRICTER: "The mistake is told at once, by line and column, instead of by the server, late or never.",
    KINDER: "What was meant is clear, so it is done.",
    OTHERWISE: "Both send it; what is sent is not the same.",
}


@dataclass(frozen=True)
class Difference:
    kind: str
    what: str  # the thing, as a heading says it
    why: str
    file: str = TASK
    flags: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    path: str = DEFAULT
    given: str | None = None
    crash: bool = False  # the genuine client ends with a traceback
    git: bool = False  # in a checkout
    before: str = ""
    changed: tuple[tuple[str, Any, Any], ...] = ()  # path in the plan's body, what it sends there, and what we send

    def case(self, number: int) -> Case:
        return Case(
            f"different-{number}",
            self.file,
            self.flags,
            files=self.files,
            path=self.path,
            given=self.given,
            git=self.git,
            before=self.before,
        ).placed()


def stricter(what: str, why: str, file: str = TASK, *flags: str, files: Mapping[str, str] | None = None) -> Difference:
    return Difference(STRICTER, what, why, file, flags, files or {})


def kinder(
    what: str,
    why: str,
    file: str = TASK,
    *flags: str,
    crash: bool = False,
    files: Mapping[str, str] | None = None,
) -> Difference:
    return Difference(KINDER, what, why, file, flags, files or {}, crash=crash)


LATER = "The server there refuses it after the plan was sent."
NOT_BUILT = "Not available yet. A flag or field that did nothing would be worse than a refusal."
NO_EFFECT = "It would do nothing."
CODE = "run_spec.repo_code_hash"
PATCHES = {  # by their hash
    "odd": "71446a30889237bea1340e1ac9806413cb5e546f2e17ead563b05353a2e9e0fc",
    "unfit": "27be68430c29ddaf329da68360623e627d1e8a7ec601102f5c18a4e730371e83",
    "fit": "66a457f745c438fee7160b24d1529c4ed29604a8d0ff0eb14099356369736426",
}
MISREAD = "YAML 1.1 takes it for another number than the one that was written; in quotes it is what it looks like."
NEGATIVE = "There is no such amount; there every cloud refuses it in its own way, or takes it for zero."
SWITCH = "`true` would silently be 1."

DIFFERENCES: tuple[Difference, ...] = (
    stricter("`1_000`, a number with spaces in it", MISREAD, TASK + "env: {A: 1_000}\n"),
    stricter("`010`, an octal number", MISREAD, TASK + "priority: 010\n"),
    stricter("`0x10`, a hexadecimal number", MISREAD, TASK + "priority: 0x10\n"),
    stricter("`2.50` where text is meant", "It would become `2.5`: a version or a name has changed.",
             "type: task\ncommands: [1, 2.50]\n"),
    stricter("`.inf`", "Infinity can't travel as JSON.", TASK + "max_price: .inf\n"),
    stricter("A key that is there twice", "One of the two values would be lost without a word.",
             TASK + "name: a\nname: b\n"),
    stricter("`gpu: {name: 'A100,H100'}`", "One GPU of that name was never meant; several names are a list.",
             TASK + "resources: {gpu: {name: 'A100,H100'}}\n"),
    stricter("Negative memory", NEGATIVE, TASK + "resources: {memory: -1}\n"),
    stricter("A negative number of GPUs", NEGATIVE, TASK + "resources: {gpu: -1}\n"),
    stricter("A negative `count` of GPUs", NEGATIVE, TASK + "resources: {gpu: {count: -1}}\n"),
    stricter("A negative `retry.duration`", LATER, TASK + "retry: {duration: -1}\n"),
    stricter("`priority: true`", SWITCH, TASK + "priority: true\n"),
    stricter("`nodes: true`", SWITCH, TASK + "nodes: true\n"),
    stricter('`env: {"A=B": x}`, `env: {"": x}`', "No variable can be called so; there the job finds out.",
             TASK + "env: {'A=B': x}\n"),
    stricter('`"\\0"`, a NUL character', "No program takes it; there the job finds out.",
             'type: task\ncommands: ["a\\0b"]\n'),
    stricter("`replicas` and the older `count` in one group", "They are one number; `count` is dropped there.",
             "type: service\nport: 80\ngroups: [{replicas: '1', count: 3, commands: [r]}]\n"),
    stricter("A fleet without `nodes` and `ssh_config`", LATER, "type: fleet\nname: f\n"),
    stricter("A fleet with both `nodes` and `ssh_config`", LATER,
             "type: fleet\nnodes: 1\nssh_config: {user: u, identity_file: key, hosts: [a]}\n", files=KEY),
    stricter("`internal_ip` for some hosts only", LATER,
             SSH + "hosts: [{hostname: a, internal_ip: 10.0.0.1}, b]}\n", files=KEY),
    stricter("`internal_ip` together with `network`", LATER,
             SSH + "network: 10.0.0.0/8, hosts: [{hostname: a, internal_ip: 10.0.0.1}]}\n", files=KEY),
    stricter("A port above 65535 in `ssh_config`", "There is no such port.", SSH + "port: 70000, hosts: [a]}\n",
             files=KEY),
    stricter("A volume without `size` and without an id", LATER, VOLUME),
    stricter("`auto_cleanup_duration` of a volume that was there before", LATER,
             VOLUME + "volume_id: x\nauto_cleanup_duration: 1h\n"),
    stricter("A private gateway with Let's Encrypt", LATER, GATEWAY + "public_ip: false\n"),
    stricter("Several replicas of a gateway with Let's Encrypt", LATER, GATEWAY + "replicas: 2\n"),
    stricter("`acm` outside of AWS", LATER,
             "type: gateway\nname: g\nbackend: vultr\nregion: r\ncertificate: {type: acm, arn: a}\n"),
    stricter("`--max-price 0`", "`max_price: 0` in a file is refused there too.", TASK, "--max-price", "0"),
    stricter("Arguments that no command takes", "They were meant for something else, most often for -f.",
             "type: task\nimage: i\n", "--", "stray", "words"),
    stricter("`--host`", NOT_BUILT, TASK, "--host", "0.0.0.0"),
    stricter("`--repo-branch` without a repository", NO_EFFECT, TASK, "--repo-branch", "main"),
    stricter("`--repo-hash` without a repository", NO_EFFECT, TASK, "--repo-hash", "0123"),
    stricter("`--token` without a repository", NO_EFFECT, TASK, "--no-repo", "-t", "token"),
    stricter("`--git-identity` without a repository", NO_EFFECT, TASK, "--git-identity", "key", files=KEY),
    Difference(STRICTER, "`branch` or `hash` of a checkout", "Its own count, there too.",
               TASK + "repos: [{local_path: ., branch: other}]\n", git=True),
    Difference(STRICTER, "`--repo-branch` or `--repo-hash` with a checkout", "Its own count, there too.", TASK,
               ("-P", ".", "--repo-branch", "other", "--repo-hash", "0123"), git=True),
    Difference(STRICTER, "A branch that the repository hasn't", "There the job finds out.",
               TASK + "repos: [{url: '{far}', branch: other}]\n", git=True),
    Difference(STRICTER, "`--git-identity` with a file that isn't there",
               "It was meant, even if everybody may read the repository.", TASK,
               ("-P", "{far}", "--git-identity", "nothing"), git=True),
    Difference(STRICTER, "`.git` as a checkout", "The checkout is the folder that it is in.", TASK, ("-P", ".git"),
               git=True),
    kinder("`tags: {a: 1}`", "A number is as good as text. The genuine client crashes.", TASK + "tags: {a: 1}\n",
           crash=True),
    kinder("`env: {A: 2024-01-01}`", "YAML makes a date of it; what was written is what is sent.",
           TASK + "env: {A: 2024-01-01}\n"),
    kinder("`compute_capability: 8`", "It is 8.0.", TASK + "resources: {gpu: {compute_capability: 8}}\n"),
    kinder("`files: ['a:/a']`", "A single letter is taken for a Windows drive there, whatever follows it.",
           TASK + "files: ['b:/b']\n", files={"b": "text"}),
    kinder("`scaling: {metric: queue}`", "Older documents of the language have it.",
           SERVICE + "replicas: 1..2\nscaling: {metric: queue, target: 1}\n"),
    kinder("`resources: {disk: 100GB}` of a volume", "Older documents of the language have it; it is `size`.",
           VOLUME + "resources: {disk: 100GB}\n"),
    kinder("`--retry` with `--retry-duration`", "The second says how long the first goes on.", TASK, "--retry",
           "--retry-duration", "1h"),
    kinder("`--no-profile` and resources' flags for a fleet", "They mean for a fleet what they mean for a run.",
           "type: fleet\nnodes: 1\n", "--no-profile", "--gpu", "1"),
    kinder("`--json`", "What was submitted, for scripts.", TASK, "--json"),
    Difference(KINDER, "An absolute path after -f, outside of the folder", "The genuine client crashes.",
               path="../elsewhere/x.yml", given="{folder}/elsewhere/x.yml", crash=True),
    Difference(KINDER, "A port in a repository's address that is one text",
               "What is behind the last `:` is taken for the path there.",
               TASK + "repos: ['https://open.example:443/{path}']\n", git=True),
    Difference(KINDER, "A port in such an address over SSH",
               "What is behind the last `:` is taken for the path there.",
               TASK + "repos: ['ssh://git@open.example:22/{path}']\n", git=True),
    Difference(KINDER, "`repos: ['a:/a']`", "A single letter is taken for a Windows drive there, as with `files`.",
               TASK + "repos: ['b:/b']\n", git=True, before="git clone -q . b; git -C b remote set-url origin {far}"),
    Difference(KINDER, "`--git-identity=~/key`", "`~` is the home folder, as elsewhere.", TASK,
               ("-P", "{closed}", "--git-identity=~/good"), files={"~/good": "<ed25519 key>"}, git=True),
    Difference(KINDER, "`diff.external` among git's settings",
               "It is for people to read, and a patch has to fit.", TASK, ("-P", "."),
               git=True, before="echo '# n' >> .dstack.yml; git config diff.external false"),
    Difference(OTHERWISE, "`$${{` after another `$`",
               "The escape counts wherever it stands, not only where no `$` comes before it.",
               "type: task\ncommands: ['echo $HOME $${{ run.args }}']\n", ("--", "a"),
               changed=((f"{CONFIGURATION}.commands", ["echo $HOME $a"], ["echo $HOME ${{ run.args }}"]),)),
    Difference(OTHERWISE, "`$$` that escapes nothing", "It is the shell's process id, and stays as written.",
               "type: task\ncommands: ['echo $$ and ${{ run.args }}']\n", ("--", "a"),
               changed=((f"{CONFIGURATION}.commands", ["echo $ and a"], ["echo $$ and a"]),)),
    Difference(OTHERWISE, "`--no-repo` with `repos` in the file", "Without a repo there is nothing to check out.",
               TASK + "repos: [.]\n", ("--no-repo",),
               changed=((f"{CONFIGURATION}.repos", [REPO], []), ("run_spec.repo_dir", ".", None))),
    Difference(OTHERWISE, "A new file called `-x`, a new link to a folder",
               "They come along; there they are lost without a word.", TASK, ("-P", "."), git=True,
               before="echo n > -x; mkdir d; ln -s d l", changed=((CODE, None, PATCHES["odd"]),)),
    Difference(OTHERWISE, "`diff.noprefix` and the like among git's settings",
               "A patch that was made with them wouldn't fit.", TASK, ("-P", "."), git=True,
               before="echo n > new; git config diff.noprefix true",
               changed=((CODE, PATCHES["unfit"], PATCHES["fit"]),)),
)  # fmt: skip


def page() -> str:
    """The table as a page of the documentation."""
    parts = [INTRODUCTION]
    for kind, members in groupby(DIFFERENCES, key=lambda one: one.kind):
        parts += [f"\n## {kind}\n\n{WORDS[kind]}\n\n| What | Why |\n|---|---|\n"]
        parts += [f"| {one.what} | {one.why} |\n" for one in members]
    parts += [
        "\n## Not compared\n\n"
        "`dstack init` without a flag writes an example here; there it makes the repository of this folder known, as\n"
        "`dstack init -P .` does here. With the flags of a repository the two are compared.\n"
        "`type: preset` sends no request of its own on either side: there an agent works on the user's machine,\n"
        "and here the command says that it isn't available yet. Archives of `files` are compared by what is in them,\n"
        "not by their bytes.\n"
    ]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
