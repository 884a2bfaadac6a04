"""Builds the wheel: one package, `dstack_serverless`, whatever the folders of the repository are called.

Installed beside other people's packages, `cli` would clash with theirs. So the build puts the folders into the package,
and changes the import statements that name them. Nothing else in a file changes, not even the number of a line. Code
that names one of these modules in text would break; it is refused, because `__package__` or `__name__` can say the same
in both places.

What only a server reads is compressed: the agent's program, the OpenAPI document, and the code of each provider but for
what users write. With the bytecode that pip adds they would be 5 MB of a client, which never looks at them. A server
imports a provider from the archive, in some hundredths of a second.

An editable install uses the folders as they are.
"""

from __future__ import annotations

import ast
import gzip
import io
import re
import runpy
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "dstack_serverless"
PLACES = {"dstack_serverless": PACKAGE, "chalicelib": f"{PACKAGE}.plane", "cli": f"{PACKAGE}.cli"}
LEFT_OUT = frozenset(  # what only the functions in AWS, the docs and the simulation need
    (
        *("chalicelib/configuration/error_catalog.py", "chalicelib/configuration/reference.py", "cli/reference.py"),
        *("chalicelib/engine/asl.py", "chalicelib/runtime/chalice_app.py", "chalicelib/runtime/lambda_.py"),
        *("chalicelib/runtime/step_functions.py", "chalicelib/store/dynamo.py", "chalicelib/store/dynamo_calls.py"),
        *("chalicelib/store/memory.py", "chalicelib/store/request_units.py"),
    )
)
AGENT = "chalicelib/agent"
PACKED = f"{AGENT}/program/packed.tar.gz"  # `program/build.py` reads it
IMPORTED = frozenset(  # of the agent's files, those that a server imports as well
    (
        *("__init__.py", "kernel/__init__.py", "kernel/lazy.py", "kernel/limits.py", "kernel/process_tree.py"),
        *("kernel/records.py", "kernel/task_runtime.py", "kernel/tasks.py", "program/__init__.py", "program/build.py"),
        *("program/gpu_tools.py", "program/inventory.py", "program/tpu_chips.py", "runtimes/__init__.py"),
        *("runtimes/docker_client.py", "runtimes/users.py", "streams/__init__.py", "streams/websocket.py"),
    )
)
BACKENDS = "chalicelib/backends"  # imports from the archive, too, where there is one
PROVIDERS = f"{BACKENDS}/packed.zip"
UNPACKED = ("kit", "simulated")  # packages that are no provider's
INIT = "__init__.py"
LANGUAGE = ("config", "specs")  # a provider's modules with what users write, which a client reads
COMPRESSED = frozenset(("chalicelib/api/openapi.json",))  # `api/routes/documents.py` reads it
SKILL = "skills/dstack/SKILL.md"  # `dstack init --skill` reads it
CONSOLE = "chalicelib/console"  # it says itself what is shipped of it
_MOVED = "|".join(folder for folder, place in PLACES.items() if folder != place)
_MENTIONED = re.compile(rf"\b(?:{_MOVED})\b".encode())
_FROM = re.compile(rf"from[ ]+({_MOVED})\b".encode())
_DOTTED = re.compile(rf"(?<![\w./-])(?:{_MOVED})\.")
_IN_TEXT = re.compile(_DOTTED.pattern + r"(?:[a-z_]|\Z)")  # at the end, as in f"cli.{x}"


class Unmovable(ValueError):
    """Code that would break in another package."""


