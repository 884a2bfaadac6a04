"""The stack of the functions: whole, and bound to the stateful one by names that both use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.aws.permissions import PERMISSIONS
from chalicelib.backends.registry import artefacts as artefacts_of_providers
from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND
from chalicelib.domain.owner import ANY
from chalicelib.engine.workflows import WORKFLOWS
from infra import artefacts, spending, stateful
from infra import grants as may
from infra.functions import CHALICE, FUNCTIONS, NEW_ACCOUNT, PAUSES, SSH, UNRESERVED, Function, named, rate, reserved
from infra.policies import in_template
from infra.stateless import BURST, CALLS, Choices, performer_of, template
from tests.harness import golden

PROVIDERS = {may.provider(artefact) for artefact in artefacts_of_providers()}

TEMPLATE = template("dev")
RESOURCES = TEMPLATE["Resources"]
PSEUDO = {f"AWS::{name}" for name in ("Region", "AccountId", "Partition", "URLSuffix", "NoValue")}
OF_CHALICE = {"RestAPI"}  # made by Chalice, whose other resources are completed here
EVENTS = [function for function in FUNCTIONS if function.every or function.async_events]
PLAIN = [function for function in FUNCTIONS if not function.chalice]


def things(of: Any) -> Iterator[Any]:
    yield of
    for each in of.values() if isinstance(of, dict) else of if isinstance(of, list) else ():
        yield from things(each)


def referred(of: Any) -> Iterator[str]:
    for each in things(of):
        if isinstance(each, dict):
            yield from [each["Ref"]] if "Ref" in each else []
            yield from [each["Fn::GetAtt"][0]] if "Fn::GetAtt" in each else []
            if "Fn::Sub" in each:
                text, own = each["Fn::Sub"] if isinstance(each["Fn::Sub"], list) else (each["Fn::Sub"], {})
                found = (name.split(".")[0] for name in re.findall(r"\$\{([^!}]+)\}", text))
                yield from (name for name in found if name not in own)


def test_every_reference_leads_somewhere() -> None:
    known = set(RESOURCES) | set(TEMPLATE["Parameters"]) | PSEUDO | OF_CHALICE
    assert set(referred(TEMPLATE)) <= known


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.name))
def test_a_functions_logs_end(function: Function) -> None:
    logs = RESOURCES[f"{function.id}Logs"]["Properties"]
    assert logs["RetentionInDays"] and logs["LogGroupName"] == f"/aws/lambda/dstack-dev-{function.name}"
    assert RESOURCES[function.id]["Properties"]["LoggingConfig"]["LogGroup"] == {"Ref": f"{function.id}Logs"}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.name))
def test_lambda_itself_logs_only_what_failed(function: Function) -> None:
    """By default it logs each call, and `make cost` counts only what functions log."""
    logged = RESOURCES[function.id]["Properties"]["LoggingConfig"]
    assert (logged["LogFormat"], logged["SystemLogLevel"]) == ("JSON", "WARN")


def test_a_schedule_is_one_that_eventbridge_takes() -> None:
    seconds = (30, 60, 90, 300, 3600, 5400)
    rates = ["1 minute", "1 minute", "1 minute", "5 minutes", "60 minutes", "90 minutes"]
    assert [rate(each * SECOND) for each in seconds] == [f"rate({each})" for each in rates]
    for function in FUNCTIONS:
        assert not function.every or re.fullmatch(r"rate\((1 minute|([2-9]|[1-9]\d+) minutes)\)", function.every)


def settings_template() -> dict[str, Any]:
    """The settings that the stack writes, before anything is put in."""
    return dict(json.loads(RESOURCES["Settings"]["Properties"]["Value"]["Fn::Sub"][0]))


def test_functions_know_of_the_bus_only_while_there_is_one() -> None:
    """Else nothing would tell the server that announces from the one that doesn't, and what it costs."""
    _, names = RESOURCES["Settings"]["Properties"]["Value"]["Fn::Sub"]
    assert (settings_template()["bus"], names["Bus"]) == ("${Bus}", {"Fn::If": ["Announced", "dstack-dev", ""]})
    assert RESOURCES["StateChanges"]["Condition"] == RESOURCES["PublishStream"]["Condition"] == "Announced"
    assert "Settings" in RESOURCES["PublishStream"]["DependsOn"]


