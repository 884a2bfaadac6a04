"""What somebody does with a control plane in AWS, stage by stage: each looks at what the one before it left."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from chalicelib.runtime.root import install_id
from infra.artefacts import KINDS, MEGABYTE
from infra.functions import FUNCTIONS
from tests.agent import git_hosts
from tests.e2e.aws.deployment import PATIENCE, STAGE, Deployment, Made, deployed
from tests.e2e.aws.front import NO_ANSWER
from tests.e2e.aws.sold import SOLD, Sold, endpoints, serving
from tests.emulators import ministack
from tests.harness import golden
from tests.harness.server import HttpError, until
from tests.infra.deploying import SEEN
from tests.scenarios.script import Step, run_step
from tests.scenarios.stages import Real
from tests.scenarios.texts import FOLDER, check

PROJECT = "hello"  # the scenario's
SCRIPTS = (
    "calls",
    "failing",
    "blocks",
    "offers",
    "no-capacity",
    "secrets",
    "env",
    "dollars",
    "files",
    "stop",
    "max-duration",
    "gateways",
)
WAITING = ("idle", "queue", "refusals", "repos", "retry", "schedule")
ALONE = (PROJECT, "nodes", "volumes")  # played by stages of their own
ELSEWHERE = ("containers", "services")  # `docs/internals/functions.md` says why
MUCH = 20_000  # lines, so many that the agent itself puts them into the bucket
CHOSEN = "--set BastionSubnets={} --set BastionSecurityGroups=sg-1 --set Tracing=Active"
LONG = """type: task
name: long
commands:
  - echo before the upgrade
  - seq {much}
  - while [ ! -e {flag} ]; do sleep 0.2; done
  - echo after it
"""
STAYS = """type: fleet
name: stays
nodes: 1
"""  # whose machine doesn't go by itself, however long the stages before it take


class Far(Real):
    """Beside a control plane each of whose calls is a function's, and which others use at the same time."""

    def dstack(self, command: list[str]) -> tuple[str, int]:
        """The cloud's machines are all this one here, which isn't called as theirs are."""
        output, status = super().dstack(command)
        return output.replace("reports from localhost", "reports from <machine>"), status

    @cached_property
    def project_id(self) -> str:
        return str(self.server.call(f"/api/projects/{self.project}/get", {})["project_id"])

    def events(self) -> list[dict[str, Any]]:
        return list(self.server.call("/api/events/list", {"within_projects": [self.project_id]}))

    def until(self, what: str, check: Callable[[], bool]) -> None:
        until(what, check, every=0.5, seconds=PATIENCE)


@dataclass
class Journey:
    one: Deployment
    made: Made
    stage: Real
    folder: Path
    again: Made | None = None  # the second deployment
    cleared: list[Real] = field(default_factory=list)
    sold: Mapping[str, Sold] = field(default_factory=dict)  # clouds by name

    def run(self, name: str) -> dict[str, Any]:
        """Asked until there is an answer."""
        found = until(
            f"an answer about {name}", lambda: answer(self.stage, "runs/get", run_name=name), seconds=PATIENCE
        )
        return dict(found)

    def at(self, name: str) -> Real:
        """A user with a project of their own, and a cloud that behaves."""
        home = self.folder / name
        home.mkdir()
        home.chmod(0o777)  # where a job, which runs as a user of its own, may leave a mark
        stage = Far(self.one, home, name)
        stage.behave("{}")
        return stage

    def clear(self, stage: Real) -> None:
        """Stop what runs there, and have its machines given back, which takes a minute: `removal` waits for it."""
        stage.behave("{}")
        for run in self.one.call("/api/runs/list", {"project_name": stage.project, "only_active": True}):
            output, status = stage.dstack(["stop", "-y", "-x", run["run_spec"]["run_name"]])
            assert status == 0, output
        stage.until(f"the runs of {stage.project} to end", lambda: no_run(stage))  # or their fleets are in use
        for fleet in stage.ask("fleets/list", {}):
            output, status = stage.dstack(["fleet", "delete", "-y", fleet["name"]])
            assert status == 0, output
        self.cleared.append(stage)

    def dstack(self, *command: str) -> str:
        output, status = self.stage.dstack(list(command))
        assert status == 0, output
        return output

    def write(self, name: str, text: str) -> str:
        (self.stage.home / name).write_text(text)
        return name


def answer(stage: Real, path: str, **body: str) -> Any:
    """None where the emulator gives none: it may not while it replaces functions that are at work, or is busy."""
    try:
        return stage.ask(path, body)
    except HttpError as error:
        if error.status != NO_ANSWER:
            raise
        return None