class Hook(BuildHookInterface[Any]):
    """What hatchling calls for each wheel, and for each source distribution."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self.folder, root, say = Path(tempfile.mkdtemp()), Path(self.root), self.app.display_warning
        if self.target_name == "sdist":  # a wheel that is built from it needs no bundler
            shipped = {name: text for name, text in console(root, say).items() if name.startswith("dist/")}
            self._write((f"{CONSOLE}/{name}", content) for name, content in shipped.items())
            included = {f"{CONSOLE}/dist"} if shipped else set[str]()
        else:
            self._write(files(root, say))
            included = {PACKAGE}
        build_data["force_include"].update({str(self.folder / name): name for name in included})

    def _write(self, files: Iterable[tuple[str, bytes]]) -> None:
        for name, content in files:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self.folder)


def files(root: Path, say: Callable[[str], None] = print) -> Iterator[tuple[str, bytes]]:
    """Everything that the package has, by its path in the wheel."""
    for name, content in console(root, say).items():
        yield placed(f"{CONSOLE}/{name}"), content
    yield f"{PACKAGE}/{SKILL}", (root / SKILL).read_bytes()
    packed, providers = dict[str, bytes](), dict[str, bytes]()
    of_servers = server_only(root)
    for folder in PLACES:
        for path in sorted((root / folder).rglob("*")):
            inside = path.relative_to(root).as_posix()
            left_out = inside in LEFT_OUT or inside.startswith(f"{CONSOLE}/")
            if path.is_dir() or "__pycache__" in path.parts or left_out:
                continue
            content = path.read_bytes()
            if path.suffix == ".py":
                content = moved(content, inside)
            of_agent = inside.removeprefix(f"{AGENT}/")
            if of_agent != inside and of_agent not in IMPORTED:
                packed[of_agent] = content
            elif inside in of_servers:
                if b"__file__" in content:
                    raise Unmovable(f"{inside}: in an archive no file is beside it: read it with `kit/tables.py`.")
                providers[inside.removeprefix(f"{BACKENDS}/")] = content
            elif inside in COMPRESSED:
                yield placed(f"{inside}.gz"), gzip.compress(content, mtime=0)
            else:
                yield placed(inside), content
    yield placed(PACKED), archived(packed)
    yield placed(PROVIDERS), zipped({name: text for name, text in providers.items() if not name.endswith(INIT)})


def server_only(root: Path) -> set[str]:
    """The modules of providers that no client imports. Python makes one package of the folder and of what the archive
    has under its name if neither has an `__init__.py`, which has nothing but a text."""
    found = set[str]()
    for config in sorted((root / BACKENDS).glob("*/config.py")):
        folder = config.parent
        modules = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
        kept, todo = set[str](), [f"{name}.py" for name in LANGUAGE]
        while todo:
            name = todo.pop()
            if name in modules and name not in kept:
                kept.add(name)
                todo += imported(folder, name)
        if folder.name not in UNPACKED and modules - kept - {INIT}:
            found |= {f"{BACKENDS}/{folder.name}/{name}" for name in modules - kept}
    return found


def imported(folder: Path, name: str) -> Iterator[str]:
    """What a module imports of its own package, wherever the import stands."""
    own = f"{BACKENDS}/{folder.name}".replace("/", ".")
    for node in _statements(ast.parse((folder / name).read_bytes())):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{own}."):
            inside = str(node.module).removeprefix(own).lstrip(".").replace(".", "/")
            yield f"{inside}.py"
            yield from (f"{inside}/{alias.name}.py".lstrip("/") for alias in node.names)


def zipped(contents: dict[str, bytes]) -> bytes:
    """The same bytes for the same files, as Python can import them."""
    out = io.BytesIO()
    folders = dict.fromkeys((f"{parent}/" for name in contents for parent in Path(name).parents[:-1]), b"")
    with zipfile.ZipFile(out, "w") as archive:  # a package without an `__init__.py` is found by its folder's entry
        for name, content in sorted({**folders, **contents}.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()


def placed(path: str) -> str:
    """Where a file of the repository is in the wheel."""
    top, _, rest = path.partition("/")
    return f"{PLACES[top].replace('.', '/')}/{rest}"


def archived(contents: dict[str, bytes]) -> bytes:
    """The same bytes for the same files, wherever they are built."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def console(root: Path, say: Callable[[str], None]) -> dict[str, bytes]:
    """What is shipped of the console, by its path in its package."""
    found: dict[str, bytes] = runpy.run_path(str(root / CONSOLE / "bundle.py"))["shipped"](root / CONSOLE, root, say)
    return found


def moved(source: bytes, path: str) -> bytes:
    """A module's text with the new names in its imports. Raises Unmovable if that isn't enough."""
    if not _MENTIONED.search(source):
        return source
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    for row, start, end in sorted(_names(tree, lines, path), reverse=True):  # the last first: a name changes its line
        line = lines[row]
        lines[row] = line[:start] + PLACES[line[start:end].decode()].encode() + line[end:]
    text = b"".join(lines)
    if _DOTTED.search(text.decode()):  # in a string, a docstring or a comment
        _refuse_names_in_text(tree, path)
    return text


def _names(tree: ast.AST, lines: Sequence[bytes], path: str) -> Iterator[tuple[int, int, int]]:
    """Where imports name a folder that moves: the line, and the first and last place in it."""
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _moves(node.module or ""):
            found = _FROM.match(lines[node.lineno - 1], node.col_offset)
            if found is None:
                raise _unmovable(path, node, "write `from` and the module on one line")
            yield node.lineno - 1, *found.span(1)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _moves(alias.name):
                    if alias.asname is None:
                        raise _unmovable(path, node, f"write `from … import …` instead of `import {alias.name}`")
                    length = len(alias.name.partition(".")[0])
                    yield alias.lineno - 1, alias.col_offset, alias.col_offset + length


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """All of them, in a fraction of the time that looking at every expression takes."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            if isinstance(inner, list):  # an expression may be the body of another
                todo += inner


def _refuse_names_in_text(tree: ast.AST, path: str) -> None:
    docs = {id(node) for node in _docstrings(tree)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else ""
        if isinstance(text, str) and _IN_TEXT.search(text):
            raise _unmovable(path, node, "this text names a module: make it from `__package__` or `__name__`")


def _moves(module: str) -> bool:
    top = module.partition(".")[0]
    return PLACES.get(top, top) != top


def _docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr):
                yield first.value


def _unmovable(path: str, node: ast.stmt | ast.expr | ast.alias, why: str) -> Unmovable:
    return Unmovable(f"{path}, line {node.lineno}: can't be moved into {PACKAGE}: {why}.")