def test_names_lead_to_what_the_stacks_make() -> None:
    state = json.dumps(stateful.template()["Resources"]).replace("${Stage}", "dev")
    settings = settings_template()
    for name in (settings["table"], settings["bucket"], settings["aside_queue"].rsplit("/", 1)[1]):
        assert f'"{name}"' in state
    functions = {settings[f"{name}_function"] for name in ("wake", "host")}
    functions |= {*settings["provider_functions"].values()}
    functions |= {"dstack-dev-automate"}  # which the rules of others ask
    assert functions == {f"dstack-dev-{function.name}" for function in FUNCTIONS if function.async_events}
    assert functions <= {RESOURCES[function.id]["Properties"]["FunctionName"] for function in FUNCTIONS}


def test_nothing_is_polled_that_costs() -> None:
    """An event source would ask its queue all month, for $0.26; of a table's stream it reads for nothing."""
    found = [each["Properties"] for each in RESOURCES.values() if each.get("Type", "").endswith("EventSourceMapping")]
    assert [each["EventSourceArn"] for each in found] == [{"Ref": "Stream"}]


def test_the_bus_is_off_unless_somebody_wants_it_and_then_events_alone_are_followed() -> None:
    announced = {name for name, each in RESOURCES.items() if each.get("Condition") == "Announced"}
    assert announced == {"StateChanges", "PublishStream"} and TEMPLATE["Parameters"]["Bus"]["Default"] == "off"
    (filter_,) = RESOURCES["PublishStream"]["Properties"]["FilterCriteria"]["Filters"]
    pattern = json.loads(filter_["Pattern"])
    assert pattern == {"eventName": ["INSERT"], "dynamodb": {"Keys": {"pk": {"S": [{"prefix": "events/"}]}}}}
    assert keys.event("p", 1, "e").pk.startswith("events/")


def test_rules_of_the_stages_own_bus_may_ask_for_automation_and_nobody_else() -> None:
    may = RESOURCES["AutomateMay"]["Properties"]
    assert may["Principal"] == "events.amazonaws.com"
    bus = RESOURCES["StateChanges"]["Properties"]["Name"]
    assert may["SourceArn"]["Fn::Sub"].endswith(f":rule/{bus}/*")


@pytest.mark.parametrize("function", EVENTS, ids=lambda function: str(function.name))
def test_an_event_is_repeated_twice_and_one_that_others_asked_for_becomes_a_dead_letter(function: Function) -> None:
    events = RESOURCES[f"{function.id}Events"]["Properties"]
    assert events["FunctionName"] == {"Ref": function.id} and events["MaximumRetryAttempts"] == 2
    assert PAUSES < events["MaximumEventAgeInSeconds"] <= 3600
    destination = events.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination", {}).get("Fn::Sub", "")
    may = [each for each in in_template(function.allowed, "dev")["Statement"] if each["Sid"] == "SendDeadLetters"]
    if function.async_events:
        assert destination.endswith(":dstack-dev-aside") and may[0]["Resource"] == [{"Fn::Sub": destination}]
    else:
        assert not destination and not may


def test_every_workflow_has_a_state_machine_that_may_invoke_its_performer_alone() -> None:
    settings = settings_template()
    assert set(settings["state_machines"]) == set(WORKFLOWS)
    for name, reference in settings["state_machines"].items():
        machine = RESOURCES[reference.strip("${}")]["Properties"]
        performer = {"Fn::GetAtt": [performer_of(WORKFLOWS[name]).id, "Arn"]}
        assert machine["DefinitionSubstitutions"] == {"Performer": performer, "Partition": {"Ref": "AWS::Partition"}}
        (policy,) = RESOURCES[machine["RoleArn"]["Fn::GetAtt"][0]]["Properties"]["Policies"]
        invoke, go_on = policy["PolicyDocument"]["Statement"]
        assert invoke["Resource"] == performer
        assert go_on["Resource"]["Fn::Sub"].endswith(f":stateMachine:{machine['StateMachineName']}")


