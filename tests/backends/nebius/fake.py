"""Nebius: its API as its own descriptors have it, and how it answers.

`api.json` comes from the descriptors in its SDK (`descriptors`). What they don't say is here and beside: who is who,
what is sold, how long things take. It answers at each host for that host's services, if the caller says which host.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from chalicelib.domain.instants import HOUR, SECOND, Micros
from tests.backends.fakes.books import Resource
from tests.backends.fakes.schema import Api, Problem
from tests.backends.fakes.script import Call, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, answers
from tests.backends.nebius.compute import Compute, refusal
from tests.backends.nebius.shop import DEFAULT_PAGE, PLATFORMS, PROJECTS, Shop

ACCOUNT, KEY_ID = "serviceaccount-e00orchestrator", "publickey-e00first"
EXCHANGE = "nebius.iam.v1.TokenExchangeService.Exchange"
LIFE = 12 * HOUR  # of a token
MOST_PAGE = 1000


@cache
def private_key() -> str:
    """The service account's, in PEM form."""
    form = serialization.PrivateFormat.PKCS8
    return rsa_key().private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 1024)  # small, because every test loads it


class Nebius(Compute, Shop, Fake):
    api = Api.of(Path(__file__).with_name("api.json"))

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)
        self.projects, self.platforms = dict(PROJECTS), dict(PLATFORMS)
        self.boot, self.end = 30 * SECOND, 15 * SECOND
        self.short, self.stuck, self.parallel = set(), set(), 0
        self.keys, self.prices, self.advised = {}, {}, {}
        self.public_keys = {KEY_ID: rsa_key().public_key()}
        self.denied: set[str] = set()  # services that the account has no right to
        self.tokens: dict[str, Micros] = {}  # and until when each is good

    # --- who calls ---------------------------------------------------------------------------------------------------

    def authenticate(self, request: Request) -> None:
        service = request.target.strip("/").partition("/")[0].removeprefix("nebius.")
        if service == "iam.v1.TokenExchangeService":
            return
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.now() >= self.tokens.get(token, 0):
            raise refusal("UNAUTHENTICATED", f"the token {token} isn't good")
        if service in self.denied:
            raise refusal("PERMISSION_DENIED", "Permission denied", "permission_denied")

    @answers(EXCHANGE)
    def _exchange(self, call: Call) -> Any:
        body = call.body
        kinds = {"requested_token_type": "access_token", "subject_token_type": "jwt"}
        if any(body.get(name) != f"urn:ietf:params:oauth:token-type:{kind}" for name, kind in kinds.items()):
            raise refusal("INVALID_ARGUMENT", "unknown types of tokens")
        if body.get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange":
            raise refusal("INVALID_ARGUMENT", "unknown grant")
        self._check_signature(str(body.get("subject_token", "")))
        token = f"ne1{len(self.tokens):08d}{'t' * 40}"
        self.tokens[token] = self.now() + LIFE
        return {"access_token": token, "token_type": "Bearer", "expires_in": str(LIFE // SECOND)}

    def _check_signature(self, token: str) -> None:
        try:
            head, claims, signature = map(_decoded, token.split("."))
            told, who = json.loads(head), json.loads(claims)
            key = self.public_keys[told["kid"]]
            key.verify(signature, token.rpartition(".")[0].encode(), padding.PKCS1v15(), hashes.SHA256())
        except (ValueError, KeyError, InvalidSignature):
            raise refusal("UNAUTHENTICATED", "the signature isn't that of a known key") from None
        at = self.now() / SECOND
        wrong = told["alg"] != "RS256" or (who["iss"], who["sub"]) != (ACCOUNT, ACCOUNT)
        if wrong or not who["iat"] - 60 <= at < who["exp"] <= at + 600:
            raise refusal("UNAUTHENTICATED", "the claims aren't right")

    # --- what is wrong with a request --------------------------------------------------------------------------------

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        if why == "throttled":
            return refusal("RESOURCE_EXHAUSTED", message, "too_many_requests", violation="calls")
        if why == "no-route":
            return refusal("UNIMPLEMENTED", message)
        return refusal("INVALID_ARGUMENT", message, "bad_request", violations=[{"message": message}])

    def tolerates(self, problem: Problem) -> bool:
        """Whoever changes something sends back what was read."""
        return problem.kind == "read-only" and problem.where.startswith("body.metadata.")

    def _called(self, call: Call) -> Any:
        schema = self.api.schemas[call.operation.body["$ref"].rpartition("/")[2]] if call.operation.body else {}
        if wrong := sorted(self._rules_broken("", schema, call.body or {})):
            raise self.refused("invalid", "; ".join(wrong))
        return super()._called(call)

    def _rules_broken(self, where: str, schema: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
        """Rules of the descriptors that JSON Schema doesn't have: one of several fields, and ids of a kind."""
        taken: dict[str, str] = {}
        for name, value in body.items():
            field = schema.get("properties", {}).get(name, {})
            if group := field.get("x-oneof"):
                if group in taken:
                    yield f"{where}{name}: {taken[group]} is set, too"
                taken[group] = name
            for each in value if isinstance(value, list) else [value]:
                kinds = field.get("x-ids", ())
                if kinds and "*" not in kinds and each and not re.match(f"({'|'.join(kinds)})-", str(each)):
                    yield f"{where}{name}: {str(each)[:60]} isn't the id of a {kinds[0]}"
                inner = field.get("items", field).get("$ref", "").rpartition("/")[2]
                if inner and isinstance(each, dict):
                    yield from self._rules_broken(f"{where}{name}.", self.api.schemas[inner], each)

    def paged(self, call: Call, items: list[Any], key: str = "items") -> dict[str, Any]:
        """Page tokens are numbers of items here, and good for the same listing only."""
        body = call.body or {}
        size = min(int(body.get("page_size", 0)) or DEFAULT_PAGE, MOST_PAGE)
        size = min(size, self.script.page) if self.script.page else size
        listing = f"{call.operation.name} {body.get('parent_id', '')} {body.get('resource_id', '')}"
        first = 0
        if token := body.get("page_token"):
            of, _, number = base64.urlsafe_b64decode(token).decode().rpartition(" ")
            if of != listing:
                raise self.refused("invalid", "the page token is of another listing")
            first = int(number)
        rest = items[first:]
        found = {key: rest[:size]}
        if len(rest) > size:
            found["next_page_token"] = base64.urlsafe_b64encode(f"{listing} {first + size}".encode()).decode()
        return found

    # --- networks ----------------------------------------------------------------------------------------------------

    @answers("nebius.vpc.v1.SecurityGroupService.Get")
    def _get_group(self, call: Call) -> Any:
        return self._shown_group(self.books.find("group", call.body["id"]))

    @answers("nebius.vpc.v1.SecurityGroupService.GetByName")
    def _get_group_by_name(self, call: Call) -> Any:
        return self._shown_group(self._named("group", call.body["parent_id"], call.body["name"]))

    @answers("nebius.vpc.v1.SecurityGroupService.List")
    def _groups(self, call: Call) -> Any:
        found = [each for each in self.books.existing("group") if each.facts["parent"] == call.body["parent_id"]]
        return self.paged(call, [self._shown_group(each) for each in found])

    @answers("nebius.vpc.v1.SecurityGroupService.Create")
    def _create_group(self, call: Call) -> Any:
        given = call.body["metadata"]
        if call.body["spec"]["network_id"] != f"vpcnetwork-of-{given['parent_id']}":
            raise refusal("NOT_FOUND", "no such network", "resource_not_found")
        return self._made(call, "group", "vpcsecuritygroup-e00", self.projects)

    @answers("nebius.vpc.v1.SecurityRuleService.Create")
    def _create_rule(self, call: Call) -> Any:
        groups = {each.id for each in self.books.existing("group")}
        return self._made(call, "rule", "vpcsecurityrule-e00", groups)

    @answers("nebius.vpc.v1.SecurityRuleService.List")
    def _rules(self, call: Call) -> Any:
        found = [each for each in self.books.existing("rule") if each.facts["parent"] == call.body["parent_id"]]
        return self.paged(call, [{"metadata": self._metadata(each), "spec": each.facts["spec"]} for each in found])

    def _made(self, call: Call, kind: str, prefix: str, parents: Any) -> Any:
        if repeated := self._repeated(call):
            return repeated
        given = call.body["metadata"]
        if given["parent_id"] not in parents:
            raise refusal("NOT_FOUND", f"no {given['parent_id']}", "resource_not_found")
        if found := self._named(kind, given["parent_id"], given["name"]):
            raise refusal("ALREADY_EXISTS", "the name is taken", "resource_already_exists", resource_id=found.id)
        made = self.books.add(
            kind,
            (0, "READY"),
            prefix=prefix,
            parent=given["parent_id"],
            name=given["name"],
            labels=given.get("labels", {}),
            spec=call.body["spec"],
        )
        return self._operation(call, made.id, 0)

    def _shown_group(self, group: Resource | None) -> dict[str, Any]:
        if group is None:
            raise refusal("NOT_FOUND", "no such security group", "resource_not_found")
        return {"metadata": self._metadata(group), "spec": group.facts["spec"], "status": {"state": "READY"}}

    def open_to_the_world(self, vm: Resource) -> set[int]:
        """The ports of a machine that everybody reaches; -1: all of them, as in a network's own group."""
        given = vm.facts["spec"]["network_interfaces"][0].get("security_groups", ())
        rules = [each.facts for each in self.books.existing("rule")]
        open_ports: set[int] = set() if given else {-1}
        for rule in rules:
            ingress = rule["spec"].get("ingress", {})
            world = "0.0.0.0/0" in ingress.get("source_cidrs", ()) or ("ingress" in rule["spec"] and not ingress)
            if rule["parent"] in {each["id"] for each in given} and world:
                open_ports |= set(ingress.get("destination_ports") or [-1])
        return open_ports


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
