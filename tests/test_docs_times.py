"""The lengths of time and the sizes that guides and reference pages name are those of the code. A new one in a page
goes into CLAIMS, with the constant that it repeats, or into OTHERS if it isn't the code's. Generated pages aren't
looked at: their generators take them from the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from chalicelib.agent import gateway_role, model_queue, replica_loop, repositories, roster, spool
from chalicelib.agent.gateway import direct, entries, nginx
from chalicelib.agent.gateway import relays as gateway_relays
from chalicelib.agent.logins import LOGIN_SECONDS
from chalicelib.api.routes.joins import CreateJoinBody
from chalicelib.api.routes.services import CreateTokenBody
from chalicelib.backends.aws import reservations
from chalicelib.backends.aws.facts import FACTS as AWS
from chalicelib.billing import plane
from chalicelib.domain import automations, certificates, joins, services, stream_orders, workflows
from chalicelib.domain.retention import Retention
from chalicelib.domain.serving import BODY
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.domain.specs.services import ProbeConfig, ScalingSpec
from chalicelib.domain.specs.sign_on import SignOnProvider
from chalicelib.domain.tenants import LEAST_CHARGE
from chalicelib.identity import openid
from chalicelib.machines import gateway, instance, job, run
from chalicelib.planning.jobs import command_lists
from chalicelib.planning.jobs import replica_groups as planned
from chalicelib.planning.machines import orphans
from chalicelib.planning.placing import options
from chalicelib.planning.projects import erasure, subscriptions
from chalicelib.planning.runs import rollout, scaling
from chalicelib.planning.volumes import volumes
from chalicelib.runtime import asgi, connection, embedded, local_host, relays, webhooks
from chalicelib.serving import choosing, exchange, headers, waiting
from chalicelib.store import sqlite
from chalicelib.usecases.agents import calls, gateway_sync
from chalicelib.usecases.context import SizeLimits
from chalicelib.usecases.machines import health
from chalicelib.usecases.pace import EMBEDDED, PER_CALL, STEADY_AFTER
from chalicelib.usecases.runs import metrics
from chalicelib.usecases.services import service_tokens
from infra import stateful, stateless
from infra.functions import FUNCTIONS

DOCS = Path(__file__).parents[1] / "docs"
GENERATED = ("cli", "configuration", "differences", "errors", "json", "prometheus", "server-config")

MIB = 2**20
GIB = 2**30
PAGE = 4_096  # bytes of one of SQLite's
MINUTE, HOUR, DAY = 60, 3_600, 86_400
SCALED = ScalingSpec(metric="rps", target=1)
PROBE = planned._filled(ProbeConfig(type="http"))
ASKED = ResourcesSpec()
KEPT = Retention()

NUMBERS = {"a": 1, "an": 1, "one": 1, "half a": 0.5, "half an": 0.5, "fifteen": 15, "twenty": 20, "thirty": 30}
NUMBERS |= dict(two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10)
UNITS = {"ms": 0.001, "s": 1, "second": 1, "min": MINUTE, "minute": MINUTE, "h": HOUR, "hour": HOUR, "d": DAY}
UNITS |= {"day": DAY, "week": 7 * DAY, "month": 30 * DAY, "year": 365 * DAY, "byte": 1, "kilobyte": 1024}
UNITS |= {"megabyte": MIB, "KB": 1024, "MB": MIB, "GB": GIB, "TB": 1024 * GIB}
AMOUNT = re.compile(
    rf"(?<![\w$.,/])(?:(?P<figures>\d[\d,.]*)[ -]?|(?P<word>{'|'.join(sorted(NUMBERS, key=len, reverse=True))})[ -])"
    rf"(?P<unit>{'|'.join(UNITS)})s?\b"
)
ABOUT = 0.1  # how far off is what a page calls "about" something


def value(found: re.Match[str]) -> float:
    number = float(found["figures"].replace(",", "")) if found["figures"] else NUMBERS[found["word"]]
    return number * UNITS[found["unit"]]


def amount(phrase: str) -> float:
    """The one length or size in a phrase."""
    (found,) = AMOUNT.finditer(phrase)
    return value(found)


def us(micros: int) -> float:
    return micros / 1_000_000


def rate(function: str) -> float:
    """Seconds between two invocations by the function's schedule in AWS."""
    every = next(each.every for each in FUNCTIONS if each.name == function)
    return amount(every.removeprefix("rate(").removesuffix(")"))


