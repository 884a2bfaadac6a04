"""How a spec reads what a person wrote: short forms first, then fields, then rules; and how it complains.

Three things are the same for every type, so they live here once. A type may have short forms (`gpu: A100:2`): `read`
turns one into the fields it stands for, `SHORT_FORMS` tells the JSON Schema about it. A key we don't know is refused,
but one whose value is null is dropped when it comes over the wire: a newer client sends keys of its own that it doesn't
use. And a complaint carries a stable code, our own words and a hint, so that nobody downstream has to translate it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from chalicelib.domain.noun import Value

JsonSchema = dict[str, Any]
FROM_FILE = "file"  # the validation context of a file: there a stray key is a mistake even when it is empty
TAG = "?"  # begins the tag of a union's arm, which pydantic puts into the path of an error; no field starts with it


def fault(code: str, message: str, hint: str = "", *, at: str = "") -> PydanticCustomError:
    """One complaint. `at` names a field below the one being validated."""
    return faults([(code, message, hint, at)])


def faults(found: list[tuple[str, str, str, str]]) -> PydanticCustomError:
    """Several complaints of one validator: (code, message, hint, at)."""
    code, message, *_ = found[0]
    return PydanticCustomError(code, "{message}", {"message": message, "faults": found})


class Spec(Value):
    """A frozen spec value that may have short forms."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, coerce_numbers_to_str=True)

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = ()

    @classmethod
    def read(cls, written: Any) -> Any:
        """The fields that a short form stands for. Whatever isn't one is handed back untouched."""
        return written

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any, info: ValidationInfo) -> Any:
        fields = cls.read(written)
        if type(fields) is not dict or info.context == FROM_FILE:
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
    """An annotation: `parse` runs first; `forms` are, as JSON Schema, what it reads besides."""

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
class Looks:
    """An annotation: what text that passes looks like, for the JSON Schema alone; a validator says what is wrong."""

    pattern: str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {**handler(core), "pattern": self.pattern}


def no_switch(written: Any) -> Any:
    """Python would take `true` for 1; a person who wrote it didn't mean a number."""
    if isinstance(written, bool):
        raise fault(
            "wrong-type", f"expected a number, got `{str(written).lower()}`", "YAML reads yes, no, on, off as switches"
        )
    return written


Whole = Annotated[int, Reads(no_switch)]
Number = Annotated[float, Field(allow_inf_nan=False), Reads(no_switch)]


def is_number(value: object) -> bool:
    """A number as a person means it: Python's bool is an int, a person's isn't."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def unset(value: object) -> bool:
    """For `exclude_if`: clients leave these fields out of what they send when they aren't set, so we do too."""
    return value is None
