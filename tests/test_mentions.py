"""What docstrings, comments and the pages for developers name exists: exceptions, files, modules, and names of code.

They are found in the text alone: `Raises X`, what looks like a path, and what stands in backticks. A name that nothing
in the repository has is either out of date or somebody else's (`FOREIGN`)."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("chalicelib", "cli", "dstack_serverless", "functions", "infra", "tests")
FOREIGN = {  # names of other programs, libraries and services
    *("EstimatedCharges", "MaxStartups", "cause_response_code", "poweroff", "Coverage.py", "coverage.py"),
}
# Names of packages that are also those of objects, whose attributes may be anything: `store.commit`, `agent.log`.
OBJECTS = {"agent", "hosts", "store"}

DOCSTRING = re.compile(r'(?:\A|:(?:[ ]+#.*)?\n)\s*"""(.*?)"""', re.DOTALL)
COMMENT = re.compile(r"(?:^|\s)#\s.*$", re.MULTILINE)
RAISES = re.compile(r"\b[Rr]aises? (?:an? )?((?:`?[A-Z]\w*(?:\.\w+)*`?(?:, or |, | or | and )?)+)")
DOTTED = re.compile(r"`([a-z_]\w*(?:\.\w+)+)(?:\(\))?`")
PLAIN = re.compile(r"`([A-Za-z_]\w*)(?:\(\))?`")
WORD = re.compile(r"[^\s`'\"()|,;:]+")
MODULE_FILE = re.compile(r"[\w./-]*\w\.py")
PLACEHOLDER = re.compile(r"/[A-Z]+\b")  # `tests/NAME.json`
FOLDER_PATH = re.compile(rf"(?:{'|'.join(FOLDERS)}|docs|examples)/[\w./-]*\w")


class Text(NamedTuple):
    """A docstring, a comment or a page."""

    path: str
    line: int
    text: str


def texts(path: str, source: str) -> Iterator[Text]:
    for pattern in (DOCSTRING, COMMENT):
        for found in pattern.finditer(source):
            yield Text(path, source.count("\n", 0, found.end()) + 1, found[found.lastindex or 0])


class Names:
    """Everything in the repository that has a name. All is by path."""

    def __init__(self, sources: Mapping[str, str], others: Iterable[str] = ()) -> None:
        """`others`: files whose text doesn't matter."""
        code = {path: COMMENT.sub("", DOCSTRING.sub("", source)) for path, source in sources.items()}
        self.of_module = {dotted(path): set(re.findall(r"\w+", text)) for path, text in code.items()}
        self.packages = {package for module in self.of_module for package in packages(module)}
        defined = re.findall(r"^\s*class (\w+)", "\n".join(code.values()), re.MULTILINE)
        self.classes = {*defined, *dir(builtins)}
        files = [path.split("/") for path in (*sources, *others)]
        self.all = {part.partition(".")[0] for file in files for part in file}.union(*self.of_module.values())
        folders = [file[:end] for file in files for end in range(1, len(file) + 1)]
        self.tails = {"/".join(folder[at:]) for folder in folders for at in range(len(folder))}

    def missing(self, text: Text) -> Iterator[str]:
        for word in WORD.findall(text.text):
            path = word.rstrip("./").removeprefix("./")
            if PLACEHOLDER.search(path):
                continue
            if (MODULE_FILE.fullmatch(path) or FOLDER_PATH.fullmatch(path)) and path not in self.tails:
                yield path
        if text.path.endswith(".py"):
            yield from self._missing_in_code(text)

    def _missing_in_code(self, text: Text) -> Iterator[str]:
        imported = self.of_module[dotted(text.path)]
        for raised in RAISES.findall(text.text):
            yield from (name for name in re.findall(r"\b[A-Z]\w+", raised) if name not in self.classes | imported)
        for name in DOTTED.findall(text.text):
            if name.partition(".")[0] in self._rooms() and name not in self.tails and not self._found(name, text):
                yield name
        yield from (name for name in PLAIN.findall(text.text) if name not in self.all)

    def _rooms(self) -> set[str]:
        return {package.split(".")[-1] for package in self.packages if package.count(".") < 2} - OBJECTS

    def _found(self, name: str, text: Text) -> bool:
        """A module, or what one has: named in full, from `chalicelib`, or from a package that the text is in."""
        within = ["", "chalicelib.", *(f"{package}." for package in packages(dotted(text.path)))]
        return any(self._module_or_part(prefix + name) for prefix in within)

    def _module_or_part(self, name: str) -> bool:
        if name in self.of_module or name in self.packages:
            return True
        module, _, part = name.rpartition(".")
        while module and module not in self.of_module:
            module, _, part = module.rpartition(".")
        return part in self.of_module.get(module, ())


def dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def packages(module: str) -> Iterator[str]:
    parts = module.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


@pytest.mark.slow
def test_what_texts_name_exists() -> None:
    paths = [path for folder in (*FOLDERS, "docs", "examples", ".ci") for path in (ROOT / folder).rglob("*")]
    files = {str(path.relative_to(ROOT)): path for path in paths if path.is_file() and "__pycache__" not in path.parts}
    sources = {
        name: path.read_text() for name, path in files.items() if name.endswith(".py") and name.startswith(FOLDERS)
    }
    names = Names(sources, [*files, "app.py", "CONTRIBUTING.md"])
    found = [text for path, source in sources.items() for text in texts(path, source)]
    found += [Text(name, 1, path.read_text()) for name, path in files.items() if name.startswith("docs/internals/")]
    found.append(Text("CONTRIBUTING.md", 1, (ROOT / "CONTRIBUTING.md").read_text()))
    missing = {(f"{text.path}:{text.line}", name) for text in found for name in names.missing(text)}
    wrong = sorted(f"{place}: {name}" for place, name in missing if name not in FOREIGN)
    assert not wrong, "nothing has these names; correct them, or list another program's in FOREIGN:\n" + "\n".join(
        wrong
    )


@pytest.mark.slow
def test_the_product_names_no_tests() -> None:
    """It would have to change with them, and is installed without them."""
    files = (path for folder in FOLDERS[:-1] for path in (ROOT / folder).rglob("*.py"))
    assert [str(path.relative_to(ROOT)) for path in files if re.search(r"\btests[/.]\w", path.read_text())] == []


@pytest.mark.parametrize(
    "package", ["chalicelib", "chalicelib/agent", "chalicelib/planning", "chalicelib/usecases", "cli"]
)
def test_the_map_names_every_package_and_room(package: str) -> None:
    top = (ROOT / package.partition("/")[0] / "__init__.py").read_text()
    rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert rooms and {room for room in rooms if f"`{room}` " not in top} == set()
    assert top.count("\n") <= 60, "it fits one screen"


SOURCES = {
    "chalicelib/__init__.py": "",
    "chalicelib/planning/runs/queue.py": "import socket\nclass Full(Exception): ...\ndef decide() -> None: ...\n",
    "chalicelib/planning/runs/run.py": "",
}


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("Raises Full or ValueError.", "Raises Fuller or ValueError."),
        ("May raise `Full`", "May raise `Fuller`"),
        ("see `runs/queue.py`", "see `runs/queues.py`"),
        ("see chalicelib/planning/runs.", "see chalicelib/planning/run."),
        ("`planning.runs.queue` decides", "`planning.queue` decides"),
        ("`planning.runs.queue.decide` does", "`planning.runs.queue.decides` does"),
        ("`queue`'s part, `decide()`", "`queueing`'s part"),
        ("one's own `agent.log`, in plain words Full of `a b`", "`no_such_name`"),
    ],
)
def test_a_name_that_nothing_has_is_found(good: str, bad: str) -> None:
    names = Names(SOURCES)
    assert list(names.missing(Text("chalicelib/planning/runs/queue.py", 1, good))) == []
    assert list(names.missing(Text("chalicelib/planning/runs/queue.py", 1, bad))) != []


def test_docstrings_and_comments_are_found() -> None:
    source = '"""One."""\n\ndef a() -> None:  # two\n    """Three\n    lines."""\n    b = "four"  # `five`\n'
    assert [text.text.strip() for text in texts("a.py", source)] == ["One.", "Three\n    lines.", "# two", "# `five`"]
