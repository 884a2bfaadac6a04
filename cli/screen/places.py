"""The places of problems: a line of the file, a line of the profile, or a flag.

A problem names its field, whether the parser found it or a server, which knows no files. Only the reader of the file
knows the lines, so places are added here, without changing the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chalicelib.errors import Invalid, Problem

if TYPE_CHECKING:
    from chalicelib.configuration.overrides import Overrides


@dataclass(frozen=True)
class Written:
    """A file as it was read. `above` is the path in it that the problems are relative to."""

    name: str
    raw: bytes
    above: tuple[str | int, ...] = ()

    def place(self, problem: Problem, path: str) -> Problem:
        from chalicelib.configuration.parse import located

        return located(problem, (*self.above, *path.split(".")), self.raw, filename=self.name)


@dataclass(frozen=True)
class Places:
    file: Written | None = None
    profile: Written | None = None
    flags: Overrides | None = None

    def of(self, problem: Problem) -> Problem:
        """The problem with its place, if it has one that isn't set yet."""
        if problem.file or not problem.path:
            return problem
        if problem.path.startswith("profile."):
            return self.profile.place(problem, problem.path.removeprefix("profile.")) if self.profile else problem
        if self.flags and (flag := self.flags.flag_of(problem.path)):
            return replace(problem, path=flag)
        return self.file.place(problem, problem.path) if self.file else problem

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raises Invalid if there are any problems, in the order of the file."""
        if found := sorted(map(self.of, problems), key=lambda problem: (problem.line, problem.column)):
            raise Invalid(found)

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Adds places to the problems raised inside."""
        try:
            yield
        except Invalid as error:
            raise Invalid([self.of(problem) for problem in error.problems], hint=error.hint) from None
