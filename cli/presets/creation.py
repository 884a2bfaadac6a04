"""Creating a preset: the plan and its price, the question, the worker, and following it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib.errors import DstackError, Invalid, Problem, Refused
from cli.applying.definition import misnamed
from cli.applying.runs import LoadedConfiguration
from cli.connection.session import Session
from cli.presets import benchmark, language_model, records, search, worker
from cli.presets.records import KEEP, PROGRESS, STOP, UNFINISHED, Folder
from cli.presets.trial import Bench
from cli.screen.render import as_json, facts, wrap
from cli.screen.terminal import Terminal
from cli.tables.cells import duration, money
from cli.tables.plans import offers_summary, offers_table
from cli.tables.presets import constraints, preset_table, trials_table

if TYPE_CHECKING:
    from chalicelib import contract

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Creation:
    """One `dstack apply` of a preset."""

    session: Session
    definition: LoadedConfiguration
    yes: bool = False
    detach: bool = False
    as_json: bool = False
    keep_service: bool = False
    trials: int | None = None
    previous: Sequence[str] = ()
    max_offers: int = 3

    def apply(self) -> int:
        """Plans, confirms and begins; returns the exit code."""
        terminal = self.session.terminal
        configuration = self._configuration()
        model = language_model.chosen(configuration["agent"], terminal.env)
        plan = self._offers(configuration)
        job = plan["job_plans"][0]
        preset = self._preset(configuration, model.agent, job["offers"])
        if not self.as_json:
            self._show(preset, plan, bool(model.key))
        if not self.yes and not terminal.confirm("Create the preset?"):
            terminal.print("Nothing was started.")
            return 0
        folder = records.created(terminal.home, preset)
        if self.keep_service:
            folder.request(KEEP)
        worker.start(terminal, folder)
        if self.as_json:
            terminal.print(as_json(folder.read()))
            return 0
        if self.detach:
            terminal.print(f"Preset {folder.id} is being created. Follow it with `dstack preset logs {folder.id} -f`.")
            return 0
        return follow(self.session.terminal, folder, asks=not self.yes)

    def _configuration(self) -> dict[str, Any]:
        """The search, complete: with the flags, the prompt's text and the place of the dataset."""
        found = dict(self.definition.configuration)
        if self.trials is not None:
            found["trials"] = self.trials
        if self.previous:
            found["previous"] = list(self.previous)
        missing = [field for field in search.NEEDED if found[field] is None]
        hints = {"trials": "for example `trials: 4`, or --trials 4", "concurrency": "for example `concurrency: 16`"}
        hints |= {"min_context_length": "for example `min_context_length: 8192`", "max_ttft": "for example 500"}
        problems = [Problem(f"a preset needs `{field}`", field, hint=hints[field], code="missing") for field in missing]
        problems += misnamed("preset", found["name"])
        for where, settings in (("", found), ("profile.", self.definition.profile)):
            if settings.get("schedule") is not None:
                problems.append(Problem("a preset isn't created on a schedule", f"{where}schedule", hint="remove it"))
        self.definition.places.refuse(problems)
        for each in found["previous"]:
            records.find(self.session.terminal.home, each)
        if found["prompt"] and found["prompt"]["path"]:
            found["prompt"] = {"text": self._prompt(found["prompt"]["path"]), "path": None}
        if found["dataset"]:
            path = self._local(found["dataset"])
            benchmark.read_dataset(path, found["dataset"])
            found["dataset"] = str(path.resolve())
        env, known = found["env"] or {}, self.session.terminal.env
        # What the environment has isn't stored: it may be a token.
        found["env"] = {n: {"key": n} if n in known and known[n] == value else value for n, value in env.items()}
        return found

    def _prompt(self, written: str) -> str:
        path = self._local(written)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it isn't text in UTF-8"
            raise Refused(
                f"The prompt {written} can't be read: {reason}.", hint="`prompt.path` names a file."
            ) from error
        if len(text) > 10_000:
            raise Refused(f"The prompt {written} has {len(text)} characters.", hint="At most 10000 are possible.")
        return text

    def _local(self, written: str) -> Path:
        """Relative to the configuration's folder, or to the home."""
        home = self.session.terminal.home
        return home / written[2:] if written.startswith("~/") else self.definition.folder / written

    def _offers(self, configuration: dict[str, Any]) -> contract.RunPlan:
        """Machines with GPUs that the preset may use; machines without, if there is no other."""
        found = self._offers_with(configuration, 1)
        return found if found["job_plans"][0]["offers"] else self._offers_with(configuration, 0)

    def _offers_with(self, configuration: dict[str, Any], gpus: int) -> contract.RunPlan:
        from chalicelib.domain.specs.profiles import ProfileParams

        resources = {"cpu": {"min": 1}, "memory": {"min": 0}, "gpu": {"count": {"min": gpus}}, "disk": None}
        service = {
            field: configuration[field] for field in ProfileParams.model_fields if configuration[field] is not None
        }
        service |= {
            "type": "service",
            "name": None,
            "port": 8000,
            "commands": [":"],
            "image": "scratch",
            "user": "root",
        }
        bench = Bench(
            self.session,
            Folder(records.root(self.session.terminal.home)),
            search.Goal.of(configuration),
            self.definition.profile,
            0,
            self.session.terminal.warn,
            lambda: False,
        )
        with self.definition.places.locating():
            return bench.plan(_whole(service | {"resources": resources}), offers_only=True)

    def _preset(
        self, configuration: dict[str, Any], agent: contract.PresetAgent, offers: list[contract.Offer]
    ) -> contract.Preset:
        base, repo, _ = search.names_of(configuration)
        return {
            "id": secrets.token_hex(4),
            "name": configuration["name"],
            "project": self.session.project,
            "url": self.session.client.url,
            "status": "creating",
            "reason": "",
            "base": base,
            "repo": repo,
            "configuration": configuration,
            "profile": self.definition.profile,
            "agent": agent,
            "offers": offers,
            "submitted_at": records.iso(self.session.terminal.now()),
            "finished_at": None,
            "trials": [],
            "best": None,
            "service": None,
            "kept_run": None,
            "cost": 0.0,
        }

    def _show(self, preset: contract.Preset, plan: contract.RunPlan, has_key: bool) -> None:
        terminal, configuration = self.session.terminal, preset["configuration"]
        goal, agent, job = search.Goal.of(configuration), preset["agent"], plan["job_plans"][0]
        load = (
            "of the dataset" if configuration["dataset"] else f"{goal.input_tokens} tokens in, {goal.output_tokens} out"
        )
        seconds = search.seconds_of_a_trial(configuration, preset["profile"])
        pairs = [
            ("Project", preset["project"]),
            ("Type", "preset"),
            *([("Name", preset["name"])] if preset["name"] else []),
            ("Model", goal.repo or f"{goal.base}, or derived from it"),
            ("Load", f"{goal.concurrency} concurrent requests, {load}"),
            ("Limits", constraints(preset)),
            (
                "Trials",
                f"{goal.trials}{', the first a baseline' if goal.baseline else ''}, each {duration(seconds)} at most",
            ),
            ("Agent", f"{agent['model']} at {agent['url']}{'' if has_key else ', without a key'}"),
            *([("Quota", "\n".join(plan["quota"]))] if plan["quota"] else []),
        ]
        terminal.print(facts(pairs, terminal.width, terminal.colour))
        terminal.print()
        offers = job["offers"][: self.max_offers]
        if offers:
            self.session.show(offers_table(offers, dim_all_but_first=False))
        if line := offers_summary(len(offers), job["total_offers"], job["max_price"]):
            terminal.print(line)
        line = price_line(goal.trials, seconds, job) or "No machine is available now; a trial waits only with `retry`."
        terminal.print("\n".join(wrap(line, terminal.width or len(line))))
        if has_key and agent["url"].startswith("http://"):
            from chalicelib.loopback import is_loopback

            if not is_loopback(agent["url"]):
                terminal.warn(f"{agent['url']} isn't https: the key of your language model can be read on its way.")
        terminal.print()


