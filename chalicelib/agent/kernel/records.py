"""`record`: a `dataclass` for the type checker, and at run time a small replacement with what the agent uses.

An agent starts with every machine and a supervisor with every task. `dataclasses` would take an eighth of that time: it
imports five modules that parse Python, and compiles each class's methods. Only the type checker enforces `frozen`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(cls=None, *, frozen=False):
        return _record_class(cls, frozen) if cls is not None else lambda cls: _record_class(cls, frozen)


def _record_class(cls: Any, frozen: bool) -> Any:
    names = tuple(getattr(cls, "__annotations__", ()))
    defaults = {name: getattr(cls, name) for name in names if hasattr(cls, name)}

    def init(self: Any, *values: Any, **named: Any) -> None:
        fields = dict(defaults, **dict(zip(names, values)))  # noqa: B905 - Python 3.10
        fields.update(named)
        if len(values) > len(names) or fields.keys() != set(names) or named.keys() & set(names[: len(values)]):
            raise TypeError("%s has the fields %s" % (cls.__name__, ", ".join(names)))
        self.__dict__.update(fields)

    def equal(self: Any, other: Any) -> Any:
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    def representation(self: Any) -> str:
        return "%s(%s)" % (cls.__name__, ", ".join("%s=%r" % (name, getattr(self, name)) for name in names))

    cls.__init__, cls.__eq__, cls.__repr__ = init, equal, representation
    cls.__hash__ = (lambda self: hash(tuple(getattr(self, name) for name in names))) if frozen else None
    return cls
