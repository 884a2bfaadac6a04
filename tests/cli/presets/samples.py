"""Presets as they are on disk: one that is done, and one that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chalicelib.configuration.parse import parse
from cli.presets import records
from cli.presets.records import PROGRESS, Folder

PRESET = """\
type: preset
name: qwen
base: Qwen/Qwen3-8B
min_context_length: 4096
max_ttft: 60000
trials: 2
concurrency: 2
input_tokens: 64
output_tokens: 8
agent: {provider: openai, url: %s/llm/v1, model: planner}
"""
DONE, INTERRUPTED = "1a2b3c4d", "5e6f7a8b"
SUBMITTED = 1_795_230_000.0  # two hours before the tests' now


def benchmark(tokens_per_second: float = 1500.0, **changes: Any) -> Any:
    found = {"requests": 64, "failed": 0, "error": None, "seconds": 42.0, "input_tokens": 65_536}
    found |= {"output_tokens": 65_536, "tokens_per_second": tokens_per_second, "ttft_ms": 180.0, "ttft_p95_ms": 310.0}
    return {**found, "token_ms": 9.5, "context_length": 8190, **changes}


def trial(number: int = 1, speed: float | None = 1500.0, *, error: str | None = None, **changes: Any) -> Any:
    machine = {"backend": "aws", "region": "us-east-1", "instance_type": "p4de", "gpu": "A100:80GB:1", "price": 2.5}
    proposal = {"image": "vllm/vllm-openai", "commands": ["vllm serve Qwen/Qwen3-8B"], "port": 8000}
    return {
        "number": number,
        "baseline": number == 1,
        "hypothesis": "the defaults" if number == 1 else "longer batches of prefill keep the GPU busier",
        "repo": "Qwen/Qwen3-8B",
        "proposal": {**proposal, "resources": {"gpu": "80GB"}},
        "run_name": f"preset-{DONE}-{number}",
        "machine": {**machine, "resources": "cpu=12 mem=96GB disk=100GB gpu=A100:80GB:1"},
        "benchmark": None if speed is None else benchmark(speed),
        "error": error,
        "meets": error is None,
        "cost": 0.31,
        "started_at": "2026-11-21T03:00:00+00:00",
        "finished_at": "2026-11-21T03:07:00+00:00",
        **changes,
    }


def configuration(**changes: Any) -> Any:
    return {**parse(PRESET % "http://127.0.0.1:1").model_dump(mode="json"), **changes}


def preset(**changes: Any) -> Any:
    agent = {"provider": "openai", "url": "http://127.0.0.1:1/v1", "model": "planner", "effort": None}
    return {
        "id": DONE,
        "name": "qwen",
        "project": "main",
        "url": "http://127.0.0.1:30000",
        "status": "done",
        "reason": "All 2 trials are done. The best is trial 2: 1500 tokens/s, $0.463 a million tokens.",
        "base": "Qwen/Qwen3-8B",
        "repo": None,
        "configuration": configuration(),
        "profile": {},
        "agent": agent,
        "offers": [],
        "submitted_at": records.iso(SUBMITTED),
        "finished_at": records.iso(SUBMITTED + 900),
        "trials": [],
        "best": 2,
        "service": {"type": "service", "name": "qwen", "commands": ["vllm serve Qwen/Qwen3-8B"], "port": 8000},
        "kept_run": None,
        "cost": 0.0,
        **changes,
    }


def fill(home: Path) -> tuple[Folder, Folder]:
    interrupted = preset(
        id=INTERRUPTED, name=None, status="creating", reason="", best=None, service=None, finished_at=None
    )
    older = records.created(home, {**interrupted, "submitted_at": records.iso(SUBMITTED - 90_000)})
    older.append(PROGRESS, SUBMITTED - 90_000, text="Trial 1 of 2 (the baseline): asking planner")
    done = records.created(home, preset())
    for each in (trial(1, 900.0, error="the first token took 91000 ms; `max_ttft` is 60000"), trial(2)):
        done.write_trial(each)
    done.append(PROGRESS, SUBMITTED, text="Trial 1 of 2 (the baseline): asking planner")
    return older, done
