"""What careful owners choose: a boundary for roles, a key of their own, tags, a private API; and every partition."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.errors import Invalid
from chalicelib.runtime.accounts import providers
from chalicelib.runtime.settings import LambdaSettings
from infra import agent_address, spending, stateful, stateless, tagging, vpc
from infra import grants as may
from infra.functions import FUNCTIONS, named
from infra.stateless import Choices
from tests.infra.account import Account
from tests.infra.test_resuming import DATA, MAIN, Deployer

KEY, BOUNDARY = "arn:aws:kms:here:1:key/1", "arn:aws:iam::1:policy/limits"
ENDPOINTS = ("vpce-0a1b", "vpce-2c3d")
HTTP_API = ("Api", "Integration", "Route", "Stage")
FUNCTION = named("agent_sync")
PARTITIONS = {"aws": "amazonaws.com", "aws-us-gov": "amazonaws.com", "aws-cn": "amazonaws.com.cn"}
# Service principals have one name in every partition, but for those of EC2 and of logs. A machine's role may be passed
# to either of EC2's. The role for spot machines has this name everywhere.
EVERYWHERE = re.compile(
    r"(lambda|states|events|apigateway|budgets|cloudwatch|spot)\.amazonaws\.com\b(?!\.cn)|ec2\.amazonaws\.com(\.cn)?"
)


def rendered(partition: str, template: dict[str, Any]) -> str:
    """The template with what CloudFormation puts in there."""
    known = {"Partition": partition, "Region": "any-1", "AccountId": "1" * 12, "URLSuffix": PARTITIONS[partition]}
    text = json.dumps(template)
    for name, value in known.items():
        text = text.replace(f"${{AWS::{name}}}", value)
    return text.replace("${Partition}", partition)  # a state machine's own substitution


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize(
    "template",
    [
        stateful.template(),
        stateless.template("dev", Choices(endpoints=ENDPOINTS)),
        stateless.template("dev", Choices(agent_api=True)),
        spending.template("dev"),
    ],
    ids=["data", "main", "by an API", "spending"],
)
def test_every_arn_and_address_is_of_the_partition_that_it_is_deployed_to(
    partition: str, template: dict[str, Any]
) -> None:
    text = rendered(partition, template)
    assert set(re.findall(r"arn:(aws[a-z-]*):", text)) <= {partition}
    hosts = EVERYWHERE.sub("", text)
    found = set(re.findall(r"amazonaws\.com(?:\.cn)?", hosts))
    assert found <= {PARTITIONS[partition]}, re.findall(r".{40}amazonaws\.com.{8}", hosts)


def test_no_code_for_aws_names_a_partition_or_its_addresses() -> None:
    """The SDK knows the addresses. `infra.policies.in_file` is for a plain `chalice deploy`, and pages, in `aws`."""
    root = Path(__file__).parents[2]
    files = [*(root / "chalicelib/backends/aws").glob("*.py"), *(root / "infra").glob("*.py")]
    files += [*(root / "chalicelib/runtime").glob("*.py"), root / "chalicelib/engine/asl.py"]
    for path in files:
        text = EVERYWHERE.sub("", path.read_text())
        allowed = {"policies.py": 2, "deploy_policy.py": 3, "vpc.py": 1}.get(path.name, 0)  # an endpoint service's name
        assert len(re.findall(r"arn:aws:|amazonaws\.com", text)) <= allowed, path.name


def roles(template: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for id_, each in template["Resources"].items():
        if each.get("Type") == "AWS::IAM::Role" or id_.endswith("Role"):
            yield each["Properties"]


def test_every_role_that_is_made_has_the_boundary() -> None:
    found = list(roles(stateless.template("dev")))
    assert len(found) == len(FUNCTIONS) + 3  # of the state machines
    for each in found:
        assert each["PermissionsBoundary"] == {"Fn::If": ["Bounded", {"Ref": "Boundary"}, {"Ref": "AWS::NoValue"}]}
    other = [*stateful.template()["Resources"].values(), *spending.template("dev")["Resources"].values()]
    assert not any(each["Type"] == "AWS::IAM::Role" for each in other)


def test_whatever_is_stored_is_encrypted_with_the_owners_key() -> None:
    key = {"Ref": "EncryptionKey"}
    data = {name: each["Properties"] for name, each in stateful.template()["Resources"].items()}
    assert data["Table"]["SSESpecification"]["Fn::If"][1]["KMSMasterKeyId"] == key
    (bucket,) = data["Bucket"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert bucket["ServerSideEncryptionByDefault"]["Fn::If"][1:] == [
        {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key},
        {"SSEAlgorithm": "AES256"},
    ]
    assert data["Aside"]["KmsMasterKeyId"]["Fn::If"][1] == key
    main = stateless.template("dev")["Resources"]
    groups = [each["Properties"] for each in main.values() if each.get("Type") == "AWS::Logs::LogGroup"]
    assert len(groups) == len(FUNCTIONS)
    assert all(each["KmsKeyId"] == {"Fn::If": ["Encrypted", key, {"Ref": "AWS::NoValue"}]} for each in groups)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.name))
def test_a_function_uses_the_key_through_the_stores_alone(function: Any) -> None:
    (policy,) = stateless._policies(function, "dev", Choices())
    found = [each["Fn::If"] for each in policy["PolicyDocument"]["Statement"] if "Fn::If" in each]
    (key,) = [statement for condition, statement, _ in found if condition == "Encrypted"]
    assert key["Action"] == list(may.USE_KEY) and key["Resource"] == [{"Ref": "EncryptionKey"}]
    through = [each["Fn::Sub"].partition(".")[0] for each in key["Condition"]["StringEquals"]["kms:ViaService"]]
    assert through == ["dynamodb", "s3", "sqs", "ssm"]


def test_a_private_api_is_reached_through_its_endpoints_alone() -> None:
    template = stateless.template("dev", Choices(endpoints=ENDPOINTS))
    properties = template["Resources"]["RestAPI"]["Properties"]
    assert properties["EndpointConfiguration"] == {"Type": "PRIVATE", "VPCEndpointIds": list(ENDPOINTS)}
    (only,) = properties["DefinitionBody"]["x-amazon-apigateway-policy"]["Statement"]
    assert (only["Effect"], only["Condition"]) == ("Allow", {"StringEquals": {"aws:SourceVpce": list(ENDPOINTS)}})
    address = template["Outputs"]["ApiUrl"]["Value"]["Fn::Sub"]
    assert address.startswith("https://${RestAPI}-vpce-0a1b.execute-api.")
    settings = template["Resources"]["Settings"]["Properties"]["Value"]["Fn::Sub"][0]
    assert json.loads(settings)["api_url"] == address, "what people are told"
    assert "AgentSyncUrl" in template["Resources"], "agents go on calling their own address"


def test_an_api_is_public_unless_endpoints_are_named() -> None:
    properties = stateless.template("dev")["Resources"]["RestAPI"]["Properties"]
    assert "EndpointConfiguration" not in properties and properties["DefinitionBody"].keys() == {"info"}
    assert vpc.endpoints({}) == vpc.endpoints({"ApiEndpoints": ""}) == ()
    assert vpc.endpoints({"ApiEndpoints": "vpce-0a1b, vpce-2c3d"}) == ENDPOINTS
    with pytest.raises(Invalid, match="no id of a VPC endpoint"):
        vpc.endpoints({"ApiEndpoints": "vpc-1"})


@pytest.mark.parametrize("partition", PARTITIONS)
def test_agents_call_an_api_where_lambda_has_no_urls(partition: str, tmp_path: Path) -> None:
    account = Noting()
    Careful(account, tmp_path, partition=partition).run()
    second = Careful(account, tmp_path, partition=partition, set={"AgentApi": "on"})
    second.run("2")
    third, fourth = Careful(account, tmp_path, partition=partition), Careful(account, tmp_path, partition=partition)
    third.run("3")
    fourth.set["AgentApi"] = "off"
    fourth.run("4")
    assert [each.agent_api for each in account.chosen] == [partition != "aws", True, True, False]
    warned = [agent_address.LEFT_BEHIND in each.lines for each in (second, third, fourth)]
    assert warned == [partition == "aws", False, True]


def test_either_address_leads_to_the_same_function_and_is_the_one_that_agents_are_told() -> None:
    for chosen, id_, types in (
        (Choices(), "AgentSyncUrl", {"Lambda::Url"}),
        (Choices(agent_api=True), "AgentSyncApi", {f"ApiGatewayV2::{each}" for each in HTTP_API}),
    ):
        template = stateless.template("dev", chosen)
        made = {name: each for name, each in template["Resources"].items() if name.startswith("AgentSync")}
        kinds = {each["Type"].removeprefix("AWS::") for each in made.values()}
        assert {each for each in kinds if each.startswith("ApiGatewayV2") or each == "Lambda::Url"} == types
        _, names = template["Resources"]["Settings"]["Properties"]["Value"]["Fn::Sub"]
        assert names["AgentUrl"] == template["Outputs"]["AgentUrl"]["Value"]
        assert names["AgentUrl"]["Fn::GetAtt"][0] == id_
    calls, route = (made[f"AgentSyncApi{each}"]["Properties"] for each in ("Calls", "Route"))
    assert calls["IntegrationUri"] == {"Fn::GetAtt": ["AgentSync", "Arn"]} and calls["PayloadFormatVersion"] == "2.0"
    assert route["RouteKey"] == "$default", "whatever path"
    assert FUNCTION.timeout < 30, "an HTTP API gives up then"


def test_no_budget_is_named_where_none_is_wanted(tmp_path: Path) -> None:
    """CloudFormation doesn't know them in every region, and refuses a template that names one."""
    assert "Budget" not in json.dumps(spending.template("dev", budget=False)["Resources"]).title()
    account = Noting()
    Careful(account, tmp_path, set={"SpendingAlarm": "0"}).run()
    assert "SpendingBudget" not in account.stacks[f"{MAIN}-spending"].template["Resources"]


