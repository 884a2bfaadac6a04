"""`runs/get_plan` where 100,000 offers are on sale: CPU of one request through the whole API, in this process."""

from __future__ import annotations

import gc
import itertools
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from chalicelib.api import dispatch
from chalicelib.backends.accounts import Account, Accounts
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.offers import Offer
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.root import Root
from chalicelib.runtime.server_file import declared
from chalicelib.runtime.settings import server_settings
from chalicelib.usecases.operator.first_start import first_start
from tests.bench.measure import cpu_ms, report, task
from tests.bench.offers import clouds

TOKEN = "bench-token"


@dataclass
class ListedBackend:
    """A backend as far as the catalog asks it."""

    facts: BackendFacts
    on_sale: list[Offer]

    def offers(self) -> list[Offer]:
        return self.on_sale


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = server_settings({}, data_dir=Path(folder) / "data", config_path=Path(folder) / "config.yml")
        settings.data_dir.mkdir()
        root = EmbeddedRoot(settings, declared(settings), "http://127.0.0.1")
        gc.freeze()  # both as `dstack server` has them
        gc.set_threshold(10_000)
        offers = clouds()
        names = sorted({offer.backend for offer in offers})
        accounts = [ListedBackend(BackendFacts(name=name), [o for o in offers if o.backend == name]) for name in names]
        backends = Accounts(Account(listed.facts, lambda listed=listed: listed) for listed in accounts)
        selling = Root(replace(root.ports, backends=backends))
        for account in backends.accounts():
            selling.refresh(account.key)
        plane = selling.plane
        first_start(plane, TOKEN)
        headers = {"authorization": f"Bearer {TOKEN}"}

        def post(path: str, body: object) -> bytes:
            reply = dispatch.answer(plane, dispatch.Request("POST", path, {}, headers, json.dumps(body).encode()))
            if reply.status != 200:
                raise SystemExit(f"{path}: {reply.body.decode()}")
            return reply.body

        spec = {"configuration": {"type": "fleet", "name": "cloud", "nodes": "0..9", "spot_policy": "auto"}}
        post("/api/project/main/fleets/apply", {"plan": {"spec": {**spec, "profile": {}}}, "force": False})
        prices = itertools.count(40.0, 0.01)  # a new question each time: a repeated one is answered from memory

        def plan() -> dict[str, object]:
            run = task("planned", "true", max_price=next(prices))
            run["configuration"]["resources"] = {"gpu": "24GB..80GB:1..4"}
            answer: dict[str, object] = json.loads(
                post("/api/project/main/runs/get_plan", {"run_spec": run, "max_offers": 50})
            )
            return answer

        total = plan()["job_plans"][0]["total_offers"]  # type: ignore[index]
        if not total:
            raise SystemExit("the plan has no offers, so it is no measure")
        report("plans", offers=len(offers), matching=total, get_plan_cpu_ms=cpu_ms(plan))
        root.close()


if __name__ == "__main__":
    main()
