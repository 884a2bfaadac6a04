"""How a spec is read (short forms first, then fields, then rules) and how it reports problems.

Three rules are the same for every type. A type may have short forms (`gpu: A100:2`): `read` expands one into fields,
`SHORT_FORMS` describes it in the JSON Schema. An unknown key is refused, but over the wire one whose value is null is
dropped, because newer clients send new keys that they don't use. And a problem has a stable code, our own message and a
hint, so that no caller has to translate it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from chalicelib.domain.noun import Value
from chalicelib.domain.reading_context import Reading

JsonSchema = dict[str, Any]
TAG = "?"  # starts the tag of a union's arm, which pydantic puts into an error's path; no field starts with it


def from_file(info: ValidationInfo) -> bool:
    return isinstance(info.context, Reading) and info.context.file


def fault(code: str, message: str, hint: str = "", *, at: str = "") -> PydanticCustomError:
    """One problem. `at` names a field below the one being validated."""
    return faults([(code, message, hint, at)])


def faults(found: list[tuple[str, str, str, str]]) -> PydanticCustomError:
    """Several problems of one validator: (code, message, hint, at)."""
    code, message, *_ = found[0]
    return PydanticCustomError(code, "{message}", {"message": message, "faults": found})


class Spec(Value):
    """A frozen spec value that may have short forms."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, coerce_numbers_to_str=True)

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = ()

    @classmethod
    def read(cls, written: Any) -> Any:
        """The fields that a short form stands for. Anything else is returned unchanged."""
        return written

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any, info: ValidationInfo) -> Any:
        fields = cls.read(written)
        if type(fields) is not dict or from_file(info):
            return fields
        strangers = fields.keys() - cls.model_fields.keys()
        unused = {name for name in strangers if fields[name] is None}
        return {k: v for k, v in fields.items() if k not in unused} if unused else fields

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        full = handler(core)
        return {"anyOf": [full, *cls.SHORT_FORMS]} if cls.SHORT_FORMS else full


@dataclass(frozen=True)
class Reads:
    """An annotation: `parse` runs before validation; `forms` is the JSON Schema of the additional forms it accepts."""

    parse: Callable[[Any], Any]
    forms: tuple[JsonSchema, ...] = ()

    def __hash__(self) -> int:
        return hash(self.parse)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        full = handler(core)
        return {"anyOf": [full, *self.forms]} if self.forms else full


@dataclass(frozen=True)
class TextPattern:
    """An annotation: the pattern of valid text, only for the JSON Schema; errors come from a validator."""

    pattern: str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {**handler(core), "pattern": self.pattern}


def no_switch(written: Any) -> Any:
    """Refuse a boolean, which Python would read as a number."""
    if isinstance(written, bool):
        raise fault(
            "wrong-type", f"expected a number, got `{str(written).lower()}`", "YAML reads yes, no, on, off as switches"
        )
    return written


Integer = Annotated[int, Reads(no_switch)]
Number = Annotated[float, Field(allow_inf_nan=False), Reads(no_switch)]


def is_number(value: object) -> bool:
    """Is it a number? A bool, which is an int in Python, isn't."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def unset(value: object) -> bool:
    """For `exclude_if`: omit fields that aren't set, as clients do."""
    return value is None
