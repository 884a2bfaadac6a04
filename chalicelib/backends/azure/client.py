"""Calls to Azure's API, and to its price list, which wants no login.

Each type of resource has versions of its own, which the path tells. Azure throttles a login by region with token
buckets, reads and writes apart; ours are as large as its smallest, and stop for as long as it says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import parse_qs, urlsplit

from chalicelib.backends.azure.config import AzureBackendConfig, AzureClientCreds
from chalicelib.backends.azure.errors import TABLE, failure_of
from chalicelib.backends.azure.facts import FACTS
from chalicelib.backends.azure.login import RESOURCE, AzureLogin
from chalicelib.backends.azure.places import GROUP, TYPES, VERSIONS, Body, Ids, tags_of
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.limits import bucket_of
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.rest import CallOptions, HttpSender, RestClient, Sender, at
from chalicelib.backends.kit.visibility import if_there
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import AlreadyThere, Gone, InvalidCredentials, Transient

PRICES = "https://prices.azure.com"
DEADLINE = 60.0  # seconds
LATEST: Micros = FACTS.create_timeout // 2 - round(DEADLINE * SECOND)  # in a step, for a call that buys something
READS, WRITES = (25.0, 250), (10.0, 200)  # a second in the long run, and at once


class AzureClient:
    def __init__(
        self,
        config: AzureBackendConfig,
        now: Now = system_time,
        *,
        send: Sender | None = None,
        env: Mapping[str, str] = os.environ,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for the provider."""
        self.config = config
        self.ids = Ids(config.subscription_id, config.resource_group or GROUP)
        self._sender = send or HttpSender()
        self._login = AzureLogin(config, now, self._sender, env, endpoint)
        self._rest = RestClient(
            at(endpoint, RESOURCE),
            TABLE,
            self._login,
            secrets=self._login.secrets,
            send=self._sender,
            failure_of=failure_of,
            now=now,
        )
        self._prices = RestClient(at(endpoint, PRICES), TABLE, lambda _: {}, send=self._sender, now=now)
        login = config.creds.client_id if isinstance(config.creds, AzureClientCreds) else "default"
        account = f"{config.subscription_id}/{login}"  # Azure counts the calls of each login in a subscription
        self._reads = bucket_of("Azure", account, *READS, now, "reads")
        self._writes = bucket_of("Azure", account, *WRITES, now, "writes")

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """`path`: of the resource, as its id has it."""
        version = next(version for part, version in VERSIONS.items() if part in path.lower())
        try:
            return self._rest.call(
                method,
                *path.strip("/").split("/"),
                query={"api-version": version, **(query or {})},
                buckets=(self._reads if method == "GET" else self._writes,),
                deadline=DEADLINE,
                **options,
            )
        except InvalidCredentials:
            self._login.forget()
            raise

    def put(self, path: str, body: Mapping[str, Any], region: str) -> Body:
        """What is created or changed, as it is then."""
        made: Body = self.call("PUT", path, body=body, region=region)
        return made

    def find_ours(self, path: str, what: str, tags: Iterable[tuple[str, str]]) -> Body | None:
        """The resource with these tags; None: there is none. Its name is there once."""
        found = self.find(path)
        if found is not None and set(tags) - tags_of(found).items():
            raise AlreadyThere(f"Azure has another {what}.")
        return found

    def find(self, path: str, query: Mapping[str, str] | None = None) -> Body | None:
        """None: there is no such resource."""
        return if_there(lambda: self.call("GET", path, query=query))

    def in_group(self, kind: str) -> Iterator[Body]:
        """All of a kind in the resource group; none if there is no such group."""
        try:
            yield from self.listed(self.ids.all_of(kind))
        except Gone as error:
            if error.provider_code != "ResourceGroupNotFound":
                raise Transient(f"Azure doesn't list {TYPES[kind]}: {error.message}") from error

    def listed(self, path: str, query: Mapping[str, str] | None = None, region: str = "") -> Iterator[Body]:
        def page(link: str) -> tuple[Sequence[Body], str]:
            answer = self._rest.follow(link, region=region) if link else self.call("GET", path, query=query)
            return answer["value"], (answer.get("nextLink") or "").replace(":443/", "/", 1)

        return pages(page)

    def prices(self, wanted: str) -> Iterator[Body]:
        """The rows of the price list that this filter selects, in US dollars."""

        def page(skip: str) -> tuple[Sequence[Body], str]:
            query = {"$filter": wanted, **({"$skip": skip} if skip else {})}
            answer = self._prices.call("GET", "api", "retail", "prices", query=query)
            link = answer.get("NextPageLink") or ""
            return answer["Items"], parse_qs(urlsplit(link).query).get("$skip", [""])[0]

        return pages(page)

    def close(self) -> None:
        if isinstance(self._sender, HttpSender):
            self._sender.close()