class Noting(Account):
    """It also keeps tags, of stacks and of parameters, and the keys that these are sealed with."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, dict[str, str]] = {}
        self.sealed: dict[str, str] = {}
        self.chosen: list[Choices] = []

    def describe_stacks(self, StackName: str) -> Any:
        found = super().describe_stacks(StackName)
        tags = [{"Key": key, "Value": value} for key, value in self.tags.get(StackName, {}).items()]
        return {"Stacks": [{**found["Stacks"][0], "Tags": tags}]}

    def create_change_set(self, StackName: str, ChangeSetName: str, ChangeSetType: str, **more: Any) -> Any:
        if "Tags" in more:
            self.tags[StackName] = {each["Key"]: each["Value"] for each in more["Tags"]}
        return super().create_change_set(StackName, ChangeSetName, ChangeSetType, **more)

    def put_parameter(self, Name: str, Value: str, Type: str, Overwrite: bool, **more: Any) -> None:
        super().put_parameter(Name, Value, Type, Overwrite)
        self.sealed[Name] = more.get("KeyId", "")
        self.tags[Name] = {each["Key"]: each["Value"] for each in more.get("Tags", ())}


class Careful(Deployer):
    def template(self, chosen: Choices) -> dict[str, Any]:
        assert isinstance(self.account, Noting)
        self.account.chosen.append(chosen)
        found = super().template(chosen)
        return {
            **found,
            "Parameters": {**found["Parameters"], **dict.fromkeys(("AgentApi", "EncryptionKey", "ApiEndpoints"))},
        }


def test_tags_are_of_every_stack_and_stay_until_they_are_taken_away(tmp_path: Path) -> None:
    account = Noting()
    Careful(account, tmp_path, tags={"team": "ml", "cost centre": "7"}).run()
    stacks = (DATA, MAIN, f"{MAIN}-spending")
    assert [account.tags[name] for name in stacks] == [{"team": "ml", "cost centre": "7"}] * 3
    assert account.tags["/dstack-dev/master-key"] == {"team": "ml", "cost centre": "7"}
    Careful(account, tmp_path).run("2")
    assert [account.tags[name] for name in stacks] == [{"team": "ml", "cost centre": "7"}] * 3
    Careful(account, tmp_path, tags={"team": "", "stage": "dev"}).run("3")
    assert [account.tags[name] for name in stacks] == [{"cost centre": "7", "stage": "dev"}] * 3
    variables = account.chosen[-1].variables["DSTACK_BACKEND_TAGS"]
    assert json.loads(variables) == {"aws": {"cost centre": "7", "stage": "dev"}}


def test_a_key_and_a_private_api_stay_as_they_were_chosen(tmp_path: Path) -> None:
    account = Noting()
    Careful(account, tmp_path, set={"EncryptionKey": KEY, "ApiEndpoints": "vpce-0a1b"}).run()
    assert set(account.sealed.values()) == {KEY}
    Careful(account, tmp_path).run("2")
    for name in (DATA, MAIN):
        assert account.stacks[name].parameters["EncryptionKey"] == KEY
    assert [each.endpoints for each in account.chosen] == [("vpce-0a1b",)] * 2


def test_machines_have_the_stages_tags_and_a_backends_own_win() -> None:
    tags = tagging.variables({"team": "ml", "stage": "dev"})
    given = {"settings": json.dumps(dict.fromkeys(("table", "bucket", "wake_function", "api_url"), "x"))}
    keys = {"install-key": "00", "master-key": "00"}
    settings = LambdaSettings.read(lambda *_: given | keys, {"DSTACK_KEYS": "/dstack-dev", **tags})
    config = AWSBackendConfig.model_validate({"type": "aws", "creds": {"type": "default"}, "tags": {"stage": "x"}})
    made = providers(tags=settings.tags).make(config)
    assert isinstance(made, AwsBackend) and made._config.tags == {"team": "ml", "stage": "x"}
    assert config.tags == {"stage": "x"}


def test_tags_that_would_not_fit_are_refused() -> None:
    with pytest.raises(Invalid, match="takes 20 tags"):
        tagging.merged({str(number): "x" for number in range(20)}, {"team": "ml"})
    with pytest.raises(Invalid, match="2000 characters"):
        tagging.merged({}, {str(number): "x" * 250 for number in range(9)})
    assert tagging.variables({}) == {}
