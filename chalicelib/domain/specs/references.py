"""References in a configuration: `name`, `project/name`, an instance of a fleet, a host."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag

from chalicelib.domain.specs.reading import TAG, Integer, JsonSchema, Spec, fault

_TEXT = {"type": "string", "minLength": 1}


class EntityReference(Spec):
    """Something with a name, in this project or another."""

    project: str | None = Field(default=None, description="The project it is in; this one unless set.")
    name: str = Field(description="Its name.", min_length=1)

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (
        _TEXT | {"pattern": "^[^/]+(/[^/]+)?$", "examples": ["name", "project/name"]},
    )

    @classmethod
    def read(cls, written: Any) -> Any:
        if not isinstance(written, str):
            return written
        parts = written.split("/")
        if len(parts) > 2 or not all(part.strip() for part in parts):
            raise fault("invalid-reference", f"`{written}` isn't a name", "write `name` or `project/name`")
        return {"project": parts[0] if len(parts) == 2 else None, "name": parts[-1]}

    def __str__(self) -> str:
        return f"{self.project}/{self.name}" if self.project else self.name


class InstanceNameSelector(Spec):
    """An instance by its name."""

    name: str = Field(description="The name of the instance, `<fleet>-<number>`.", min_length=1)

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (_TEXT,)

    @classmethod
    def read(cls, written: Any) -> Any:
        return {"name": written} if isinstance(written, str) else written


class InstanceHostnameSelector(Spec):
    """An instance by the address of its host."""

    hostname: str = Field(description="The address of the host.", min_length=1)


class FleetInstanceSelector(Spec):
    """An instance by its fleet and its number there."""

    fleet: EntityReference = Field(description="The fleet.")
    instance: Integer = Field(description="The instance's number in the fleet.", ge=0, le=2**31)


def _selector(value: Any) -> str:
    has = value.__contains__ if isinstance(value, dict) else lambda field: hasattr(value, field)
    if has("hostname"):
        return TAG + "InstanceHostnameSelector"
    return TAG + ("FleetInstanceSelector" if has("fleet") or has("instance") else "InstanceNameSelector")


InstanceSelector = Annotated[
    Annotated[InstanceNameSelector, Tag(TAG + "InstanceNameSelector")]
    | Annotated[InstanceHostnameSelector, Tag(TAG + "InstanceHostnameSelector")]
    | Annotated[FleetInstanceSelector, Tag(TAG + "FleetInstanceSelector")],
    Discriminator(_selector),
]
