"""Reads YAML as plain values, without its surprises and within limits.

The dialect is YAML 1.1, because existing files were written for it: `off` is false, and `8000:22` is a number in base
60. Scalars that would only surprise are refused with the reason: numbers in base 60, 8 and 16, with underscores, or
infinite. Dates stay text. Keys are always text.

The node graph is kept, so that problems found later still get a line and column. The expansion of aliases, the size,
the depth and the number of nodes are limited, so that every file is read quickly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from chalicelib.configuration.problems import Path
from chalicelib.errors import Problem

MAX_BYTES = 1_000_000
MAX_NODES = 20_000  # as written
MAX_EXPANDED = 40_000  # with aliases followed
MAX_DEPTH = 60

_TAG = "tag:yaml.org,2002:"
_STR, _INT, _FLOAT, _NULL, _BOOL = (_TAG + name for name in ("str", "int", "float", "null", "bool"))
_PLAIN = {_STR, _TAG + "timestamp", _TAG + "value", _TAG + "merge"}
_TRUE = {"yes", "true", "on"}
_MERGE = "<<"
_RENAMED = {"groups": "replicas", "replicas": "count", "size": "resources", "repos": "repo"}  # older names of keys


class TooLarge(Exception):
    """The file is deeper or longer than any configuration."""

    def __init__(self, message: str, hint: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message, self.hint, self.line, self.column = message, hint, line, column


class _Loader(yaml.CSafeLoader):
    """The C parser with limits. It calls these methods for every node, on the way down and up."""

    nodes = 0
    depth = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        self.depth += 1
        self.nodes += 1
        mark = current_node.start_mark if current_node else None
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"it is nested more than {MAX_DEPTH} levels deep", "no key needs as many", *place)
        if self.nodes > MAX_NODES:
            raise TooLarge(f"it has more than {MAX_NODES} values", "bring data along with `files`", *place)

    def ascend_resolver(self) -> None:
        self.depth -= 1


@dataclass
class Document:
    """A file as read: its values, their positions, and the problems of the text itself."""

    value: Any = None
    node: Any = None
    problems: list[tuple[Path, Problem]] = field(default_factory=list)
    rounded: list[tuple[Path, str]] = field(default_factory=list)  # numbers that read differently from what was written

    def has(self, key: str | int) -> bool:
        return _below(self.node, key)[0] is not None

    def mark(self, path: Path) -> tuple[int, int]:
        """Line and column of the key at a path, or of the nearest one above it that the file has."""
        node, line, column = self.node, 1, 1
        for part in path:
            key, node = _below(node, part)
            if key is None:
                break
            line, column = key.start_mark.line + 1, key.start_mark.column + 1
        return line, column


def _below(node: Any, part: str | int) -> tuple[Any, Any]:
    """The nodes of an entry's key and value; for a list both are the item."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        return (node.value[part], node.value[part]) if part < len(node.value) else (None, None)
    if isinstance(node, yaml.SequenceNode):  # the list form of `env`: `- NAME=value`, or `- NAME`
        item = next((item for item in node.value if str(item.value).partition("=")[0] == part), None)
        return item, item
    if isinstance(node, yaml.MappingNode):
        wanted = str(part)
        for name in (wanted, _RENAMED.get(wanted)):
            for key, value in node.value:
                if key.value == name:
                    return key, value
        for key, value in node.value:
            if key.value == _MERGE and (found := _below(value, part))[0] is not None:
                return found
    return None, None


