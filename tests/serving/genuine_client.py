"""OpenAI's own client, in an environment of its own."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.harness.server import ROOT

BIN = ROOT / ".venvs" / "openai" / "bin"
CALLS = ROOT / "tests" / "serving" / "openai_client.py"
MODEL = "gpt-4.1"
PLAIN = (
    "models",
    "chat",
    "chat_with_a_picture",
    "chat_stream",
    "completions",
    "embeddings",
    "responses",
    "responses_stream",
    "audio",
)


def needed() -> None:
    if not (BIN / "mock-ai-api").exists():
        pytest.skip("OpenAI's client isn't installed here; `make test` installs it into .venvs/openai")


def ask(base_url: str, key: str, *calls: str, **settings: str) -> dict[str, str]:
    """What came of each call."""
    settings_json = json.dumps({"base_url": base_url, "api_key": key, "model": MODEL, **settings})
    done = subprocess.run(
        [BIN / "python", CALLS, settings_json, *calls], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return {result["call"]: result["outcome"] for result in map(json.loads, done.stdout.splitlines())}


def all_well(outcomes: dict[str, str], *calls: str) -> None:
    assert outcomes == dict.fromkeys(calls, "ok")
