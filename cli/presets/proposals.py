"""What the language model is told, and what is taken of its answer.

Its answer is another's text: it may set only a few fields of a service, and no reference to secrets. Where the service
runs, for how long, with whose variables and who may call it is the user's to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chalicelib.configuration.problems import problems_of
from chalicelib.configuration.providers import FROM_CLIENT
from chalicelib.printable import printable
from cli.presets.search import Goal, price_of_tokens
from cli.tables.cells import machine, money

if TYPE_CHECKING:
    from chalicelib import contract

FIELDS = ("image", "entrypoint", "python", "nvcc", "commands", "port", "env", "resources")
SHOWN_OFFERS = 12
LONGEST_ERROR = 1500  # characters of a log in a prompt

ROLE = f"""\
You look for the best way to serve a language model on GPUs. You are asked for one service at a time: it is started,
measured with concurrent streaming chat requests, and stopped; then you see the figures and propose the next one. The
best is the one whose output tokens cost least on its machine, among those that keep to all limits.

Answer with one JSON object and nothing else:
{{"hypothesis": "why this should be better, in a sentence",
 "repo": "the repository of the weights that it serves",
 "service": {{"image": "...", "commands": ["..."], "port": 8000, "env": {{}}, "resources": {{"gpu": "A100:80GB:1"}}}}}}

`service` has only these fields: {", ".join(FIELDS)}. `commands` and `port` are needed. It must have an API like
OpenAI's under /v1, listen on the port in the variable DSTACK_SERVICE_PORT on all addresses, and serve the model under
the name that is asked for. `resources` has `gpu`
(NAME:MEMORY:COUNT), `cpu`, `memory`, `disk` and `shm_size`; choose among the offers. References in double braces aren't
allowed; the user's variables are there without being named. There is one replica."""


class Unusable(Exception):
    """An answer that no service can be made of; the text says why, to the language model."""


@dataclass(frozen=True)
class Proposal:
    hypothesis: str
    repo: str | None
    service: Mapping[str, Any]  # as it was written


def messages(
    goal: Goal,
    offers: Sequence[contract.Offer],
    trials: Sequence[contract.PresetTrial],
    *,
    baseline: bool,
    instructions: str,
    variables: Sequence[str],
    previous: Sequence[contract.Preset] = (),
) -> list[dict[str, str]]:
    """What is asked for the next trial. Everything that is known is in it, so a search can go on in another process."""
    parts = [_goal(goal), _offers(offers)]
    if variables:
        parts.append(f"Variables that the service gets from the user: {', '.join(variables)}.")
    if instructions:
        parts.append(f"The user's instructions:\n{instructions}")
    parts += [f"An earlier search, {preset['id']}:\n{_trials(preset['trials'])}" for preset in previous]
    parts.append(f"The trials of this search:\n{_trials(trials)}" if trials else "Nothing was tried yet.")
    if baseline:
        parts.append("Propose the baseline: a well-known server for this model with its default settings.")
    else:
        left = goal.trials - len(trials)
        parts.append(
            f"Propose the next service. {left} trial{'s are' if left != 1 else ' is'} left, this one included."
        )
    return [{"role": "system", "content": ROLE}, {"role": "user", "content": "\n\n".join(parts)}]


def corrected(asked: Sequence[Mapping[str, str]], answer: str, problem: str) -> list[dict[str, str]]:
    """The same with an answer that couldn't be used, and why."""
    text = f"This can't be used: {problem}\nAnswer with the whole JSON object again."
    return [*map(dict, asked), {"role": "assistant", "content": answer}, {"role": "user", "content": text}]


def _goal(goal: Goal) -> str:
    which = f"exactly the weights in {goal.repo}" if goal.repo else f"{goal.base}, or weights derived from it"
    shared = f", of which {goal.shared_prefix_tokens} are the same in all" if goal.shared_prefix_tokens else ""
    return (
        f"Serve {which}, under the name {goal.served_name}.\n"
        f"Load: {goal.concurrency} concurrent requests, {goal.input_tokens} tokens of input{shared}, "
        f"{goal.output_tokens} of output.\n"
        f"Limits: a context of at least {goal.min_context_length} tokens; the first token within {goal.max_ttft} ms "
        "for 95 of 100 requests; no failed request."
    )


