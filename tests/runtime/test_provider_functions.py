"""Work on providers in AWS: which function gets which event, and what a person is told of a check."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import asdict, dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chalicelib import errors
from chalicelib.backends.registry import BACKENDS, CLOUDS, Row, artefact_of, artefacts, built
from chalicelib.domain.backends import account_key, type_and_project
from chalicelib.domain.market_answers import MarketAnswer
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import OfferTerms
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.engine.ports import ConfigurationCheck
from chalicelib.errors import (
    BackendError,
    Bug,
    DstackError,
    InvalidCredentials,
    MissingPermission,
    NotDeployed,
    Refused,
    Throttled,
    Transient,
)
from chalicelib.planning.kernel.purchases import Create
from chalicelib.runtime.event_chains import EventChain
from chalicelib.runtime.provider_functions import WAITED, ProviderFunctions, from_wire, perform, to_wire
from tests.world import nouns as b

NIMBUS = Row("a:Config", "a:Nimbus", extra="nimbus", sdk=("nimbus.sdk",), artefact="nimbus")
TABLE = {**BACKENDS, "nimbus": NIMBUS}
DEPLOYED = {CLOUDS: "provider_clouds", "nimbus": "provider_nimbus"}
CHECK = ConfigurationCheck("p", "nimbus", '{"type": "nimbus"}', {"i": "pool-0"})


@dataclass
class Lambda:
    """AWS Lambda, as far as it is asked: what was sent, and what it answers to who waits."""

    sent: list[tuple[str, str, Any]] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)  # functions that can't be called

    def __call__(self, service: str) -> Lambda:
        assert service in ("lambda", WAITED)
        return self

    def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> dict[str, Any]:
        if FunctionName in self.away:
            raise ConnectionError("Lambda doesn't answer")
        self.sent.append((FunctionName, InvocationType, json.loads(Payload)))
        body = self.answer.get("body", {})
        failed = {"FunctionError": "Unhandled"} if self.answer.get("failed") else {}
        return {"Payload": io.BytesIO(json.dumps(body).encode()), **failed}


def functions(aws: Lambda, deployed: dict[str, str] = DEPLOYED, **more: Any) -> ProviderFunctions:
    return ProviderFunctions(aws, deployed, EventChain(), table=TABLE, **more)


def test_each_kind_of_work_goes_to_the_function_with_the_providers_sdk() -> None:
    aws = Lambda()
    work = functions(aws, own={"ssh": "hosts"})
    for type in ("aws", "nimbus"):
        work.sweep(f"{type}-p")
        work.refresh(f"{type}-p")
        work.submit(Create("instance/i", type, 1))
        work.check(ConfigurationCheck("p", type, "{}"))
    work.submit(Create("workflow/w", "ssh", 1))
    work.submit(Create("certificate/c", "", 1))
    work.sweep("simulated-all")
    sent = [(function, next(iter(event)), kind) for function, kind, event in aws.sent]
    four = [("sweep", "Event"), ("refresh", "Event"), ("effect", "Event"), ("check", "RequestResponse")]
    assert sent[:4] == [("provider_clouds", *each) for each in four]
    assert sent[4:8] == [("provider_nimbus", *each) for each in four]
    assert [function for function, _, _ in sent[8:]] == ["hosts", "provider_clouds", "provider_clouds"]


def test_one_account_whose_event_cannot_be_sent_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does one whose function isn't there."""
    aws = Lambda(away={"provider_nimbus"})
    for work in (functions(aws), functions(aws, {CLOUDS: "provider_clouds"})):
        for account in ("nimbus-p", "aws-p"):
            work.sweep(account)
    assert [event["sweep"] for _, _, event in aws.sent] == ["aws-p", "aws-p"]
    assert caplog.text.count("{'sweep': 'nimbus-p'} couldn't be sent") == 2
    with pytest.raises(NotDeployed, match="provider_nimbus"):
        work.submit(Create("instance/i", "nimbus", 1))


def test_a_backend_whose_artefact_is_not_deployed_is_refused_with_what_brings_it() -> None:
    with pytest.raises(Refused, match=r"needs the Python package nimbus\.sdk.*no function provider_nimbus.*make dep"):
        functions(Lambda(), {CLOUDS: "provider_clouds"}).check(CHECK)


