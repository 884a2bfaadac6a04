"""Calls to Lambda's API, within the limits of an account: one call a second, and one launch in twelve.

Lambda doesn't say whether several calls at once are allowed after a pause. So what a creation looks up is kept for some
seconds: if its last call is refused as too early, the repeated creation begins with that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.errors import Kind
from chalicelib.backends.kit.limits import bucket_of
from chalicelib.backends.kit.rest import RestClient, Sender, at, bearer
from chalicelib.backends.lambda_cloud.errors import NO_OBJECT, TABLE, WRONG_VALUE, failure_of
from chalicelib.errors import NotYet, Transient, Unfit

Body = Mapping[str, Any]
Meanings = Mapping[str | int, Kind]
BASE = "https://cloud.lambda.ai/api/v1"
RATE, BURST = 1.0, 4  # calls a second; the burst is for a creation: types, keys, instances, the launch
LAUNCH_EVERY = 12.0  # seconds
READ, LAUNCH = 15.0, 30.0  # seconds
# That there is no list says nothing of machines.
NO_LIST: Meanings = {NO_OBJECT: Transient, 404: Transient, 410: Transient}


class LambdaClient:
    def __init__(
        self,
        key: str,
        now: Now = system_time,
        *,
        send: Sender | None = None,
        burst: int = BURST,
        launches: int = 1,
        endpoint: str = "",
    ) -> None:
        """`launches`: at once after a pause."""
        self._launches = bucket_of("Lambda", key, 1 / LAUNCH_EVERY, launches, now, "launches")
        self._rest = RestClient(
            at(endpoint, BASE),
            TABLE,
            bearer(key),
            secrets=[key],
            bucket=bucket_of("Lambda", key, RATE, burst, now),
            send=send,
            failure_of=failure_of,
            now=now,
        )

    def instance_types(self) -> Mapping[str, Body]:
        found: Mapping[str, Body] = self._list("instance-types")
        return found

    def regions(self) -> Sequence[str]:
        return [str(each["name"]) for each in self._list("regions")]

    def key_names(self) -> set[str]:
        return {str(each["name"]) for each in self._list("ssh-keys")}

    def add_key(self, name: str, public_key: str) -> None:
        body = {"name": name, "public_key": public_key}
        self._rest.call("POST", "ssh-keys", body=body, deadline=READ)

    def instances(self) -> Sequence[Body]:
        """All of the account, whoever's they are. The list has no pages."""
        return list(self._list("instances"))

    def instance(self, id: str) -> Body:
        """Raises Gone if there is none."""
        found: Body = self._rest.call("GET", "instances", id, deadline=READ)["data"]
        return found

    def launch(self, body: Body, region: str, secrets: Sequence[str]) -> Sequence[str]:
        """The ids of what it created, if the answer has any."""
        answer = self._rest.call(
            "POST",
            "instance-operations",
            "launch",
            body=body,
            region=region,
            secrets=secrets,
            meanings={NO_OBJECT: Unfit, 404: Unfit},
            buckets=[self._launches],
            deadline=LAUNCH,
        )
        made = answer["data"].get("instance_ids") if isinstance(answer["data"], Mapping) else None
        return [str(each) for each in made or ()]

    def terminate(self, id: str) -> None:
        """Raises Gone if there is none, and NotYet if Lambda doesn't do it now."""
        body = {"instance_ids": [id]}
        meanings: Meanings = {WRONG_VALUE: NotYet, 400: NotYet, 409: NotYet}
        self._rest.call("POST", "instance-operations", "terminate", body=body, meanings=meanings, deadline=READ)

    def _list(self, name: str) -> Any:
        return self._rest.call("GET", name, meanings=NO_LIST, deadline=READ)["data"]

    def close(self) -> None:
        self._rest.close()