def buffered() -> float:
    """Bytes of a body that a gateway's nginx keeps in memory."""
    conf = Path(nginx.__file__).with_name("nginx.conf").read_text()
    return int(re.findall(r"^    client_body_buffer_size (\d+)m;", conf, re.MULTILINE)[0]) * MIB


def silent() -> float:
    """Seconds after which a gateway's nginx gives up connections to a host that doesn't acknowledge."""
    lua = Path(nginx.__file__).with_name("lua").joinpath("dead_hosts.lua").read_text()
    (found,) = re.findall(r"^local IDLE, EVERY, PROBES = (\d+), (\d+), (\d+)", lua, re.MULTILINE)
    idle, every, probes = map(int, found)
    return idle + every * probes


def pauses() -> float:
    """From a webhook's first failure to its last."""
    first, longest = us(subscriptions.FIRST_PAUSE), us(subscriptions.LONGEST_PAUSE)
    return sum(min(longest, first * 2**number) for number in range(subscriptions.MOST - 1))


CLAIMS: dict[str, list[tuple[str, float]]] = {  # page: what it says, and what the code does, in seconds or bytes
    "guides/automation.md": [
        ("no answer for 10 s", webhooks.PATIENCE),
        ("again after 2 s", us(subscriptions.FIRST_PAUSE)),
        (", 4 s", 2 * us(subscriptions.FIRST_PAUSE)),
        ("8 s and so on", 4 * us(subscriptions.FIRST_PAUSE)),
        ("at most an hour apart", us(subscriptions.LONGEST_PAUSE)),
        ("that long, at most a day", us(subscriptions.LONGEST_WAIT)),
        ("about nine hours", pauses()),
    ],
    "guides/aws-costs.md": [
        ("new offers every six hours", rate("refresh_catalog")),
        ("looked for every ten minutes", rate("dead_letters")),
        ("calls once a minute while nothing", PER_CALL.slow),
        ("it calls every 2 s", PER_CALL.fast),
        ("for five minutes after that", us(STEADY_AFTER)),
        ("after that every 10 s", PER_CALL.pause(changing=False, since=0)),
        ("Output is stored every 15 minutes", PER_CALL.log),
        ("every 2 s while somebody reads", PER_CALL.followed),
        ("replica asks every 5 s", calls.ASKED_PAUSE),
        ("asks every 10 s what to serve", gateway_sync.PAUSE),
        ("every 10 s it reports", us(services.BUCKET)),
        ("kept for three months", plane.KEPT_MONTHS * 30 * DAY),
        ("dropped after two weeks", stateless.KEPT_DAYS * DAY),
    ],
    "guides/aws.md": [
        ("log groups (14 days)", stateless.KEPT_DAYS * DAY),
        ("empties every ten minutes", rate("dead_letters")),
    ],
    "guides/fleets.md": [
        ("within ten minutes, or", embedded.REFRESH_EVERY),
        ("or six hours where", rate("refresh_catalog")),
        ("half an hour before the block", us(reservations.EARLY)),
        ("ten minutes earlier, jobs", us(reservations.WARNING)),
    ],
    "guides/gateways.md": [
        ("again every ten seconds", direct.WHILE_GOOD),
        ("tries once a minute", direct.WHILE_NOT),
        ("half a minute at most", entries.HOLD),
        ("within two seconds", 2 * exchange.CONNECT_BRIEFLY),
        ("ten seconds after the host's last sign", silent()),
        ("half a minute where", gateway_relays.ALIVE_FOR),
        ("body is at most 1 MB", choosing.REPEATABLE),
        ("lives for a day at most", service_tokens.MOST_SECONDS),
        ("waits ten minutes at most", us(gateway.TO_LEAVE)),
    ],
    "guides/on-prem.md": [
        ("within an hour (`--expires-in`)", CreateJoinBody.model_fields["expires_in"].default),
        ("less than two minutes", 2 * us(EMBEDDED.promise())),
    ],
    "guides/repositories.md": [
        ("any upload, 2 MB", SizeLimits.upload),
        ("takes over 15 minutes", repositories.SECONDS),
    ],
    "guides/services.md": [
        ("ended, for a minute at most", us(rollout.DRAIN)),
        ("`scale_up_delay` (5 minutes unless set)", SCALED.scale_up_delay),
        ("`scale_down_delay` (10 minutes)", SCALED.scale_down_delay),
        ("every 15 seconds and", PROBE.interval),
        ("for 10 seconds at most unless set", PROBE.timeout),
    ],
    "guides/sign-on.md": [
        ("a week unless set", SignOnProvider.model_fields["session"].default),
        ("off by more than a minute", openid.LEEWAY),
    ],
    "guides/tasks.md": [
        ("8 GB or more of memory", ASKED.memory.min * GIB),
        ("100 GB or more of disk", ASKED.disk.size.min * GIB),
        ("An item can have 125 KB", command_lists.LONGEST),
        ("`stop_duration` (10 seconds by default)", us(job.GRACE)),
    ],
    "guides/volumes.md": [
        ("after 20 minutes of silence", us(instance.UNREACHABLE_LIMIT)),
        ("that long, a minute at least", us(volumes.WAIT_UNUSED)),
        ("`0` means a minute after", us(volumes.WAIT_UNUSED)),
        ("gp3, up to 64TB", AWS.largest_volume * GIB),
    ],
    "guides/waiting.md": [("ten minutes at most, with or without `retry`", us(options.TO_BE_HEARD))],
    "reference/job-environment.md": [("within half an hour", us(job.TO_BE_TOLD))],
    "reference/requests.md": [
        ("at the server | 64 KB in a row", connection.HEAD_BYTES),
        ("at most 1 MB or nothing", choosing.REPEATABLE),
        ("together may take 64 MB", choosing.KEPT),
        ("heard for 2 s", relays.FRESH),
        ("sign within a second", exchange.CONNECT_BRIEFLY),
        ("left out for 5 s", choosing.LEFT_OUT),
        ("30 s at most", waiting.HOLD),
        ("or 64 MB, for one service", waiting.MOST_HELD_BYTES),
        ("headers of a request | 16 KB", headers.MOST),
        ("body of a request | 64 MB", BODY),
        ("client or the replica | 300 s", exchange.IDLE),
        ("of what it gets | 300 s", exchange.IDLE),
        ("connection to a replica | 10 s", exchange.CONNECT_SECONDS),
        ("; 1 s if another", exchange.CONNECT_BRIEFLY),
    ],
    "reference/retention.md": [
        ("Every ten minutes a bounded number", embedded.ERASE_EVERY),
        ("one point in five minutes", us(metrics._SLOT)),
        ("A user may keep 2 GB", SizeLimits.uploads),
        ("counting as 4 KB", LEAST_CHARGE),
        ("which is 2 MB", SizeLimits.upload),
        ("one day if no run", erasure.UNUSED_DAYS * DAY),
        ("longer than 70 minutes", metrics.SHORT_SECONDS),
        ("keeps 16 MB of the freed space", sqlite._ROOM * PAGE),
        ("up to 64 MB every", sqlite._STEP * sqlite._STEPS * PAGE),
        ("MB every ten minutes", embedded.ERASE_EVERY),
        ("smaller than 64 MB", sqlite._SMALL * PAGE),
        ("under its name, and a day", KEPT.deleted * DAY),
        ("in the last five minutes", us(services.KEPT)),
        ("30 days after their end", KEPT.fleets * DAY),
        ("at most half a minute", us(stream_orders.KEPT)),
        ("7 days after their expiry", us(joins.KEPT)),
        ("7 days after its end", us(workflows.KEPT)),
        ("30 days after their deletion", KEPT.fleets * DAY),
        ("the rest a day later", us(certificates.KEPT)),
        ("a day after their project's deletion", KEPT.deleted * DAY),
        ("a day after either project's deletion", KEPT.deleted * DAY),
        ("a day after its project's deletion", KEPT.deleted * DAY),
        ("day | 30 days", us(automations.REMEMBERED)),
        ("what it cost | 90 days", KEPT.events * DAY),
        ("what was wrong | 7 days", health.KEPT_SECONDS),
        ("what jobs used | 7 days", KEPT.metrics * DAY),
        ("most of it 70 minutes", metrics.SHORT_SECONDS),
        ("30 days after their last use", KEPT.archives * DAY),
        ("what a sweep saw first | a day", us(orphans.KEPT)),
        ("takes 1 GB at most", roster.SPOOL_BYTES),
        ("16 MB a job", spool.REPLAY_BYTES),
        ("`agent.log` | the last 16 MB", local_host.MOST_LOG),
        ("the last 4 to 8 MB", 2 * gateway_role.MOST_LOG),
        ("the last 16 to 32 MB", 2 * nginx.LOG_BYTES),
        ("bodies over 1 MB", buffered()),
        ("SQS drops after 14 days", stateful.LONGEST),
        ("CloudWatch drops after 14 days", stateless.KEPT_DAYS * DAY),
        ("ended 30 days ago", KEPT.logs * DAY),
        ("a day without one", us(erasure.AT_REST)),
        ("are deleted after a day", us(erasure.AT_REST)),
    ],
    "reference/scaling.md": [
        ("and a minute unless set", scaling.WINDOW),
        ("read every five seconds", replica_loop.QUEUE_EVERY),
        ("counts 15 seconds after", model_queue.SPACE),
        ("a minute after it", model_queue.SETTLED),
        ("`scale_up_delay` ago (5 minutes unless set)", SCALED.scale_up_delay),
        ("`scale_down_delay` ago (10 minutes)", SCALED.scale_down_delay),
        ("in steps of ten seconds", us(services.BUCKET)),
        ("this tenth is 10 seconds", us(services.BUCKET)),
        ("and 30 seconds for", us(services.KEPT) / 10),
        ("for 5 minutes.", us(services.KEPT)),
        ("nothing for 30 seconds", us(services.STALE)),
        ("silent for 5 minutes", us(services.KEPT)),
        ("looked at once an hour", us(run.SETTLED)),
        ("a minute later at the latest", us(rollout.DRAIN)),
        ("(20 seconds if no door", us(rollout.UNKNOWN)),
        ("ready after 20 minutes", us(rollout.TO_LOAD)),
        ("again after 15 seconds", us(run.BACKOFF[0])),
        ("every 10 minutes in the end", us(run.BACKOFF[-1])),
    ],
    "security.md": [
        ("cut after 20 s", LOGIN_SECONDS),
        ("by itself after a week", SignOnProvider.model_fields["session"].default),
        ("once, for an hour unless set otherwise", CreateJoinBody.model_fields["expires_in"].default),
        ("up to a minute", asgi.LONGEST_POLL),
        ("token ends, a day later at most", service_tokens.MOST_SECONDS),
        ("by itself after an hour, or what `--expires-in`", CreateTokenBody.model_fields["expires_in"].default),
        ("16 KB and 128 lines", headers.MOST),
        ("64 KB of trailers", connection.HEAD_BYTES),
    ],
}

