"""moto's part of one account, which is asked only what no account with the same past has been asked in this process.

An answer of moto costs several milliseconds, and most tests begin with the same calls. So moto is made to answer alike:
its identifiers are drawn anew for each call, from a seed that follows from all that has changed the account before. An
answer is remembered by this past, and moto itself is told of changes only when there is something new to ask.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

from tests.backends.aws.wire import Call, Params, Refusal, call_moto

SOMEBODY = b"0" * 12  # stands for the account in what is remembered
READS = ("Describe", "Get", "List")
_ANSWERS: dict[bytes, bytes] = {}
_ASKING = threading.Lock()  # moto's generator of identifiers is one for the whole process


class Moto:
    def __init__(self, account: str) -> None:
        self._id = account
        self._past: dict[str, bytes] = {}  # by region; `""`: of services that have none, such as IAM
        self._untold: list[tuple[bytes, str, Callable[[], object]]] = []  # changes that moto hasn't heard of
        self._touched: set[str] = set()

    def call(self, call: Call) -> Params:
        """Raises a Refusal, as moto does."""
        asked = repr((call.service, call.operation, call.params, call.key))
        place = call.region if call.service == "ec2" else ""
        changes = None if call.operation.startswith(READS) or call.params.get("DryRun") else place
        found: Params = self._answer(asked, call.region, lambda: call_moto(call, self._id), changes)
        assert not call.params.get("DryRun"), f"{call.operation} was to be rehearsed, and moto has done it"
        return found

    def read(self, what: str, region: str, read: Callable[[Any], Any]) -> Any:
        """Of what moto keeps there, without the wire. `what` names it."""
        return self._answer(what, region, lambda: read(self._kept(region)))

    def change(self, what: str, region: str, change: Callable[[Any], None]) -> None:
        self._answer(what, region, lambda: change(self._kept(region)), region)

    def region(self, region: str) -> Any:
        """What moto keeps there."""
        with _ASKING:
            self._catch_up()
            self._touch(region)
            return self._kept(region)

    def forget(self) -> None:
        from moto.core.base_backend import BackendDict
        from moto.ec2.models import ec2_backends

        assert isinstance(ec2_backends, BackendDict)
        dict.pop(ec2_backends, self._id, None)

    def _answer(self, asked: str, region: str, ask: Callable[[], Any], changes: str | None = None) -> Any:
        """`changes`: the past that this belongs to from now on."""
        whole = f"{region} {asked}".replace(self._id, SOMEBODY.decode()).encode()
        key = hashlib.sha256(self._past.get("", b"") + self._past.get(region, b"") + whole).digest()
        known = _ANSWERS.get(key)
        if known is None:
            with _ASKING:
                self._catch_up()
                answer = self._asked(key, region, ask)
            _ANSWERS[key] = pickle.dumps(answer).replace(self._id.encode(), SOMEBODY)
        else:
            answer = pickle.loads(known.replace(SOMEBODY, self._id.encode()))
            if changes is not None:
                self._untold.append((key, region, ask))
        if changes is not None:
            self._past[changes] = key
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def _catch_up(self) -> None:
        for key, region, ask in self._untold:
            self._asked(key, region, ask)
        self._untold.clear()

    def _asked(self, key: bytes, region: str, ask: Callable[[], Any]) -> Any:
        from moto.moto_api._internal import mock_random

        self._touch(region)
        mock_random.seed(key)
        try:
            return ask()
        except Refusal as refusal:
            return refusal

    def _touch(self, region: str) -> None:
        """A region has its network from the first call on, whatever that is."""
        from moto.moto_api._internal import mock_random

        if region not in self._touched:
            self._touched.add(region)
            mock_random.seed(region)
            self._kept(region)

    def _kept(self, region: str) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends[self._id][region]
