"""Rules for programs that sign on with a token of the place where they run, such as a CI job, and store none."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from chalicelib.domain import names
from chalicelib.domain.access_tokens import Verb
from chalicelib.domain.specs.credentials import Text
from chalicelib.domain.specs.quantities import Duration
from chalicelib.domain.specs.reading import Spec, fault, faults

HOUR = 3_600  # seconds
ANY = "*"
# Issuers that sign for everybody's jobs, and the claims of which one names whose job it is. Ids never change hands.
OWNERS = {
    "token.actions.githubusercontent.com": ("repository_owner_id", "repository_owner", "repository_id", "repository"),
    "gitlab.com": ("namespace_id", "namespace_path", "project_id", "project_path"),
    "agent.buildkite.com": ("organization_id", "organization_slug", "pipeline_id"),
    "app.terraform.io": ("terraform_organization_id", "terraform_organization_name"),
    "accounts.google.com": ("email", "hd"),
}
_OWNED = {  # a `sub` that names whose job it is
    "token.actions.githubusercontent.com": (re.compile(r"repo:[^/*]+/.*"), "repo:OWNER/REPOSITORY:*"),
    "gitlab.com": (re.compile(r"project_path:[^/*]+/.*"), "project_path:GROUP/PROJECT:*"),
    "agent.buildkite.com": (re.compile(r"organization:[^:*]+:.*"), "organization:NAME:*"),
    "app.terraform.io": (re.compile(r"organization:[^:*]+:.*"), "organization:NAME:*"),
    "accounts.google.com": (re.compile(r"\d+"), "NUMBER OF A SERVICE ACCOUNT"),
}


def _https(url: str) -> str:
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or parts.query or parts.fragment or (parts.scheme != "https" and not local):
        raise fault("invalid-value", f"`{url[:80]}` isn't an https address", "for example `https://ci.example.com`")
    return url


def _name(name: str) -> str:
    if wrong := names.problem(name, "workload"):
        raise fault("invalid-name", *wrong)
    return name


def _lifetime(seconds: int) -> int:
    if not 60 <= seconds <= HOUR:
        raise fault("invalid-duration", f"such a token lasts a minute to an hour, not {seconds} s", "for example `15m`")
    return seconds


def _conditions(claims: dict[str, str]) -> dict[str, str]:
    found = []
    for claim, wanted in claims.items():
        if claim in ("iss", "aud", "exp", "nbf", "iat", "jti"):
            found.append(("invalid-value", f"`{claim}` is checked anyway", "delete the line", claim))
        elif wanted in ("", ANY):
            found.append(("invalid-value", "every token would meet this condition", "write what it has to be", claim))
        elif ANY in wanted[:-1]:
            hint = f"for example `{wanted.partition(ANY)[0][:60]}*`"
            found.append(("invalid-value", "`*` may only be at the end", hint, claim))
        elif wanted.endswith(ANY) and claim != "sub":
            found.append(("invalid-value", f"only `sub` may end in `*`; `{claim}` is compared whole", "", claim))
    if found:
        raise faults(found)
    return claims


class Workload(Spec):
    """Whose programs may sign on, and what they may do."""

    name: Annotated[str, AfterValidator(_name)] = Field(description="What the history calls it.")
    issuer: Annotated[str, AfterValidator(_https)] = Field(
        description="Who signs the programs' tokens, without `/.well-known/openid-configuration`."
    )
    audience: Text = Field(description="For whom the tokens must be made: an address of this control plane.")
    claims: Annotated[dict[str, Text], AfterValidator(_conditions)] = Field(
        min_length=1,
        max_length=20,
        description="What a token must say, by claim: exactly this or, of `sub` with a `*` at the end, what begins so.",
    )
    user: Text = Field(description="The user in whose name they act: best one of their own.")
    projects: tuple[Text, ...] = Field(min_length=1, max_length=10, description="The projects that they may use.")
    verbs: tuple[Verb, ...] = Field(min_length=1, description="What they may do: `read`, `run`, `fleets`, `project`.")
    lifetime: Annotated[Duration, AfterValidator(_lifetime)] = Field(
        default=15 * 60, description="How long they may do it, at most an hour."
    )
    dollars_a_day: Annotated[float, Field(ge=0.01, le=1e9, allow_inf_nan=False)] | None = Field(
        default=None, description="What the runs of all of them together may cost a day (UTC)."
    )

    @model_validator(mode="after")
    def _somebodys(self) -> Workload:
        host = urlsplit(self.issuer).hostname or ""
        if Verb.server in self.verbs:
            raise faults([("invalid-value", "`server` is about no project", "leave it out", "verbs")])
        if self.dollars_a_day is not None and Verb.run not in self.verbs:
            message = "dollars a day are what their runs may cost, and they may submit none"
            raise faults([("invalid-value", message, "add the verb `run`, or leave it out", "dollars_a_day")])
        if host in OWNERS and not self._owned(host):
            pattern = _OWNED[host][1]
            message = f"{host} signs for everybody, and nothing here says whose job it is, so anybody could sign on"
            raise faults([("missing", message, f"add `sub: {pattern}` or `{OWNERS[host][0]}: …`", "claims")])
        return self

    def _owned(self, host: str) -> bool:
        by_claim = any(claim in self.claims for claim in OWNERS[host])
        return by_claim or bool(_OWNED[host][0].fullmatch(self.claims.get("sub", "")))
