"""One run of pytest in several processes: `-p tests.harness.cores --cores auto`.

Workers that collect every test anew (25 s of CPU each for the whole suite) and send each result through a broker cost a
good part of what quick tests take. Here one process collects and then forks: each copy takes the next group of tests
from a pipe (`spread.py`), runs them and sends their reports back, and the first process shows them as if it had run
them itself. Whatever else is asked of pytest is asked as always. A copy that dies ends the run.

Tests that drive something real wait most of the time. Meanwhile `--fill` has further copies run those that only
compute, at a low priority, so that no core is idle and whatever is real is as quick as without them.
"""

from __future__ import annotations

import itertools
import os
import resource
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

import pytest

from tests.harness import forks, quick, spread

FORK = get_context("fork")
QUICK = 0.05  # seconds of CPU: a test that takes more belongs to `make test`, marked `slow`
NICE = 10  # of those that fill the cores while others wait
BATCH = 0.2  # seconds: whoever shows results would else wake up for each, on a core that runs tests


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "run tests in so many processes, forked after the collection; auto: one for each core"
    parser.addoption("--cores", default="1", metavar="N", help=help_text)
    help_text = "so many further processes, of low priority, for tests that only compute, while the others wait"
    parser.addoption("--fill", default="0", metavar="N", help=help_text)
    help_text = (
        "a file for what each test took: seconds of CPU, ended children's included; begin, end, process and name"
    )
    parser.addoption("--spent", metavar="FILE", help=help_text)


def wanted(config: pytest.Config, option: str) -> int:
    value = config.getoption(option)
    if value != "auto" and not value.isdigit():
        raise pytest.UsageError(f"--{option} takes a number or `auto`, not {value!r}")
    return len(os.sched_getaffinity(0)) if value == "auto" else int(value)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Cores(wanted(config, "cores"), wanted(config, "fill"), config.getoption("spent")))


class Cores:
    """In the first process: hands out the groups and shows what comes back."""

    def __init__(self, count: int, fill: int, record: str | None) -> None:
        self._count, self._fill = count, fill
        self._record = Path(record).open("w", buffering=1) if record else None  # noqa: SIM115  # open as long as this is
        self._spent: dict[str, float] = {}
        self._slow: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        option = session.config.option
        if self._count < 2 or session.testsfailed or option.collectonly or option.usepdb:
            return None  # as pytest does it
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # made once, removed by this process
        groups = spread.in_turn(session.items)
        self._slow = {item.nodeid for item in session.items if quick.slow(item)}
        waiting = [number for number, group in enumerate(groups) if spread.waits(group[0].nodeid)]
        todos = Todo(waiting), Todo(sorted(set(range(len(groups))) - set(waiting)))
        readers = [start(session, groups, todos) for _ in range(min(self._count, len(groups)))]
        readers += [start(session, groups, todos[1:], NICE) for _ in range(self._fill if waiting else 0)]
        for todo in todos:
            todo.close()
        try:
            self._show(session, dict(readers))
        finally:
            for _, process in readers:
                process.terminate()
                process.join()
        missing = [item.nodeid for item in session.items if item.nodeid not in self._spent]
        if missing:
            pytest.exit(f"{len(missing)} tests were not run, {missing[0]} the first of them", 3)
        return True

    def _show(self, session: pytest.Session, readers: dict[connection.Connection, Any]) -> None:
        open_, last = set(readers), dict.fromkeys(readers, "its start")
        while open_:
            for reader in connection.wait(list(open_)):
                assert isinstance(reader, connection.Connection)
                try:
                    message = reader.recv()
                except EOFError:
                    readers[reader].join()
                    pytest.exit(f"a process ended ({readers[reader].exitcode}) in a test soon after {last[reader]}", 3)
                if message is None:
                    open_.remove(reader)
                    continue
                for result in message:
                    last[reader] = self._replay(session.config, *result)
                    if self._record:
                        self._record.write(recorded(readers[reader].pid, *result))
                    if session.shouldfail:
                        raise session.Failed(session.shouldfail)

    def _replay(
        self, config: pytest.Config, nodeid: str, location: Any, spent: float, reports: Any, warned: Any
    ) -> str:
        self._spent[nodeid] = spent
        config.hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
        for data in reports:
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            config.hook.pytest_runtest_logreport(report=report)
        for (text, category, file, line), context in warned:
            message = warnings.WarningMessage(text, category, file, line)
            config.hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": message, **context})
        config.hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
        return nodeid

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slow = {nodeid: spent for nodeid, spent in self._spent.items() if spent > QUICK and nodeid not in self._slow}
        if slow:
            terminalreporter.section(f"more than {QUICK} s of CPU: mark these `slow`, if a quiet machine says so, too")
        for nodeid in sorted(slow, key=lambda each: slow[each], reverse=True):
            terminalreporter.write_line(f"{slow[nodeid]:.1f} s  {nodeid}")


