"""Work on providers in AWS: events for the functions that have the providers' SDKs, and what such a function does.

There is one function for each artefact of `backends/registry.py`, and the row of a type names its artefact. An event is
one of:

| event                              | what for                        | sent by                                |
|------------------------------------|---------------------------------|----------------------------------------|
| an effect (`effects/table.py`)     | a committed plan                | passes                                 |
| `{"sweep": ACCOUNT}`               | one account's sweep, or a look  | `sweep_orphans`, on its schedule       |
| `{"refresh": ACCOUNT}`             | one account's offers            | `refresh_catalog`; the API for a new one |
| `{"check": ConfigurationCheck}`    | does a configuration work       | the API, which waits for the answer    |
| `{"offers": {account, request}}`  | a market's offers               | the API, for a plan that waits for them |

So an account waits for no other: Lambda runs as many events at once as the function may have executions. The last two
are waited for; the others are asynchronous, and Lambda keeps and repeats them. A configuration that is checked travels
with its secrets sealed, as it is stored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from chalicelib import errors
from chalicelib.backends.registry import BACKENDS, Row, artefact_of, lacks_sdk
from chalicelib.domain.backends import type_and_project
from chalicelib.domain.instants import SECOND
from chalicelib.engine.ports import PLAN_WAITS, ConfigurationCheck
from chalicelib.errors import BackendError, Bug, DstackError, NotDeployed, Refused, Throttled, Transient
from chalicelib.runtime import telemetry
from chalicelib.runtime.event_chains import EventChain

if TYPE_CHECKING:
    from chalicelib.domain.market_answers import MarketAnswer
    from chalicelib.domain.offer_requests import OfferRequest
    from chalicelib.planning.kernel.plan import Effect
    from chalicelib.runtime.root import Root

log = logging.getLogger(__name__)

Clients = Callable[[str], Any]  # the client of an AWS service, by the service's name
WAITED = "lambda/waited"  # a client of Lambda for calls that somebody waits for
PATIENCE = 24.0  # seconds that a check may take: API Gateway gives up after 29


def invoke(clients: Clients, function: str, event: Mapping[str, Any]) -> None:
    """Hand an event over to Lambda, without waiting for the result."""
    clients("lambda").invoke(FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode())


class ProviderFunctions:
    """`Effects` and `AccountWork` by functions. `functions`: the name of each artefact's function; `own`: the names of
    the functions of backends that have their own."""

    def __init__(
        self,
        clients: Clients,
        functions: Mapping[str, str],
        chain: EventChain,
        own: Mapping[str, str] | None = None,
        table: Mapping[str, Row] = BACKENDS,
        plan_waits: float = PLAN_WAITS / SECOND,
    ) -> None:
        self._plan_waits = plan_waits
        self._clients, self._functions, self._chain = clients, functions, chain
        self._own, self._table = own or {}, table

    def submit(self, effect: Effect) -> None:
        from chalicelib.engine.effects.table import to_message

        function = self._own.get(effect.backend) or self._function(effect.backend)
        invoke(self._clients, function, self._chain.next(to_message(effect)))

    def sweep(self, account: str) -> None:
        self._send(account, {"sweep": account})

    def refresh(self, account: str) -> None:
        self._send(account, {"refresh": account})

    def check(self, request: ConfigurationCheck) -> None:
        function = self._functions.get(artefact_of(request.type, self._table))
        if function is None:
            raise self._missing(request.type)
        payload = json.dumps({"check": asdict(request)}).encode()
        try:
            client = self._clients(WAITED)
            answer = client.invoke(FunctionName=function, InvocationType="RequestResponse", Payload=payload)
            body = json.loads(answer["Payload"].read())
        except Exception as error:  # whatever the SDK raises: the function, the network, the permissions
            log.exception("the check of %s had no answer", request.account)
            raise unanswered(request.type) from error
        if answer.get("FunctionError"):
            log.error("the check of %s failed: %s", request.account, body)
            if "timed out" in str(body.get("errorMessage")):
                raise unanswered(request.type)
            raise Bug(f"The check of the backend {request.type} failed: {body.get('errorType')} in {function}.")
        if body.get("error"):
            raise from_wire(body["error"])

    def offers(self, asks: Sequence[tuple[str, OfferRequest]]) -> Sequence[MarketAnswer | None]:
        client = self._clients(WAITED)  # here, because a session of boto3 must not make two at once
        threads = ThreadPoolExecutor(max(1, len(asks)), "market")
        done = [threads.submit(self._answer, client, account, request) for account, request in asks]
        wait(done, self._plan_waits)
        threads.shutdown(wait=False, cancel_futures=True)
        return [each.result() if each.done() and not each.cancelled() else None for each in done]

    def _answer(self, client: Any, account: str, request: OfferRequest) -> MarketAnswer | None:
        """None: it couldn't be asked, which is logged here."""
        from chalicelib.catalog.offers import answer_from_json
        from chalicelib.domain.market_answers import MarketAnswer

        event = {"offers": {"account": account, "request": request.model_dump_json()}}
        try:
            function = self._function(type_and_project(account)[0])
            payload = json.dumps(event).encode()
            answer = client.invoke(FunctionName=function, InvocationType="RequestResponse", Payload=payload)
            body = json.loads(answer["Payload"].read())
        except NotDeployed as error:
            return MarketAnswer(0, error=str(error))
        except Exception:  # as with a check
            log.exception("%s had no answer for a plan", account)
            return None
        if answer.get("FunctionError"):
            log.error("%s failed to answer for a plan: %s", account, body)
            return None
        return answer_from_json(body)

    def _send(self, account: str, event: Mapping[str, Any]) -> None:
        """Send an event. One that can't be sent doesn't affect the others, and the schedule repeats it."""
        try:
            invoke(self._clients, self._function(type_and_project(account)[0]), self._chain.next(event))
        except Exception:  # as above
            log.exception("%s couldn't be sent; the schedule repeats it", dict(event))

    def _function(self, type: str) -> str:
        artefact = artefact_of(type, self._table)
        if artefact not in self._functions:
            raise NotDeployed(f"No function of this stage works on accounts of {type}.", hint=_deploy(artefact))
        return self._functions[artefact]

    def _missing(self, type: str) -> Refused:
        row = self._table[type]
        return lacks_sdk(type, next(iter(row.sdk), row.artefact), _deploy(artefact_of(type, self._table)))


