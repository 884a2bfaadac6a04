"""The stages of the journey, in order."""

from __future__ import annotations

from tests.e2e.aws.automation import announced
from tests.e2e.aws.clouds import clouds
from tests.e2e.aws.console import console
from tests.e2e.aws.hosts import hosts
from tests.e2e.aws.journey import (
    Stage,
    first_deployment,
    lost_token,
    removal,
    scenarios,
    schedules,
    second_deployment,
    smallest_policy,
    task,
    upgrade,
    waiting,
)
from tests.e2e.aws.moves import moves
from tests.e2e.aws.plain import plain
from tests.e2e.aws.restored import restored
from tests.e2e.aws.starts import cluster, undone
from tests.e2e.aws.volumes import volumes

BEGIN: tuple[Stage, ...] = (first_deployment, second_deployment, lost_token, console, task)
MIDDLE: tuple[Stage, ...] = (
    clouds,
    plain,
    cluster,
    undone,
    hosts,
    announced,
    scenarios,
    volumes,
    waiting,
    schedules,
    restored,
    upgrade,
    moves,
)
STAGES: tuple[Stage, ...] = (*BEGIN, *MIDDLE, removal)
SHORT: tuple[Stage, ...] = (*BEGIN, clouds, removal, smallest_policy)  # in the suite: what only this proves


def chosen(names: list[str]) -> tuple[Stage, ...]:
    """All of them; or those between the beginning and the removal that are named. Raises ValueError for another."""
    known = {stage.__name__: stage for stage in MIDDLE}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no stage {unknown[0]!r}: there are {', '.join(known)}")
    return STAGES if not names else (*BEGIN, *(stage for stage in MIDDLE if stage.__name__ in names), removal)
