"""Presets, as the command line keeps them on its user's machine and prints them. No server knows them."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.offers import Offer
from chalicelib.contract.values import Configuration, Date

PresetStatus = Literal["creating", "interrupted", "stopped", "failed", "done"]


class PresetAgent(TypedDict):
    """The language model that proposes what to try. Its key is never stored."""

    provider: str
    url: str
    model: str
    effort: str | None


class Benchmark(TypedDict):
    """What was measured of one service, through its address."""

    requests: int
    failed: int
    error: str | None
    """Why the first of the failed requests failed."""
    seconds: float
    input_tokens: int
    """Of all requests, as the service counts them."""
    output_tokens: int
    tokens_per_second: float
    """Of all responses together."""
    ttft_ms: float
    """The time to the first token: the median."""
    ttft_p95_ms: float
    """The time to the first token that 95 of 100 requests don't exceed; what `max_ttft` is compared with."""
    token_ms: float
    """The time between two tokens of a response: the median."""
    context_length: int | None
    """The tokens of the longest request that was sent, to prove `min_context_length`."""


class PresetMachine(TypedDict):
    """Where a service was measured: its machine, or its share of one."""

    backend: str
    region: str
    instance_type: str
    resources: str
    gpu: str | None
    """As a configuration writes it, such as `A100:80GB:1`."""
    price: float
    """Dollars an hour."""


class PresetTrial(TypedDict):
    """One service that was tried."""

    number: int
    baseline: bool
    hypothesis: str
    repo: str | None
    """The weights that it serves."""
    proposal: Configuration
    """What the language model wrote of the service."""
    run_name: str | None
    machine: PresetMachine | None
    benchmark: Benchmark | None
    error: str | None
    """Why it wasn't measured, or which limit it misses."""
    meets: bool
    """Was it measured, and does it keep to all limits?"""
    cost: float
    started_at: Date
    finished_at: Date


class Preset(TypedDict):
    """A search for a way to serve a model, and what was found."""

    id: str
    name: str | None
    project: str
    url: str
    """The server's."""
    status: PresetStatus
    reason: str
    """Why it ended."""
    base: str | None
    repo: str | None
    configuration: Configuration
    """The search. Variables that came from the environment have no value."""
    profile: Configuration
    agent: PresetAgent
    offers: list[Offer]
    """What the plan showed: machines that can be had."""
    submitted_at: Date
    finished_at: Date | None
    trials: list[PresetTrial]
    best: int | None
    """The number of the best trial that keeps to all limits."""
    service: Configuration | None
    """That of the best trial, ready to apply."""
    kept_run: str | None
    """The run that was left running, as --keep-service asks."""
    cost: float
    """Dollars for machines; what the language model costs isn't known."""
