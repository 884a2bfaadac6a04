"""Where `${{ … }}` may be used in a configuration, and which names are allowed there.

References are filled in only in the places listed here; anywhere else they would reach the job as text. So every text
of a configuration is searched, and a reference that would never be filled in is refused, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from chalicelib.configuration.interpolation import Reference, Unread, references, secrets_in
from chalicelib.errors import Problem

if TYPE_CHECKING:
    from chalicelib.domain.specs.fleets import FleetSpec
    from chalicelib.domain.specs.gateways import GatewaySpec
    from chalicelib.domain.specs.runs import RunSpec
    from chalicelib.domain.specs.volumes import VolumeSpec

    AnySpec = RunSpec | FleetSpec | VolumeSpec | GatewaySpec

Path = tuple[str, ...]

OPENING = "${{"
EACH = "*"  # in a pattern: every entry of a list or mapping
AS_TEXT = "`$${{` is the text `${{`"
MOST_LISTED = 8
MAX_PROBLEMS = 20  # of one text; nobody fixes more at once
MOST_REFERENCES = 5_000  # in one configuration, to bound the work; longer texts belong in a file

_FILLED_IN = {  # where each namespace is filled in
    "secrets": "`env` and `registry_auth`",
    "env": "`registry_auth` and `probes`",
    "groups": "`commands`",
    "run": "`commands`",
    "dstack": "names of `volumes`",
}


@dataclass(frozen=True)
class Allowed:
    """References that a place allows: these names of a namespace, or any name of this form."""

    namespace: str
    names: tuple[str, ...] = ()
    form: str = ""
    example: str = ""  # of the form
    secret: tuple[str, ...] = ()  # names that aren't allowed, because their values contain a secret

    def allows(self, reference: Reference) -> bool:
        if reference.namespace != self.namespace:
            return False
        return re.fullmatch(self.form, reference.name) is not None if self.form else reference.name in self.names


Places = dict[Path, tuple[Allowed, ...]]  # by pattern

SECRETS = Allowed("secrets", form=".+", example="`${{ secrets.NAME }}`")
ARGUMENTS = Allowed("run", ("args",))
NODES = Allowed("groups", form=r"\[\d+\]\.nodes\[\d+\]\.IP_ADDRESS", example="`${{ groups[0].nodes[0].IP_ADDRESS }}`")
REPLICAS = Allowed(
    "groups", form=r"\[\d+\]\.replicas\[\d+\]\.IP_ADDRESS", example="`${{ groups[0].replicas[0].IP_ADDRESS }}`"
)
_ADDRESSES = {"task": NODES, "service": REPLICAS}
_RANK = Allowed("dstack", ("node_rank", "job_num"))
_PROJECT = Allowed("run", ("project_name",))


def misplaced(spec: AnySpec) -> list[Problem]:
    """A problem for every reference of a spec that would never be filled in."""
    places, found, references_read = _places(spec), list[Problem](), 0
    for path, text in _texts(spec):
        references_read += text.count(OPENING)
        if references_read > MOST_REFERENCES:
            most, hint = f"there are more than {MOST_REFERENCES} `${{{{` up to here", "move them into a file of `files`"
            return [*found, Problem(most, path=".".join(path), hint=hint, code="too-large")]
        problems = wrong(text, ".".join(path), _at(places, path), commands=path[-2:-1] == ("commands",))
        found += islice(problems, MAX_PROBLEMS)
    return found


def secrets_named(spec: AnySpec) -> Iterator[tuple[str, str]]:
    """The path and name of each secret that a spec refers to where secrets are filled in."""
    places = _places(spec)
    for path, text in _texts(spec):
        if SECRETS in _at(places, path):
            for part in references(text):
                if isinstance(part, Reference) and part.namespace == "secrets":
                    yield ".".join(path), part.name


def wrong(
    text: str, path: str, allowed: Sequence[Allowed], *, deferred: Collection[str] = (), commands: bool = False
) -> Iterator[Problem]:
    """Problems with the references of a text. `deferred`: namespaces that are checked elsewhere. `commands`: clients
    have filled these in and may have removed escapes, so what doesn't resemble a namespace of ours counts as text."""
    seen = set()
    for part in references(text):
        if part.written in seen or (isinstance(part, Reference) and _is_allowed(part, allowed, deferred)):
            continue
        seen.add(part.written)
        if not (commands and _is_foreign(part)):
            in_shell = path.split(".")[-2:-1] in (["commands"], ["init"])
            message, hint = _why(part, _with_clients(part, path, allowed), in_shell=in_shell)
            yield Problem(message, path=path, hint=hint, code="invalid-interpolation")


def _with_clients(part: Reference | Unread, path: str, allowed: Sequence[Allowed]) -> Sequence[Allowed]:
    """The allowed references, plus those that clients fill in there: one that is left has a wrong name, but is in the
    right place."""
    parts, meant = path.split("."), _namespace_meant(_parts_of(part)[0])
    client_side = [ARGUMENTS] * (parts[-2:-1] == ["commands"]) + [Allowed("env")] * ("registry_auth" in parts)
    known = {each.namespace for each in allowed}
    return (*allowed, *(each for each in client_side if each.namespace == meant and meant not in known))


def _is_allowed(part: Reference, allowed: Sequence[Allowed], deferred: Collection[str]) -> bool:
    return part.namespace in deferred or any(each.allows(part) for each in allowed)


