"""AWS's protocols, both ways: a request of the SDK becomes a call, and a call is answered in the service's own format.

Everything goes by botocore's service models: whatever isn't in them is neither read nor written. moto is asked the same
way as the SDK would ask it, without changing anything of the process but what it would find out anew for each call.
"""

from __future__ import annotations

import base64
import re
import uuid
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl, urlencode

from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from moto.core import model as moto_model
from moto.core import responses
from moto.core.botocore_stubber import BotocoreStubber
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.serialize import EC2Serializer, JSONSerializer, QuerySerializer

responses.method_names_from_class = cache(responses.method_names_from_class)  # of thousands of methods

Params = dict[str, Any]
_SCOPE = re.compile(r"Credential=([^/]+)/\d+/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
_HOST = "https://{service}.{region}.amazonaws.com/"
_HOSTS = {"servicequotas": "service-quotas", "pricing": "pricing"}  # where the signing name isn't the model's
_WRITTEN: dict[tuple[str, str, str], tuple[dict[str, str], bytes]] = {}  # lists of types and prices are long


@dataclass(frozen=True)
class Call:
    service: str
    region: str
    operation: str
    params: Params
    key: str = ""  # who signed it


class Refusal(Exception):
    """An error as AWS returns it."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message or code, status


@cache
def loader() -> Loader:
    return Loader()


@cache
def _model(service: str) -> ServiceModel:
    name = _HOSTS.get(service, service)
    return ServiceModel(loader().load_service_model(name, "service-2"), name)


@cache
def _moto_model(service: str) -> Any:
    name = _HOSTS.get(service, service)
    return moto_model.ServiceModel(loader().load_service_model(name, "service-2"), name)


def _protocol(service: str) -> str:
    return str(_model(service).metadata["protocol"])


def decode(request: AWSPreparedRequest) -> Call:
    header = _text(request.headers.get("Authorization", ""))
    found = _SCOPE.search(header)
    if found is None:
        raise Refusal("MissingAuthenticationToken", "Request is missing Authentication Token", 403)
    key, region, service = found.groups()
    body = _text(request.body or b"")
    target = _text(request.headers.get("X-Amz-Target", ""))
    values = dict(parse_qsl(body, keep_blank_values=True)) if not target else {}
    operation = target.rpartition(".")[2] or values["Action"]
    model = _moto_model(service).operation_model(operation)
    parser = PROTOCOL_PARSERS[_protocol(service)](model)
    params = parser.parse({"values": values, "body": body, "headers": request.headers})  # type: ignore[arg-type]
    return Call(service, region, operation, params, key)


def answered(call: Call, url: str, result: Params | Refusal) -> AWSResponse:
    if isinstance(result, Refusal):
        return _response(url, result.status, *_error(_protocol(call.service), result))
    key = call.service, call.operation, repr(result)
    if key not in _WRITTEN:
        serializer = {"ec2": EC2Serializer, "query": QuerySerializer, "json": JSONSerializer}[_protocol(call.service)]
        made = serializer(_moto_model(call.service).operation_model(call.operation))
        made.context.request_id = str(uuid.UUID(int=0))
        written = made.serialize(result)
        _WRITTEN[key] = dict(written["headers"]), _bytes(written["body"])
    return _response(url, 200, *_WRITTEN[key])


def _error(protocol: str, error: Refusal) -> tuple[dict[str, str], bytes]:
    code, message = _escaped(error.code), _escaped(error.message)
    one = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    if protocol == "ec2":
        body = f"<Response><Errors>{one}</Errors><RequestID>0</RequestID></Response>"
    elif protocol == "query":
        body = f"<ErrorResponse>{one}<RequestId>0</RequestId></ErrorResponse>"
    else:
        import json

        return {}, json.dumps({"__type": error.code, "message": error.message}).encode()
    return {"Content-Type": "text/xml"}, body.encode()


def call_moto(call: Call, account: str) -> Params:
    """moto's answer to it. Raises a Refusal, as it does."""
    model: OperationModel = _model(call.service).operation_model(call.operation)
    protocol = _protocol(call.service)
    written = create_serializer(protocol, include_validation=False).serialize_to_request(call.params, model)
    body = written["body"]
    headers = {
        **written["headers"],
        "x-moto-account-id": account,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={call.key}/20261123/{call.region}/{call.service}/aws4_request,",
        "Host": f"{call.service}.{call.region}.amazonaws.com",
    }
    if isinstance(body, dict):
        body = urlencode(body)
        headers["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"
    url = _HOST.format(service=call.service, region=call.region)
    request = AWSPreparedRequest("POST", url, HeadersDict(headers), _bytes(body), False)
    status, found, text = BotocoreStubber().process_request(request)  # type: ignore[misc]
    if status >= 500 or not text:
        raise NotImplementedError(f"moto has no {call.service}:{call.operation} with {call.params}")
    answer = {"status_code": status, "headers": HeadersDict(found), "body": _bytes(text)}
    parsed: Params = create_parser(protocol).parse(answer, model.output_shape)
    if status >= 300:
        raise Refusal(parsed["Error"]["Code"], parsed["Error"]["Message"], status)
    parsed.pop("ResponseMetadata", None)
    return parsed


def raw_user_data(params: Params) -> bytes:
    """As the machine gets it: the SDK sends it in base 64."""
    return base64.b64decode(params.get("UserData") or "")


def _response(url: str, status: int, headers: Any, body: bytes) -> AWSResponse:
    return AWSResponse(url, status, HeadersDict(dict(headers)), _Raw(body))


class _Raw(BytesIO):
    def stream(self, **_: Any) -> Any:
        while piece := self.read():
            yield piece


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _text(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text
