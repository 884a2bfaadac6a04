"""Quotas of projects and limits of access tokens: what is used, what is left, and which units have to wait.

A unit is counted as a whole, with the GPUs of the places that were found for it, and gets all of them or waits. Running
jobs are never ended because of a quota, not even once the day's money is spent: it limits only new placements.

A run that was submitted with an access token has that token's limit, too, in whichever project it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chalicelib.billing.usage import job_cost
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros, day_of
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Offer
from chalicelib.domain.quotas import Limits, Quota
from chalicelib.domain.runs import Run
from chalicelib.domain.spending import MOST_JOBS, DailyLimit, Spending, address_of
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.buying import Purchase


class Amounts(NamedTuple):
    gpus: int = 0
    jobs: int = 0
    money: float = 0.0  # dollars today

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(self.gpus + other.gpus, self.jobs + other.jobs, self.money + other.money)


@dataclass(frozen=True)
class QuotaUsage:
    """The amounts that a project's jobs use, by user. `quota`: as it was read before they were counted."""

    quota: Quota
    users: Mapping[str, Amounts]

    @property
    def all(self) -> Amounts:
        return total(self.users.values())

    def room(self) -> int | None:
        """How many more jobs the whole project may have at most. None: no limit."""
        limits, used = self.quota.limits, self.all
        if limits.money is not None and used.money >= limits.money:
            return 0
        return None if limits.jobs is None else max(0, limits.jobs - used.jobs)


@dataclass(frozen=True)
class TokenUsage:
    """What the jobs under a token's limit cost today. `spending`: its record as it was read, but without the jobs that
    have ended."""

    spending: Spending
    money: float


def total(amounts: Iterable[Amounts]) -> Amounts:
    found = Amounts()
    for each in amounts:
        found = found.plus(each)
    return found


# --- counting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldPlace:
    """A place that a job has."""

    user_id: str
    job: Job
    gpus: int


class EndedJob(NamedTuple):
    """A job that has ended, and its user."""

    user_id: str
    job: Job


def held(instances: Iterable[Instance], jobs: Mapping[str, Job], users: Mapping[str, str]) -> Iterator[HeldPlace]:
    """The places of these jobs. `jobs`: by id; `users`: the ids of users by run id."""
    for instance in instances:
        for claim in instance.claims:
            job = jobs.get(claim.job_id)
            if job is not None:
                gpus = gpus_of(instance.offer, len(claim.blocks), instance.total_blocks)
                yield HeldPlace(users.get(job.run_id, ""), job, gpus)


def counted(quota: Quota, places: Iterable[HeldPlace], ended: Iterable[EndedJob], now: Micros) -> QuotaUsage:
    """The usage of a quota. `ended`: jobs that ended today and whose cost the quota doesn't include yet."""
    spent, _ = quota.on(now)
    users = {user_id: Amounts(money=dollars) for user_id, dollars in spent.items()}
    used = [(place.user_id, Amounts(place.gpus, 1, job_cost(place.job, now, day_of(now)))) for place in places]
    used += [(each.user_id, Amounts(money=job_cost(each.job, now, day_of(now)))) for each in ended]
    for user_id, more in used:
        users[user_id] = users.get(user_id, Amounts()).plus(more)
    return QuotaUsage(quota, users)


def settled(quota: Quota, ended: Iterable[EndedJob], now: Micros, to: Micros) -> Quota:
    """The quota including the cost of jobs that ended today. `to`: up to when all of them are included."""
    before, _ = quota.on(now)
    spent = dict(before)
    for each in ended:
        spent[each.user_id] = round(spent.get(each.user_id, 0.0) + job_cost(each.job, now, day_of(now)), 6)
    return quota.with_(spent=spent, counted_to=to)


def spent(spending: Spending, jobs: Iterable[Job], now: Micros) -> TokenUsage:
    """The usage of a token's limit. `jobs`: those that the record lists, as far as they still exist."""
    ended, live = spending.on(now), dict[str, float]()
    for job in jobs:
        cost = job_cost(job, now, day_of(now))
        if job.finished:
            ended += cost
        else:
            live[address_of(job)] = cost
    settled = spending.with_(spent=round(ended, 6), jobs=tuple(live), counted_to=now)
    return TokenUsage(settled, ended + sum(live.values()))


def gpus_of(offer: Offer, blocks: int, of: int) -> int:
    """How many GPUs a share of a machine has."""
    return len(offer.instance.resources.gpus) * blocks // of


# --- deciding --------------------------------------------------------------------------------------------------------