def _is_foreign(part: Reference | Unread) -> bool:
    return part.closed and (str(part) == "run.args" or not _namespace_meant(_parts_of(part)[0]))


def _namespace_meant(namespace: str) -> str | None:
    """The namespace that was written or, if it is misspelt, meant."""
    return namespace if namespace in _FILLED_IN else _nearest(namespace, _FILLED_IN)


def _nearest(name: str, known: Collection[str]) -> str | None:
    from chalicelib.configuration.problems import nearest  # most specs have nothing wrong

    return nearest(name, list(known))


def _parts_of(part: Reference | Unread) -> tuple[str, str]:
    """The parts that may be meant as its namespace and its name."""
    found = re.findall(r"[A-Za-z_][A-Za-z0-9_-]*", part.written)
    return (found[0] if found else ""), (found[1] if len(found) > 1 else "")


def _why(part: Reference | Unread, allowed: Sequence[Allowed], *, in_shell: bool) -> tuple[str, str]:
    if not part.closed:
        return "`${{` is never closed", f"add `}}}}`; {AS_TEXT}"
    namespace, name = _parts_of(part)
    here = {each.namespace: each for each in allowed}
    meant = _namespace_meant(namespace)
    if meant is not None and meant not in here:
        where = f"`{meant}` works in {_FILLED_IN[meant]}"
        if in_shell and meant == "secrets" and re.fullmatch(r"\w+", name):
            where += f": set `{name.upper()}` to `${{{{ secrets.{name} }}}}` in `env`, and use `${name.upper()}` here"
        return f"`{part.shown}` isn't filled in here", f"{where}; {AS_TEXT}"
    if meant is not None and name in here[meant].secret:
        text = "a secret is in that variable, and probes get none, because programs log their requests"
        return f"`{part.shown}` isn't filled in here: {text}", "let the program answer this one without the secret"
    if meant is not None and (better := _better(here[meant], name)) and better != part.shown:
        return f"`{part.shown}` isn't known here", f"did you mean `{better}`?"
    there_are = allowed if meant is None else [here[meant]]
    known = [f"`${{{{ {each.namespace}.{name} }}}}`" for each in there_are for name in each.names][:MOST_LISTED]
    known += [each.example for each in there_are if each.form]
    there = f"there is {', '.join(known)}; " if known else ""
    return f"`{part.shown}` isn't known here", f"{there}{AS_TEXT}"


def _better(meant: Allowed, name: str) -> str:
    near = name if meant.form or name in meant.names else _nearest(name, meant.names)
    complete = meant.namespace != "groups" and near
    return f"${{{{ {meant.namespace}.{near} }}}}" if complete else ""


# --- the places ------------------------------------------------------------------------------------------------------


def _places(spec: AnySpec) -> Places:
    config: Any = spec.configuration
    found: Places = {}
    if config.type in ("task", "service", "dev-environment", "fleet"):
        found[("env", EACH)] = (SECRETS,)
    if config.type in ("task", "service", "dev-environment"):
        found[("registry_auth", EACH)] = (SECRETS,)
        found[("volumes", EACH, "name")] = found[("volumes", EACH, "name", EACH)] = (_RANK,)
    if config.type in _ADDRESSES:
        found[("commands", EACH)] = found[("groups", EACH, "commands", EACH)] = (_ADDRESSES[config.type],)
    if config.type == "service":
        secret = tuple(name for name, value in config.env.items() if isinstance(value, str) and secrets_in(value))
        plain = tuple(name for name in config.env if name not in secret)
        variables = (Allowed("env", plain, secret=secret),)  # filled in with the job's task, too
        found[("probes", EACH, "url")] = found[("probes", EACH, "body")] = variables
        found[("probes", EACH, "headers", EACH, "value")] = variables
    if config.type == "gateway":
        found[("domain",)] = (_PROJECT,)
        found[("certificate", "certificate")] = found[("certificate", "key")] = (SECRETS,)
    return {("configuration", *path): allowed for path, allowed in found.items()}


def _at(places: Places, path: Path) -> tuple[Allowed, ...]:
    for pattern, allowed in places.items():
        if len(pattern) == len(path) and all(each in (EACH, part) for each, part in zip(pattern, path, strict=True)):
            return allowed
    return ()


def _texts(spec: AnySpec) -> Iterator[tuple[Path, str]]:
    """The texts that users wrote, with their paths, except names, which have rules of their own."""
    for part in ("configuration", "profile"):
        written = getattr(spec, part, None)
        if _mentions(written):
            yield from (each for each in _below(written, (part,)) if each[0] != ("configuration", "name"))


def _mentions(value: Any) -> bool:
    """Is there any such text? Most have none, which is found out far sooner without their paths."""
    if isinstance(value, str):
        return OPENING in value
    if isinstance(value, BaseModel):
        return any(map(_mentions, value.__dict__.values()))
    if isinstance(value, Mapping):
        return any(map(_mentions, value)) or any(map(_mentions, value.values()))
    return isinstance(value, tuple | list) and any(map(_mentions, value))


def _below(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        if OPENING in value:
            yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _below(getattr(value, name), (*path, name))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _below(name, path)
            yield from _below(each, (*path, str(name)))
    elif isinstance(value, tuple | list):
        for at, each in enumerate(value):
            yield from _below(each, (*path, str(at)))
