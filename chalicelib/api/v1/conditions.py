"""`If-Match` and `If-None-Match` of writes (RFC 9110): only if the resource is as the caller knows it."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.api import etags
from chalicelib.api.route import Call
from chalicelib.errors import PreconditionFailed

MATCH, NONE_MATCH = "if-match", "if-none-match"


@dataclass(frozen=True)
class Condition:
    match: str  # tags of which the resource must have one; empty: any, or none
    new: bool  # the resource must not exist

    @classmethod
    def of(cls, call: Call) -> Condition:
        match, none_match = call.headers.get(MATCH, "").strip(), call.headers.get(NONE_MATCH, "").strip()
        if none_match not in ("", "*"):
            raise PreconditionFailed("`If-None-Match` of a write can only be `*`.", hint="It means: only if it is new.")
        return cls(match, none_match == "*")

    def __bool__(self) -> bool:
        return bool(self.match) or self.new

    def check(self, tag: str | None) -> None:
        """`tag`: the resource's; None if there is none. Raises PreconditionFailed."""
        if self.new and tag is not None:
            raise PreconditionFailed(
                "There is such a resource already.", hint="Leave out `If-None-Match` to change it."
            )
        if self.match and (tag is None or "W/" in self.match or not etags.has(self.match, tag)):
            what = "There is no such resource" if tag is None else "The resource has changed since its tag was read"
            raise PreconditionFailed(f"{what}.", hint="Read it again.")


def refuse(call: Call) -> None:
    """For a resource whose versions can't be compared: a condition isn't ignored."""
    for name, shown in ((MATCH, "If-Match"), (NONE_MATCH, "If-None-Match")):
        if name in call.headers:
            raise PreconditionFailed(
                f"`{shown}` isn't supported for this request.", hint="Leave it out; a `…/spec` has it."
            )
