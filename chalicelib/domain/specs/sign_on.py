"""Rules for signing on with accounts at an OpenID Connect provider, and the rights that their groups give."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from chalicelib.domain import names
from chalicelib.domain.specs.credentials import Confidential, Secret, Text
from chalicelib.domain.specs.quantities import Duration
from chalicelib.domain.specs.reading import Spec, fault, faults
from chalicelib.domain.tenants import ProjectRole

DAY = 86_400  # seconds
_ANYBODYS = ("accounts.google.com", "login.microsoftonline.com", "gitlab.com", "appleid.apple.com")
_TENANTLESS = ("common", "consumers", "organizations")  # of Microsoft's issuers


def _issuer(url: str) -> str:
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if (parts.scheme != "https" and not (parts.scheme == "http" and local)) or not parts.hostname:
        raise fault("invalid-value", f"`{url[:80]}` isn't an https address", "for example `https://login.example.com`")
    if parts.query or parts.fragment:
        raise fault("invalid-value", "an issuer has no query", f"write `{url.partition('?')[0].partition('#')[0]}`")
    return url


def _redirect(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.fragment:
        raise fault(
            "invalid-value", f"`{url[:80]}` isn't the address of a page", "for example `https://c.example.com/in`"
        )
    return url


def _name(name: str) -> str:
    if wrong := names.problem(name, "provider"):
        raise fault("invalid-name", *wrong)
    return name


def _session(seconds: int) -> int:
    if not 60 <= seconds <= 365 * DAY:
        raise fault("invalid-duration", f"a sign-on lasts a minute to a year, not {seconds} s", "for example `7d`")
    return seconds


class GroupProject(Spec):
    """What a group may do in a project."""

    name: Text = Field(description="The project.")
    role: ProjectRole = Field(default=ProjectRole.user, description="`user`, `manager` or `admin`.")


class SignOnGroup(Spec):
    """What the members of a group at the provider are here."""

    name: Text = Field(description="The group, as the provider names it.")
    admin: bool = Field(default=False, description="Global admins.")
    projects: tuple[GroupProject, ...] = Field(default=(), description="Members of these projects.")


class SignOnProvider(Confidential):
    """A provider of accounts."""

    name: Annotated[str, AfterValidator(_name)] = Field(description="What people choose it by.")
    issuer: Annotated[str, AfterValidator(_issuer)] = Field(
        description="Its address, without `/.well-known/openid-configuration`."
    )
    client_id: Text = Field(description="What the provider calls this control plane.")
    client_secret: Secret | None = Field(default=None, description="The client's secret, if it was given one.")
    redirect_url: Annotated[str, AfterValidator(_redirect)] | None = Field(
        default=None, description="Where the provider sends browsers, if it allows one address only."
    )
    scopes: tuple[Text, ...] = Field(default=("openid", "profile", "email"), description="What is asked for.")
    username_claim: Text = Field(default="preferred_username", description="The claim that names the user.")
    groups_claim: Text = Field(default="groups", description="The claim that lists the user's groups.")
    email_domains: tuple[Text, ...] = Field(
        default=(), description="Only accounts with a verified e-mail address of these domains."
    )
    groups: tuple[SignOnGroup, ...] = Field(default=(), description="What groups at the provider are here.")
    only_groups: bool = Field(default=False, description="Only members of one of `groups` may sign on.")
    existing_users: Literal["refuse", "email"] = Field(
        default="refuse",
        description="`email`: a verified e-mail address takes over the user with that address; `refuse`: never.",
    )
    external_id_claim: Text | None = Field(
        default=None, description="The claim with what a directory sends as `externalId` by SCIM: `sub`, or `oid`."
    )
    session: Annotated[Duration, AfterValidator(_session)] = Field(
        default=7 * DAY, description="How long a sign-on lasts."
    )

    @model_validator(mode="after")
    def _closed(self) -> SignOnProvider:
        found = []
        if "openid" not in self.scopes:
            found.append(("missing", "OpenID Connect needs the scope `openid`", "add it", "scopes"))
        host, path = urlsplit(self.issuer).hostname, urlsplit(self.issuer).path.strip("/").split("/")
        anybody = host in _ANYBODYS and (host != "login.microsoftonline.com" or path[0] in _TENANTLESS)
        if anybody and not self.email_domains and not self.only_groups:
            message = f"anybody can have an account at {host}, so anybody could sign on"
            found.append(("missing", message, "add `email_domains: [example.com]`", "email_domains"))
        if self.only_groups and not self.groups:
            found.append(("missing", "`only_groups` needs `groups`", "list the groups that may sign on", "groups"))
        seen = [group.name for group in self.groups]
        for place, name in enumerate(seen):
            if name in seen[:place]:
                found.append(
                    ("duplicate", f"the group `{name[:60]}` appears twice", "keep one of the two", f"groups.{place}")
                )
        if found:
            raise faults(found)
        return self
