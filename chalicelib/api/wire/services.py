"""What clients learn of a run that is a service: where it is, its model, and how many replicas it should have."""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.domain.runs import Run
from chalicelib.domain.specs.services import OpenAIChatModel


def service_json(run: Run, run_spec: str, project_name: str) -> dict[str, Any] | None:
    """Without a gateway, addresses are those of the server itself: paths, which clients put behind its own. None: it's
    no service."""
    if not run.scales:
        return None
    url = run.url or f"/proxy/services/{project_name}/{run.name}/"
    written = orjson.loads(run_spec)["configuration"].get("model")
    scales = [
        {
            "group": each.group,
            "desired": each.desired,
            "why": each.why or None,
            "wanted": each.wanted,
            "stale": each.stale,
        }
        for each in run.scales
    ]
    if written is None:
        return {"url": url, "model": None, "options": {}, "scales": scales}
    model = OpenAIChatModel.model_validate(_whole(written))
    return {
        "url": url,
        "model": {"name": model.name, "base_url": url + model.prefix.strip("/"), "type": model.type},
        "options": {"openai": {"model": model.model_dump()}},
        "scales": scales,  # for clients that show it
    }


def _whole(written: Any) -> Any:
    """A specification is stored as it was sent: the short form of a model is its name."""
    return {"name": written, "format": "openai"} if isinstance(written, str) else written
