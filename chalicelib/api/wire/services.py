"""Services on the wire: a service's address, its model, and the wanted number of its replicas."""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.domain.runs import Run
from chalicelib.domain.specs.services import OpenAIChatModel


def service_json(run: Run, run_spec: str, project_name: str) -> dict[str, Any] | None:
    """The service of a run; None if it isn't a service. Without a gateway, addresses are paths, which clients append to
    the server's address."""
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
    model = OpenAIChatModel.model_validate(_long_form(written))
    return {
        "url": url,
        "model": {"name": model.name, "base_url": url + model.prefix.strip("/"), "type": model.type},
        "options": {"openai": {"model": model.model_dump()}},
        "scales": scales,  # for clients that show it
    }


def _long_form(written: Any) -> Any:
    """A model in its long form. A spec is stored as it was sent, and the short form is the model's name."""
    return {"name": written, "format": "openai"} if isinstance(written, str) else written
