"""Applying a run: plan, show, confirm, submit, and follow it until it ends."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import NotFound, Refused
from cli.applying.follow import Stages, ending, exit_code, follow
from cli.applying.job_log import JobLog
from cli.connection import calls, console
from cli.connection.polling import POLL_SECONDS
from cli.connection.session import Session
from cli.connection.tracing import traced
from cli.repositories.repos import Brought, RepoFlags, bring
from cli.screen.places import Places
from cli.screen.render import as_json, facts
from cli.ssh import forwards
from cli.ssh.attachment import AttachOptions, JobAttachment, orderly_end
from cli.tables.offers import asked_lines
from cli.tables.plans import (
    Change,
    changes,
    changes_table,
    cost_line,
    group_of,
    offers_summary,
    offers_table,
    run_facts,
)
from cli.tables.runs import FINISHED, runs_table
from cli.tables.services import addresses, replaced

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies


@dataclass(frozen=True)
class LoadedConfiguration:
    """A configuration file, parsed and completed by flags, profile and environment, in wire form."""

    configuration: contract.Configuration
    profile: contract.Configuration
    path: str  # as sent to the server
    folder: Path  # at which its relative paths start
    places: Places = field(default_factory=Places)  # the lines of its fields

    @property
    def kind(self) -> str:
        return str(self.configuration["type"])

    @property
    def name(self) -> str | None:
        return self.configuration.get("name")


@dataclass(frozen=True)
class ApplyOptions:
    yes: bool = False
    force: bool = False
    detach: bool = False
    verbose: bool = False
    as_json: bool = False
    max_offers: int = 3
    full_offers: bool = False
    unallocated: bool = False
    attached: AttachOptions = field(default_factory=AttachOptions)
    in_place: bool = False  # never delete and re-create anything
    repo: RepoFlags = field(default_factory=RepoFlags)
    web: bool = False  # open its page of the console


@dataclass
class Submission:
    """One `dstack apply` of a run."""

    session: Session
    definition: LoadedConfiguration
    options: ApplyOptions
    run_spec: contract.Configuration = field(default_factory=dict)
    repo: Brought = field(default_factory=Brought)

    def apply(self) -> int:
        """Plans, confirms and submits; returns the exit code."""
        key = self._public_key()
        if not (self.options.detach or self.options.as_json):  # don't start a run whose local ports aren't available
            wanted = forwards.of_configuration(self.definition.configuration)
            forwards.chosen(wanted, self.options.attached.address, forwards.is_free)
        self.repo = bring(self.session, self.options.repo, self.definition.configuration, self.definition.folder)
        self.run_spec = self._run_spec(key)
        plan = self._plan()
        current = plan["current_resource"]
        if current is not None and current["status"] in FINISHED:
            current = None
        if not self.options.as_json:
            self._show(plan)
        if current is None:
            name = self.definition.name
            return self._submit(plan) if self._agreed(f"Start the run {name}?" if name else "Start this run?") else 0
        name, found = current["run_spec"]["run_name"], self._changes(plan, current)
        if found and plan["action"] == "update":
            if (notice := replaced(plan)) and not self.options.as_json:
                self.session.terminal.print(notice)
            return (
                self._submit(plan, done="changed")
                if self._agreed(f"Run {name} is active. Change it while it runs?")
                else 0
            )
        if not found and self.options.as_json and not self.options.force:
            self.session.terminal.print(as_json(current))
            return 0
        if not self._may_replace(name, bool(found)):
            return 0
        return self._submit(plan, instead_of=name)

    def prepared(self) -> contract.Configuration:
        """The run spec that would be submitted, for storing it. It must not need uploads, since nothing is uploaded."""
        self.repo = bring(self.session, self.options.repo, self.definition.configuration, self.definition.folder)
        return self._run_spec(self._public_key())

    def _run_spec(self, public_key: str | None) -> contract.Configuration:
        configuration, repos = self.definition.configuration, self.definition.configuration.get("repos")
        return {
            "run_name": self.definition.name,
            "repo_id": self.repo.id,
            "repo_data": self.repo.data,
            "repo_code_hash": self.repo.code_hash,
            "repo_dir": repos[0]["path"] if repos else None,
            "file_archives": upload_files(self.session, configuration),
            "working_dir": None,
            "configuration_path": self.definition.path,
            "configuration": configuration,
            "profile": self.definition.profile,
            "ssh_key_pub": public_key,
        }

    def _public_key(self) -> str | None:
        """The key of --ssh-identity; without it the server uses the user's own."""
        if self.options.attached.identity is None:
            return None
        from cli.ssh.keys import read_key

        terminal = self.session.terminal
        name = self.options.attached.identity
        return read_key(name, terminal.cwd, terminal.home, named_by="--ssh-identity", as_it_is=True)["public"]

    def _plan(self) -> contract.RunPlan:
        body: bodies.GetRunPlanBody = {
            "run_spec": self.run_spec,
            "max_offers": self.options.max_offers,
            "full_offers": self.options.full_offers,
            "unallocated_resources": self.options.unallocated,
            "for_offers_only": False,
        }
        return calls.runs_get_plan(self.session.client, body)

    def _show(self, plan: contract.RunPlan) -> None:
        terminal = self.session.terminal
        terminal.print(facts(run_facts(plan, self.options.verbose), terminal.width, terminal.colour))
        terminal.print()
        parts = plan["job_plans"] if self.definition.kind == "service" else plan["job_plans"][:1]
        for job in parts:
            if len(parts) > 1:
                count, name = job["count"], group_of(job["job_spec"])
                terminal.print(f"Group {name}, {count} at first:" if job["offers"] else f"Group {name}: no offers now")
            if job["offers"]:
                self.session.show(offers_table(job["offers"]))
            if line := offers_summary(len(job["offers"]), job["total_offers"], job["max_price"]):
                terminal.print(line)
        terminal.dim(*asked_lines(plan["offers_asked"]))
        if all(job["offers"] for job in parts):
            for line in (cost_line(plan), *(plan["isolation"]), *(plan["remarks"])):
                if line:
                    terminal.print(line)
        else:
            terminal.warn(refusals(plan["notes"]) if plan["notes"] else no_offers_hint(self.session))
        terminal.print()

    def _agreed(self, question: str) -> bool:
        if self.options.yes or self.session.terminal.confirm(question):
            return True
        self.session.terminal.print("Nothing was started.")
        return False

    def _changes(self, plan: contract.RunPlan, current: contract.Run) -> list[Change]:
        """The differences from the active run, shown if there are any."""
        found = changes(current["run_spec"], plan["effective_run_spec"])
        if found and not self.options.as_json:
            self.session.show(changes_table(found))
            self.session.terminal.print()
        return found

    def _may_replace(self, name: str, changed: bool) -> bool:
        """Should an active run that can't be changed in place be stopped for the new one?"""
        if not changed and self.options.yes and not self.options.force:
            self.session.terminal.print(
                f"Run {name} is already active and nothing has changed. To stop it and submit it again, add --force."
            )
            return False
        why = "can't be changed like this while it runs" if changed else "is already active and unchanged"
        return self._agreed(f"Run {name} {why}. Stop it and submit it again?")

    def _stop_and_wait(self, name: str) -> None:
        calls.runs_stop(self.session.client, {"runs_names": [name], "abort": False})
        self.session.terminal.warn(f"Stopping {name} …")
        while self.session.get_run(name)["status"] not in FINISHED:
            self.session.terminal.sleep(POLL_SECONDS)

    def _submit(self, plan: contract.RunPlan, *, done: str = "submitted", instead_of: str | None = None) -> int:
        """Submits the run. `instead_of`: the active run to stop for this one."""
        self.repo.upload(self.session)  # before a run is stopped, since this may fail
        if instead_of:
            self._stop_and_wait(instead_of)
            plan = self._plan()  # a new plan: the run that the server compared with has ended
        body: bodies.ApplyRunBody = {
            "plan": {"run_spec": plan["run_spec"], "current_resource": plan["current_resource"]},
            "force": self.options.force,
        }
        with traced(self.session.client, self.session.terminal.env, "dstack apply"):
            run = calls.runs_apply(self.session.client, body)
        name = run["run_spec"]["run_name"]
        self.session.cache_names("run", [name])
        if self.options.as_json:
            self.session.terminal.print(as_json(run))
            return 0
        console.mention(self.session.terminal, self.session.client, "runs", name, opened=self.options.web)
        for line in addresses(run, self.session.client.url):
            self.session.terminal.print(line)
        if at := run["next_triggered_at"]:
            self.session.terminal.print(
                f"Run {name} is {done}: it starts by its schedule, next at {str(at)[:16].replace('T', ' ')} UTC. "
                f"`dstack stop {name}` ends that."
            )
            return 0
        if self.options.detach:
            self.session.terminal.print(f"Run {name} is {done}. Follow it with `dstack logs {name} --follow`.")
            return 0
        return stay_with(self.session, name, self.options.attached, asks=not self.options.yes)


