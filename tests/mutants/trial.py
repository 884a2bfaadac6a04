"""One change against the tests that are about its file, in a copy of the tree.

Which tests those are follows from names: the file's mirror under `tests/`, then its package's, then those of the
packages that use it, and whole histories where it has a part in them, then all quick ones; and from imports: the more
directly a test file imports the source file, the sooner it is run. Of those, a trial runs the tests that reach the
changed line (`touching.py`), and its first failure ends it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.quick import ROOT, elsewhere
from tests.mutants.changes import Change
from tests.mutants.imports import imported
from tests.mutants.touching import Touching

TESTS_OF: dict[str, tuple[str, ...]] = {  # where a package's tests are, in this order
    "machines": ("machines", "planning", "engine", "simulation", "scenarios"),
    "planning": ("planning", "engine", "usecases", "simulation", "api", "scenarios"),
    "engine": ("engine", "usecases", "simulation", "scenarios"),
    "usecases": ("usecases", "api", "simulation", "scenarios"),
    "store": ("store", "engine", "usecases", "simulation", "scenarios"),
    "agent": ("agent",),
    "agent/program/session.py": ("agent", "simulation"),
}
TOO = {  # about files by other names
    "tests/agent/sessions/test_container_sessions_real.py": ("agent/sessions/container_session.py",),
    "tests/agent/kernel/test_namespaces_real.py": ("agent/sessions/container_session.py",),
    "tests/agent/gateway/test_role_real.py": ("agent/gateway/nginx.py", "agent/gateway/program.py"),
    "tests/agent/sessions/test_logins_real.py": ("agent/kernel/namespaces.py", "agent/sessions/login_connections.py"),
    "tests/agent/runtimes/test_own_users_real.py": (
        "agent/runtimes/users.py",
        "agent/runtimes/accounts.py",
        "agent/runtimes/process.py",
        "agent/kernel/process_tree.py",
    ),
    "tests/agent/runtimes/test_process.py": (
        "agent/program/supervisor.py",
        "agent/kernel/spool.py",
        "agent/kernel/process_tree.py",
    ),
    "tests/agent/replicas/test_replicas_real.py": ("agent/replicas/replica_loop.py",),
    "tests/agent/runtimes/test_repositories_real.py": ("agent/runtimes/git.py", "agent/runtimes/process.py"),
    "tests/agent/sessions/test_sessions_real.py": (
        "agent/sessions/logins.py",
        "agent/program/main.py",
        "agent/sessions/session_command.py",
        "agent/runtimes/listening.py",
    ),
    "tests/agent/volumes/test_volume_crashes_real.py": ("agent/volumes/holds.py",),
    "tests/agent/volumes/test_volumes_real.py": (
        "agent/kernel/mountinfo.py",
        "agent/runtimes/process.py",
        *(f"agent/volumes/{name}.py" for name in ("bound_folders", "disks", "folders")),
    ),
    "tests/functions/test_dead_letters.py": ("engine/dead_letters.py",),
    "tests/serving/test_gateway_program_real.py": tuple(
        f"agent/gateway/{name}.py" for name in ("command", "control", "plane", "program", "worker_requests")
    ),
    "tests/serving/test_gateway_streams_real.py": ("agent/gateway/relays.py", "agent/gateway/nginx.py"),
    "tests/store/test_s3_real.py": ("store/blobs.py",),
    "tests/usecases/people/test_limits.py": ("agent/program/session.py", "agent/kernel/tasks.py"),
}
SLOW = re.compile(r"^tests/agent/test_(agent|process)\.py$|^tests/simulation/")  # start processes, or play for long
APART = re.compile(r"_real\.py$|/test_planted\.py$")  # need something of the machine, or minutes
IMPORTS = ("agent",)  # in other packages some modules are imported by names that are put together
ELSEWHERE = 1000  # imports away: not imported at all
SLOWEST = 90  # seconds for one test
NO_TESTS = 5  # pytest's exit status
APART_FROM_ALL = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave")
FIRST = ("sh", "-c", '"$@"; exit $?', "sh")  # a namespace's first process: it reaps the others' orphans
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


def closest_tests(root: Path, file: str) -> list[str]:
    """The test files for a source file, those that are closest to it first."""
    package, inside = Path(file).parts[1], file.removeprefix("chalicelib/")
    folders = [root / "tests" / name for name in TESTS_OF.get(inside, TESTS_OF[package])]
    paths = dict.fromkeys(path for folder in folders for path in sorted(folder.rglob("test_*.py")))
    quick = (
        path for path in sorted((root / "tests").rglob("test_*.py")) if not elsewhere(ROOT / path.relative_to(root))
    )
    found = [path.relative_to(root).as_posix() for path in (*paths, *(path for path in quick if path not in paths))]
    mirrors = _mirrors(file)
    found += sorted(path for path in TOO if path in mirrors and path not in found)
    away = {path: imported(root, path).get(file, ELSEWHERE) for path in found}
    wanted = (path for path in found if path in mirrors or not APART.search(path))
    if package in IMPORTS:
        wanted = (path for path in wanted if path in mirrors or SLOW.search(path) or away[path] != ELSEWHERE)

    def distance(path: str) -> tuple[bool, bool, bool, bool, int]:
        return (
            not _is_near(file, path),
            bool(APART.search(path)),
            bool(SLOW.search(path)),
            path not in mirrors,
            away[path],
        )

    return sorted(wanted, key=distance)


def rounds(root: Path, change: Change, touching: Touching) -> list[list[str]]:
    """The tests that may notice a change, in the order of their files: those near its file, then the others. What an
    agent runs in processes of its own isn't seen: files near it count as a whole and, where no test reaches the line,
    all that start such processes."""
    touched, at_import = touching.tests(change)
    starts = change.file.split("/")[1] in IMPORTS
    near, others = list[str](), list[str]()
    for path in closest_tests(root, change.file):
        is_near = _is_near(change.file, path)
        all_tests = at_import or (starts and (is_near or (not touched and SLOW.search(path))))
        tests = [path] if all_tests else sorted(test for test in touched if test.startswith(f"{path}::"))
        (near if is_near else others).extend(tests)
    return [tests for tests in (near, others) if tests]


def _mirrors(file: str) -> set[str]:
    folder, stem = Path("tests", *Path(file).parts[1:-1]).as_posix(), Path(file).stem.strip("_")
    inside = file.removeprefix("chalicelib/")
    too = {path for path, files in TOO.items() if inside in files}
    return too | {f"{folder}/test_{stem}{kind}.py" for kind in ("", "_real")}


def _is_near(file: str, path: str) -> bool:
    return path in _mirrors(file) or Path(file).stem.strip("_").rstrip("s") in Path(path).stem


def _first(status: int | None, output: str) -> str:
    """Of the tests that failed."""
    failed = _FAILED.search(output)
    return "no end" if status is None else failed[1] if failed else output[-200:].strip()


@functools.cache
def alone() -> tuple[str, ...]:
    """What to put before a command so that it sees and signals nobody else's processes; empty where that isn't allowed.

    A changed agent may well signal every process there is.
    """
    for rights in ((), ("--user", "--map-current-user")):
        command = (*APART_FROM_ALL, *rights, *FIRST)
        with contextlib.suppress(OSError):
            if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
                return command
    return ()


@dataclass(frozen=True)
class Verdict:
    change: Change
    noticed: bool
    by: str  # the first test that failed, or how else it was noticed
    seconds: float


class Copy:
    """A copy of the tree that may be broken."""

    def __init__(self, root: Path) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mutants-"))
        listed = ["git", "ls-files", "-co", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=root, text=True).splitlines():
            if (root / name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, self.root / name, follow_symlinks=False)
        for name in (".venv", ".venvs"):
            if (root / name).exists():
                (self.root / name).symlink_to((root / name).resolve())
        seen = self._run(["-c", "import chalicelib; print(chalicelib.__file__)"], 60)[1]
        if str(self.root) not in seen:
            raise SystemExit(f"the copy in {self.root} doesn't run its own code but {seen}")
        self.left_out: list[str] = []  # tests that fail without any change, too: they can't notice one

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def watched(self, files: list[str], packages: set[str], patience: float) -> Touching:
        """Tells which of these tests run which lines of these packages. Nothing is changed, so they must pass, if not
        at once, then alone: on a busy machine one of thousands may wait too long. Who fails even so is left out."""
        options = ["--cov-context=test", "--cov-report=", *(f"--cov=chalicelib/{name}" for name in sorted(packages))]
        status, output = self._pytest(files, patience, options)
        failed = _FAILED.findall(output)
        if failed and status is not None:
            status, output = self._pytest(failed, patience, [*options, "--cov-append"])
            self.left_out = _FAILED.findall(output)
            for test in self.left_out:
                print(f"fails without any change, so it is left out: {test}", flush=True)
        if status is None or (status != 0 and not self.left_out):
            raise SystemExit(f"without any change, {_first(status, output)} fails")
        return Touching(self.root, self.root / ".coverage")

    def passes(self, tests: list[str], patience: float) -> tuple[bool, str]:
        """Do these tests pass? With the first that doesn't."""
        status, output = self._pytest(tests, patience, ["-x"])
        passed = status in (0, NO_TESTS)  # none, where those that could tell are left out
        return passed, "" if passed else _first(status, output)

    def _pytest(self, tests: list[str], patience: float, more: Sequence[str]) -> tuple[int | None, str]:
        options = ["-q", "-rfE", "--tb=no", "--no-header", "-p", "no:cacheprovider", f"--timeout={SLOWEST}"]
        named = self.root / "build" / "tests.txt"  # there may be more than a command line holds
        named.parent.mkdir(exist_ok=True)
        named.write_text("\n".join(tests), encoding="utf-8")
        without = [f"--deselect={test}" for test in self.left_out]
        return self._run(["-m", "pytest", *options, *without, *more, f"@{named}"], patience)

    def trial(self, change: Change, touching: Touching, patience: float) -> Verdict:
        if change.file.startswith("chalicelib/agent/") and not alone():
            raise SystemExit(
                "a changed agent may signal every process here; be root, or where users may unshare, or "
                "leave it out with --in"
            )
        file, began = self.root / change.file, time.perf_counter()
        wanted, source = rounds(self.root, change, touching), file.read_bytes()
        self._write(file, change.applied(source))
        passed, by = True, ""
        try:
            for tests in wanted:
                passed, by = self.passes(tests, patience)
                if not passed:
                    break
        finally:
            self._write(file, source)
        return Verdict(change, not passed, by, round(time.perf_counter() - began, 1))

    def _write(self, file: Path, source: bytes) -> None:
        file.write_bytes(source)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()  # it is known from its source by second and size, which two changes may share

    def _run(self, arguments: list[str], patience: float) -> tuple[int | None, str]:
        """Status and output of Python; no status where it didn't end in time."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONHASHSEED": "0", "HYPOTHESIS_PROFILE": "fast"}
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [*alone(), sys.executable, *arguments],
                cwd=self.root,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            status: int | None = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout=patience)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what a broken test left running
            process.wait()
            output.seek(0)
            return status, output.read()