def no_run(stage: Real) -> bool:
    try:
        listed = stage.server.call("/api/runs/list", {"project_name": stage.project, "only_active": True})
    except HttpError as error:
        if error.status != NO_ANSWER:
            raise
        return False
    return not listed


@contextmanager
def begun(folder: Path) -> Iterator[Journey]:
    """On an emulator of its own: its schedules fire for as long as it lives."""
    folder.chmod(0o711)  # jobs run as users of their own, and one waits for a file here
    home = folder / "user"
    home.mkdir()
    with (
        git_hosts.running() as host,
        serving(SOLD.values()) as sold,
        ministack.running(host.far.variables) as emulator,
        deployed(emulator, folder, host.far.variables, DSTACK_BACKEND_ENDPOINTS=endpoints(sold)) as (one, made),
    ):
        yield Journey(one, made, Far(one, home, PROJECT), folder, sold=sold)


def first_deployment(trip: Journey) -> None:
    """It said where the API is and the admin's token, and the token is nowhere but with whoever read it."""
    report, token = trip.made.report, trip.one.token
    assert report["api_url"] == trip.one.url and token in trip.made.log
    assert f"dstack project add --name main --url {trip.one.url} --token {token}" in trip.made.log
    assert all(report["megabytes"][name] <= kind.most_zipped / MEGABYTE for name, kind in KINDS.items())
    check_plan_comes_first(trip.made.log)
    role = trip.one.client("lambda").get_function_configuration(FunctionName=f"dstack-{STAGE}-bootstrap_host")["Role"]
    assert allowed(trip, role) & {"Settings", "Trace", "Network"} == {"Settings"}, "nothing that nobody asked for"
    assert any(change.endswith("Add APIHandler") for change in report["changes"])
    assert rates(trip) == {f"dstack-{STAGE}-{each.name}": each.every for each in FUNCTIONS if each.every}
    assert "No alarm is set on its spending" in trip.made.log  # the emulator has no budgets
    assert trip.one.call("/api/users/get_my_user", {})["username"] == "admin"
    try:
        trip.one.call("/api/users/get_my_user", {}, token="another")
        raise AssertionError("anybody is let in")
    except HttpError as refused:
        assert refused.status == 403
    stored = trip.one.client("ssm").get_parameters_by_path(Path=f"/dstack-{STAGE}", WithDecryption=True)["Parameters"]
    assert {one["Type"] for one in stored if one["Name"].endswith("-key")} == {"SecureString"}
    (key,) = [bytes.fromhex(one["Value"]) for one in stored if one["Name"].endswith("install-key")]
    assert installation(trip) == install_id(key)
    template = json.dumps(trip.one.client("cloudformation").get_template(StackName=f"dstack-{STAGE}")["TemplateBody"])
    for secret in (token, *(one["Value"] for one in stored if one["Name"].endswith("-key"))):
        assert secret not in template


def installation(trip: Journey) -> str:
    """Its id, which is in the tags of what it owns."""
    (stack,) = trip.one.client("cloudformation").describe_stacks(StackName=f"dstack-{STAGE}")["Stacks"]
    (found,) = (each["ParameterValue"] for each in stack["Parameters"] if each["ParameterKey"] == "InstallId")
    return str(found)


def rates(trip: Journey) -> dict[str, str]:
    """How often each function is called by a schedule."""
    events, found = trip.one.client("events"), dict[str, str]()
    for rule in events.list_rules()["Rules"]:
        for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]:
            found[target["Arn"].rpartition(":")[2]] = rule["ScheduleExpression"]
    return found


def check_plan_comes_first(output: str) -> None:
    """How large the code is and what will change, before anything of it is made."""
    sizes = {name: f"^  {name} +[\\d.]+ MB zipped +[\\d.]+ MB unzipped$" for name in KINDS}
    lines = [*sizes.values(), r"^  \+ AgentSync  AWS::Lambda::Function$", r"^  CREATE_COMPLETE +AgentSync\b"]
    found = [re.search(line, output, re.MULTILINE) for line in lines]
    places = [one.start() for one in found if one is not None]
    assert len(places) == len(lines) and places == sorted(places), output


def second_deployment(trip: Journey) -> None:
    """The same command again changes nothing, and shows no token."""
    trip.again = trip.one.make("deploy")
    assert (trip.again.report["changes"], trip.again.report["admin_token"]) == ([], None)


def smallest_policy(trip: Journey) -> None:
    """All commands had the smallest policy, and were denied nothing. What they called is what it was made of."""
    assert trip.one.guard is not None and trip.one.guard.refused == []
    golden.check(SEEN, trip.one.guard.seen())


