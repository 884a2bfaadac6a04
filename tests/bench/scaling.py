"""The pure core of services: a pass over a hundred replicas at rest, one in which the load makes it ask for more, and
the scaler alone with the longest window."""

from __future__ import annotations

import gc
from functools import partial

from chalicelib.domain.instants import SECOND
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.scaling import GroupState, scale
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.bench.measure import cpu_ms, report
from tests.world.services import ServiceWorld, service

REPLICAS = 100
RULE = {"metric": "queue", "target": 1, "window": "5m", "scale_up_delay": "0s", "scale_down_delay": "10m"}
CALLS = 1000  # of the scaler


def idle_snapshot() -> RunSnapshot:
    world = ServiceWorld()
    world.add_fleet("local", hosts=REPLICAS)
    world.pass_fleet(next(iter(world.fleets)))
    run = world.serve(replicas=f"{REPLICAS}..{2 * REPLICAS}", scaling=RULE)
    world.round(run, 6)
    for _ in range(31):
        world.now += 10 * SECOND
        world.report(run, requests=REPLICAS, busy=REPLICAS * 0.9)
    world.round(run)
    assert len(world.serving(run)) == REPLICAS
    return world.look_at(world.runs[run.id])


def step(snapshot: RunSnapshot) -> RunSnapshot:
    """Twice the load, from the last bucket on."""
    (door,) = snapshot.traffic
    last = door.buckets[-1].with_(busy=REPLICAS * 60.0)
    return RunSnapshot(**{**vars(snapshot), "traffic": (door.with_(buckets=(*door.buckets[:-1], last)),)})


def adds_jobs(plan: Plan) -> bool:
    return any(noun.kind == "job" and not noun.version for each in plan.steps for noun in each.saves)


def main() -> None:
    idle = idle_snapshot()
    loaded = step(idle)
    assert not adds_jobs(decide_run(idle))
    assert adds_jobs(decide_run(loaded))
    config = service(replicas="1..9", scaling=RULE).configuration
    gc.freeze()  # both as `dstack server` has them
    gc.set_threshold(10_000)

    def decisions() -> None:
        for _ in range(CALLS):
            scale(config.scaling, (1, 200), idle.traffic, idle.run.scales[0], GroupState(REPLICAS), idle.now)  # type: ignore[union-attr]

    report(
        "scaling",
        replicas=REPLICAS,
        pass_cpu_ms=cpu_ms(partial(decide_run, idle)),
        step_cpu_ms=cpu_ms(partial(decide_run, loaded)),
        scaler_us=cpu_ms(decisions),
    )


if __name__ == "__main__":
    main()
