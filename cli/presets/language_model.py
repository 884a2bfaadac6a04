"""The user's language model, behind an API like OpenAI's: which one, and asking it.

The key comes from the environment of whoever asks. It is never stored, shown or logged.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from chalicelib.errors import Refused

if TYPE_CHECKING:
    from chalicelib import contract

# Where each provider's API is, and the part of its variables' names.
PROVIDERS = {
    "openai": ("https://api.openai.com/v1", "OPENAI"),
    "codex": ("https://api.openai.com/v1", "OPENAI"),
    "claude": ("https://api.anthropic.com/v1", "ANTHROPIC"),
}
PROGRAMS = {"claude": "DSTACK_AGENT_CLAUDE_PATH", "codex": "DSTACK_AGENT_CODEX_PATH"}
EFFORTS = {"claude": "DSTACK_AGENT_CLAUDE_EFFORT"}  # any other: that of codex
ATTEMPTS, FIRST_PAUSE = 5, 2.0
PATIENCE = 600.0  # seconds; a model that thinks takes long
MOST_ANSWER = 1 << 20
PASSING = (408, 409, 429)  # statuses after which the same request may succeed, besides 5xx


class NoAnswer(Refused):
    """The language model can't be asked."""


@dataclass(frozen=True)
class Model:
    agent: contract.PresetAgent
    key: str = field(repr=False)


def chosen(written: Mapping[str, Any] | None, env: Mapping[str, str]) -> Model:
    """The model that a configuration, or else the environment, names. Raises Refused if one can't be asked."""
    written = written or {}
    provider = written.get("provider") or env.get("DSTACK_AGENT_PROVIDER") or "openai"
    if provider not in PROVIDERS:
        raise Refused(
            f"{provider!r} is no provider of a language model.",
            hint=f"DSTACK_AGENT_PROVIDER is {', '.join(PROVIDERS)}.",
        )
    address, part = PROVIDERS[provider]
    url = written.get("url") or env.get(f"DSTACK_AGENT_{part}_BASE_URL") or address
    model = written.get("model") or env.get(f"DSTACK_AGENT_{part}_MODEL")
    effort = written.get("effort") or env.get(EFFORTS.get(provider, "DSTACK_AGENT_CODEX_EFFORT"))
    if not model:
        raise Refused(
            "No language model is named that could propose what to try.",
            hint=f"Add `agent: {{provider: {provider}, model: NAME}}`, or export DSTACK_AGENT_{part}_MODEL.",
        )
    if not _is_address(url):
        hint = f"It looks like http://127.0.0.1:8000/v1. It is `url` in `agent`, or DSTACK_AGENT_{part}_BASE_URL."
        raise Refused(f"{url!r} is no address of an API.", hint=hint)
    key = env.get(f"DSTACK_AGENT_{part}_API_KEY", "")
    if not key and url == address:
        program = PROGRAMS.get(provider, "")
        started = f" {program} is ignored: no program is started, the API is called." if env.get(program) else ""
        raise Refused(
            f"There is no key for {url}.{started}",
            hint=f"Export DSTACK_AGENT_{part}_API_KEY, or name another address with `url` in `agent`.",
        )
    if not (key.isascii() and key.isprintable()):
        raise Refused(f"DSTACK_AGENT_{part}_API_KEY contains a line break or another character that keys can't have.")
    return Model({"provider": provider, "url": url.rstrip("/"), "model": model, "effort": effort or None}, key)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of a bracket
        return False


def ask(model: Model, messages: Sequence[Mapping[str, str]], *, sleep: Callable[[float], None]) -> str:
    """Its answer. Tries again after what may pass; raises NoAnswer for anything else."""
    body: dict[str, Any] = {"model": model.agent["model"], "messages": list(messages)}
    if model.agent["effort"]:
        body["reasoning_effort"] = model.agent["effort"]
    data, pause = json.dumps(body).encode(), FIRST_PAUSE
    for attempt in range(1, ATTEMPTS + 1):
        try:
            status, raw = _post(f"{model.agent['url']}/chat/completions", model.key, data)
            passing, problem = status in PASSING or status >= 500, f"HTTP {status}: {_reason(raw)}"
        except (OSError, http.client.HTTPException) as error:
            passing, problem = True, str(getattr(error, "strerror", None) or error or type(error).__name__)
        else:
            if status == 200:
                return _text(raw, model)
        if not passing or attempt == ATTEMPTS:
            break
        sleep(pause)
        pause *= 2
    problem = problem.replace(model.key, "***") if model.key else problem
    raise NoAnswer(
        f"{model.agent['model']} at {model.agent['url']} doesn't answer ({problem}).",
        hint="Check `agent`, the key in the environment and its limits; then `dstack preset resume` goes on.",
    )


def _post(url: str, key: str, data: bytes) -> tuple[int, bytes]:
    """A redirect isn't followed: the request has a key."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request("POST", parts.path, data, headers)
        response = connection.getresponse()
        return response.status, response.read(MOST_ANSWER)
    finally:
        connection.close()


def _text(raw: bytes, model: Model) -> str:
    try:
        found = json.loads(raw)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        found = None
    if not isinstance(found, str):
        raise NoAnswer(
            f"What {model.agent['url']} answers isn't a chat completion.",
            hint="`url` in `agent` is the address of an API like OpenAI's, up to /v1.",
        )
    return found


def _reason(raw: bytes) -> str:
    try:
        found = json.loads(raw)["error"]
        return str(found["message"] if isinstance(found, dict) else found)[:300]
    except (ValueError, KeyError, TypeError, RecursionError):
        return raw[:200].decode(errors="replace").strip() or "no reason given"
