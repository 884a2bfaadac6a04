"""The process that creates a preset: `python -m cli.presets.worker FOLDER`. It outlives the command that started it.

It goes on where the trials on disk end, so that it can be ended at any time and started again. What it has started it
stops: after each trial, when it is asked to stop, and when it is started again after it was killed. A run that nobody
can stop any more ends by itself, because each has a `max_duration`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib.errors import DstackError, Invalid, Refused
from cli.applying.runs import refusals
from cli.connection.client import Client
from cli.connection.config import resolve_endpoint
from cli.connection.session import Session
from cli.presets import benchmark, export, language_model, proposals
from cli.presets.proposals import Proposal, Unusable
from cli.presets.records import KEEP, PROGRESS, RUNS, STOP, TRACE, Folder, find, iso
from cli.presets.search import Finish, Goal, Try, best, finish, missed, next_step, seconds_of_a_trial
from cli.presets.trial import Bench, Lost, Stopped, machine_of
from cli.screen.terminal import Terminal
from cli.tables.runs import FINISHED

if TYPE_CHECKING:
    from chalicelib import contract

NO_CAPACITY = "no-capacity"  # of `retry.on_events`
SECRET = 8  # characters of a value that may be one
ANSWERS = 3  # of the language model for one trial, until one can be used


@dataclass
class Worker:
    terminal: Terminal
    folder: Folder
    preset: contract.Preset = field(init=False)
    bench: Bench = field(init=False)

    def run(self) -> contract.Preset:
        """Creates the preset, or goes on with it; the record then says how it ended."""
        self.preset = {**self.folder.read(), "status": "creating", "reason": "", "finished_at": None}
        self.folder.write(self.preset)
        try:
            end = self._search()
        except Stopped:
            end = finish(self.preset["trials"], "Stopped, as asked.", stopped=True)
        except DstackError as error:
            end = finish(self.preset["trials"], f"{error.message} {error.hint}".strip())
        except Exception as error:
            self._record(Finish("failed", f"An error of this program: {type(error).__name__}: {error}."))
            raise
        self._record(end)
        return self.preset

    def _search(self) -> Finish:
        configuration = self.preset["configuration"]
        session = session_of(self.terminal, self.preset)
        path = configuration["dataset"]
        self.bench = Bench(
            session,
            self.folder,
            Goal.of(configuration),
            self.preset["profile"],
            seconds_of_a_trial(configuration, self.preset["profile"]),
            self._report,
            lambda: self.folder.is_requested(STOP),
            benchmark.read_dataset(Path(path), path) if path else (),
        )
        sweep(self.bench)
        env, model = self._env(), language_model.chosen(self.preset["agent"], self.terminal.env)
        while isinstance(step := next_step(self.bench.goal, self.preset["trials"]), Try):
            trial = self._try(step, model, env)
            self.folder.write_trial(trial)
            self.preset["trials"].append(trial)
        if step.best and self.folder.is_requested(KEEP):
            self._keep(self.preset["trials"][step.best - 1], env)
        return step

    def _env(self) -> dict[str, str]:
        """The user's variables, those of the environment included."""
        found = {}
        for name, value in (self.preset["configuration"]["env"] or {}).items():
            key = value["key"] if isinstance(value, dict) else None
            if key is not None and key not in self.terminal.env:
                raise Refused(f"The variable {key} has no value.", hint=f"`export {key}=...` and resume the preset.")
            found[name] = value if key is None else self.terminal.env[key]
        return found

    # --- one trial ---

    def _try(self, step: Try, model: language_model.Model, env: Mapping[str, str]) -> contract.PresetTrial:
        kind = " (the baseline)" if step.baseline else ""
        self._report(f"Trial {step.number} of {self.bench.goal.trials}{kind}: asking {model.agent['model']}")
        trial: contract.PresetTrial = {
            "number": step.number,
            "baseline": step.baseline,
            "hypothesis": "",
            "repo": None,
            "proposal": {},
            "run_name": None,
            "machine": None,
            "benchmark": None,
            "error": None,
            "meets": False,
            "cost": 0.0,
            "started_at": iso(self.terminal.now()),
            "finished_at": "",
        }
        try:
            proposal, service = self._propose(step, model, env)
            trial |= {
                "hypothesis": proposal.hypothesis,
                "repo": proposal.repo,
                "proposal": dict(proposal.service),
            }
            self._report(f"Trial {step.number}: {proposal.hypothesis}")
            trial["run_name"] = str(service["name"])
            self._measure(trial, service)
        except Lost as lost:
            trial["error"] = _struck(str(lost), env)
        if found := trial["benchmark"]:
            found["error"] = found["error"] and _struck(found["error"], env)
            trial["error"] = missed(self.bench.goal, found) or None
            trial["meets"] = trial["error"] is None
        trial["finished_at"] = iso(self.terminal.now())
        self._report(_outcome(trial))
        return trial

    def _measure(self, trial: contract.PresetTrial, service: Mapping[str, Any]) -> None:
        """Starts the service, measures it and stops it, whatever happens in between."""
        name, run = str(service["name"]), None
        try:
            self.bench.start(service)
            trial["benchmark"] = self.bench.measure(self.bench.ready(name))
        except Invalid as error:
            raise Lost(f"the server refuses it: {error.message}") from None
        finally:
            run = self.bench.stop(name)
            trial["machine"] = machine_of(run)
            trial["cost"] = run["cost"] if run else 0.0

    def _propose(
        self, step: Try, model: language_model.Model, env: Mapping[str, str]
    ) -> tuple[Proposal, dict[str, Any]]:
        """A proposal that the server would start. Raises Lost if none of a few answers is one."""
        configuration, goal = self.preset["configuration"], self.bench.goal
        asked = proposals.messages(
            goal,
            self.preset["offers"],
            self.preset["trials"],
            baseline=step.baseline,
            instructions=(configuration["prompt"] or {}).get("text") or "",
            variables=sorted(env),
            previous=[find(self.terminal.home, each).read() for each in configuration["previous"]],
        )
        limited = {**configuration, "max_duration": self.bench.seconds, "schedule": None, "retry": self._patience()}
        problem = ""
        for _ in range(ANSWERS):
            answer = self.bench.unless_stopped(partial(language_model.ask, model, asked, sleep=self.bench.sleep))
            self.folder.append(TRACE, self.terminal.now(), trial=step.number, asked=asked[-1]["content"], answer=answer)
            try:
                proposal = proposals.read(answer, goal)
                name = f"preset-{self.preset['id']}-{step.number}"
                service = proposals.service_of(proposal, goal, limited, env, name=name)
                self._check(service)
                return proposal, service
            except Unusable as error:
                problem = str(error)
                self._report(f"Trial {step.number}: the proposal can't be used: {problem}")
                asked = proposals.corrected(asked, answer, problem)
        raise Lost(f"no proposal of {ANSWERS} could be used; the last: {problem}")

    def _patience(self) -> Any:
        """The user's `retry`, for want of a machine alone: a service that fails would begin anew, and so would the time
        that it may take."""
        found = self.preset["configuration"]["retry"]
        written = self.preset["profile"].get("retry") if found is None else found
        if not written:
            return written
        wanted = written if isinstance(written, dict) else {}
        waits = NO_CAPACITY in (wanted.get("on_events") or [NO_CAPACITY])
        return {"on_events": [NO_CAPACITY], "duration": wanted.get("duration")} if waits else False

    def _check(self, service: Mapping[str, Any]) -> None:
        """Would it start? Raises Unusable with the server's reasons."""
        try:
            plan = self.bench.plan(service)
        except Invalid as error:
            raise Unusable(error.message) from None
        waits = service["retry"] or any(note["waits"] for note in plan["notes"])
        if not waits and not all(job["offers"] for job in plan["job_plans"]):
            raise Unusable(refusals(plan["notes"]).rpartition("\n")[0] if plan["notes"] else "no machine fits it now.")

    # --- the end ---

    def _keep(self, trial: contract.PresetTrial, env: Mapping[str, str]) -> None:
        """Starts the best one again under the preset's name, and leaves it running."""
        configuration = {**self.preset["configuration"], "schedule": None}
        name = self.preset["name"] or f"preset-{self.preset['id']}"
        try:
            there = self.bench.known_run(name)
        except DstackError as error:
            self._report(f"{name} isn't left running: {error.message}")
            return
        if there and there["status"] not in FINISHED:
            self._report(f"{name} isn't left running: a run of that name is there, and stays as it is")
            return
        proposal = Proposal(trial["hypothesis"], trial["repo"], trial["proposal"])
        try:
            service = proposals.service_of(proposal, self.bench.goal, configuration, env, name=name)
            self._report(f"Starting trial {trial['number']} again as {name}, to leave it running")
            self.bench.start(service)
            self.bench.ready(name)
        except (Unusable, Lost, Stopped, DstackError) as error:
            self._report(f"{name} isn't left running: {error or 'stopped, as asked'}")
            self.bench.stop(name)
            return
        self.preset["kept_run"] = name

    def _record(self, end: Finish) -> None:
        self._report(end.reason)
        self.preset = record(self.folder, self.preset, end, self.terminal.now())

    def _report(self, text: str) -> None:
        self.folder.append(PROGRESS, self.terminal.now(), text=text)