def _offers(offers: Sequence[contract.Offer]) -> str:
    lines = dict.fromkeys(
        f"- {machine(offer['instance']['resources'])} for {money(offer['price']) or '$0'}/h" for offer in offers
    )
    if not lines:
        return "No machine is available now; the user's fleets decide what comes."
    return "\n".join(["Machines that can be had, each for the whole of it:", *list(lines)[:SHOWN_OFFERS]])


def _trials(trials: Sequence[contract.PresetTrial]) -> str:
    return "\n".join(map(_trial, trials)) or "(none)"


def _trial(trial: contract.PresetTrial) -> str:
    head = f"{trial['number']}. {trial['hypothesis']}\n   {json.dumps(trial['proposal'], ensure_ascii=False)}"
    found, cost = trial["benchmark"], price_of_tokens(trial)
    figures = ""
    if found:
        place = f" on {trial['machine']['resources']}" if trial["machine"] else ""
        figures = (
            f"\n   measured{place}: {found['tokens_per_second']:.0f} output tokens/s, first token "
            f"{found['ttft_ms']:.0f} ms (95 %: {found['ttft_p95_ms']:.0f}), {found['token_ms']:.1f} ms a token"
            + (f", {money(cost)} a million output tokens" if cost else "")
        )
    why = f"\n   not good: {trial['error'][:LONGEST_ERROR]}" if trial["error"] else ""
    return head + figures + why


# --- the answer ---


def read(answer: str, goal: Goal) -> Proposal:
    """The proposal in an answer. Raises Unusable."""
    found = _object(answer)
    service = found.get("service")
    if not isinstance(service, dict):
        raise Unusable("it has no object `service`.")
    if strangers := sorted(set(service) - set(FIELDS)):
        raise Unusable(f"`service` can't have {', '.join(strangers)}; it has only {', '.join(FIELDS)}.")
    text = json.dumps(service, ensure_ascii=False)
    if "${{" in text:
        raise Unusable("references in double braces aren't allowed.")
    if missing := [field for field in ("commands", "port") if not service.get(field)]:
        raise Unusable(f"`service` needs {' and '.join(missing)}.")
    if goal.repo and goal.repo not in text:
        raise Unusable(
            f"the service must serve exactly {goal.repo}, and neither its commands nor its variables name it."
        )
    repo, hypothesis = found.get("repo"), found.get("hypothesis")
    proposal = Proposal(
        _line(hypothesis or "no reason given", 500), goal.repo or (_line(repo, 200) if repo else None), service
    )
    service_of(proposal, goal, {}, {}, name="preset")  # its problems are the answer's
    return proposal


def _line(found: object, most: int) -> str:
    """Another's text, as one line that any file can have."""
    return printable(str(found)[:most]).encode("utf-8", "replace").decode()


def _object(answer: str) -> dict[str, Any]:
    """The JSON object in a text, with or without words and a fence around it."""
    text = re.sub(r"(?s)<think>.*?</think>", "", answer)
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        raise Unusable("there is no JSON object in it.")
    try:
        found = json.loads(text[begin : end + 1])
    except (ValueError, RecursionError) as error:
        raise Unusable(f"it isn't valid JSON: {error}.") from None
    if not isinstance(found, dict):
        raise Unusable("it isn't a JSON object.")
    return found


def service_of(
    proposal: Proposal, goal: Goal, configuration: Mapping[str, Any], env: Mapping[str, Any], *, name: str | None
) -> dict[str, Any]:
    """The service in the API's form: the proposal's fields, and the user's for all else. Raises Unusable."""
    from pydantic import ValidationError

    from chalicelib.domain.specs.profiles import ProfileParams
    from chalicelib.domain.specs.services import ServiceConfiguration

    written = {
        **{field: configuration.get(field) for field in (*ProfileParams.model_fields, "gateway")},
        **proposal.service,
        "type": "service",
        "name": name,
        "model": {"type": "chat", "name": goal.served_name, "format": "openai"},
    }
    written = {field: value for field, value in written.items() if value is not None}
    try:
        parsed = ServiceConfiguration.model_validate(written, context=FROM_CLIENT)
    except ValidationError as error:
        found = problems_of(error, model=ServiceConfiguration)
        raise Unusable("; ".join(problem.text for problem in found)) from None
    document: dict[str, Any] = parsed.model_dump(mode="json")
    if unset := [key for key, value in document["env"].items() if not isinstance(value, str)]:
        raise Unusable(f"the variables {', '.join(unset)} have no value.")
    document["env"] = {**document["env"], **env}
    return document