def price_line(trials: int, seconds: int, job: contract.JobPlan) -> str:
    """What all trials cost at most, for one machine at a time; empty without offers."""
    prices = [offer["price"] for offer in job["offers"]]
    if not prices:
        return ""
    highest = max(job["max_price"] or 0.0, *prices)
    if not highest:
        return "Cost: nothing for machines; your language model's provider may charge for its answers."
    hours = trials * seconds / 3600
    least, most = (money(round(price * hours, 2)) for price in (min(prices), highest))
    bounds = f"{least} on the cheapest of these machines and {most} on the dearest" if least != most else most
    return (
        f"Cost: at most {bounds}, if every trial runs for {duration(seconds)}, besides the minutes in which machines "
        "start and idle. `max_price` rules out dear machines, `max_duration` ends trials sooner. The provider of your "
        "language model charges for its answers."
    )


def _whole(service: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    from chalicelib.configuration.problems import problems_of
    from chalicelib.configuration.providers import FROM_CLIENT
    from chalicelib.domain.specs.services import ServiceConfiguration

    try:
        return ServiceConfiguration.model_validate(service, context=FROM_CLIENT).model_dump(mode="json")
    except ValidationError as error:
        raise Invalid(problems_of(error, model=ServiceConfiguration)) from None


# --- following, stopping, going on ---


def follow(terminal: Terminal, folder: Folder, *, asks: bool, shown: int = 0) -> int:
    """Prints the progress until the end; the exit code. Ctrl-C asks whether to stop it, or leaves it."""
    terminal.warn(f"Preset {folder.id} is being created. Ctrl-C {'asks whether to stop it' if asks else 'leaves it'}.")
    while True:
        try:
            _print_until_end(terminal, folder, shown)
            break
        except KeyboardInterrupt:
            terminal.warn("")
            if not asks or not terminal.confirm(f"Stop creating preset {folder.id}?"):
                terminal.print(
                    f"Preset {folder.id} goes on. `dstack preset logs {folder.id} -f` follows it, "
                    f"`dstack preset stop {folder.id}` ends it."
                )
                return 0
            folder.request(STOP)
            terminal.warn("Stopping its run …")
            shown, asks = len(folder.lines(PROGRESS)), False
    preset = folder.read()
    show(terminal, preset)
    return 0 if preset["status"] == "done" else 1


def _print_until_end(terminal: Terminal, folder: Folder, shown: int) -> None:
    while True:
        over = folder.read()["status"] != "creating"
        for line in folder.lines(PROGRESS, shown):
            terminal.print(line["text"])
            shown += 1
        if over:
            return
        terminal.sleep(POLL_SECONDS)


def show(terminal: Terminal, preset: contract.Preset) -> None:
    """A preset and its trials, and what to do next."""
    from cli.screen.render import render

    for table in (preset_table(preset, terminal.now()), trials_table(preset["trials"])):
        if table.rows:
            terminal.print(render(table, terminal.width, terminal.colour))
            terminal.print()
    if preset["status"] == "interrupted":
        terminal.warn(preset["reason"])
    if preset["kept_run"]:
        terminal.print(f"Run {preset['kept_run']} is left running; `dstack stop {preset['kept_run']}` ends it.")
    if preset["best"]:
        terminal.print(f"Store its service with `dstack preset export {preset['id']} -f FILE`.")


def resume(terminal: Terminal, folder: Folder, *, keep_service: bool) -> int:
    preset = folder.read()
    goal = search.Goal.of(preset["configuration"])
    if preset["status"] not in UNFINISHED and not isinstance(search.next_step(goal, preset["trials"]), search.Try):
        raise Refused(
            f"Preset {folder.id} has nothing left to try: {preset['reason']}",
            hint=f"Raise `trials` and create another with `--previous {folder.id}`.",
        )
    language_model.chosen(preset["agent"], terminal.env)
    shown = len(folder.lines(PROGRESS))
    if not folder.is_busy():
        folder.withdraw(STOP)
    if keep_service:
        folder.request(KEEP)
    worker.start(terminal, folder)
    return follow(terminal, folder, asks=True, shown=shown)


def stop(terminal: Terminal, folder: Folder) -> str:
    """Asks the worker to stop, or cleans up after one that is gone; what happens, in a sentence."""
    preset = folder.read()
    if preset["status"] not in UNFINISHED:
        return f"Preset {folder.id} is {preset['status']} already."
    if preset["status"] == "creating":
        folder.request(STOP)
        return f"Stopping preset {folder.id} and its run; `dstack preset logs {folder.id} -f` follows it."
    with folder.taken():
        stopped = clean_up(terminal, folder)
        end = search.finish(preset["trials"], "Stopped, as asked.", stopped=True)
        worker.record(folder, preset, end, terminal.now())
    left = f", and {', '.join(stopped)}, which it had left" if stopped else ""
    return f"Preset {folder.id} is stopped{left}."


def clean_up(terminal: Terminal, folder: Folder) -> list[str]:
    """Stops the runs that a worker left behind; their names."""
    preset = folder.read()
    if not folder.lines(records.RUNS):
        return []
    configuration = preset["configuration"]
    bench = Bench(
        worker.session_of(terminal, preset),
        folder,
        search.Goal.of(configuration),
        preset["profile"],
        0,
        terminal.warn,
        lambda: False,
    )
    return worker.sweep(bench)


def delete(terminal: Terminal, folder: Folder) -> None:
    """Refuses while somebody works on it, and while a run of it can't be stopped."""
    interrupted = folder.read()["status"] == "interrupted"
    with folder.taken():
        if interrupted:
            try:
                clean_up(terminal, folder)
            except DstackError as error:
                raise Refused(
                    f"The runs that preset {folder.id} left can't be stopped: {error.message}",
                    hint="Delete it once the server answers, or look at `dstack ps`.",
                ) from error
        folder.delete()