def _deploy(artefact: str) -> str:
    return f"This stage has no function provider_{artefact}: run `make deploy` again, which makes it."


def unanswered(type: str) -> Transient:
    """The error for a check that takes too long."""
    return Transient(f"The backend {type} couldn't be checked within {PATIENCE:g} s.", hint="Try again in a minute.")


# --- where the SDK is -------------------------------------------------------------------------------------------------


def perform(root: Root, event: Mapping[str, Any]) -> dict[str, Any]:
    """Handle one event. An exception makes Lambda repeat the event, and finally send it to the dead-letter queue."""
    request = root.ports.chain.begin(event)
    if "check" in request:
        return _check_result(root, ConfigurationCheck(**request["check"]))
    if "offers" in request:
        return _offers_result(root, request["offers"])
    try:
        done = _done(root, request)
    except Exception:
        root.ports.count(telemetry.EFFECTS_FAILED, 1)
        raise
    if done.get("awaited"):  # jobs wait for these offers, and Lambda repeats the event after a minute, and two more
        raise Transient(f"There are no offers yet of {request['refresh']}: it had no answer.")
    return done


def _done(root: Root, request: Mapping[str, Any]) -> dict[str, Any]:
    from chalicelib.engine.effects.table import from_message

    if "sweep" in request:
        swept = root.sweep(request["sweep"])
        return {"given_back": [f"{each.handle.kind} {each.handle.id}" for each in swept.released], "lost": swept.lost}
    if "refresh" in request:
        return {"awaited": root.refresh(request["refresh"])}
    effect = from_message(request)
    if root.ports.hold.looking:  # once it goes on, its unit is due, and plans it again if it is still wanted
        log.info("restored, and only looking: %s isn't done", effect)
        return {"held": effect.unit}
    root.executor.execute(effect)
    return {}


def _check_result(root: Root, request: ConfigurationCheck) -> dict[str, Any]:
    """The result of a check. An error is part of the result, so that the function doesn't fail and isn't repeated."""
    try:
        root.check(request)
    except (BackendError, Refused) as error:
        return {"error": to_wire(error)}
    return {}


def _offers_result(root: Root, event: Mapping[str, str]) -> dict[str, Any]:
    from chalicelib.catalog.offers import answer_to_json
    from chalicelib.domain.offer_requests import OfferRequest

    answer = root.offers_for(event["account"], OfferRequest.model_validate_json(event["request"]))
    body: dict[str, Any] = json.loads(answer_to_json(answer))
    return body


def to_wire(error: DstackError) -> dict[str, Any]:
    """An error as data, for the process that requested the check."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind]
    pause = {"retry_after": error.retry_after} if isinstance(error, Throttled) else {}
    return {"kind": kinds[0], "message": error.message, "hint": error.hint, "fields": list(error.fields), **pause}


def from_wire(data: Mapping[str, Any]) -> DstackError:
    """The original error, so that users see the same one wherever the check ran."""
    error: DstackError = getattr(errors, data["kind"])(data["message"])
    error.hint, error.fields = data["hint"], tuple(data["fields"])
    error.args = (f"{error.message} {error.hint}".strip(),)
    if isinstance(error, Throttled):
        error.retry_after = data["retry_after"]
    return error