OTHERS: dict[str, list[str]] = {  # page: what isn't a length of the code's
    "guides/automation.md": ["--since 2h", "a second delivery", "100 times a day", "these 100 a day"],
    "guides/aws-costs.md": [
        *("runs a month", "dollars a month", "of | a month", "runs of an hour each", "twice a second", "cents an hour"),
        *(
            "for a day without anything",
            "for a day with an account",
            "for six hours with ten",
            "for six hours each",
        ),  # what was measured
        *("15 ms for an", "50 ms for a", "10 s to fetch", "150 ms for all else", "writes one kilobyte"),  # and assumed
    ],
    "guides/aws.md": [
        *("a minute or two", "younger than a day", "200 calls a second", "goes on within a minute", "$0.005 an hour"),
        "gives up a connection after 10 s",  # `tests/engine/test_bootstrap.py`
    ],
    "guides/dev-environments.md": ["`inactivity_duration: 2h`"],
    "guides/gateways.md": [
        "2 CPUs, 2 GB of memory",
        *("verdict for a minute", "for a minute more", "verified within five minutes"),  # lua/access.lua
    ],
    "guides/services.md": ["requests a second", "`window` of `30s`"],
    "guides/volumes.md": ["dollars for a GB and month"],
    "guides/waiting.md": ["duration: 1d}", "keep trying for a day", "dollars a day"],
    "reference/retention.md": ["they had in a day"],
    "security.md": [
        *("chunks of a byte", "a megabyte of boundaries", "50 ms at the median", "200 ms at most"),
        "by gateways a minute later",  # lua/access.lua
    ],
    "reference/scaling.md": [
        *("requests a second", "`window` is `30s`", "`0s` means"),
        *("of 30 seconds and", "and a minute, and"),
    ],
}


