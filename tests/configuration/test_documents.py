"""Schema, reference and error catalog: generated from the code, and the same as the committed ones."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from chalicelib.backends.registry import BACKENDS
from chalicelib.configuration import error_catalog, reference
from chalicelib.configuration.examples import EXAMPLES
from chalicelib.configuration.parse import TYPES, parse
from chalicelib.configuration.resolution import resolved
from chalicelib.configuration.schema import (
    configuration_schema,
    explains_itself,
    long_form,
    main,
    profiles_schema,
    server_schema,
)
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.errors import Invalid
from chalicelib.planning.runs.field_support import privileged, refusals
from tests.configuration.test_recorded import KINDER, STRICTER, recorded
from tests.wire.corpus import corpus
from tests.wire.test_corpus import models, of_providers

OF_THE_TEXT = {"ambiguous-number", "duplicate-key", "too-much", "yaml-key", "yaml-syntax", "yaml-tag"}
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "chalicelib"
PAGES = ROOT / "docs" / "reference"
MODELS: dict[str, type[BaseModel]] = {}
for _kind in (*TYPES.values(), *of_providers()):
    models(_kind, MODELS)
schema = cache(configuration_schema)

# Right, but in words of old: an editor needn't offer that.
UNUSUAL = ("tpu-",)


@pytest.mark.parametrize("page", sorted(reference.PAGES))
@pytest.mark.slow
def test_pages_are_up_to_date(page: str) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    assert reference.renewed(text, reference.PAGES[page]()) == text, "python -m chalicelib.configuration.reference"


@pytest.mark.slow
def test_the_page_says_of_each_type_of_backend_whether_it_is_built() -> None:
    sections = reference.server_fields().split("\n### ")
    for kind, row in BACKENDS.items():
        (section,) = (text for text in sections if f"`type: {kind}`" in text.partition("\n")[0])
        assert ("**Not built yet**" in section) is not bool(row.backend), kind
        assert not row.extra or f"[extra](../install.md) `{row.extra}`" in section


def read(file: str) -> None:
    resolved(parse(file), environment={})


@pytest.mark.parametrize("code", sorted(error_catalog.ENTRIES))
def test_catalog_entries_are_true(code: str) -> None:
    entry = error_catalog.ENTRIES[code]
    assert entry.meaning
    if entry.found_by_server:
        read(entry.wrong)
        spec = RunSpec.model_validate({"configuration": parse(entry.wrong)})
        found = [problem.text for problem in (*refusals(spec), *privileged(spec))]
        assert [f".dstack.yml:3:1: {text.removeprefix('configuration.')}" for text in found] == [entry.found_by_server]
    elif entry.wrong:
        with pytest.raises(Invalid) as caught:
            read(entry.wrong)
        assert [problem.code for problem in caught.value.problems] == [code]
    if entry.right:
        read(entry.right)


def is_sentence(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and " " in str(node.value))


def codes_of(file: str) -> set[str]:
    try:
        parse(file)
    except Invalid as error:
        return {problem.code for problem in error.problems}
    return set()


def codes(folder: Path) -> set[str]:
    """The codes of all problems that the code in a folder can find."""
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                places = {"fault": 0, "_refused": 0, "wrong": 2, "Problem": 6}
                given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                given += node.args[places[name] : places[name] + 1] if name in places else []
            elif isinstance(node, ast.Tuple) and len(node.elts) == 4 and is_sentence(node.elts[1]):
                given = node.elts[:1]  # a fault: code, message, hint, where
            elif isinstance(node, ast.Tuple) and len(node.elts) == 3 and is_sentence(node.elts[0]):
                given = node.elts[2:]  # a saying: message, hint, code
            else:
                continue
            for one in given:
                arms = [one.body, one.orelse] if isinstance(one, ast.IfExp) else [one]
                found |= {str(arm.value) for arm in arms if isinstance(arm, ast.Constant)}
    return {code for code in found if re.fullmatch(r"[a-z0-9-]+", code)}


@pytest.mark.slow
def test_every_code_has_an_entry_and_every_entry_is_of_a_code() -> None:
    found = {code for part in ("configuration", "domain", "planning", "usecases") for code in codes(PACKAGE / part)}
    assert found == set(error_catalog.ENTRIES)


@pytest.mark.slow
def test_schemas_are_2020_12() -> None:
    for made in (schema(), profiles_schema(), server_schema()):
        assert made["$schema"].endswith("2020-12/schema")
        jsonschema.Draft202012Validator.check_schema(made)
        strange = {key for node in nodes(made) for key in node if key in ("ge", "gt", "le", "lt", "min_length")}
        assert strange == set(), "bounds that no editor knows"


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from nodes(inner)


@cache
def editor() -> Any:
    return jsonschema.Draft202012Validator(schema())


def accepted(file: str) -> bool:
    value: Any = json.loads(json.dumps(yaml.load(file, yaml.CSafeLoader), default=str))
    return bool(editor().is_valid(value))


@pytest.mark.slow
def test_an_editor_takes_what_the_reader_takes() -> None:
    for case in recorded():
        differs = case.reason(STRICTER) or case.reason(KINDER)
        if case.wire is not None and not case.flags and not differs and not any(part in case.file for part in UNUSUAL):
            assert accepted(case.file), case.file


@pytest.mark.parametrize(
    "file",
    [
        "commands: [a]",
        "type: tsk",
        "type: task\ncomands: [a]",
        "type: task\ncommands: ls",
        "type: task\ncommands: [a]\nspot_policy: x",
        "type: task\ncommands: [a]\nresources: {gup: 1}",
        "type: task\ncommands: [a]\nmax_duration: 1h30m",
        "type: task\ncommands: [a]\nresources: {memory: 16G}",
        "type: volume\nbackend: azure",
        "type: volume\nbackend: daytona\nsize: 5GB",
        "type: service\ncommands: [a]",
        "type: task\ncommands: [a]\npriority: 101",
        "type: task\ncommands: [a]\nmax_price: 0",
        "type: task\ncommands: [a]\nnodes: 0",
        "type: task\ncommands: [a]\nshell: zsh",
        "type: task\ncommands: [a]\nworking_dir: a",
        "type: task\ncommands: [a]\nvolumes: [data]",
        "type: task\ncommands: [a]\nfleets: [a/b/c]",
        "type: task\ncommands: [a]\nresources: {cpu: 'arm:arm'}",
        "type: task\ncommands: [a]\nschedule: {cron: '@daily'}",
        "type: task\ngroups: []",
        "type: task\ngroups: [{name: Upper, commands: [a]}]",
        "type: fleet\nnodes: many",
        "type: gateway\nbackend: aws\nregion: r\nreplicas: 10",
        "type: service\nport: 80\ngroups: [{commands: [a]}]",
    ],
)
def test_an_editor_marks_what_is_wrong(file: str) -> None:
    assert not accepted(file)


@pytest.mark.slow
def test_an_editor_knows_the_corpus() -> None:
    """All that is right passes, and of what is wrong the most; some mistakes are beyond a schema."""
    marked = []
    for case in corpus():
        found = codes_of(case.file)
        if found & OF_THE_TEXT or not isinstance(yaml.load(case.file, yaml.CSafeLoader), dict):
            continue
        if found:
            marked.append(not accepted(case.file))
        else:
            assert accepted(case.file), case.file
    assert len(marked) > 150
    assert sum(marked) > 0.6 * len(marked)


@pytest.mark.parametrize(("args", "made"), [([], schema), (["profiles"], profiles_schema)], ids=["", "profiles"])
@pytest.mark.slow
def test_the_schema_is_printed(args: list[str], made: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    main(args)
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(made()))


def fields() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, definition in schema()["$defs"].items():
        for field, described in long_form(definition).get("properties", {}).items():
            yield name, field, described


def test_every_field_is_explained() -> None:
    internal = {"EnvSentinel", "SSHKey", "Range_int_", "Range_float_"}
    for name, field, described in fields():
        if name not in internal and not (field == "type" and "const" in described):
            assert described.get("description"), f"{name}.{field}"


def test_every_field_has_an_example_that_is_right() -> None:
    used = set()
    for name, field, described in fields():
        assert explains_itself(described), f"{name}.{field} needs an example"
        for example in described.get("examples", ()):
            used |= {f"{name}.{field}", field}
            jsonschema.Draft202012Validator({"$defs": schema()["$defs"], **described}).validate(example)
            if name.startswith("Range_"):
                continue
            info = MODELS[name].model_fields[field if field != "count" or name != "ReplicaGroup" else "replicas"]
            kind = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
            TypeAdapter(kind).validate_python(example)
    assert EXAMPLES.keys() <= used


@pytest.mark.slow
def test_checking_a_body_imports_no_yaml() -> None:
    script = "import sys, chalicelib.configuration, chalicelib.domain.specs.runs; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