def stay_with(session: Session, name: str, wishes: AttachOptions, *, asks: bool) -> int:
    """Shows a run's stages and log until it ends; returns the exit code. Ctrl-C detaches or, if confirmed, stops it."""
    attachment = JobAttachment(session, name, wishes, needed=False)
    with orderly_end(), contextlib.closing(attachment):
        return _stay(session, name, attachment, asks=asks)


def _stay(session: Session, name: str, attachment: JobAttachment, *, asks: bool) -> int:
    stages = Stages(session)
    session.terminal.warn(
        f"Run {name} is submitted. Ctrl-C {'asks whether to stop it' if asks else 'leaves it running'}."
    )
    try:
        ended = follow(session, name, log=JobLog(session, name), attachment=attachment, stages=stages)
    except KeyboardInterrupt:
        stages.close()
        session.terminal.warn("")
        if not asks or not session.terminal.confirm(f"Stop the run {name}?"):
            session.terminal.print(
                f"Run {name} keeps running. `dstack logs {name}` shows its log, `dstack stop {name}` ends it."
            )
            return 0
        ended = _stop(session, name)
    session.terminal.warn(ending(ended, name, session.terminal.colour))
    if ended["service"]:
        session.show(runs_table([ended], session.terminal.now()))
    return exit_code(ended)


