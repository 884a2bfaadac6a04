"""A trial as a service's configuration, for people to read, store and apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.presets.search import Goal, names_of, price_of_tokens
from cli.tables.cells import money

if TYPE_CHECKING:
    from chalicelib import contract


def service_of(preset: contract.Preset, trial: contract.PresetTrial) -> dict[str, Any]:
    """On machines like the one that it was measured on. Variables from the user's environment have no value in it."""
    from chalicelib.domain.specs.env import read_env

    configuration, found = preset["configuration"], dict(trial["proposal"])
    _, _, served = names_of(configuration)
    env = {**(read_env(found.pop("env", None)) or {}), **(configuration["env"] or {})}
    service: dict[str, Any] = {"type": "service", "name": preset["name"] or f"preset-{preset['id']}", **found}
    if env:
        service["env"] = [name if isinstance(value, dict) else f"{name}={value}" for name, value in env.items()]
    service["model"] = served
    if configuration["gateway"] is not None:
        service["gateway"] = configuration["gateway"]
    if trial["machine"] and trial["machine"]["gpu"]:
        resources = found.get("resources")
        service["resources"] = {**(resources if isinstance(resources, dict) else {}), "gpu": trial["machine"]["gpu"]}
    return service


def text_of(preset: contract.Preset, trial: contract.PresetTrial, name: str | None = None) -> str:
    """The file, with what was measured on top."""
    import yaml

    service = service_of(preset, trial)
    if name:
        service["name"] = name
    goal, found = Goal.of(preset["configuration"]), trial["benchmark"]
    lines = [f"# Preset {preset['id']}, trial {trial['number']}: {' '.join(trial['hypothesis'].split())}"]
    if found:
        lines += [
            f"# {goal.concurrency} concurrent requests: {found['tokens_per_second']:.0f} output tokens/s, the first "
            f"token after {found['ttft_ms']:.0f} ms (95 % within {found['ttft_p95_ms']:.0f} ms)"
        ]
    if machine := trial["machine"]:
        cost = price_of_tokens(trial)
        priced = f", {money(cost)} a million output tokens" if cost else ""
        lines += [f"# Measured on {machine['instance_type']} of {machine['backend']}: {machine['resources']}{priced}"]
    return "\n".join(lines) + "\n" + yaml.safe_dump(service, sort_keys=False, allow_unicode=True, width=120)
