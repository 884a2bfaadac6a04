"""The whole suite, with a second try, alone, for the few tests that need quiet.

Tests with real processes (`*_real.py`, and all of `e2e`) wait for servers, hosts and engines while five others do so
on the same two cores. One in some ten thousand then misses a time that it would keep by itself, and tells nothing about
the code. So up to `FEW` of those are tried again once the machine is theirs, each failure having been printed; what
fails twice fails. Every other failure stands as it is: of a test in this process, of more than a few (something is
broken), of a worker that crashed or a file that couldn't be collected (tests are missing).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import pytest

FEW = 5
STEPS = ("setup", "call", "teardown")  # of a test; the report of a worker that crashed names none of them


@dataclass(eq=False)  # pytest keeps plugins in sets
class Failures:
    """What pytest reports as failed, in the process that has all the reports."""

    tests: dict[str, None] = field(default_factory=dict)
    missing: bool = False  # didn't run: some, and nobody knows how many

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None
            self.missing |= report.when not in STEPS

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.missing |= report.failed

    @property
    def need_quiet(self) -> bool:
        return 0 < len(self.tests) <= FEW and all(map(real, self.tests)) and not self.missing


def real(test: str) -> bool:
    return test.startswith("tests/e2e/") or test.partition("::")[0].endswith("_real.py")


def main(args: list[str]) -> int:
    failures = Failures()
    code = pytest.main(args, plugins=[failures])
    if code != pytest.ExitCode.TESTS_FAILED or not failures.need_quiet:
        return int(code)
    print("\nThese failed beside others, and are tried again alone:", *failures.tests, sep="\n  ", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *failures.tests], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