def record(folder: Folder, preset: contract.Preset, end: Finish, now: float) -> contract.Preset:
    """Stores how a search ended and what it found; the preset then."""
    chosen = best(preset["trials"])
    ended: contract.Preset = {
        **preset,
        "status": end.status,
        "reason": end.reason,
        "best": chosen["number"] if chosen else None,
        "service": export.service_of(preset, chosen) if chosen else None,
        "finished_at": iso(now),
    }
    if chosen:
        (folder.path / "preset.yml").write_text(export.text_of(preset, chosen), encoding="utf-8")
    folder.withdraw(STOP)
    folder.write(ended)
    return ended


def _struck(text: str, env: Mapping[str, str]) -> str:
    """A text of a service without the values of the user's variables: it is stored, and the language model is told."""
    for value in sorted(env.values(), key=len, reverse=True):
        if len(value) >= SECRET:
            text = text.replace(value, "***")
    return text


def _outcome(trial: contract.PresetTrial) -> str:
    found = trial["benchmark"]
    head = f"Trial {trial['number']}: "
    if found:
        head += f"{found['tokens_per_second']:.0f} tokens/s, first token {found['ttft_p95_ms']:.0f} ms"
    why = (trial["error"] or "").partition("\n")[0]
    return f"{head}{' – ' if found and why else ''}{why}"