def _stop(session: Session, name: str) -> contract.Run:
    """Stops the run and waits for its end; Ctrl-C meanwhile aborts it."""
    calls.runs_stop(session.client, {"runs_names": [name], "abort": False})
    session.terminal.warn(f"Stopping {name} … Ctrl-C again kills it at once.")
    try:
        return follow(session, name)
    except KeyboardInterrupt:
        calls.runs_stop(session.client, {"runs_names": [name], "abort": True})
        session.terminal.warn(f"Aborting {name} …")
        return follow(session, name)


def upload_files(session: Session, configuration: contract.Configuration) -> list[contract.FileArchive]:
    """Packs and uploads the paths in `files`; the same content is uploaded once."""
    from cli.repositories.packing import pack

    uploaded: dict[str, str] = {}
    mappings: list[contract.FileArchive] = []
    for entry in configuration.get("files") or ():
        archive = pack(Path(entry["local_path"]))
        if archive.hash not in uploaded:
            uploaded[archive.hash] = calls.files_upload_archive(session.client, archive.hash, archive.data)["id"]
        mappings.append({"id": uploaded[archive.hash], "path": entry["path"]})
    return mappings


def refusals(notes: list[contract.Note]) -> str:
    """Why each candidate was ruled out and what would help, from the planner's notes."""
    lines = [
        f"  {note['subject']} {note['text']}" + (f"\n    → {note['hint']}" if note["hint"] else "") for note in notes
    ]
    if any(note["waits"] for note in notes):
        end = "If you submit it anyway, it waits for the first offers, ten minutes at most."
    else:
        end = "If you submit it anyway, it waits only if it has `retry`."
    return "\n".join(["No offers now:", *lines, end])


def no_offers_hint(session: Session) -> str:
    """A hint if the server gives no reason: there is no fleet, or none that fits."""
    try:
        fleets = calls.fleets_list(session.client, {"include_imported": True})
    except (Refused, NotFound) as error:
        return f"No offers now, and the fleets can't be listed: {error.message}"
    if not fleets:
        return (
            "This project has no fleet yet, so there is nowhere to run.\n"
            "Apply one (`type: fleet`, `nodes: 0..2`), or start the server with its local fleet."
        )
    names = ", ".join(fleet["name"] for fleet in fleets[:5])
    return (
        f"No offers now: no machine in {names} fits and is available.\n"
        "`dstack offer` with the same --cpu, --gpu and --memory shows what there is; smaller resources, more "
        "nodes in the fleet or `retry` in the run may help. If you submit it anyway, it waits only if it has `retry`."
    )
