"""Requests, tokens, errors, listings in pages, and operations that go on after the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from chalicelib.domain.instants import HOUR, MINUTE, SECOND, Micros, iso
from tests.backends.fakes.books import Books, Resource, Step
from tests.backends.fakes.schema import Api, Problem
from tests.backends.fakes.script import Answer, Call, Rate, Script
from tests.backends.fakes.server import Refusal, Request, Why, answers

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
TENANT = "99999999-8888-7777-6666-555555555555"
CLIENT, SECRET = "app-0123456789", "never-shown/s3cr3t~of-the-app"
HOST = "management.azure.com"
TOKEN_LASTS = HOUR
MOST_TAGS = 50
OPERATION = "/subscriptions/{subscriptionId}/providers/Microsoft.Compute/locations/{location}/operations/{operationId}"
PAGED = "$skiptoken"


def api() -> Api:
    """The three documents as one: names of schemas tell theirs. Errors have one form everywhere (`error`)."""
    merged: dict[str, Any] = {"source": "", "operations": {}, "schemas": {}}
    for part in ("compute", "network", "resources"):
        text = Path(__file__).with_name(f"{part}.json").read_text(encoding="utf-8")
        document = json.loads(text.replace('"#/schemas/', f'"#/schemas/{part}.'))
        merged["operations"] |= document["operations"]
        merged["schemas"] |= {f"{part}.{name}": each for name, each in document["schemas"].items()}
    for operation in merged["operations"].values():
        operation["responses"].pop("default", None)
        if "value" in operation["responses"].get("200", {}).get("properties", {}):
            operation["parameters"].append({"name": PAGED, "in": "query", "schema": {"type": "string"}})
    version = {"name": "api-version", "in": "query", "required": True, "schema": {}}
    followed = {"method": "GET", "path": OPERATION, "parameters": [version], "responses": {"200": {"type": "object"}}}
    merged["operations"]["Operations_get"] = followed
    return Api(merged)


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Refusal:
    return Refusal(status, {"error": {"code": code, "message": message}}, headers)


class Part:
    """What the parts of the fake share."""

    books: Books
    script: Script
    now: Callable[[], Micros]
    page: Callable[..., tuple[list[Resource], str]]
    clings: frozenset[str] = frozenset()  # of a machine's parts, those that name it when it is gone

    def add(self, kind: str, path: str, *steps: Step, lag: Micros = 0, counts: Any = None, **facts: Any) -> Resource:
        return self.books.add(kind, *steps, lag=lag, counts=counts, path=path, **facts)

    def existing(self, kind: str, path: str) -> Resource | None:
        """In whatever case Azure is asked."""
        wanted = path.lower()
        return next((each for each in self.books.existing(kind) if each.facts["path"].lower() == wanted), None)

    def found(self, kind: str, path: str) -> Resource:
        made = self.existing(kind, path)
        if made is None:
            self.in_group(path)
            raise error(404, "ResourceNotFound", f"The Resource '{path.partition('/providers/')[2]}' was not found.")
        return made

    def in_group(self, path: str) -> Resource:
        """The resource group of that path."""
        group = "/".join(path.split("/")[:5])
        made = self.existing("group", group)
        if made is None:
            raise error(404, "ResourceGroupNotFound", f"Resource group '{group.split('/')[-1]}' could not be found.")
        return made

    def open_group(self, path: str) -> Resource:
        """For a creation."""
        group = self.in_group(path)
        if group.state(self.now()) == "Deleting":
            raise error(409, "ResourceGroupBeingDeleted", "The resource group is in deprovisioning state.")
        return group

    def listing(self, call: Call, found: Iterable[Resource], shown: Callable[[Resource], Any], size: int = 50) -> Any:
        page, more = self.page(call, found, size, PAGED)
        return {"value": [shown(each) for each in page], **({"nextLink": link(call, {PAGED: more})} if more else {})}

    def operation(self, call: Call, takes: Micros, failure: Any = None) -> dict[str, str]:
        """The headers that name it."""
        end = "Failed" if failure else "Succeeded"
        made = self.books.add("operation", (0, "InProgress"), (takes, end), failure=failure)
        path = OPERATION.format(subscriptionId=SUBSCRIPTION, location="westeurope", operationId=made.id)
        url = f"{origin(call.headers)}{path}?api-version=2026-04-01"
        return {"azure-asyncoperation": url, "retry-after": "0"}

    @answers("Operations_get")
    def _operation(self, call: Call) -> Any:
        made = self.books.find("operation", call.path["operationId"])
        if made is None:
            raise error(404, "NotFound", "there is no such operation")
        state = made.state(self.now())
        times = {"startTime": iso(made.born), **({} if state == "InProgress" else {"endTime": iso(self.now())})}
        failed = {"error": made.facts["failure"]} if state == "Failed" else {}
        return {"name": made.id, "status": state, **times, **failed}  # with a 200, even if it has failed

    def check_tags(self, body: Any) -> None:
        tags = body.get("tags") or {}
        if len({key.lower() for key in tags}) != len(tags) or len(tags) > MOST_TAGS:
            raise error(400, "InvalidTagNameValuePairs", f"{len(tags)} tags, or two of one name")
        for key, value in tags.items():
            if not 0 < len(key) <= 512 or set(key) & set("<>&\\%?/") or len(value) > 256:
                raise error(400, "InvalidTagNameCharacters", f"the tag {key} can't be set")


class Arm(Part):
    """Mixed into a fake."""

    calls: list[Call]

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)  # type: ignore[call-arg]
        self.tokens: dict[str, Micros] = {}  # and until when each is good
        self.exchanges: list[Mapping[str, str]] = []
        self.revoked = False
        self.federated = "a-signed-assertion"
        self.metadata = False  # is there a managed identity?
        # By machine, refilled within a minute: Azure's smallest.
        self.own: dict[str, dict[str, Rate]] = {}

    # --- tokens ------------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer:
        url = urlsplit(request.target)
        if url.path.endswith("/oauth2/v2.0/token"):
            form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
            return self._exchanged(url.path.split("/")[1], form)
        if url.path == "/metadata/identity/oauth2/token":
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            return self._of_metadata(request, query)
        return super().answer(request)  # type: ignore[misc, no-any-return]

    def _exchanged(self, tenant: str, form: Mapping[str, str]) -> Answer:
        self.exchanges.append(form)
        if tenant != TENANT:
            return _login_error("invalid_request", "AADSTS90002: Tenant was not found.")
        if form.get("client_id") != CLIENT:
            return _login_error("unauthorized_client", "AADSTS700016: Application was not found.")
        if (
            form.get("scope") != "https://management.azure.com/.default"
            or form.get("grant_type") != "client_credentials"
        ):
            return _login_error("invalid_scope", "AADSTS70011: the scope isn't valid")
        if "client_secret" in form:
            if form["client_secret"] != SECRET:
                text = f"AADSTS7000215: Invalid client secret provided: {form['client_secret']}.\r\nTrace ID: 1"
                return _login_error("invalid_client", text)
        elif form.get("client_assertion") != self.federated or "client_assertion_type" not in form:
            return _login_error(
                "invalid_client", "AADSTS700024: AzureClient assertion is not within its valid time range."
            )
        return Answer(200, {"token_type": "Bearer", "expires_in": TOKEN_LASTS // SECOND, "access_token": self._token()})

    def _of_metadata(self, request: Request, query: Mapping[str, str]) -> Answer:
        self.exchanges.append(query)
        if request.headers.get("metadata") != "true" or query.get("api-version") != "2018-02-01":
            return Answer(
                400, {"error": "bad_request_102", "error_description": "Required metadata header not specified"}
            )
        if not self.metadata or query.get("resource") != "https://management.azure.com":
            return Answer(400, {"error": "invalid_request", "error_description": "Identity not found"})
        lasts = str(TOKEN_LASTS // SECOND)  # a text there
        return Answer(200, {"token_type": "Bearer", "expires_in": lasts, "access_token": self._token()})

    def _token(self) -> str:
        token = f"token-{len(self.tokens)}-of-{self.now()}"
        self.tokens[token] = self.now() + TOKEN_LASTS
        return token

    def authenticate(self, request: Request) -> None:
        if request.target.startswith("/api/retail/prices"):
            return
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens.get(token, 0) <= self.now() or self.revoked:
            raise error(401, "ExpiredAuthenticationToken", "The access token expiry UTC time is in the past.")

    # --- requests ----------------------------------------------------------------------------------------------------

    def _called(self, call: Call) -> Answer:
        call.query.get("api-version")
        if call.path.get("subscriptionId", SUBSCRIPTION) != SUBSCRIPTION:
            raise error(404, "SubscriptionNotFound", "The subscription could not be found.")
        self.allow(call)
        if name := call.path.get("vmName"):
            self._throttle(name.lower(), "get" if call.operation.method == "GET" else "write")
        return super()._called(call)  # type: ignore[misc, no-any-return]

    def allow(self, call: Call) -> None:
        """Refuses what no role of the login allows."""

    def _throttle(self, name: str, kind: str) -> None:
        rates = self.own.setdefault(name, {"get": Rate(36, 3 * MINUTE), "write": Rate(12, 3 * MINUTE)})
        if wait := rates[kind].wait(self.now()):
            raise error(
                429, "TooManyRequests", "too many requests for this machine", {"retry-after": str(int(wait) + 1)}
            )

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        if why == "throttled":
            return error(429, "TooManyRequests", message, {"retry-after": str(int(wait) + 1)})
        if why == "no-route":
            return error(404, "InvalidResourceType", message)
        return error(400, "InvalidRequestContent", message)

    def tolerates(self, problem: Problem) -> bool:
        """Read-only fields are passed over, as they come back from what was read before."""
        return problem.kind == "read-only"


def origin(headers: Mapping[str, str]) -> str:
    host = headers.get("host", HOST)
    return f"http://{host}" if host.startswith("127.") else f"https://{host}"


def link(call: Call, more: Mapping[str, str]) -> str:
    path = call.operation.path
    for name, value in call.path.items():
        path = path.replace(f"{{{name}}}", value)
    query = {name: value for name, value in call.query.items() if name not in more}
    return f"{origin(call.headers)}{path}?{urlencode({**query, **more})}"


def path_of(call: Call) -> str:
    """As the resource's id has it."""
    path = call.operation.path
    for name, value in call.path.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def _login_error(code: str, text: str) -> Answer:
    return Answer(400 if code != "invalid_client" else 401, {"error": code, "error_description": text})


__all__ = ["Arm", "Part", "api", "error", "link", "path_of"]
