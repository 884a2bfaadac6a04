"""What holds for every test.

Profiles of Hypothesis: everything by default, a taste in `make test-fast`. No deadline: machines are shared.
A test that needs something real (an engine, an emulator, root) skips where there is none and says why; under
REQUIRE_REAL, as the submission sets it, every skip is a failure, but for what a conformance suite doesn't ask of an
implementation whose facts deny it.

`make test` runs on every core (`harness/cores.py`); `harness/spread.py` says which tests keep together.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies

from tests.emulators import ministack
from tests.emulators.ministack import Emulator
from tests.harness import docker, quick
from tests.harness.conformance import Denied

# Where a change is judged, every run tries the same examples, so that a red run can be repeated.
settings.register_profile(
    "full", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("fast", settings.get_profile("full"), max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))


# pyenv's `python3` is a script that starts several processes before the one that is wanted, which takes 0.1 s of CPU.
_programs = [each for each in os.environ["PATH"].split(":") if not each.endswith("/shims")]
_python = str(Path(sys.base_prefix, "bin"))
os.environ["PATH"] = ":".join(_programs if _python in _programs else [_python, *_programs])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what is long by nature, as `make test-fast` does")
    parser.addoption("--jumpy", action="store_true", help="switch threads all the time, so that races show")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*capabilities): a case of a suite, for those whose facts grant them")
    config.addinivalue_line("markers", "slow: starts processes, or takes seconds; `make test-fast` does without it")
    quick.watch()
    if config.getoption("jumpy"):
        sys.setswitchinterval(1e-6)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("quick") and quick.elsewhere(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    quick.begins("" if quick.slow(item) else item.nodeid)
    try:
        return (yield)
    finally:
        quick.begins("")


def pytest_collection(session: pytest.Session) -> None:
    gc.disable()
    strategies.text().validate()  # in a fresh checkout it takes a second to list all characters: once, before any fork


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collection made stays until the end, so the garbage collector needn't walk it again and again."""
    gc.freeze()
    gc.set_threshold(10_000)  # as the server has it
    gc.enable()


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """AWS, as far as it can be had here. Started when the first test asks for it."""
    with ministack.running() as found:
        yield found


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker.DockerEngine]:
    """Started when the first test asks for it, too."""
    with docker.or_skipped() as engine:
        yield engine


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    reason = call.excinfo.value if call.excinfo else "no reason given"
    excused = hasattr(report, "wasxfail") or isinstance(reason, Denied)
    if report.skipped and not excused and os.environ.get("REQUIRE_REAL"):
        report.outcome, report.longrepr = "failed", f"REQUIRE_REAL is set, and {item.name} was skipped: {reason}"
    return report
