"""SCIM's resources as they are answered (RFC 7643): their keys are SCIM's. They have names of their own and are
imported by themselves."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict


class Meta(TypedDict):
    resourceType: Literal["User", "Group"]
    created: str
    location: str


class Name(TypedDict):
    givenName: str
    familyName: str
    formatted: str


class Email(TypedDict):
    value: str
    type: Literal["work"]
    primary: Literal[True]


class ScimUser(TypedDict):
    schemas: list[str]
    id: str
    externalId: NotRequired[str]
    userName: str
    name: NotRequired[Name]
    displayName: NotRequired[str]
    emails: NotRequired[list[Email]]
    active: bool
    meta: Meta


class GroupMember(TypedDict):
    value: str
    type: Literal["User"]


class ScimGroup(TypedDict):
    schemas: list[str]
    id: str
    externalId: NotRequired[str]
    displayName: str
    members: list[GroupMember]
    meta: Meta


class Listed(TypedDict):
    schemas: list[str]
    totalResults: int
    startIndex: int
    """Of the first one listed; the first of all is 1."""
    itemsPerPage: int
    Resources: list[Any]


class Error(TypedDict):
    schemas: list[str]
    status: str
    detail: str
    scimType: NotRequired[str]
