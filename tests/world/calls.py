"""The calls that functions make to AWS, heard where botocore sends them, as IAM would look at them.

`Policed` refuses what a function's policy doesn't allow, as AWS would, and notes what it allowed. Things are named as
in `infra/grants.py`, so what was noted can be held against the table of functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import botocore
from botocore.exceptions import ClientError

from chalicelib.runtime.root import install_id
from chalicelib.runtime.settings import LambdaSettings
from infra.functions import named

Need = tuple[str, str]  # an action, and what it is done to

TABLE, BUCKET = "dynamodb:table/dstack-{stage}", "s3:{bucket}"
_WRITES = {"Put": "PutItem", "Delete": "DeleteItem", "Update": "UpdateItem", "ConditionCheck": "ConditionCheckItem"}
_READS = {"GetItem", "BatchGetItem", "Query", "Scan", "GetObject", "ListObjectsV2"}
_OBJECTS = {"GetObject", "PutObject", "DeleteObject"}


def needs(service: str, operation: str, params: dict[str, Any]) -> Iterator[Need]:
    """What a call needs. Whatever isn't known here has no policy that allows it."""
    if operation == "TransactWriteItems":
        for item in params["TransactItems"]:
            yield from ((f"dynamodb:{_WRITES[kind]}", TABLE) for kind in item)
    elif service == "dynamodb":
        index = params.get("IndexName")
        yield f"dynamodb:{operation}", f"{TABLE}/index/{index}" if index else TABLE
    elif operation == "DeleteObjects":
        yield from (("s3:DeleteObject", f"{BUCKET}/{each['Key']}") for each in params["Delete"]["Objects"])
    elif operation == "ListObjectsV2":
        yield "s3:ListBucket", BUCKET
    elif operation in _OBJECTS:
        yield f"s3:{operation}", f"{BUCKET}/{params['Key']}"
    elif operation == "Invoke":
        yield "lambda:InvokeFunction", f"lambda:function:dstack-{{stage}}-{params['FunctionName']}"
    elif operation in ("SendTaskSuccess", "SendTaskFailure"):  # by a token that only an execution gives out
        yield f"states:{operation}", "*"
    elif service == "stepfunctions":
        yield f"states:{operation}", f"states:stateMachine:dstack-{{stage}}-{params['stateMachine']}"
    elif service == "sqs":
        yield f"sqs:{operation}", f"sqs:dstack-{{stage}}-{params['QueueUrl'].rsplit('/', 1)[-1]}"
    else:
        yield f"{service}:{operation}", "?"


def readable(settings: LambdaSettings, function: str) -> LambdaSettings:
    """As the function reads them: without the keys that it has no use for."""
    reads = named(function).reads
    return replace(
        settings,
        install_key=settings.install_key if "install-key" in reads else b"",
        master_key=settings.master_key if "master-key" in reads else b"",
        install_id=install_id(settings.install_key),
    )


def allowed(function: str) -> Iterator[Need]:
    for grant in named(function).allowed:
        yield from ((action, thing) for action in grant.actions for thing in grant.resources)


def covers(granted: Need, need: Need) -> bool:
    return granted[0] == need[0] and fnmatchcase(need[1], granted[1].replace("[", "[[]"))


@dataclass
class Policed:
    seen: dict[str, set[Need]] = field(default_factory=dict)  # by function
    refused: list[str] = field(default_factory=list)
    writes: int = 0  # calls that may have changed what is kept
    _running: list[str] = field(default_factory=list)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """To every client that is made meanwhile, for as long as it lives."""
        botocore.register_initializer(self._watch)
        try:
            yield
        finally:
            botocore.unregister_initializer(self._watch)

    @contextmanager
    def running(self, function: str) -> Iterator[None]:
        """The calls made meanwhile are this function's; those of no function are the test's own."""
        self._running.append(function)
        try:
            yield
        finally:
            self._running.pop()

    def _watch(self, session: Any) -> None:
        session.register("before-parameter-build", self._botocore)

    def _botocore(self, *, params: dict[str, Any], model: Any, **more: Any) -> None:
        self.check_call(model.service_model.service_name, model.name, params)

    def check_call(self, service: str, operation: str, params: dict[str, Any]) -> None:
        self.writes += operation not in _READS
        if not self._running:
            return
        function = self._running[-1]
        for need in needs(service, operation, params):
            if not any(covers(each, need) for each in allowed(function)):
                message = f"{function} isn't allowed {need[0]} on {need[1]}"
                self.refused.append(message)
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": message}}, operation)
            self.seen.setdefault(function, set()).add(need)

    def spare(self, function: str) -> set[Need]:
        """What it is allowed, and was never seen to do."""
        seen = self.seen.get(function, set())
        return {each for each in allowed(function) if not any(covers(each, need) for need in seen)}