def test_an_outage_of_a_provider_or_of_hosts_leaves_executions_for_agents_and_people() -> None:
    """Where the account has any to reserve; a new one has not, and a stack that reserved some couldn't be deployed. Nor
    do calls of strangers take what passes need."""
    found = {
        name: each["Properties"]["ReservedConcurrentExecutions"]
        for name, each in template("dev", Choices(reserved=reserved(400)))["Resources"].items()
        if "ReservedConcurrentExecutions" in each["Properties"]
    }
    bounded = [*sorted(PROVIDERS), "bootstrap_host"]
    share = max(10, 3 * len(bounded))
    assert found == {**{named(name).id: 400 // share for name in bounded}, "APIHandler": 80, "AgentSync": 80}
    assert not any("ReservedConcurrentExecutions" in each["Properties"] for each in RESOURCES.values())
    assert [reserved(limit) for limit in (NEW_ACCOUNT, UNRESERVED)] == [{}, {}]
    for limit in (1_000, 10_000):
        each = dict.fromkeys(bounded, min(50, limit // share))
        assert reserved(limit) == {**each, "api": 200, "agent_sync": 200}
    assert set(reserved(200)) == {*bounded}, "calls of strangers come last"
    assert all(limit - sum(reserved(limit).values()) >= UNRESERVED for limit in range(UNRESERVED, 2_000))


def test_whoever_may_be_called_by_anybody_has_a_bound() -> None:
    assert {function.name for function in FUNCTIONS if function.public} == {"api", "agent_sync"}
    assert all(function.public for function in FUNCTIONS if function.url)
    (limit,) = RESOURCES["RestAPI"]["Properties"]["MethodSettings"]
    assert (limit["ResourcePath"], limit["HttpMethod"]) == ("/*", "*")
    assert (limit["ThrottlingRateLimit"], limit["ThrottlingBurstLimit"]) == (CALLS, BURST)
    assert RESOURCES["RestAPI"]["Properties"]["OpenApiVersion"] == "2.0", "else SAM adds a stage without that limit"


def test_a_function_reads_its_own_parameters_and_no_others() -> None:
    """What each has a use for is played in `tests/functions/test_policies.py` and by the scenarios."""
    assert {function.name: function.reads for function in FUNCTIONS if function.reads} == {
        "api": ("install-key", "master-key", "sign-on"),
        "agent_sync": ("install-key", "master-key"),
        "reconcile": ("traces-headers",),
        "erase_unused": ("master-key",),
        **dict.fromkeys(PROVIDERS, ("install-key", "master-key")),
        "provider_clouds": ("install-key", "master-key", "acme"),
        "automate": ("master-key",),
        "bootstrap_host": ("install-key", "master-key"),
    }
    for function in FUNCTIONS:
        read = {
            thing.rpartition("/")[2]
            for grant in function.allowed
            for thing in grant.resources
            if any(action.startswith("ssm:") for action in grant.actions) and "/aws/" not in thing
        }
        assert read == set(function.parameters), function.name
        variables = RESOURCES[function.id]["Properties"]["Environment"]["Variables"]
        assert set(variables["DSTACK_READS"].split(",")) == read and variables["DSTACK_INSTALL_ID"] == {
            "Ref": "InstallId"
        }


def test_who_answers_agents_cant_write_the_program_that_they_run() -> None:
    writes = {
        function.name
        for function in FUNCTIONS
        for grant in function.allowed
        if "s3:PutObject" in grant.actions and any("/agent/" in thing for thing in grant.resources)
    }
    assert writes == PROVIDERS, "which nobody from outside calls"


def test_functions_that_ask_for_each_other_may_and_no_others() -> None:
    """Lambda drops an event after about 16 hops of one chain, unless the function says that it is meant. How long a
    chain may be is `runtime/event_chains.py`'s."""
    invokes = {
        function.name: {
            thing.rpartition("-")[2]
            for grant in function.allowed
            for thing in grant.resources
            if "lambda:InvokeFunction" in grant.actions
        }
        for function in FUNCTIONS
    }

    def reached(name: str) -> set[str]:
        found: set[str] = set()
        todo = [*invokes[name]]
        while todo:
            if (each := todo.pop()) not in found:
                found.add(each)
                todo += invokes[each]
        return found

    looping = {name for name in invokes if name in reached(name)}
    assert looping == {"reconcile", "bootstrap_host", *PROVIDERS}
    allowed = {function.name for function in FUNCTIONS if RESOURCES[function.id]["Properties"].get("RecursiveLoop")}
    assert allowed == looping == {function.name for function in FUNCTIONS if function.loops}
    assert {RESOURCES[named(name).id]["Properties"]["RecursiveLoop"] for name in allowed} == {"Allow"}


def test_functions_run_on_a_python_that_aws_goes_on_keeping() -> None:
    """3.11 can't be deployed any more from 2027-08 on."""
    used = {RESOURCES[function.id]["Properties"]["Runtime"] for function in FUNCTIONS}
    assert used == {f"python{artefacts.PYTHON}"} and int(artefacts.PYTHON.partition(".")[2]) >= 12
    other = template("dev", Choices(python="3.12"))["Resources"]
    assert {other[function.id]["Properties"]["Runtime"] for function in FUNCTIONS} == {"python3.12"}


def test_a_stage_in_another_region_has_other_names_wherever_these_are_everybodys() -> None:
    made = json.dumps([stateful.template(), TEMPLATE, spending.template("dev")])
    for kind, name in (("BucketName", "dstack-${Stage}-${AWS::AccountId}-${AWS::Region}"),
                       ("BudgetName", "dstack-dev-${AWS::Region}-spending")):  # fmt: skip
        assert f'"{kind}"' in made and name in made
    assert settings_template()["bucket"] == "dstack-dev-${AWS::AccountId}-${AWS::Region}"
    older = template("dev", Choices(bucket="dstack-dev-1"))
    assert "AccountId}-${AWS::Region}" not in json.dumps(older), "a stage that is older keeps its bucket"
    assert "arn:${AWS::Partition}:s3:::dstack-dev-1/logs/*" in json.dumps(older)


@pytest.mark.parametrize("function", PLAIN, ids=lambda function: str(function.name))
def test_code_is_a_file_beside_the_template_or_where_it_was_uploaded_to(function: Function) -> None:
    assert RESOURCES[function.id]["Properties"]["Code"] in ("./deployment.zip", f"./{function.artefact}.zip")
    chosen = Choices({function.artefact: ("b", "k")}, {"MORE": "1"})
    uploaded = template("dev", chosen)["Resources"][function.id]["Properties"]
    assert uploaded["Code"] == {"S3Bucket": "b", "S3Key": "k"}
    assert uploaded["Environment"]["Variables"].items() >= {"DSTACK_KEYS": "/dstack-dev", "MORE": "1"}.items()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.name))
def test_a_policy_fits_into_a_role_and_each_statement_has_a_name(function: Function) -> None:
    role = template("a" * 21)["Resources"]["ApiHandlerRole" if function.name == "api" else f"{function.id}Role"]
    assert len(json.dumps(role["Properties"]["Policies"], separators=(",", ":"))) < 10_240  # of all policies in a role
    sids = [each.get("Fn::If", (None, each))[1]["Sid"] for each in statements(function)]
    assert len(sids) == len(set(sids)) and all(sid.isalnum() for sid in sids)


def test_what_the_aws_backend_may_do_is_somebodys_to_do() -> None:
    given = {grant.sid for function in FUNCTIONS for grant in function.allowed}
    assert {f"Aws{each.sid}" for each in PERMISSIONS} == {sid for sid in given if sid.startswith("Aws")}


def test_each_artefact_of_the_registry_has_its_function_its_code_and_its_way_there() -> None:
    """What is asked of a provider goes to the function of its row's artefact, and no other function has its SDK."""
    settings = settings_template()
    assert not {CHALICE, SSH} & artefacts_of_providers().keys(), "which are others' artefacts"
    for artefact in artefacts_of_providers():
        function = named(may.provider(artefact))
        assert (function.artefact, function.entry) == (artefact, "functions.provider.handler")
        assert settings["provider_functions"][artefact] == f"dstack-dev-{function.name}"
        assert artefact in artefacts.KINDS and function.bounded and function.async_events
        for caller in ("api", "sweep_orphans", "refresh_catalog", "reconcile", "reap_idle", "workflow_step"):
            invoked = {
                one
                for grant in named(caller).allowed
                for one in grant.resources
                if "InvokeFunction" in grant.actions[0]
            }
            assert f"lambda:function:dstack-{{stage}}-{function.name}" in invoked, caller
    assert {function.artefact for function in FUNCTIONS} == {*artefacts_of_providers(), CHALICE, SSH}


def test_what_answers_the_internet_may_do_nothing_to_machines() -> None:
    """Accounts are worked on by a function of their own, which has no address: the API asks it, as schedules do."""
    by_clouds = {each.name for each in FUNCTIONS if any(grant.sid.startswith("Aws") for grant in each.allowed)}
    assert by_clouds == {"provider_clouds"}


def test_machines_are_rented_in_any_region_and_of_anybodys_image() -> None:
    statements = in_template(named("provider_clouds").allowed, "dev")["Statement"]
    into = next(each["Resource"] for each in statements if each["Sid"] == "AwsLaunchInto")
    assert {"Fn::Sub": "arn:${AWS::Partition}:ec2:*::image/*"} in into
    assert {"Fn::Sub": "arn:${AWS::Partition}:ec2:*:${AWS::AccountId}:subnet/*"} in into
    assert next(each["Resource"] for each in statements if each["Sid"] == "AwsPlacing") == ["*"]
    launch = next(each for each in statements if each["Sid"] == "AwsLaunch")
    assert launch["Condition"] == {"StringLike": {"aws:RequestTag/dstack-install": ANY}}


def test_the_stacks_have_the_resources_that_were_reviewed() -> None:
    """What goes from the list is deleted by the next deployment."""
    found = []
    for stack, made in (
        ("dstack-STAGE-data", stateful.template()),
        ("dstack-STAGE", template("STAGE")),
        ("dstack-STAGE-spending", spending.template("STAGE")),
    ):
        kinds = {name: each.get("Type", "completes Chalice's") for name, each in made["Resources"].items()}
        found += [f"{stack} {kind} {name}\n" for name, kind in sorted(kinds.items(), key=lambda each: each[::-1])]
    golden.check(Path(__file__).parent / "golden" / "resources.txt", "".join(found))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.name))
