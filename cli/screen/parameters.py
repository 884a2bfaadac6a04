"""Common parts of commands: options, help with examples, and the conversion of values.

Typer converts values through pydantic. Importing that and building an adapter per parameter takes longer than all of
`dstack ps`, so the commands here convert their few kinds of values (text, numbers, switches, choices) themselves.
"""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click.core import Command as ClickCommand
    from typer._click.core import Context, Parameter
    from typer._click.formatting import HelpFormatter

    Resolved = tuple[str | None, ClickCommand | None, list[str]]  # a command: name, itself, its arguments

Value = Any  # of a flag, which Typer has read, or of one of its settings
Flags = Mapping[str, Value]  # a command's
F = TypeVar("F", bound=Callable[..., object])

ProjectOption = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="The project; default $DSTACK_PROJECT, or your default project."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
YesOption = Annotated[bool, typer.Option("-y", "--yes", help="Don't ask for confirmation.")]
WatchOption = Annotated[bool, typer.Option("-w", "--watch", help="Refresh every 2 seconds until Ctrl-C.")]
WebOption = Annotated[bool, typer.Option("--web", help="Open its page of the web console, and print the address.")]
VerboseOption = Annotated[bool, typer.Option("-v", "--verbose", help="Show more columns.")]


SAME_VERBS = (  # verbs of other tools for the same action
    ("create", "add", "new", "set", "apply"),
    ("delete", "remove", "destroy", "rm", "del"),
    ("list", "ls", "ps"),
    ("get", "show", "describe", "inspect", "info", "status"),
    ("update", "edit", "change", "set"),
    ("stop", "kill", "cancel"),
    ("logs", "log"),
)


class PlainValue:
    """Converts the values of one parameter to its annotated type."""

    def __init__(
        self, annotation: object, choices: tuple[object, ...] | None, low: float | None, high: float | None
    ) -> None:
        self.item, self.many = _item_type(annotation)
        self.choices = tuple(str(choice) for choice in choices or ())
        self.low, self.high = low, high

    def coerce(self, value: Value, param: Value, ctx: Context) -> Value:
        if value is None:
            return () if self.many else None
        if self.many:
            return [self._one(item, param, ctx) for item in value]
        return self._one(value, param, ctx)

    def _one(self, value: Value, param: Value, ctx: Context) -> Value:
        if self.choices and value not in self.choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(self.choices)}.", ctx=ctx, param=param)
        if self.item not in (int, float):
            return value
        try:
            number = self.item(value)
        except ValueError:
            kind = "a whole number" if self.item is int else "a number"
            raise typer.BadParameter(f"{value!r} is not {kind}.", ctx=ctx, param=param) from None
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            span = f"at least {self.low:g}" if self.high is None else f"between {self.low or 0:g} and {self.high:g}"
            raise typer.BadParameter(f"{value} is out of range; give {span}.", ctx=ctx, param=param)
        return number


def _item_type(annotation: object) -> tuple[Value, bool]:
    """The type of one value, and whether the parameter takes several."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = next(arg for arg in typing.get_args(annotation) if arg is not type(None))
    if typing.get_origin(annotation) is list:
        return _item_type(typing.get_args(annotation)[0])[0], True
    if typing.get_origin(annotation) is typing.Literal:
        return str, False
    return annotation, False


def _shown_as(metavar: str, ctx: Context) -> str:
    return metavar


class _Plain:
    """Gives every parameter, including the help flag, its `PlainValue` before it is used."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        params: list[Value] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(getattr(param, "_runtime_param", None), PlainValue):
                continue  # from the call before: a command line asks twice
            kind = param.type_descriptor
            info = kind.parameter_info
            param._runtime_param = PlainValue(kind.annotation, kind.choices, info.min, info.max)
            if param.metavar:  # shown in place of a type; an argument already shows its metavar
                param.display_type_rich = partial(_shown_as, param.metavar if param.param_type_name == "option" else "")
        return params


