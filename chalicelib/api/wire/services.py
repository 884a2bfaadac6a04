"""Services on the wire: a service's address, its model, and the wanted number of its replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from chalicelib.domain.runs import Run
from chalicelib.domain.specs.services import OpenAIChatModel

if TYPE_CHECKING:
    from chalicelib import contract


def service_json(run: Run, run_spec: str, project_name: str) -> contract.Service | None:
    """The service of a run; None if it isn't a service. Without a gateway, addresses are paths, which clients append to
    the server's address."""
    if not run.scales:
        return None
    url = run.url or f"/proxy/services/{project_name}/{run.name}/"
    written = orjson.loads(run_spec)["configuration"].get("model")
    scales: list[contract.Scale] = [
        {
            "group": each.group,
            "desired": each.desired,
            "why": each.why or None,
            "wanted": each.wanted,
            "stale": each.stale,
        }
        for each in run.scales
    ]
    shown: contract.Service = {"url": url, "model": None, "options": {}, "scales": scales}
    if written is None:
        return shown
    model = OpenAIChatModel.model_validate(_long_form(written))
    shown["model"] = {"name": model.name, "base_url": url + model.prefix.strip("/"), "type": model.type}
    long: contract.ModelSpec = {
        "type": model.type,
        "name": model.name,
        "format": model.format,
        "prefix": model.prefix,
    }
    shown["options"] = {"openai": {"model": long}}
    return shown


def _long_form(written: Any) -> Any:
    """A model in its long form. A spec is stored as it was sent, and the short form is the model's name."""
    return {"name": written, "format": "openai"} if isinstance(written, str) else written