@cache
def text(page: str) -> str:
    """Without what documents' commands print, and with every break of a line as a space."""
    return " ".join(re.sub(r"```.*?```", " ", (DOCS / page).read_text(), flags=re.DOTALL).split())


def pages() -> list[str]:
    found = [*(DOCS / "guides").glob("*.md"), *(DOCS / "reference").glob("*.md"), DOCS / "security.md"]
    return sorted(str(path.relative_to(DOCS)) for path in found if path.stem not in GENERATED)


def unnamed(page: str, phrases: Iterable[str]) -> Iterator[str]:
    """The amounts that no phrase covers, each with what stands around it."""
    whole, covered = text(page), set[int]()
    for phrase in phrases:
        for at in re.finditer(re.escape(phrase), whole):
            covered.update(at.start() + found.start() for found in AMOUNT.finditer(phrase))
    for found in AMOUNT.finditer(whole):
        if found.start() not in covered:
            yield f"{found[0]}: …{whole[max(0, found.start() - 40) : found.end() + 30]}…"


@pytest.mark.parametrize(
    ("page", "phrase", "actual"), [(page, *claim) for page, claims in CLAIMS.items() for claim in claims]
)
def test_a_page_says_what_the_code_does(page: str, phrase: str, actual: float) -> None:
    assert phrase in text(page), "the page says it in other words now"
    assert amount(phrase) == pytest.approx(actual, rel=ABOUT if phrase.startswith("about") else 1e-9)


@pytest.mark.parametrize("page", pages())
def test_no_length_stands_in_a_page_unchecked(page: str) -> None:
    others = OTHERS.get(page, [])
    assert list(unnamed(page, [*(phrase for phrase, _ in CLAIMS.get(page, [])), *others])) == []
    assert [phrase for phrase in others if phrase not in text(page)] == [], "stands there no more"


def test_amounts_are_read_as_they_are_written() -> None:
    said = "1,500 ms, half an hour, ten-minute pauses, $5 a month, 64TB, 3 days, a sound, v2s, 2.5 s"
    assert [value(found) for found in AMOUNT.finditer(said)] == [
        *(1.5, 1_800, 600, 30 * DAY),
        *(64 * 1024 * GIB, 3 * DAY, 2.5),
    ]
