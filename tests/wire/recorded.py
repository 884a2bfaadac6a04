"""What the genuine client did with each case, as digests in a file: it is pinned, so it always does the same.

A run drives it only for cases that the file doesn't have as they are now, for one of each theme, and where a
comparison fails. `GOLDEN=write` drives it for every case that pytest comes to, and writes these anew. A line is for one
case: its name, a digest of all that both clients are given, and what the genuine one did: its status, a digest of what
it sent (`-` for nothing), and whether it crashed. The first line has digests of what all cases depend on, of the
programs that those with a checkout need, and of the lines that follow.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.wire import clients, keys, recorder
from tests.wire.corpus import Case

FILE = Path(__file__).with_name("recorded.txt")
LOCK = clients.ROOT / "tests" / "e2e" / "peer.lock"
HARNESS = ("clients.py", "far.py", "forking.py", "keys.py", "recorder.py")
ANEW = "GOLDEN=write pytest tests/wire/test_same_body_real.py"
NOTHING, CRASHED = "-", "crashed"


@dataclass(frozen=True)
class Did:
    """What a client did with a case."""

    status: int
    sent: str  # a digest, or NOTHING
    crashed: bool = False  # before it sent anything

    @classmethod
    def of(cls, case: Case, client: clients.Sent, folder: Path, url: str) -> Did:
        sent = digest_of(client.said(case.command), folder, url)
        return cls(client.status, sent, client.crashed and sent == NOTHING)


def digest_of(said: Any, folder: Path, url: str) -> str:
    """In it, words stand for what is new in each run, such as the folder of all cases."""
    if not said:
        return NOTHING
    text = json.dumps(said, sort_keys=True)
    for word, found in (("{folder}", str(folder)), ("{url}", url), *keys.made()):
        text = text.replace(json.dumps(found)[1:-1], word)
    return digest(text)


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]


@functools.cache
def setting() -> str:
    """The genuine client, and how it is called and answered."""
    return digest(*(path.read_text(encoding="utf-8") for path in (LOCK, *map(FILE.with_name, HARNESS))))


@functools.cache
def programs() -> str:
    commands = (["git", "--version"], ["ssh", "-V"])
    return digest(*(subprocess.run(each, capture_output=True, check=True) for each in commands))


def given(case: Case) -> str:
    """A digest of all that both clients get in this case."""
    plan = recorder.plan({"run_name": "x", "configuration": {"resources": {}}}) if case.submitted else None
    return digest(json.dumps([vars(case), plan], sort_keys=True))


@dataclass(frozen=True)
class Recording:
    """The file, as text and as what was done in each case and the digest of that case."""

    setting: str = ""
    programs: str = ""
    cases: Mapping[str, tuple[str, Did]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Recording:
        head, _, lines = text.partition("\n")
        of_all, of_programs, of_lines = head.split()
        assert of_lines == digest(lines), f"{FILE.name} was edited by hand. Write it anew: {ANEW}"
        found = {}
        for line in lines.splitlines():
            name, case, status, sent, *crashed = line.split()
            found[name] = case, Did(int(status), sent, crashed=bool(crashed))
        return cls(of_all, of_programs, found)

    def text(self) -> str:
        lines = "".join(
            f"{name} {case} {did.status} {did.sent}{f' {CRASHED}' if did.crashed else ''}\n"
            for name, (case, did) in sorted(self.cases.items())
        )
        return f"{self.setting} {self.programs} {digest(lines)}\n{lines}"

    def did(self, case: Case) -> Did | None:
        """What the genuine client did with just this case in just this setting, if that is known."""
        if self.setting != setting() or (case.git and self.programs != programs()):
            return None
        recorded, did = self.cases.get(case.name, ("", None))
        return did if recorded == given(case) else None

    def sample(self, cases: Iterable[Case]) -> list[Case]:
        """One of each theme: others once the file was written anew, but for one file always the same."""
        chosen: dict[str, Case] = {}
        for case in sorted(cases, key=lambda case: digest(self.text(), case.name)):
            chosen.setdefault(case.theme, case)
        return list(chosen.values())

    def written_anew(self, done: Mapping[str, Did], cases: Mapping[str, Case]) -> Recording:
        """With what was done just now, and without what is of no case any more."""
        kept = {name: line for name, line in self.cases.items() if name in cases and self.did(cases[name])}
        return Recording(setting(), programs(), kept | {name: (given(cases[name]), did) for name, did in done.items()})