def test_calls_are_traced_only_if_somebody_asks_for_it(function: Function) -> None:
    """Then the function may write traces, too."""
    properties = RESOURCES[function.id]["Properties"]
    assert properties.get("Tracing", properties.get("TracingConfig", {}).get("Mode")) == {"Ref": "Tracing"}
    (traces,) = (each for each in conditional_statements(function) if each[0] == "Traced")
    assert traces[1]["Action"] == ["xray:PutTelemetryRecords", "xray:PutTraceSegments"]
    assert TEMPLATE["Parameters"]["Tracing"]["Default"] == "PassThrough"


def statements(function: Function) -> list[Any]:
    """Of the only policy that the function's role has."""
    role = RESOURCES["ApiHandlerRole" if function.id == "APIHandler" else f"{function.id}Role"]["Properties"]
    assert "ManagedPolicyArns" not in role, "AWS's own policies allow more"
    (policy,) = role["Policies"]
    return list(policy["PolicyDocument"]["Statement"])


def conditional_statements(function: Function) -> list[tuple[str, Any]]:
    """What is in its policy only where a parameter asks for it: the condition, and the statement."""
    return [tuple(each["Fn::If"][:2]) for each in statements(function) if "Fn::If" in each]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.name))
def test_a_function_is_allowed_named_actions_on_named_things(function: Function) -> None:
    """Or on things with our tag. What only reads, and what Lambda does in its name, know no narrower resource; and what
    is created is created within something of its owner's, or of AWS's."""
    wherever = {
        "AwsAccount",
        "AwsCatalog",
        "AwsPrices",
        "AwsListing",
        "AwsPlacing",
        "Trace",
        "Network",
        "NotByItself",
    }
    wherever |= {"Answer", "Streams"}
    foreign = {"AwsLaunchInto", "AwsCreateInto", "AwsImages", "AwsProfile", "AwsTag", "AwsSpot"}
    for each in (each.get("Fn::If", (None, each))[1] for each in statements(function)):
        assert not any("*" in action for action in each["Action"]) and "NotAction" not in each
        for thing in each["Resource"]:
            own = (
                thing == {"Ref": "EncryptionKey"}
                or "dstack-" in str(thing)
                or "/dstack-" in json.dumps(each.get("Condition", {}))
            )  # a tag
            assert own or each["Sid"] in (wherever if thing == "*" else foreign), each["Sid"]