class Command(_Plain, TyperCommand):
    """A command that converts its values without pydantic."""


class CommandGroup(_Plain, TyperGroup):
    """A group of such commands. A flag before the command's name belongs to that command."""

    def resolve_command(self, ctx: Context, args: list[str]) -> Resolved:
        if self.get_command(ctx, args[0]) is None:
            self.refuse_unknown(ctx, args[0])
        name, found, remaining = super().resolve_command(ctx, args)
        if name is not None and found is not None:
            self.hand_down(ctx, name, found)
        return name, found, remaining

    def refuse_unknown(self, ctx: Context, name: str) -> None:
        """Refuses an unknown command: another tool's verb, or misspelt. Flags are left to the parser."""
        if name.startswith("-"):
            return
        known = self.list_commands(ctx)
        verbs = next((verbs for verbs in SAME_VERBS if name in verbs), ())
        near = [verb for verb in verbs if verb in known] or difflib.get_close_matches(name, known, 2)
        path = ctx.command_path
        guess = f"Did you mean {' or '.join(near)}?" if near else f"`{path} --help` lists them all."
        ctx.fail(f"`{path}` has no command {name!r}. {guess}")

    def hand_down(self, ctx: Context, name: str, found: ClickCommand) -> None:
        """Makes flags of the group defaults of the command; refuses those that the command doesn't have."""
        given_flags = {param.name: flag for param in self.params if (flag := given(ctx, param.name))}
        known = {param.name for param in found.params}
        for parameter, flag in given_flags.items():
            if parameter not in known:
                ctx.fail(f"{flag} has no effect on `{ctx.command_path} {name}`; leave it out.")
        ctx.default_map = {name: {parameter: ctx.params[parameter] for parameter in given_flags}}

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.lines())

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Prints the group's own examples and one of each command, or those of its only command."""
        every = [(found.epilog or "").splitlines()[2:] for found in self.ends()]
        own = (self.epilog or "").splitlines()[2:]
        examples = every[0] if len(every) == 1 and not own else [*own, *(line for lines in every for line in lines[:1])]
        if examples:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text("\b\nExamples:\n" + "\n".join(examples))

    def ends(self) -> Iterator[ClickCommand]:
        """Its commands, and those of groups within it that do nothing by themselves."""
        for found in self.commands.values():
            if isinstance(found, CommandGroup) and not found.invoke_without_command:
                yield from found.ends()
            else:
                yield found

    def lines(self) -> list[tuple[str, str]]:
        """Every command with the first line of its help, uncut."""
        return [(name, (found.help or "").splitlines()[0]) for name, found in self.commands.items()]


def given(ctx: Context, name: str) -> str:
    """The flag as the command line spells it; None if it isn't there."""
    source = ctx.get_parameter_source(name)
    if source is None or source.name not in ("COMMANDLINE", "DEFAULT_MAP"):
        return ""
    return next(str(param.opts[-1]) for param in ctx.command.params if param.name == name)


def new_group(
    help: str, cls: type[CommandGroup] = CommandGroup, *, passing_on: bool = False, **settings: Value
) -> typer.Typer:
    """An empty group; it prints plain text, so that help can be piped and searched.

    `passing_on`: unknown flags are left to the command.
    """
    return typer.Typer(
        help=help,
        cls=cls,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
            "ignore_unknown_options": passing_on,
        },
        **settings,
    )


def epilog(*examples: str) -> str:
    """The end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)


def command(
    group: typer.Typer, name: str, *examples: str, cls: type[Command] = Command, hidden: bool = False, **settings: Value
) -> Callable[[F], F]:
    """Adds the decorated function to `group`; its help ends with `examples`, each a line that works as written."""

    def add(function: F) -> F:
        group.command(
            name,
            cls=cls,
            help=inspect.cleandoc(function.__doc__ or ""),
            epilog=epilog(*examples) if examples else None,
            hidden=hidden,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, **settings},
        )(function)
        return function

    return add