def lost_token(trip: Journey) -> None:
    """A new one for whoever has the account's credentials; the old one ends at once."""
    old, new = trip.one.token, trip.one.make("token").report["admin_token"]
    assert new and new != old
    assert trip.one.call("/api/users/get_my_user", {}, token=new)["username"] == "admin"
    try:
        trip.one.call("/api/users/get_my_user", {}, token=old)
        raise AssertionError("the old token is still good")
    except HttpError as refused:
        assert refused.status == 403
    trip.one.token = new
    trip.stage.log_in()


def task(trip: Journey) -> None:
    """A fleet, a task, its log and history over HTTP, with the real agent as the machine: as the scenario has it."""
    trip.stage.behave("{}")
    check(FOLDER / f"{PROJECT}.txt", trip.stage)


def scenarios(trip: Journey) -> None:
    """The scenarios that wait for little, one after another, because their cloud misbehaves in its own way in each."""
    for name in SCRIPTS:
        stage = trip.at(name)
        check(FOLDER / f"{name}.txt", stage)
        trip.clear(stage)


def waiting(trip: Journey) -> None:
    """The scenarios that wait for minutes, side by side, each in a project of its own."""
    stages = {name: trip.at(name) for name in WAITING}
    # What `schedule` shows before its first start, which is at an even minute, mustn't come after it.
    until("the next even minute to be far enough", lambda: time.time() % 120 < 45, every=0.5)
    with ThreadPoolExecutor(len(stages)) as pool:
        played = [pool.submit(check, FOLDER / f"{name}.txt", stage) for name, stage in stages.items()]
    for one in played:
        one.result()
    for stage in stages.values():
        trip.clear(stage)


def schedules(trip: Journey) -> None:
    """A hint that finds no execution free is repeated, then becomes a dead letter and is reported. Only the schedule
    can find the run that it named, once there are executions again."""
    functions, reconcile = trip.one.client("lambda"), f"dstack-{STAGE}-reconcile"
    functions.put_function_concurrency(FunctionName=reconcile, ReservedConcurrentExecutions=0)
    try:
        name = trip.write("alone.dstack.yml", "type: task\nname: alone\ncommands: [echo found]\n")
        trip.dstack("apply", "-y", "-d", "-f", name)
        until("the hint to become a dead letter", lambda: dead_letters(trip) > 0, every=0.5)
        assert trip.run("alone")["status"] == "submitted"
    finally:
        functions.delete_function_concurrency(FunctionName=reconcile)
    until("the run to end", lambda: trip.run("alone")["status"] == "done", every=0.5)
    functions.invoke(FunctionName=f"dstack-{STAGE}-dead_letters", Payload=b"{}")
    assert dead_letters(trip) == 0


def dead_letters(trip: Journey) -> int:
    """Events that Lambda gave up, and nobody has told of yet."""
    sqs, names = trip.one.client("sqs"), ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    url = sqs.get_queue_url(QueueName=f"dstack-{STAGE}-aside")["QueueUrl"]
    return sum(int(n) for n in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values())


def upgrade(trip: Journey) -> None:
    """New code and settings for every function while a job runs: it isn't started again, and loses no line."""
    flag = trip.folder / "flag"
    trip.dstack("apply", "-y", "-d", "-f", trip.write("long.dstack.yml", LONG.format(flag=flag, much=MUCH)))
    until("the task to run", lambda: trip.run("long")["status"] == "running", every=0.3)
    with (trip.one.clone / "functions" / "__init__.py").open("a") as code:
        code.write("\n# A newer release.\n")
    assert trip.one.front is not None
    open_, closed = subnets(trip)
    refused = trip.one.make("deploy", args=CHOSEN.format(closed), check=False)
    assert refused.status != 0 and f"From the subnet {closed} " in refused.log, refused.log
    with trip.one.front.closed():  # the emulator would end the calls that it is at
        made = trip.one.make("deploy", args=CHOSEN.format(open_), DSTACK_RETAIN_EVENTS="31")
    assert {f"dstack-{STAGE}: Modify {name}" for name in ("AgentSync", "ProviderClouds", "Reconcile")} <= {
        *made.report["changes"]
    }
    shown = [line for line in made.log.splitlines() if line.startswith("  ~ ProviderClouds  AWS::Lambda::Function: ")]
    assert shown and "Code" in shown[0] and "Environment" in shown[0], made.log
    trip.one.lead()
    functions = trip.one.client("lambda")
    for name in ("api", "agent_sync", "reconcile", "provider_clouds"):
        variables = functions.get_function_configuration(FunctionName=f"dstack-{STAGE}-{name}")["Environment"]
        assert variables["Variables"]["DSTACK_RETAIN_EVENTS"] == "31"
    chosen(trip)
    assert trip.run("long")["status"] == "running"
    flag.touch()
    until("the task to end", lambda: trip.run("long")["status"] == "done", every=0.3, seconds=PATIENCE)
    assert trip.dstack("logs", "long").splitlines() == ["before the upgrade", *map(str, range(1, MUCH + 1)), "after it"]
    assert [len(job["job_submissions"]) for job in trip.run("long")["jobs"]] == [1]


