"""Addresses in the web console, which is at the server's own address, and opening them in a browser.

Everything behind `#` is the page's own: the server never sees it. A page is opened with a code that signs it in, once
and within a minute; what is printed, and may be sent to others, has none.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from cli.connection import calls
from cli.connection.client import Client
from cli.connection.server_values import token, web_address
from cli.screen.terminal import Terminal


def page(client: Client, *parts: str, **query: str) -> str:
    """The address of a page about the client's project: `page(client, "runs", "train", tab="logs")`."""
    place = "/".join(quote(part, safe="") for part in (client.project, *parts))
    return f"{client.url}/#/{place}{f'?{urlencode(query)}' if query else ''}"


def signed_in(client: Client, address: str) -> str:
    """The address with which a browser comes to a page signed in."""
    code = token(calls.users_sign_in_codes_create(client)["code"])
    return f"{client.url}/#{urlencode({'code': code, 'to': address.partition('#')[2]})}"


def mention(here: Terminal, client: Client, *parts: str, opened: bool) -> None:
    """After something was applied: its page for people who look at the screen, or opened if they asked for it."""
    if opened:
        show(here, client, *parts)
    elif here.watched:
        here.dim(f"In the console: {page(client, *parts)}")


def show(here: Terminal, client: Client, *parts: str, **query: str) -> None:
    """Prints the address of a page, and opens it: what `--web` does."""
    address = page(client, *parts, **query)
    here.print(address)
    here.browse(web_address(signed_in(client, address)))
