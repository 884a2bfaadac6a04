"""Which service a request to the common address of a project's models is for.

Clients of OpenAI's API use `/proxy/models/<project>` as their base URL and name a model in each request. Only that name
is read; the request goes byte for byte to a replica of a service with that model, so that model servers may support
fields beyond OpenAI's. A response that a model server stores (`responses/<id>`) exists only at the replica that made
it, so the door remembers which replica that is.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from chalicelib.domain.serving import Served
from chalicelib.serving.body_fields import MOST, PARTS, BodyFields, FormHead, JsonHead
from chalicelib.serving.problems import HttpProblem

JSON_CALLS = ("chat/completions", "completions", "embeddings", "responses", "rerank", "audio/speech")
FORM_CALLS = ("audio/transcriptions", "audio/translations")  # a form with the model's name and a recording
SIZE = 20_000  # responses whose replica is remembered
MENTIONED = 20  # models that an error lists

_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,255}")
_ABOUT_ONE = {"": ("GET", "DELETE"), "input_items": ("GET",), "cancel": ("POST",)}
_MADE = re.compile(rb'"id"\s*:\s*"([^"\\]{1,256})"')
FIRST_ID = 16 * 1024  # bytes of an answer in which its id must be


@dataclass(frozen=True)
class ModelListing:
    """`models`: the list of all models."""


@dataclass(frozen=True)
class One:
    """`models/<name>`: one model."""

    name: str


@dataclass(frozen=True)
class ModelCall:
    """A request that names its model in its body."""

    path: str
    form: bool = False

    @property
    def makes(self) -> bool:
        """Whether its response gets an id by which it can be requested later."""
        return self.path == "responses"

    def head(self, content_type: str) -> BodyFields:
        if self.form:
            return FormHead(content_type, "model")
        return JsonHead("model", *(["previous_response_id"] if self.makes else []))


@dataclass(frozen=True)
class Stored:
    """A request about a response that was made before."""

    path: str
    id: str


Ask = ModelListing | One | ModelCall | Stored


def read(method: str, path: str) -> Ask:
    """The request that a method and a path mean. `path`: the part after the project, as it was sent, with or without
    `v1/`. Raises HttpProblem."""
    path = path.removeprefix("v1/")
    query, methods = _ask(path)
    if query is None:
        there = ", ".join(("models", *JSON_CALLS, *FORM_CALLS, "responses/<id>"))
        raise HttpProblem(404, f"There is no `{path[:100]}` here; there are {there}.", "unknown_url")
    if method not in methods:
        raise HttpProblem(
            405, f"`{path[:100]}` takes {' and '.join(methods)}, not {method[:20]}.", "method_not_allowed"
        )
    return query


def _ask(path: str) -> tuple[Ask | None, tuple[str, ...]]:
    if path in JSON_CALLS or path in FORM_CALLS:
        return ModelCall(path, form=path in FORM_CALLS), ("POST",)
    first, _, rest = path.partition("/")
    if first == "models":
        return (One(unquote(rest)) if rest else ModelListing()), ("GET", "HEAD")
    name, _, about = rest.partition("/")
    if first == "responses" and _ID.fullmatch(name) and about in _ABOUT_ONE:
        return Stored(path, name), _ABOUT_ONE[about]
    return None, ()


def serving(services: Iterable[Served], name: str) -> list[Served]:
    return [each for each in services if each.model is not None and each.model.name == name]


def names(services: Iterable[Served]) -> list[str]:
    return sorted({each.model.name for each in services if each.model is not None})


def listing(services: Sequence[Served], query: ModelListing | One) -> dict[str, object]:
    """The response to a request for models, in OpenAI's format. Raises HttpProblem."""
    known: dict[str, dict[str, object]] = {}
    for each in sorted(services, key=lambda one: one.since):
        if (model := each.model) is not None:
            owner = each.project_name
            entry = {"id": model.name, "object": "model", "created": each.since // 10**6, "owned_by": owner}
            known.setdefault(model.name, entry)
    if isinstance(query, One):
        if query.name not in known:
            raise nobody(services, query.name)
        return known[query.name]
    return {"object": "list", "data": [known[name] for name in sorted(known)]}


def nobody(services: Sequence[Served], name: str) -> HttpProblem:
    """The error for a model that no service serves."""
    there = names(services)
    more = f" and {len(there) - MENTIONED} more" if len(there) > MENTIONED else ""
    listed = ", ".join(f"`{each}`" for each in there[:MENTIONED])
    hint = f"there are {listed}{more}" if there else "no service of this project has a `model`; run one that does"
    return HttpProblem(
        404, f"No running service serves the model `{name[:200]}`: {hint}.", "model_not_found", param="model"
    )


def wanted(services: Sequence[Served], call: ModelCall, head: BodyFields, complete: bool) -> str:
    """The name of the requested model. `complete`: the body has been read to its end.

    A body may have images before the name. If the project has only one model, the name isn't needed. Raises
    HttpProblem.
    """
    if name := head.found.get("model"):
        return name
    there = names(services)
    if not complete and len(there) == 1:
        return there[0]
    if not complete:
        size = f"{MOST // 1024**2} MB, or {PARTS} parts," if call.form else f"{MOST // 1024**2} MB"
        hint = "put it first, or use the service's own URL"
        text = f"The first {size} of the body don't say which `model` is asked for: {hint}."
        raise HttpProblem(400, text, "model_not_given", param="model")
    what = "a form with a part `model`" if call.form else 'a JSON object with a `model`, for instance {"model": "…"}'
    raise HttpProblem(400, f"The body must be {what}.", "model_not_given", param="model")


def chosen(candidates: Sequence[Served], draw: float) -> Served:
    """One of the services that serve the same model, weighted by ready replicas. `draw` is from [0, 1).

    If none is ready, the request waits for the service with the most replicas.
    """
    weights = [sum(one.ready and not one.draining for one in each.replicas) for each in candidates]
    point = int(draw * sum(weights))
    for each, weight in zip(candidates, weights, strict=True):
        if point < weight:
            return each
        point -= weight
    return max(candidates, key=lambda each: len(each.replicas))


def target(service: Served, path: str) -> str:
    """The path at the replica, under the prefix of the model's API."""
    prefix = service.model.prefix if service.model is not None else ""
    return f"/{prefix.strip('/')}/{path}" if prefix.strip("/") else f"/{path}"


def response_id(beginning: bytes) -> str:
    """The id of a stored response, read from the beginning of its JSON or its events; empty if there is none."""
    found = _MADE.search(beginning)
    return found[1].decode(errors="replace") if found else ""


@dataclass(frozen=True)
class Maker:
    """The replica that made a response."""

    project: str
    run_id: str
    job_id: str


class Makers:
    """The replicas that made the latest `size` responses since the door was opened."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._known: OrderedDict[tuple[str, str], Maker] = OrderedDict()

    def remember(self, response: str, maker: Maker) -> None:
        if not response:
            return
        self._known[maker.project, response] = maker
        self._known.move_to_end((maker.project, response))
        if len(self._known) > self._size:
            self._known.popitem(last=False)

    def replica(self, services: Sequence[Served], project: str, response: str) -> tuple[Served, str]:
        """The service and the job of the replica that made this response. Raises HttpProblem."""
        maker = self._known.get((project, response))
        if maker is None:
            hint = f"the latest {self._size} are, since the server started"
            raise HttpProblem(404, f"The response `{response}` isn't known here: {hint}.", "response_not_found")
        for each in services:
            if each.run_id == maker.run_id and any(one.job_id == maker.job_id and one.ready for one in each.replicas):
                return each, maker.job_id
        text = f"The replica that made the response `{response}` is gone, and the response with it."
        raise HttpProblem(404, text, "response_not_found")
