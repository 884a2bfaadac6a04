"""A whole control plane in this process, on the world's time: a root, a simulated cloud, machines with agents.

Nothing runs by itself here. The world's time does what threads, queues and schedules would do, one thing at a time, so
that a minute costs nothing and every run of a story is the same. `embedded.py` and `aws.py` are the two sites.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Script, read_script
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import SECOND
from chalicelib.errors import Forbidden, Transient
from chalicelib.runtime.root import Root
from tests.world import wires
from tests.world.hosts import Hosts, Network
from tests.world.shell import Shell
from tests.world.time import Time

ADMIN = "admin-token"
HOP = 0.01  # seconds from a wake-up or an effect to its consequence
SELLS_CONTAINERS = "runpod"  # a cloud of this name has some, in a region of its own
QUICK = Script(boot=SECOND // 2, end=SECOND // 2)

Answer = tuple[int, bytes]


class Site:
    """What both sites have. `request` stands for HTTP."""

    url = "http://127.0.0.1:30000"
    long_poll: bool

    def __init__(self, name: str, cloud: str = FACTS.name) -> None:
        """`cloud`: what its simulated one is called."""
        self.name = name  # ids come from it: two sites with one name would confuse theirs
        self._ids = 0
        self._surround(cloud)

    def _surround(self, cloud: str) -> None:
        """Make what is around the control plane."""
        self.time = Time()
        self.script = QUICK
        self.network = Network(self.time, self._sync, long_poll=self.long_poll)
        self.hosts = Hosts(self.time, self.network, Shell())
        facts = FACTS.with_(name=cloud, containers=cloud == SELLS_CONTAINERS)
        self.cloud = FakeCloud(self.time.now, launcher=self.hosts, script=lambda: self.script, facts=facts)

    def written(self) -> int | None:
        """How often something was: until the next time, an answer stays the same. None: nobody counts."""
        return None

    def behave(self, script: str) -> None:
        """How the cloud behaves from now on."""
        self.script = read_script(script.encode(), QUICK)

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        raise NotImplementedError

    @property
    def via(self) -> Callable[[Any], wires.Wire]:
        """How clients reach it."""
        return wires.to(self.url, self.request)

    def call(self, path: str, body: Any = None) -> Any:
        """What the admin sees at start."""
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        status, answer = self.request("POST", path, headers, b"" if body is None else json.dumps(body).encode())
        assert status == 200, (path, status, answer)
        return json.loads(answer or b"null")

    def _sync(self, instance_id: str, credential: str, body: bytes) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
        status, answer = self.request("POST", "/agent/sync", headers, body)
        if status in (401, 403):
            raise Forbidden(answer.decode())
        if status != 200:
            raise Transient(answer.decode())
        found: dict[str, Any] = json.loads(answer)
        return found

    def _here(self, root: Root, **ports: Any) -> Root:
        """The same root with this site's cloud, and with ids that are the same in every run."""
        backends = Accounts([Account.of(self.cloud)])
        return Root(replace(root.ports, backends=backends, random_id=self._id, random_token=self._id, **ports))

    def _id(self) -> str:
        self._ids += 1
        return derive(type(self).__name__, self.name, self._ids)

    def close(self) -> None:
        raise NotImplementedError