def recorded(process: int, nodeid: str, _location: Any, spent: float, reports: Any, _warned: Any) -> str:
    begun, ended = (pick(report[end] for report in reports) for pick, end in ((min, "start"), (max, "stop")))
    return f"{spent:.3f}\t{begun:.3f}\t{ended:.3f}\t{process}\t{nodeid}\n"


class Todo:
    """The numbers of groups, in a pipe: who is free reads the next."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._next, write = os.pipe()
        with os.fdopen(write, "wb") as all_:
            all_.write(b"".join(number.to_bytes(4, "big") for number in numbers))

    def __iter__(self) -> Iterator[int]:
        while read := os.read(self._next, 4):
            yield int.from_bytes(read, "big")

    def close(self) -> None:
        os.close(self._next)


def start(
    session: pytest.Session, groups: list[list[pytest.Item]], todos: Sequence[Todo], nice: int = 0
) -> tuple[connection.Connection, Any]:
    reader, writer = FORK.Pipe(duplex=False)
    process = FORK.Process(target=work, args=(session, groups, todos, nice, writer))
    process.start()
    writer.close()
    return reader, process


def work(
    session: pytest.Session,
    groups: list[list[pytest.Item]],
    todos: Sequence[Todo],
    nice: int,
    writer: connection.Connection,
) -> None:
    """In each copy."""
    os.nice(nice)
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    if capture := plugins.getplugin("capturemanager"):  # whose file the copies would share
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    sender = Sender(session.config, writer)
    plugins.register(sender)
    try:
        for number in itertools.chain.from_iterable(todos):
            play(session, groups[number], sender)
            if session.shouldfail:
                break
    except KeyboardInterrupt:
        return  # the first process was interrupted, too, and says so
    finally:
        plugins.getplugin("runner").pytest_sessionfinish(session)  # ends what lives as long as the session
    sender.send()
    writer.send(None)


def play(session: pytest.Session, group: list[pytest.Item], sender: Sender) -> None:
    """The group that comes next isn't taken yet: somebody else may be free before. What lives as long as the session
    outlives the last test."""
    for item, after in zip(group, [*group[1:], session], strict=True):
        before = cpu()
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        sender.done(item, cpu() - before)
        if session.shouldfail:
            break


def cpu() -> float:
    """Of this process and of those that it has waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + forks.spent()


class Sender:
    """Keeps what pytest would show of each test, and sends some at a time."""

    def __init__(self, config: pytest.Config, writer: connection.Connection) -> None:
        self._config, self._writer = config, writer
        self._whole = config.option.durations is not None or config.option.xmlpath  # who want each part of a test
        self._reports: list[Any] = []
        self._warned: list[Any] = []
        self._results: list[Any] = []
        self._sent = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when != "call" and not report.sections and not self._whole:
            return  # nothing of it is shown
        self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        context = {"when": when, "nodeid": nodeid, "location": location}
        warning = (
            str(warning_message.message),
            warning_message.category,
            warning_message.filename,
            warning_message.lineno,
        )
        self._warned.append((warning, context))

    def done(self, item: pytest.Item, spent: float) -> None:
        self._results.append((item.nodeid, item.location, spent, self._reports, self._warned))
        self._reports, self._warned = [], []
        if time.monotonic() - self._sent > BATCH:
            self.send()

    def send(self) -> None:
        self._writer.send(self._results)
        self._results, self._sent = [], time.monotonic()