def session_of(terminal: Terminal, preset: contract.Preset) -> Session:
    """The server and the project of a preset, with the token of whoever works on it now."""
    target = resolve_endpoint(terminal.env, terminal.home, preset["project"])
    if target.url != preset["url"]:
        raise Refused(
            f"Preset {preset['id']} is of project {preset['project']} on {preset['url']}, not on {target.url}.",
            hint="Set the project's address back: `dstack project add`, or DSTACK_SERVER_URL.",
        )
    return Session(terminal, Client(target.url, target.token, target.project, sleep=terminal.sleep, via=terminal.via))


def sweep(bench: Bench) -> list[str]:
    """Stops what an earlier worker was cut off from; the runs that it stopped. A kept run stays, and so does one of the
    user's that has taken the name since."""
    kept = bench.folder.read()["kept_run"]
    begun = {str(line["run"]): line.get("id") for line in bench.folder.lines(RUNS)}
    found = []
    for name, id_ in begun.items():
        run = None if name == kept else bench.known_run(name)
        if run and run["status"] not in FINISHED and id_ in (None, run["id"]):
            bench.report(f"Stopping {name}, which was left behind")
            bench.stop(name)
            found.append(name)
    return found


def start(terminal: Terminal, folder: Folder) -> None:
    """Starts the process, which takes over the lock."""
    with folder.taken() as lock:
        terminal.begin([f"{__package__}.worker", str(folder.path)], folder.path / "agent.log", lock)


def main(arguments: list[str]) -> int:
    folder = Folder(Path(arguments[0]))

    def ask_to_stop(number: int, frame: object) -> None:
        folder.request(STOP)

    handler: Callable[[int, Any], None] = ask_to_stop
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handler)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    terminal = replace(Terminal(), home=folder.path.parents[2], watched=False)
    return 0 if Worker(terminal, folder).run()["status"] == "done" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
