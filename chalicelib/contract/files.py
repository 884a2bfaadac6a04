"""Uploaded archives and repositories."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from chalicelib.contract.values import Id


class Archive(TypedDict):
    id: Id
    hash: str


class Repo(TypedDict):
    repo_id: str
    repo_info: dict[str, Any]
    """As the client described it."""


class RepoCreds(TypedDict):
    clone_url: str
    private_key: str | None
    oauth_token: str | None


class RepoWithCreds(Repo):
    repo_creds: RepoCreds | None
    """The caller's own. An access token never gets them."""
    has_creds: bool
    """Has the caller stored some?"""
