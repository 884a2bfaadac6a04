"""One service: submitted, awaited, measured, and stopped again whatever happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from chalicelib.errors import DstackError, NotFound, Refused
from cli.applying.follow import reason_of
from cli.applying.job_log import LogReader, last_lines
from cli.connection import calls
from cli.connection.session import Session
from cli.presets import benchmark
from cli.presets.benchmark import Prompt, Sample, Target
from cli.presets.records import RUNS, Folder
from cli.presets.search import Goal
from cli.tables.cells import duration, gpus, machine
from cli.tables.runs import FINISHED
from cli.tables.services import places

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

T = TypeVar("T")
POLL_SECONDS = 2.0
KNOWN_OFFERS = 50  # that the language model may choose among
STOP_SECONDS = 900.0  # to wait for the end of a run that is to stop
GLANCE_SECONDS = 0.2  # between looks whether to stop, while something else is awaited
LOG_LINES = 20
FEW, MANY = 50, 250  # words of two requests that show how the model counts tokens
USUAL_RATIO = 1.3  # tokens of a word, where a service doesn't count them


class Stopped(Exception):
    """Somebody asked for the end of the search."""


class Lost(Exception):
    """The service can't be measured; the text says why."""


@dataclass(frozen=True)
class Bench:
    """Starts services of one preset, and measures them."""

    session: Session
    folder: Folder
    goal: Goal
    profile: Mapping[str, Any]
    seconds: int  # that one service may take
    report: Callable[[str], None]
    stopping: Callable[[], bool]
    dataset: Sequence[Prompt] = ()

    def plan(self, service: Mapping[str, Any], *, offers_only: bool = False) -> contract.RunPlan:
        spec: contract.Configuration = {
            "run_name": service["name"],
            "repo_id": None,
            "repo_data": None,
            "repo_code_hash": None,
            "repo_dir": None,
            "file_archives": [],
            "working_dir": None,
            "configuration_path": None,
            "configuration": dict(service),
            "profile": dict(self.profile),
            "ssh_key_pub": None,
        }
        body: bodies.GetRunPlanBody = {
            "run_spec": spec,
            "max_offers": KNOWN_OFFERS,
            "full_offers": False,
            "unallocated_resources": False,
            "for_offers_only": offers_only,
        }
        return calls.runs_get_plan(self.session.client, body)

    def start(self, service: Mapping[str, Any]) -> str:
        """Submits the service; its run's name."""
        plan, name = self.plan(service), str(service["name"])
        self.folder.append(
            RUNS, self.session.terminal.now(), run=name
        )  # before there is one, so that none is forgotten
        body: bodies.ApplyRunBody = {"plan": {"run_spec": plan["run_spec"], "current_resource": None}, "force": False}
        made = calls.runs_apply(self.session.client, body)
        self.folder.append(RUNS, self.session.terminal.now(), run=name, id=made["id"])
        return name

    def ready(self, name: str) -> Target:
        """Waits until the model answers. Raises Lost, with the end of the log, if it doesn't."""
        terminal = self.session.terminal
        until, last = terminal.now() + self.seconds, ""
        while True:
            run = self._run(name)
            if run is not None:
                why = reason_of(run)
                if run["status"] in FINISHED:
                    raise Lost(
                        "\n".join(filter(None, (f"it {run['status']}: {why or 'no reason given'}", self._log(run))))
                    )
                if (seen := f"{run['status_message'] or run['status']}{f': {why}' if why else ''}") != last:
                    self.report(f"{name}: {seen}")
                    last = seen
                if run["status"] == "running" and (found := self._target(run)):
                    if not (sample := self.send(found, _prompt(FEW))).error:
                        return found
                    last = f"running, and {sample.error}"
            if terminal.now() >= until:
                raise Lost(f"it didn't answer within {duration(self.seconds)} ({last or 'the server is away'})")
            self.sleep(POLL_SECONDS)

    def measure(self, target: Target) -> contract.Benchmark:
        """The figures under load, and whether the longest request gets a response."""
        few, many = (self.send(target, _prompt(count)) for count in (FEW, MANY))
        if error := few.error or many.error:
            raise Lost(f"it stopped answering: {error}")
        counted = many.input_tokens > few.input_tokens > 0
        ratio = (many.input_tokens - few.input_tokens) / (MANY - FEW) if counted else USUAL_RATIO
        around = max(0.0, few.input_tokens - FEW * ratio) if counted else 0.0  # the chat's template
        room = self.goal.min_context_length - benchmark.PROBE_TOKENS - around
        longest = self.send(target, _prompt(max(1, int(room / ratio))))
        length = None
        if not longest.error:
            total = longest.input_tokens + longest.output_tokens
            length = total if longest.input_tokens else self.goal.min_context_length
        count = self.goal.concurrency * benchmark.PER_CLIENT
        prompts = (
            benchmark.repeated(self.dataset, count) if self.dataset else benchmark.random_prompts(self.goal, ratio)
        )
        self.report(f"measuring: {len(prompts)} requests, {self.goal.concurrency} at a time")
        samples, seconds = self.unless_stopped(
            lambda: benchmark.send_all(
                target, prompts, self.goal.concurrency, stopping=self.stopping, clock=time.perf_counter
            )
        )
        return benchmark.summary(samples, seconds, length)

    def stop(self, name: str) -> contract.Run | None:
        """Stops a run and waits for its end, even where the server is away for a while. None: it isn't known to have
        ended."""
        terminal = self.session.terminal
        until, asked = terminal.now() + STOP_SECONDS, False
        while terminal.now() < until:
            try:
                run = self.session.get_run(name)
                if run["status"] in FINISHED:
                    return run
                if not asked:
                    calls.runs_stop(self.session.client, {"runs_names": [name], "abort": False})
                    asked = True
            except NotFound:
                return None
            except DstackError:
                asked = False  # the server is away, which may pass
            terminal.sleep(POLL_SECONDS)
        self.report(f"{name} may still be running: `dstack stop {name}`.")
        return None

    def send(self, target: Target, prompt: Prompt) -> Sample:
        return self.unless_stopped(lambda: benchmark.send(target, prompt))

    def unless_stopped(self, work: Callable[[], T]) -> T:
        """The result of what takes long, or Stopped as soon as somebody asks for that."""
        found: list[T] = []
        failed: list[BaseException] = []

        def carry_out() -> None:
            try:
                found.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again below, in the thread that waits
                failed.append(error)

        thread = threading.Thread(target=carry_out, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(GLANCE_SECONDS)
            if self.stopping():
                raise Stopped
        if failed:
            raise failed[0]
        return found[0]

    def sleep(self, seconds: float) -> None:
        """Raises Stopped if somebody asks for that meanwhile."""
        while seconds > 0:
            if self.stopping():
                raise Stopped
            self.session.terminal.sleep(min(seconds, 1.0))
            seconds -= 1.0
        if self.stopping():
            raise Stopped

    def known_run(self, name: str) -> contract.Run | None:
        """None: there is no such run."""
        try:
            return self.session.get_run(name)
        except NotFound:
            return None

    def _run(self, name: str) -> contract.Run | None:
        """None: the server can't be asked now, which may pass."""
        try:
            return self.session.get_run(name)
        except Refused:
            return None

    def _target(self, run: contract.Run) -> Target | None:
        for what, where in places(run, self.session.client.url):
            if what == "Service":
                return Target(where.rstrip("/") + "/v1", self.session.client.token, self.goal.served_name)
        return None

    def _log(self, run: contract.Run) -> str:
        """The last lines that the service wrote."""
        latest = run["latest_job_submission"]
        if latest is None:
            return ""
        try:
            reader = LogReader(self.session, run["run_spec"]["run_name"], latest["id"])
            reader.start_time, skip = last_lines(reader, LOG_LINES)
            reader.token = None
            text = b"".join(data for _, data in reader.page()[0])[skip:]
        except DstackError as error:
            return f"(its log can't be read: {error.message})"
        return text.decode(errors="replace").strip()


def _prompt(words: int) -> Prompt:
    return Prompt(({"role": "user", "content": benchmark.words(words, benchmark.SEED)},), benchmark.PROBE_TOKENS)


def machine_of(run: contract.Run | None) -> contract.PresetMachine | None:
    """What the run had of its machine, which may be a share of it."""
    latest = run["latest_job_submission"] if run else None
    given = latest["job_runtime_data"] if latest else None
    if not given:
        return None
    offer = given["offer"]
    resources = offer["instance"]["resources"]
    gpu = gpus(resources)
    return {
        "backend": offer["backend"],
        "region": offer["region"],
        "instance_type": offer["instance"]["name"],
        "resources": machine(resources),
        "gpu": None if gpu == "-" else gpu,
        "price": offer["price"],
    }