def subnets(trip: Journey) -> tuple[str, str]:
    """One with a way out through a NAT gateway, and one without any."""
    ec2 = trip.one.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    open_, closed = (
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24")["Subnet"]["SubnetId"] for number in range(2)
    )
    nat = ec2.create_nat_gateway(SubnetId=open_, ConnectivityType="private")["NatGateway"]["NatGatewayId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    ec2.associate_route_table(RouteTableId=table, SubnetId=open_)
    return open_, closed


def chosen(trip: Journey) -> None:
    """What parameters switch on: what Lambda then does in a function's name is allowed. The emulator knows no VPC."""
    inside = trip.one.client("lambda").get_function_configuration(FunctionName=f"dstack-{STAGE}-bootstrap_host")
    assert {"Trace", "Network", "NotByItself"} <= allowed(trip, inside["Role"])
    outside = trip.one.client("lambda").get_function_configuration(FunctionName=f"dstack-{STAGE}-provider_clouds")
    assert allowed(trip, outside["Role"]) & {"Trace", "Network", "NotByItself"} == {"Trace"}
    assert (inside["TracingConfig"]["Mode"], outside["TracingConfig"]["Mode"]) == ("Active", "Active")


def allowed(trip: Journey, role: str) -> set[str]:
    """The names of the statements in the only policy of a role."""
    iam, name = trip.one.client("iam"), role.rpartition("/")[2]
    assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []
    (policy,) = iam.list_role_policies(RoleName=name)["PolicyNames"]
    document = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
    return {statement["Sid"] for statement in document["Statement"]}


def removal(trip: Journey) -> None:
    """Not while there is a machine; then everything goes but the data and the keys."""
    for stage in trip.cleared:
        gone_from(stage)
    trip.dstack("apply", "-y", "-d", "-f", trip.write("stays.dstack.yml", STAYS))
    run_step(Step("command", "wait fleet stays idle 1"), trip.stage)
    refused = trip.one.make("destroy", check=False)
    assert refused.status != 0 and "stays-0 in hello" in refused.log, refused.log
    for fleet in ("cloud", "stays"):
        trip.dstack("fleet", "delete", fleet, "-y")
    gone_from(trip.stage)
    gone = trip.one.make("destroy")
    assert gone.report["deleted"] == f"dstack-{STAGE}"
    assert "  - AgentSync  AWS::Lambda::Function" in gone.log and "  - Table" not in gone.log
    stacks = trip.one.client("cloudformation").list_stacks()["StackSummaries"]
    assert {one["StackName"] for one in stacks if one["StackStatus"] != "DELETE_COMPLETE"} == {f"dstack-{STAGE}-data"}
    assert trip.one.client("lambda").list_functions()["Functions"] == []
    assert trip.one.client("events").list_rules()["Rules"] == []
    parameters = trip.one.client("ssm").get_parameters_by_path(Path=f"/dstack-{STAGE}")["Parameters"]
    assert {one["Name"].rpartition("/")[2] for one in parameters} == {"install-key", "master-key"}
    assert f"dstack-{STAGE}" in trip.one.client("dynamodb").list_tables()["TableNames"]
    there = sorted(left(trip))
    assert there == ["default", f"dstack-{STAGE}-aside"], there


def left(trip: Journey) -> Iterator[str]:
    """What there is beside stacks, functions and data: the bus that every account has, and a queue."""
    for service, call, listed, name in (
        ("apigateway", "get_rest_apis", "items", "name"),
        ("apigatewayv2", "get_apis", "Items", "Name"),
        ("events", "list_event_buses", "EventBuses", "Name"),
        ("iam", "list_roles", "Roles", "RoleName"),
        ("lambda", "list_event_source_mappings", "EventSourceMappings", "FunctionArn"),
        ("sns", "list_topics", "Topics", "TopicArn"),
        ("stepfunctions", "list_state_machines", "stateMachines", "name"),
    ):
        yield from (one[name] for one in getattr(trip.one.client(service), call)()[listed])
    yield from (url.rpartition("/")[2] for url in trip.one.client("sqs").list_queues().get("QueueUrls", ()))


def gone_from(stage: Real) -> None:
    stage.until(f"the fleets of {stage.project} to be gone", lambda: answer(stage, "fleets/list") == [])


Stage = Callable[[Journey], None]