def compose(text: str) -> Document:
    """Parse a text. Raises yaml.YAMLError or TooLarge."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
    finally:
        loader.dispose()
    document = Document(node=node)
    if node is not None:
        _Reader(document).run()
    return document


class _Reader:
    """Converts nodes to values. An alias converts its node again, which counts towards the limits."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.left = MAX_EXPANDED
        self.open: set[int] = set()

    def run(self) -> None:
        self.document.value = self.value(self.document.node, ())

    def value(self, node: Any, path: Path) -> Any:
        self.left -= 1
        if self.left < 0:
            message = f"its aliases stand for more than {MAX_EXPANDED} values"
            raise TooLarge(message, "bring data along with `files`", *self.document.mark(path))
        if isinstance(node, yaml.ScalarNode):
            tag = node.tag
            if "\0" in node.value:  # only possible with `"\0"`
                self.wrong(path, node, "yaml-syntax", "a NUL character, which no program takes", "remove it")
            return node.value if tag in _PLAIN else self.scalar(node, tag, path)
        if id(node) in self.open:
            message = "an alias stands inside what it stands for"
            raise TooLarge(message, "write out what it should stand for", *self.document.mark(path))
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                self.known_tag(node, "seq", path)
                return [self.value(item, (*path, place)) for place, item in enumerate(node.value)]
            self.known_tag(node, "map", path)
            return self.mapping(node, path)
        finally:
            self.open.discard(id(node))

    def mapping(self, node: Any, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, inner in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.wrong(
                    path, key, "yaml-key", "a key is a word, not a list or a mapping", "for example `name: value`"
                )
                continue
            name = key.value
            if name == _MERGE and key.tag == _TAG + "merge":
                merged = self.merge(inner, path) | merged
            elif name in found:
                self.wrong(
                    (*path, name), key, "duplicate-key", f"the key `{name[:60]}` appears twice", "keep one of the two"
                )
            else:
                found[name] = self.value(inner, (*path, name))
        return merged | found if merged else found

    def merge(self, node: Any, path: Path) -> dict[str, Any]:
        """The keys that `<<: *other` adds. Of several mappings, the first that has a key wins."""
        value = self.value(node, (*path, _MERGE))
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            self.wrong(
                (*path, _MERGE),
                node,
                "yaml-key",
                "`<<` merges a mapping, or a list of them",
                "for example `<<: *defaults`",
            )
            return {}
        merged: dict[str, Any] = {}
        for part in parts:
            merged = part | merged
        return merged

    def scalar(self, node: Any, tag: str, path: Path) -> Any:
        text = node.value
        if tag == _NULL:
            return None
        if tag == _BOOL and text.lower() in ("yes", "no", "true", "false", "on", "off"):
            return text.lower() in _TRUE
        if tag == _INT:
            return self.integer(node, text, path)
        if tag == _FLOAT:
            return self.fraction(node, text, path)
        name = tag.removeprefix(_TAG).lstrip("!")
        self.wrong(path, node, "yaml-tag", f"the tag `!{name[:40]}` isn't known here", "remove the tag")
        return text

    def integer(self, node: Any, text: str, path: Path) -> Any:
        digits = text.lstrip("+-")
        if digits.isdecimal() and digits.isascii() and len(digits) <= 18 and (len(digits) == 1 or digits[0] != "0"):
            return int(text)
        if ":" in text:
            why = "YAML takes digits with colons for a number in base 60"
        elif digits.isdecimal() and len(digits) > 18:
            why = "a number that long can't be kept exactly"
        else:
            why = "YAML takes this for a number in another base, or with spaces in it"
        self.wrong(
            path,
            node,
            "ambiguous-number",
            f"`{text[:40]}` would be misread: {why}",
            f'in quotes it is text: "{text[:40]}"',
        )
        return text

    def fraction(self, node: Any, text: str, path: Path) -> Any:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")  # base 60, or YAML's words for infinity and NaN
        if "_" in text or not abs(value) < 1e300:
            why = "YAML takes this for a number that isn't one here"
            self.wrong(
                path,
                node,
                "ambiguous-number",
                f"`{text[:40]}` would be misread: {why}",
                f'in quotes it is text: "{text[:40]}"',
            )
            return text
        if str(value) != text:
            self.document.rounded.append((path, text))
        return value

    def known_tag(self, node: Any, kind: str, path: Path) -> None:
        if node.tag != _TAG + kind:
            name = node.tag.removeprefix(_TAG).lstrip("!")
            self.wrong(path, node, "yaml-tag", f"the tag `!{name[:40]}` isn't known here", "remove the tag")

    def wrong(self, path: Path, node: Any, code: str, message: str, hint: str) -> None:
        mark = node.start_mark
        shown = ".".join(map(str, path))
        problem = Problem(message, path=shown, line=mark.line + 1, column=mark.column + 1, hint=hint, code=code)
        self.document.problems.append((path, problem))