class Allowance:
    """The part of the quota, and of the limits of tokens, that a queue pass may still hand out."""

    def __init__(self, usage: QuotaUsage | None, tokens: Mapping[str, TokenUsage]) -> None:
        """`tokens`: by the id of the limit."""
        self._quota = None if usage is None else usage.quota
        self._users = {} if usage is None else dict(usage.users)
        self._tokens = dict(tokens)

    def limits(self, run: Run) -> bool:
        return self._quota is not None or run.limit is not None

    def refuses(self, run: Run, need: Amounts) -> str:
        """What the run has to wait for; empty if there is enough left for it."""
        if run.limit is not None and (wait := token_refusal(run.limit, self._tokens[run.limit.id], need)):
            return wait
        if self._quota is None:
            return ""
        return refusal(QuotaUsage(self._quota, self._users), run.user_id, run.user_name, need)

    def takes(self, run: Run, need: Amounts, jobs: Iterable[Job]) -> None:
        """Count these amounts as used by the run's user, and the jobs as those of its token."""
        if self._quota is not None:
            self._users[run.user_id] = self._users.get(run.user_id, Amounts()).plus(need)
        if run.limit is not None:
            usage = self._tokens[run.limit.id]
            listed = dict.fromkeys((*usage.spending.jobs, *map(address_of, jobs)))
            self._tokens[run.limit.id] = TokenUsage(usage.spending.with_(jobs=tuple(listed)), usage.money)

    def sign(self, draft: Draft, run: Run) -> None:
        """Have the draft's commit fail if other placements have been committed since the count."""
        if self._quota is not None:
            draft.save(self._quota)
        if run.limit is not None:
            draft.save(self._tokens[run.limit.id].spending)


def needed(places: Sequence[Instance | Purchase], jobs: int) -> Amounts:
    """The amounts for a unit of this many jobs. Places that haven't been found yet count like the largest of these."""
    gpus = [_gpus_at(place) for place in places]
    return Amounts(sum(gpus) + max(gpus, default=0) * (jobs - len(places)), jobs)


def _gpus_at(place: Instance | Purchase) -> int:
    return gpus_of(place.offer, 1, 1)


def refusal(usage: QuotaUsage, user_id: str, user: str, need: Amounts) -> str:
    project = f"project {usage.quota.project_name}"
    project_refusal = _over(usage.quota.limits, usage.all, need, project)
    if project_refusal or not usage.quota.by_user:
        return project_refusal
    used = usage.users.get(user_id, Amounts())
    return _over(usage.quota.of(user_id), used, need, f"{user} in {project}")


def token_refusal(limit: DailyLimit, usage: TokenUsage, need: Amounts) -> str:
    token = f"the access token {limit.token}"
    if usage.money >= limit.dollars:
        return f"for quota: {token} has spent its ${limit.dollars:.2f} of today; more from 00:00 UTC"
    if len(usage.spending.jobs) + need.jobs > MOST_JOBS:
        return f"for quota: {token} may have at most {MOST_JOBS} jobs at once"
    return ""


def _over(limits: Limits, used: Amounts, need: Amounts, owner: str) -> str:
    if limits.money is not None and used.money >= limits.money:
        return f"for quota: the ${limits.money:g} a day of {owner} are spent; the next day begins at 00:00 UTC"
    if limits.jobs is not None and used.jobs + need.jobs > limits.jobs:
        return _limit_text(limits.jobs, used.jobs, need.jobs, "job", owner)
    if limits.gpus is not None and need.gpus and used.gpus + need.gpus > limits.gpus:
        return _limit_text(limits.gpus, used.gpus, need.gpus, "GPU", owner)
    return ""


def _limit_text(most: int, used: int, need: int, what: str, owner: str) -> str:
    if need > most:
        return f"for quota: it needs {_many(need, what)}, and {owner} may have {most} at once"
    needed = "" if used >= most else f", and it needs {need}"
    doing = "in use" if what == "GPU" else "running"
    return f"for quota: {used} of {_many(most, what)} of {owner} {'is' if most == 1 else 'are'} {doing}{needed}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


# --- showing ---------------------------------------------------------------------------------------------------------


def usage_lines(usage: QuotaUsage, user_id: str, user: str) -> list[str]:
    """The usage as text for a plan: a line for the project, and one for the user."""
    lines = [_line(usage.quota.limits, usage.all, f"project {usage.quota.project_name}")]
    lines.append(_line(usage.quota.of(user_id), usage.users.get(user_id, Amounts()), f"{user} in this project"))
    return [line for line in lines if line]


def token_lines(limit: DailyLimit, usage: TokenUsage) -> list[str]:
    """The usage of a token's limit as text for a plan, and whether the run will have to wait."""
    lines = [f"the access token {limit.token} has spent ${usage.money:.2f} of its ${limit.dollars:.2f} today"]
    wait = token_refusal(limit, usage, Amounts(jobs=1))
    return [*lines, f"the run will wait {wait}"] if wait else lines


def _line(limits: Limits, used: Amounts, owner: str) -> str:
    parts = []
    if limits.gpus is not None:
        parts.append(f"{used.gpus} of {_many(limits.gpus, 'GPU')}")
    if limits.jobs is not None:
        parts.append(f"{used.jobs} of {_many(limits.jobs, 'job')}")
    if limits.money is not None:
        parts.append(f"${used.money:.2f} of ${limits.money:g} a day")
    return f"{owner} uses {', '.join(parts)}" if parts else ""
