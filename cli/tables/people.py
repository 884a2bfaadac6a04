"""The tables of users, their keys and tokens, and the members of a project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import age, local_time

if TYPE_CHECKING:
    from chalicelib import contract


def users_table(users: Sequence[contract.User], now: float) -> Table:
    table = Table(("NAME", "ROLE", "STATUS", "EMAIL", "CREATED"), below=("EMAIL",))
    for user in users:
        status = Cell("active", "good") if user["active"] else Cell("inactive", "dim")
        created = age(user["created_at"], now)
        table.add(Cell(user["username"], "bold"), user["global_role"], status, user["email"] or "", created)
    return table


def keys_table(keys: Sequence[contract.PublicKey], now: float) -> Table:
    table = Table(("NAME", "TYPE", "FINGERPRINT", "ADDED"), below=("FINGERPRINT",))
    for key in keys:
        table.add(Cell(key["name"], "bold"), key["type"], key["fingerprint"], age(key["added_at"], now))
    return table


def tokens_table(tokens: Sequence[contract.AccessToken], now: float) -> Table:
    limited = any(token["dollars_a_day"] is not None for token in tokens)
    columns = ("NAME", "VERBS", "PROJECTS", "CREATED", "EXPIRES", *(("SPENT TODAY",) if limited else ()))
    table = Table(columns, below=("PROJECTS",))
    for token in tokens:
        projects = ", ".join(token["projects"]) or "all"
        created, ends = age(token["created_at"], now), local_time(token["expires_at"])
        money = (_spent(token),) if limited else ()
        table.add(Cell(token["name"], "bold"), ", ".join(token["verbs"]), projects, created, ends, *money)
    return table


def scim_tokens_table(tokens: Sequence[contract.ScimToken], now: float) -> Table:
    table = Table(("NAME", "CREATED", "BY"))
    for token in tokens:
        table.add(Cell(token["name"], "bold"), age(token["created_at"], now), token["created_by"])
    return table


def _spent(token: contract.AccessToken) -> str:
    if token["dollars_a_day"] is None:
        return ""
    return f"${token['spent_today'] or 0:.2f} of ${token['dollars_a_day']:.2f}"


def members_table(members: Sequence[contract.Member]) -> Table:
    table = Table(("NAME", "ROLE", "GLOBAL ROLE", "STATUS", "EMAIL"), below=("EMAIL",))
    for member in members:
        user = member["user"]
        status = Cell("active", "good") if user["active"] else Cell("inactive", "dim")
        table.add(
            Cell(user["username"], "bold"), member["project_role"], user["global_role"], status, user["email"] or ""
        )
    return table
