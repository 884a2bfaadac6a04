"""The parts of a spec that depend on the providers: names of backends, and unions of the providers' own models.

Files and requests are validated with the providers as the context. A stored spec was validated that way before, so it
is read without a context: then any name is accepted, and such a part may have any fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from chalicelib.domain.noun import Value
from chalicelib.domain.reading_context import Reading
from chalicelib.domain.specs.reading import TAG, JsonSchema, Spec

HOSTS = "remote"  # what clients call the backend of hosts that people own
OF_PROVIDERS = "x-of-providers"  # a placeholder in JSON Schemas, which `configuration.schema` replaces


class _BackendName:
    """An annotation for the name of a backend."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_before_validator_function(_known_name, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {OF_PROVIDERS: self}


BackendName = Annotated[str, _BackendName()]


def backend_names(providers: Sequence[str]) -> list[str]:
    """All names of backends that a spec may contain."""
    return sorted([*providers, HOSTS])


def _known_name(written: Any, info: ValidationInfo) -> Any:
    if isinstance(info.context, Reading):
        known = backend_names(info.context.providers.names())
        if written not in known:
            listed = [f"'{name}'" for name in known]
            raise PydanticKnownError("literal_error", {"expected": f"{', '.join(listed[:-1])} or {listed[-1]}"})
    return written


@dataclass(frozen=True, eq=False)
class ProviderUnion:
    """An annotation for a part of a spec that is a union of the providers' models."""

    part: str  # its name in the table of backends
    by: str  # the field that chooses the model
    general: type[Spec]  # what all of them extend
    own: Mapping[str, type[Spec]] = field(default_factory=dict)  # models that belong to no provider

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        by_its_class = core_schema.wrap_serializer_function_ser_schema(
            lambda value, write: write(value), schema=core_schema.any_schema()
        )
        return core_schema.with_info_plain_validator_function(self._read, serialization=by_its_class)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {OF_PROVIDERS: self}

    def _read(self, written: Any, info: ValidationInfo) -> Any:
        if isinstance(written, (self.general, *self.own.values())):
            return written
        return _tagged(self._model(written, info.context)).validate_python(written, context=info.context)

    def _model(self, written: Any, context: Any) -> type[Value]:
        kind = written.get(self.by) if isinstance(written, dict) else None
        if isinstance(kind, str) and kind in self.own:
            return self.own[kind]
        if not isinstance(context, Reading):
            return _with_any_fields(self.general)
        known = context.providers.kinds(self.part)
        if len(known) == 1 and not self.own:
            kind = known[0]  # there is nothing to choose
        if not isinstance(kind, str) or kind not in known:
            listed = ", ".join(f"`{each}`" for each in [*self.own, *known])
            raise PydanticCustomError(f"unknown-{self.by}", "{allowed}", {"allowed": f"one of {listed}"})
        return context.providers.model(self.part, kind)


@cache
def _with_any_fields(general: type[Spec]) -> type[Spec]:
    class Stored(general):  # type: ignore[misc, valid-type]
        model_config = ConfigDict(extra="allow")

    return Stored


@dataclass(frozen=True)
class _Tagged:
    """An annotation that adds a name to the paths of errors, as a union adds that of its arm."""

    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.tagged_union_schema({self.name: handler(source)}, discriminator=lambda _: self.name)


@cache
def _tagged(model: type[Value]) -> TypeAdapter[Any]:
    tagged: Any = Annotated[model, _Tagged(TAG + model.__name__)]
    return TypeAdapter(tagged)