@pytest.mark.parametrize(
    "error",
    [
        InvalidCredentials("the provider doesn't know these keys", hint="Check them.", fields=("creds.key",)),
        MissingPermission("these keys lack ec2:RunInstances"),
        Throttled("too many calls", retry_after=7),
        Refused("The backend nimbus needs the Python package nimbus.sdk.", hint="Install it."),
        errors.NotSupported("The backend nimbus isn't built yet."),
        errors.Gone("no such profile"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_provider_says_is_the_same_from_another_process(error: DstackError) -> None:
    aws = Lambda(answer={"body": json.loads(json.dumps({"error": to_wire(error)}))})
    with pytest.raises(type(error)) as raised:
        functions(aws).check(CHECK)
    again = raised.value
    assert (str(again), again.message, again.hint, again.fields) == (
        str(error),
        error.message,
        error.hint,
        error.fields,
    )
    assert getattr(again, "retry_after", None) == getattr(error, "retry_after", None)
    assert (again.status, again.code) == (error.status, error.code)


def test_a_backends_own_class_of_an_error_arrives_as_what_it_means() -> None:
    class Worse(InvalidCredentials):
        """Of one provider's package."""

    assert type(from_wire(to_wire(Worse("no")))) is InvalidCredentials


def test_every_error_of_a_provider_can_be_told() -> None:
    todo, found = [BackendError], list[type[BackendError]]()
    while todo:
        found.append(kind := todo.pop())
        todo += [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
    assert len(found) > 10
    for kind in found:
        assert type(from_wire(to_wire(kind("said")))) is kind


@pytest.mark.parametrize(
    ("answer", "away"),
    [({}, {"provider_nimbus"}), ({"failed": True, "body": {"errorMessage": "Task timed out after 180 s"}}, set())],
    ids=["no answer", "a function that timed out"],
)
def test_a_check_without_an_answer_says_to_try_again(answer: dict[str, Any], away: set[str]) -> None:
    with pytest.raises(Transient, match=r"nimbus couldn't be checked within 24 s\. Try again"):
        functions(Lambda(answer=answer, away=away)).check(CHECK)


def test_a_check_that_fails_unexpectedly_is_a_defect_of_ours_and_shows_nothing_of_the_configuration() -> None:
    failed = {"failed": True, "body": {"errorType": "KeyError", "errorMessage": "'hush-hush'"}}
    with pytest.raises(Bug) as raised:
        functions(Lambda(answer=failed)).check(CHECK)
    assert "KeyError in provider_nimbus" in str(raised.value) and "hush" not in str(raised.value)


@dataclass
class Root:
    """What the function's own root is asked."""

    says: Exception | None = None
    calls: list[ConfigurationCheck] = field(default_factory=list)
    ports: Any = field(default_factory=lambda: SimpleNamespace(chain=EventChain()))

    def check(self, check: ConfigurationCheck) -> None:
        self.calls.append(check)
        if self.says is not None:
            raise self.says


def test_what_is_wrong_is_an_answer_that_nobody_repeats_and_a_defect_is_raised() -> None:
    root: Any = Root()
    assert perform(root, {"check": asdict(CHECK)}) == {} and root.calls == [CHECK]
    root.says = InvalidCredentials("no")
    assert perform(root, {"check": asdict(CHECK)})["error"]["kind"] == "InvalidCredentials"
    root.says = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        perform(root, {"check": asdict(CHECK)})


REQUEST = OfferRequest(resources=ResourcesSpec(), max_price=2.0, regions=("eu",))
OFFER = b.offer("stall", terms=OfferTerms(listing="one"))


def test_a_plan_asks_the_function_with_the_providers_sdk_and_gets_what_its_root_says() -> None:
    class Market(Root):
        def offers_for(self, account: str, request: OfferRequest) -> MarketAnswer:
            assert (account, request) == ("nimbus-p", REQUEST)
            return MarketAnswer(5, (OFFER,))

    aws = Lambda(answer={"body": {"at": 1, "error": "", "offers": []}})
    functions(aws).offers([("nimbus-p", REQUEST)])
    ((function, kind, event),) = aws.sent
    assert (function, kind) == ("provider_nimbus", "RequestResponse")
    body = perform(cast(Any, Market()), event)
    assert functions(Lambda(answer={"body": body})).offers([("nimbus-p", REQUEST)]) == [MarketAnswer(5, (OFFER,))]


def test_a_market_whose_function_fails_or_is_not_there_costs_a_plan_nothing_else() -> None:
    body = {"at": 1, "error": "", "offers": []}
    aws = Lambda(answer={"body": body}, away={"provider_nimbus"})
    assert functions(aws).offers([("nimbus-p", REQUEST), ("aws-p", REQUEST)]) == [None, MarketAnswer(1)]
    failed = Lambda(answer={"failed": True, "body": {"errorMessage": "Task timed out"}})
    assert functions(failed).offers([("nimbus-p", REQUEST)]) == [None]
    (found,) = functions(aws, {CLOUDS: "provider_clouds"}).offers([("nimbus-p", REQUEST)])
    assert found and "make deploy" in found.error


def test_the_client_is_made_by_one_thread_however_many_markets_are_asked() -> None:
    made: list[threading.Thread] = []

    class Counting(Lambda):
        def __call__(self, service: str) -> Lambda:
            made.append(threading.current_thread())
            return super().__call__(service)

    aws = Counting(answer={"body": {"at": 1, "error": "", "offers": []}})
    functions(aws).offers([("nimbus-p", REQUEST), ("aws-p", REQUEST), ("aws-q", REQUEST)])
    assert len(aws.sent) == 3 and made == [threading.current_thread()]


def test_a_plan_does_not_wait_for_a_slow_function() -> None:
    over = threading.Event()

    class Slow(Lambda):
        def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> dict[str, Any]:
            over.wait(120)
            return super().invoke(FunctionName, InvocationType, Payload)

    assert functions(Slow(), plan_waits=0.01).offers([("nimbus-p", REQUEST)]) == [None]
    over.set()


# --- the table --------------------------------------------------------------------------------------------------------


def test_a_row_names_its_artefact_and_the_others_share_one() -> None:
    assert (artefact_of("nimbus", TABLE), artefact_of("aws", TABLE), artefact_of("simulated", TABLE)) == (
        "nimbus",
        CLOUDS,
        CLOUDS,
    )
    assert artefacts(TABLE)["nimbus"] == ("nimbus",) and "aws" in artefacts(TABLE)[CLOUDS]
    assert artefacts({"nimbus": replace(NIMBUS, backend="")}) == {CLOUDS: ()}, "one without a class has nothing to run"
    assert {type for types in artefacts().values() for type in types} == built()


def test_an_accounts_key_says_its_type_and_project() -> None:
    assert not any("-" in type for type in BACKENDS)
    for type, project_id in (("aws", "6c8d2a54-1111-4222-8333-abcdefabcdef"), ("dstack", None)):
        assert type_and_project(account_key(type, project_id)) == (type, project_id or "all")
