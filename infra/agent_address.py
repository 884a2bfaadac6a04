"""The address that agents call: a Function URL, which is free, or where Lambda has none, an HTTP API of API Gateway.

The partitions of GovCloud and China have no Function URLs, and a few regions elsewhere have none either. Both send the
function the same events (payload format 2.0), and `agent_sync` is done long before either's limits: an API gives up
after 30 seconds, and Lambda takes 6 MB by either way. So agents notice nothing, but each million of their calls costs
about a dollar. Machines know the address from their start on, so a stage keeps the one that it was deployed with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.policies import sub_arn

USUAL = "aws"  # the partition that has Function URLs
FORMAT = "2.0"
LEFT_BEHIND = (
    "AgentApi gives agents another address, of which machines that run don't learn: the stage loses all of them. "
    "Go on only if there are none."
)
Resources = dict[str, Any]


def parameters() -> Resources:
    return {
        "AgentApi": {
            "Type": "String",
            "Default": "auto",
            "AllowedValues": ["auto", "on", "off"],
            "Description": "on: agents call an HTTP API, not a Function URL; auto: only in GovCloud and China",
        }
    }


def is_api(parameters: Mapping[str, str], partition: str) -> bool:
    """Whether agents call an API. The template is rendered by it, because CloudFormation refuses a type of resource
    that it doesn't know in a region, even if no condition lets it be made."""
    chosen = parameters.get("AgentApi", "auto")
    return chosen == "on" or (chosen == "auto" and partition != USUAL)


def address(id_: str, *, api: bool) -> Resources:
    """Of the function with this logical id."""
    return {"Fn::GetAtt": [f"{id_}Api", "ApiEndpoint"] if api else [f"{id_}Url", "FunctionUrl"]}


def resources(id_: str, name: str, *, api: bool) -> Resources:
    """`id_`: the function's logical id. `name`: the API's. Anybody may call either: agents have no identity in AWS, and
    each call is authenticated by its token."""
    return _api(id_, name) if api else _url(id_)


def _url(id_: str) -> Resources:
    """Lambda requires both permissions; the second is only for calls through the URL."""
    by_url = {"Action": "lambda:InvokeFunctionUrl", "FunctionUrlAuthType": "NONE"}
    return {
        f"{id_}Url": {
            "Type": "AWS::Lambda::Url",
            "Properties": {"TargetFunctionArn": {"Ref": id_}, "AuthType": "NONE"},
        },
        f"{id_}UrlOpen": _may_invoke(id_, "*", **by_url),
        f"{id_}UrlMay": _may_invoke(id_, "*", InvokedViaFunctionUrl=True),
    }


def _api(id_: str, name: str) -> Resources:
    api = {"ApiId": {"Ref": f"{id_}Api"}}
    integration = {
        **api,
        "IntegrationType": "AWS_PROXY",
        "IntegrationUri": {"Fn::GetAtt": [id_, "Arn"]},
        "PayloadFormatVersion": FORMAT,
    }
    route = {**api, "RouteKey": "$default", "Target": {"Fn::Sub": f"integrations/${{{id_}ApiCalls}}"}}
    source = {"Fn::Sub": sub_arn(f"execute-api:${{{id_}Api}}/*")}
    return {
        f"{id_}Api": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"Name": name, "ProtocolType": "HTTP"}},
        f"{id_}ApiCalls": {"Type": "AWS::ApiGatewayV2::Integration", "Properties": integration},
        f"{id_}ApiRoute": {"Type": "AWS::ApiGatewayV2::Route", "Properties": route},
        f"{id_}ApiStage": {
            "Type": "AWS::ApiGatewayV2::Stage",
            "Properties": {**api, "StageName": "$default", "AutoDeploy": True},
        },
        f"{id_}ApiMay": _may_invoke(id_, "apigateway.amazonaws.com", SourceArn=source),
    }


def _may_invoke(id_: str, principal: str, **more: Any) -> Resources:
    properties = {"FunctionName": {"Ref": id_}, "Action": "lambda:InvokeFunction", "Principal": principal, **more}
    return {"Type": "AWS::Lambda::Permission", "Properties": properties}
