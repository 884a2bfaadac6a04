"""`make deploy STAGE=dev`: creates or updates a control plane in your AWS account.

Each step checks what exists and does only what is missing. So after a failure or a lost connection, the same command
continues where it stopped. It keeps no state of its own: CloudFormation knows what is deployed.

0. A stage whose records are of a newer release is refused.
1. The stack `dstack-<stage>-data`: what must outlive everything else. This command never deletes it.
2. The install's keys, in Parameter Store. They are created once; CloudFormation and its templates never see them.
3. The functions' code and the agent program, which are uploaded unless they are there already.
4. The stack `dstack-<stage>`: everything else. The changes are shown first, and made after confirmation (or `--yes`).
   CloudFormation replaces functions between two events, so runs continue meanwhile. It rolls back what it can't finish.
5. The stack `dstack-<stage>-spending`: the alarms. If it fails, the rest stays deployed.
6. The admin and the project `main`, if there are none. The token is shown only once, because only its hash is stored.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from chalicelib.agent.program.build import build as agent
from chalicelib.errors import DataTooNew, Refused
from chalicelib.runtime.backup import program
from chalicelib.runtime.root import install_id
from chalicelib.runtime.settings import emulator
from chalicelib.store.blobs import S3Blobs
from chalicelib.store.dynamo import DynamoStore
from chalicelib.store.port import Store
from chalicelib.store.record_form import FORM, announce_form, form_of
from chalicelib.usecases.agents.downloads import publish
from chalicelib.usecases.operator.first_start import first_start
from infra import (
    account,
    agent_address,
    alarms,
    artefacts,
    carriers,
    command,
    installed,
    spending,
    stateful,
    tagging,
    uploads,
    vpc,
)
from infra.account import AwsAccount, client, explained
from infra.artefacts import MEGABYTE, Artefact
from infra.functions import ALONE, BOUNDED, PUBLIC, reserved
from infra.packaging import packer
from infra.stacks import Proposal, Stack, course
from infra.stateless import TRACES, Choices

KEYS = ("install-key", "master-key")
SET = "BastionSubnets=subnet-1,subnet-2"  # in a hint


@dataclass
class DeployReport:
    """The output of `--json`."""

    stage: str
    account: str = ""
    region: str = ""
    changes: list[str] = field(default_factory=list)
    megabytes: dict[str, float] = field(default_factory=dict)
    api_url: str = ""
    agent_url: str = ""
    admin_token: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Deployment:
    stage: str
    where: AwsAccount
    say: Callable[[str], None]
    agree: Callable[[str], bool]
    report: DeployReport
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)  # an empty value takes the tag away
    python: str = artefacts.PYTHON
    poll: float = 2.0
    clients: Callable[[str], Any] = client
    store: Callable[[str], Store] = lambda table: DynamoStore(table, endpoint=emulator())

    def run(self) -> None:
        self._refuse_beside_chalice()
        self._refuse_newer_records(self._stack(account.DATA))
        with packer(self.stage, installed.variables()) as packed:
            traces = bool((self._stack("").parameters() | self.parameters).get(TRACES))
            built = self._timed(
                "artefacts", lambda: artefacts.build(packed.zip(), self.python, say=self.say, traces=traces)
            )
            self._show(built.values())
            self.make(built, agent(), packed.template)

    def make(
        self,
        built: Mapping[str, Artefact],
        program: bytes,
        template_of: Callable[[Choices], Mapping[str, Any]],
    ) -> None:
        """`program`: the agent. `template_of`: the stateless template."""
        data, main = self._stack(account.DATA), self._stack("")
        data.settle()
        self._refuse_newer_records(data)  # again: somebody else may have upgraded it meanwhile
        before = main.parameters()
        self.tags = tagging.merged(main.tags(), self.tags)
        given = {name: value for name, value in self.parameters.items() if name not in spending.parameters()}
        vpc.check(self.clients("ec2"), self.where.region, before | given)
        endpoints = vpc.endpoints(before | given)
        self._timed("data", lambda: self._bring_up_data(data))
        bucket = data.physical("Bucket")
        key = (before | given).get("EncryptionKey", "")
        self._timed("keys", lambda: self._make_keys(data.physical("Table"), key))
        given |= {"InstallId": self._install_id(), "Stream": data.output("Stream")}
        code = {name: (bucket, artefact.key) for name, artefact in built.items()}
        variables = installed.variables() | tagging.variables(self.tags)
        by_api = agent_address.is_api(before | given, self.where.partition)
        if before and by_api != agent_address.is_api(before, self.where.partition):
            self.say(agent_address.LEFT_BEHIND)
        chosen = Choices(code, variables, reserved(self._room()), bucket, self.python, endpoints, by_api)
        template = json.dumps(self._timed("template", lambda: template_of(chosen)), sort_keys=True)
        url = self._timed("upload", lambda: self._upload(bucket, built, program, template))
        self._timed("stack", lambda: self._bring_up(main, given, TemplateURL=url))
        announce_form(self.store(data.physical("Table")))  # now, because until now functions of both releases worked
        self._timed("alarm", lambda: self._set_alarm(before))
        self._timed("offers", self._ask_for_offers)
        self._tidy(bucket, {artefact.key for artefact in built.values()}, template)
        if advice := carriers.advice(S3Blobs(bucket, lambda: self.clients("s3")), self.stage):
            self.say(advice)
        self._timed("first start", self._first_start)  # last, so that nothing can fail before the token is shown

    def _refuse_beside_chalice(self) -> None:
        """Refuses if `chalice deploy` was used: its functions would keep running beside ours, on the same table."""
        functions = self.clients("lambda")
        with explained("look for functions"), suppress(functions.exceptions.ResourceNotFoundException):
            functions.get_function(FunctionName=f"{ALONE}-{self.stage}-reconcile")
            raise Refused(
                f"The stage {self.stage} has functions that `chalice deploy` made.",
                hint=f"Run `chalice delete --stage {self.stage}` where that was run, then this command again: "
                "they hold no data.",
            )

    def _refuse_newer_records(self, data: Stack) -> None:
        """Raises DataTooNew. A stage that says nothing about its records is older than this."""
        if course(data.status()) != "change":
            return
        found = form_of(self.store(data.physical("Table")))
        if found > FORM:
            raise DataTooNew(
                f"The stage {self.stage} is of a newer release: the form of its records is {found}, and this one "
                f"({program()}) knows up to {FORM}. Nothing was changed.",
                hint="Deploy the newer release again. The way back: in the newer clone, "
                f"`python -m infra.restore {self.stage} --at` a moment before the upgrade, and then this command, "
                "within the hour for which the stage only looks.",
            )

    def _stack(self, suffix: str) -> Stack:
        return Stack(self.clients("cloudformation"), f"dstack-{self.stage}{suffix}", self.say, self.poll)

    def _timed(self, step: str, work: Callable[[], Any]) -> Any:
        began = time.monotonic()
        done = work()
        self.report.seconds[step] = round(time.monotonic() - began, 2)
        return done

    def _show(self, built: Any) -> None:
        for one in built:
            self.report.megabytes[one.name] = round(one.zipped / MEGABYTE, 1)
            self.say(
                f"  {one.name:<8} {one.zipped / MEGABYTE:6.1f} MB zipped {one.unzipped / MEGABYTE:7.1f} MB unzipped"
            )

    def _bring_up(self, stack: Stack, parameters: Mapping[str, str], **template: str) -> None:
        stack.settle()
        proposal = stack.propose(parameters, self.tags, **template)
        if proposal is None:
            self.say(f"{stack.name}: nothing to change.")
            return
        self._ask(stack, proposal)
        stack.execute(proposal)
        self.report.changes += [f"{stack.name}: {change.action} {change.id}" for change in proposal.changes]

    def _bring_up_data(self, stack: Stack) -> None:
        """A stage from before bucket names contained the region keeps its bucket and everything in it."""
        stack.settle()
        shared = {name: value for name, value in self.parameters.items() if name == "EncryptionKey"}
        parameters = {"Stage": self.stage, **shared}
        if course(stack.status()) == "change":
            usual = f"dstack-{self.stage}-{self.where.id}-{self.where.region}"
            if (found := stack.physical("Bucket")) != usual:
                parameters["BucketName"] = found
        self._bring_up(stack, parameters, TemplateBody=json.dumps(stateful.template()))

    def _set_alarm(self, before: Mapping[str, str]) -> None:
        """`before`: the parameters of the main stack, which had the alarm in earlier releases."""
        stack, known = self._stack(account.SPENDING), spending.parameters().keys()
        try:
            old = {} if stack.found() else {name: value for name, value in before.items() if name in known}
            given = {name: value for name, value in self.parameters.items() if name in known}
            chosen = stack.parameters() | old | given
            template = spending.template(self.stage, budget=chosen.get("SpendingAlarm") != "0")
            self._bring_up(stack, old | given, TemplateBody=json.dumps(template))
        except (Refused, command.Declined) as error:
            self.say(spending.describe_refusal(error.message))
        else:
            self.say(spending.describe(chosen))
            if text := alarms.describe(self.stage, chosen):
                self.say(text)

    def _ask(self, stack: Stack, proposal: Proposal) -> None:
        self.say(f"{stack.name}: {len(proposal.changes)} changes")
        for change in proposal.changes:
            self.say(str(change))
        agreed = False
        try:
            agreed = self.agree(f"Make these changes of {stack.name} in account {self.where.id}, {self.where.region}?")
        finally:  # the user may interrupt the prompt
            if not agreed:
                stack.drop(proposal.id)
        if not agreed:
            raise command.Declined(f"{stack.name} is left as it was.")

    def _make_keys(self, table: str, key: str) -> None:
        """Creates keys only for an empty table, because sealed data can't be read without the keys that sealed it."""
        ssm, names = self.clients("ssm"), [f"{installed.prefix(self.stage)}/{key}" for key in KEYS]
        with explained("make the install's keys"):
            there = {one["Name"] for one in ssm.get_parameters(Names=names)["Parameters"]}
            missing = [name for name in names if name not in there]
            if missing and self.clients("dynamodb").scan(TableName=table, Limit=1)["Items"]:
                raise Refused(
                    f"The table {table} has data, but {' and '.join(missing)} in Parameter Store are gone.",
                    hint="Restore them: what the table holds is sealed with them, and new ones couldn't read it.",
                )
            more: dict[str, Any] = {"KeyId": key} if key else {}
            if self.tags:
                more["Tags"] = [{"Key": name, "Value": value} for name, value in sorted(self.tags.items())]
            for name in missing:
                self.say(f"Making {name} …")
                ssm.put_parameter(Name=name, Value=secrets.token_hex(32), Type="SecureString", Overwrite=False, **more)

    def _install_id(self) -> str:
        """The id in the tag of this stage's machines. It keeps its functions from changing another stage's machines."""
        name = f"{installed.prefix(self.stage)}/{KEYS[0]}"
        with explained("read the install's keys"):
            found = self.clients("ssm").get_parameter(Name=name, WithDecryption=True)
        return install_id(bytes.fromhex(found["Parameter"]["Value"]))

    def _upload(self, bucket: str, built: Mapping[str, Artefact], program: bytes, template: str) -> str:
        s3 = self.clients("s3")
        with explained(f"upload to {bucket}"):
            there = uploads.upload_times(s3, bucket)
            for artefact in built.values():
                if artefact.key in there:
                    uploads.touch(s3, bucket, artefact.key)
                    continue
                self.say(f"Uploading {artefact.path.name} …")
                s3.upload_file(str(artefact.path), bucket, artefact.key)
            key = _template_key(template)
            s3.put_object(Bucket=bucket, Key=key, Body=template.encode())
            publish(S3Blobs(bucket, lambda: s3), program)
        return f"{s3.meta.endpoint_url}/{bucket}/{key}"

    def _first_start(self) -> None:
        with explained("make the first user"):
            found = installed.settings(self.stage)
            self.report.admin_token, _ = first_start(installed.root(found).plane)
        self.report.api_url, self.report.agent_url = found.api_url, found.agent_url

    def _ask_for_offers(self) -> None:
        """Requests offers now: the catalog's schedule first fires in some hours, and nothing can be bought without
        offers."""
        with explained("refresh the catalog"):
            name = f"dstack-{self.stage}-refresh_catalog"
            self.clients("lambda").invoke(FunctionName=name, InvocationType="Event", Payload=b"{}")

    def _tidy(self, bucket: str, current: set[str], template: str) -> None:
        """Deletes old uploads. It keeps what is deployed now, as a failed deployment rolls back to it, and others'
        uploads."""
        s3, current = self.clients("s3"), current | {_template_key(template)}
        with explained(f"delete old code from {bucket}"):
            for key in uploads.unused(uploads.upload_times(s3, bucket), current, datetime.now(UTC)):
                s3.delete_object(Bucket=bucket, Key=key)

    def _room(self) -> int:
        """The concurrent executions that this stage may reserve: the account's, less other functions' reservations."""
        functions = self.clients("lambda")
        with explained("read the account's limit of concurrent functions"):
            free = int(functions.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"])
            for each in (*BOUNDED, *PUBLIC):
                with suppress(functions.exceptions.ResourceNotFoundException):  # the first deployment
                    own = functions.get_function_concurrency(FunctionName=f"dstack-{self.stage}-{each.name}")
                    free += int(own.get("ReservedConcurrentExecutions", 0))
        return free


def _template_key(template: str) -> str:
    return f"{uploads.UNDER}template-{hashlib.sha256(template.encode()).hexdigest()[:20]}.json"


# --- the command ------------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("infra.deploy", "Deploy a stage, or bring it up to date.")
    command.choices(parser)
    parser.add_argument("--python", default=artefacts.PYTHON, help="of the functions; an emulator may have another")
    return command.run(parser.parse_args(argv), deploy)


def deploy(given: argparse.Namespace, say: Callable[[str], None], agree: Callable[[str], bool]) -> DeployReport:
    if os.environ.get("DSTACK_CATALOG_FILE"):
        raise Refused(
            "DSTACK_CATALOG_FILE is for `dstack server`: the functions of a stage have no such file.",
            hint="Unset it, and allow `pricing:GetProducts` to the keys of backends, or set DSTACK_CATALOG_URL.",
        )
    parameters, tags = command.pairs(given.set, "--set", SET), tagging.given(given.tag)
    where = account.here(given.region, given.profile)
    unbudgeted = emulator() or where.partition == "aws-us-gov"  # which have no budgets
    chosen = ({"SpendingAlarm": "0"} if unbudgeted else {}) | parameters
    report = DeployReport(given.stage, where.id, where.region)
    say(f"Stage {given.stage} in account {where.id}, region {where.region}, as {where.arn}")
    Deployment(given.stage, where, say, agree, report, chosen, tags, given.python, given.poll).run()
    say(f"\nThe control plane is at {report.api_url}")
    if report.admin_token is not None:
        say(f"Its admin's token, shown only now: {report.admin_token}\n")
        say(f"  dstack project add --name main --url {report.api_url} --token {report.admin_token}")
    return report


if __name__ == "__main__":
    sys.exit(main())