def test_lambda_alone_puts_the_function_that_logs_in_into_a_vpc() -> None:
    """What its own code can do there would be to take any network card of the account's."""
    found = {
        function.name: [one for when, one in conditional_statements(function) if when == "InVpc"]
        for function in FUNCTIONS
    }
    assert {name for name, inside in found.items() if inside} == {"bootstrap_host"}
    placed = {id_: each["Properties"]["VpcConfig"] for id_, each in RESOURCES.items() if "VpcConfig" in str(each)}
    named_ = {"SubnetIds": "BastionSubnets", "SecurityGroupIds": "BastionSecurityGroups"}
    inside = {name: {"Fn::Split": [",", {"Ref": parameter}]} for name, parameter in named_.items()}
    assert placed == {"BootstrapHost": {"Fn::If": ["InVpc", inside, {"Ref": "AWS::NoValue"}]}}
    lets, denies = found["bootstrap_host"]
    assert (lets["Effect"], denies["Effect"]) == ("Allow", "Deny") and lets["Action"] == denies["Action"]
    assert "ec2:CreateNetworkInterface" in lets["Action"] and "Condition" not in lets
    itself = denies["Condition"]["ArnEquals"]["lambda:SourceFunctionArn"]["Fn::Sub"]
    assert itself.endswith(":function:" + RESOURCES["BootstrapHost"]["Properties"]["FunctionName"])
