"""Which rule, if any, lets a program in that shows a token of the place where it runs.

The signature is checked before, with the keys of the issuer that the operator wrote down: nobody else's are ever
fetched. What is decided here is whether such a token is meant for this control plane, is valid now, and is of a program
that a rule names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from chalicelib.domain.specs.workload_rules import ANY, Workload
from chalicelib.errors import Refused

LEEWAY = 60  # seconds that the issuer's clock may be off
MOST = 86_400  # seconds that a token may still be valid: until then it is remembered that it was used
_SHOWN = ("sub", "repository", "ref", "environment", "project_path", "aud")  # of a refused token: its own bearer's


def of_issuer(rules: Iterable[Workload], issuer: str) -> tuple[Workload, ...]:
    """The rules for this issuer. Raises Refused if there are none."""
    found = tuple(rule for rule in rules if rule.issuer.rstrip("/") == issuer.rstrip("/"))
    if not found:
        raise Refused(
            f"Tokens of {issuer[:200]} aren't accepted here.",
            hint="An admin of this control plane can add a rule to `workloads` in its configuration.",
        )
    return found


def rule_for(rules: Sequence[Workload], claims: Mapping[str, Any], now: float) -> Workload:
    """The first rule that lets the bearer of these claims in. Raises Refused.

    `rules`: of the issuer; `claims`: of a token with a good signature; `now`: seconds since 1970.
    """
    _check_times(claims, now)
    sent = claims.get("aud")
    audiences = sent if isinstance(sent, list) else [sent]
    meant = [rule for rule in rules if rule.audience in audiences]
    if not meant:
        raise Refused(
            f"This token is for {_text(sent)}, not for this control plane.",
            hint="Ask the issuer for one with the `audience` of this control plane's rule for it.",
        )
    for rule in meant:
        if all(_meets(claims.get(claim), wanted) for claim, wanted in rule.claims.items()):
            return rule
    shown = ", ".join(f"`{claim}` {_text(claims[claim])}" for claim in _SHOWN if claim in claims)
    raise Refused(
        f"No rule of this control plane is for this program: {shown or 'its token says nothing about it'}.",
        hint="An admin can add one to `workloads` in the server's configuration.",
    )


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    ends, begins, made = (claims.get(name) for name in ("exp", "nbf", "iat"))
    for name, value in (("exp", ends), ("nbf", begins), ("iat", made)):
        missing = value is None and name != "exp"
        if not missing and (isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value)):
            raise Refused(f"This token can't be trusted: its `{name}` is {_text(value)}.")
    if ends + LEEWAY <= now:  # type: ignore[operator]  # it was just checked
        raise Refused("This token has expired.", hint="Sign on right after the issuer made it.")
    if ends > now + MOST:  # type: ignore[operator]
        raise Refused("This token is valid for more than a day.", hint="Ask the issuer for one that ends sooner.")
    if max(begins or 0, made or 0) - LEEWAY > now:
        raise Refused("This token isn't valid yet.", hint="Check that both clocks are right.")


def _meets(sent: Any, wanted: str) -> bool:
    """Is the claim what a rule wants? Lists and objects never are: one of several values would be too little."""
    if isinstance(sent, bool):
        sent = "true" if sent else "false"
    elif isinstance(sent, int):
        sent = str(sent)
    if not isinstance(sent, str):
        return False
    return sent.startswith(wanted[:-1]) if wanted.endswith(ANY) else sent == wanted


def _text(value: Any) -> str:
    text = "nothing" if value is None else f"`{value}`"
    return text if len(text) <= 200 else f"{text[:200]}…`"
