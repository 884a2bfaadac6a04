"""A wrong file: all problems are reported together, each with its place, its code and how to fix it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.configuration.parse import TYPES, parse, parse_bytes, parse_profiles
from chalicelib.domain.specs.runs import TaskConfiguration
from chalicelib.errors import Invalid, Problem
from tests.harness.examples import many

TASK = "type: task\ncommands: [ls]\n"


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(Invalid) as caught:
        parse(text, filename="x.dstack.yml")
    return caught.value.problems


def only(text: str) -> Problem:
    (problem,) = problems(text)
    return problem


def test_every_problem_of_a_file_at_once_in_its_order() -> None:
    found = problems(
        "type: task\n"
        "comands: [ls]\n"
        "image: ubuntu\n"
        "name: a\n"
        "name: b\n"
        "ports:\n"
        "  - 80\n"
        "  - 8000:22\n"
        "resources:\n"
        "  gpu: A100::2\n"
        "  memmory: 16GB\n"
        "max_duration: 1h30m\n"
    )
    assert [(p.line, p.column, p.path, p.code) for p in found] == [
        (2, 1, "comands", "unknown-key"),
        (5, 1, "name", "duplicate-key"),
        (8, 5, "ports.1", "ambiguous-number"),
        (10, 3, "resources.gpu", "invalid-gpu"),
        (11, 3, "resources.memmory", "unknown-key"),
        (12, 1, "max_duration", "invalid-duration"),
    ]
    assert all(p.file == "x.dstack.yml" for p in found)
    assert found[0].hint == "did you mean `commands`?"
    assert found[4].hint == "did you mean `memory`?"
    assert found[5].hint == "one unit only: `90m`"


@pytest.mark.parametrize(
    ("line", "key"), [("echo a: b", "echo a"), ("echo done:", "echo done"), ("'a \"b\"': c", 'a "b"')]
)
def test_an_entry_that_yaml_reads_as_a_mapping_needs_quotes(line: str, key: str) -> None:
    problem = only(f"type: task\ncommands:\n  - {line}\n")
    assert (problem.message, problem.line, problem.column) == ("expected text, got a mapping", 3, 5)
    assert problem.hint == f'put text that holds ": " in quotes: `- "{key}: …"`'


def test_what_was_meant_as_a_mapping_isnt_advised_to_be_quoted() -> None:
    assert only("type: task\ncommands: [ls]\nimage: {name: x}\n").hint == ""
    assert only("type: task\ncommands: [{a: b, c: d}]\n").hint == ""


def test_render_says_file_line_column_key_problem_and_hint() -> None:
    text = only(TASK + "spot_policy: spots\n").render()
    assert text.startswith("x.dstack.yml:3:1: spot_policy: `spots` isn't possible here")
    assert text.endswith("(did you mean `spot`?)")


@pytest.mark.parametrize(
    ("text", "code", "place", "message"),
    [
        ("", "wrong-type", (1, 1), "empty"),
        ("- a\n", "wrong-type", (1, 1), "a list"),
        ("hello\n", "wrong-type", (1, 1), "only text"),
        ("commands: [ls]\n", "missing", (1, 1), "`type` is needed"),
        ("name: a\ntype: tsk\n", "unknown-value", (2, 1), "did you mean `task`?"),
        ("type: volume\nregion: r\n", "missing", (1, 1), "`backend` is needed"),
        ("type: volume\nbackend: awz\n", "unknown-value", (2, 1), "did you mean `aws`?"),
        ("type: [task]\n", "unknown-value", (1, 1), "isn't a known type"),
        ("type: task\n\tname: a\n", "yaml-syntax", (2, 1), "a tab can't indent"),
        ("a:\n\t- b\n", "yaml-syntax", (2, 1), "a tab can't indent"),
        ("type: task\nname: a: b\n", "yaml-syntax", (2, 8), "a colon where none can be"),
        ("type: task\ncommands: [a\nname: b\n", "yaml-syntax", (2, 11), "never closed"),
        ("type: task\ncommands: [a b: c: d]\n", "yaml-syntax", (2, 18), "a comma missing"),
        ("type: task\nname: 'a\n\nnodes: 2\n", "yaml-syntax", (2, 7), "quotes that are never closed"),
        ("type: task\ncommands\n  - a\n", "yaml-syntax", (2, 1), "a key without a colon"),
        ("type: task\n\nnodes 2\n\n# more\nname: a\n", "yaml-syntax", (3, 1), "a key without a colon"),
        ("type: task\nresources:\n  cpu 4\n  gpu 1\n  disk: 1GB\n", "yaml-syntax", (3, 3), "a key without a colon"),
        ("type: task\ngroups:\n  - name x\n    nodes: 1\n", "yaml-syntax", (3, 5), "a key without a colon"),
        ("type: task\rnodes 2\rname: a\r", "yaml-syntax", (2, 1), "a key without a colon"),
        ("type:task\nname: a\n", "yaml-syntax", (1, 6), "a colon needs a space after it"),
        ("type: task\nname:a\ncommands: [a]\n", "yaml-syntax", (2, 6), "a colon needs a space after it"),
        ("type: task\nenv: a\n  b: c\n", "yaml-syntax", (3, 4), "a colon where none can be"),
        ('type: task\nname: "\\q"\n', "yaml-syntax", (2, 8), "backslash"),
        ("type: task\nname: *a\n", "yaml-syntax", (2, 7), "alias has no anchor"),
        (TASK + "---\ntype: task\n", "yaml-syntax", (3, 1), "one document a file"),
        (TASK + "name: é\x07\n", "yaml-syntax", (3, 8), "a character that text can't hold"),
        (TASK + "name: \ud800\n", "not-utf8", (3, 7), "half a character"),
        (TASK + "x: &a [*a]\n", "too-much", (3, 4), "inside what it stands for"),
        ("[" * 5000, "too-much", (1, 60), "levels deep"),
        (TASK + "setup:\n" + "- a\n" * 30_000, "too-much", (4, 1), "values"),
        (TASK + "#" * 1_000_001, "too-much", (0, 0), "more than 1,000,000"),
        (TASK + "name: !secret a\n", "yaml-tag", (3, 7), "the tag `!secret`"),
        (TASK + "name: !!python/name:os.system a\n", "yaml-tag", (3, 7), "isn't known here"),
        (TASK + "? [a]\n: b\n", "yaml-key", (3, 3), "a key is a word"),
        (TASK + "<<: 3\n", "yaml-key", (3, 5), "merges a mapping"),
        (TASK + "max_price: .inf\n", "ambiguous-number", (3, 12), "misread"),
        (TASK + "env: {A: 0x10}\n", "ambiguous-number", (3, 10), "another base"),
        (TASK + "env: {A: 1_000}\n", "ambiguous-number", (3, 10), "another base, or with"),
        (TASK + "env: {A: 12:30:45}\n", "ambiguous-number", (3, 10), "base 60"),
        (TASK + "env: {A: 1.10}\n", "ambiguous-number", (3, 7), "the number 1.1"),
        (TASK + f"priority: {'9' * 5000}\n", "ambiguous-number", (3, 11), "can't be kept"),
        (TASK + "privileged: maybe\n", "wrong-type", (3, 1), "expected true or false, got `maybe`"),
        (TASK + "priority: 1.5\n", "wrong-type", (3, 1), "expected a whole number"),
        (TASK + "nodes: yes\n", "wrong-type", (3, 1), "expected a number, got `true`"),
        (TASK + "env: {A: yes}\n", "wrong-type", (3, 7), "YAML reads yes, no, on and off"),
        (TASK + "zzz:\n", "unknown-key", (3, 1), "`zzz` isn't a known key"),
        (TASK + "gpu: 1\n", "unknown-key", (3, 1), "it belongs under `resources`"),
        (TASK + "timeout: 5m\n", "unknown-key", (3, 1), "`max_duration`"),
        (TASK + "idle-duration: 5m\n", "unknown-key", (3, 1), "did you mean `idle_duration`?"),
        ("type: task\ncommands: ls\n", "wrong-type", (2, 1), "write it as a list"),
        ("type: service\n", "missing", (1, 1), "for example `port: 8080`"),
        (TASK + f"max_duration: '{'1' * 900_000}x'\n", "invalid-duration", (3, 1), "isn't a duration"),
        (TASK + f"resources: {{gpu: '{'A:' * 400_000}B'}}\n", "invalid-gpu", (3, 13), "A:A…"),
        (TASK + "env: {'A=B': x}\n", "invalid-env", (3, 1), "`A=B` can't be the name of a variable"),
        (TASK + "env: {'': x}\n", "invalid-env", (3, 1), "can't be the name of a variable"),
        (TASK + 'env: {A: "a\\0b"}\n', "yaml-syntax", (3, 10), "a NUL character"),
        (TASK + "schedule: {}\n", "missing", (3, 1), "for example `cron: 0 9 * * mon-fri`"),
        ("type: service\ncommands: [a]\nports: [80]\nport: 80\n", "unknown-key", (3, 1), "did you mean `port`?"),
    ],
)
def test_a_wrong_file(text: str, code: str, place: tuple[int, int], message: str) -> None:
    problem = only(text)
    assert (problem.code, (problem.line, problem.column)) == (code, place)
    assert message in problem.render()


def test_alias_bombs_are_refused_quickly() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{new}: &{new} [" + ", ".join([f"*{old}"] * 9) + "]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert only("\n".join(lines)).code == "too-much"


def test_aliases_and_merges_are_followed() -> None:
    found = parse("type: task\ncommands: &c [ls]\nsetup: *c\nresources:\n  <<: {cpu: 4}\n  memory: 8GB\n")
    assert isinstance(found, TaskConfiguration)
    assert found.setup == ("ls",)
    assert found.resources.cpu.count.min == 4


def test_of_merged_mappings_the_first_counts_and_own_keys_before_both() -> None:
    found = parse("type: task\ncommands: [a]\nenv:\n  <<: [{A: a, B: a}, {B: b, C: b}]\n  A: own\n")
    assert isinstance(found, TaskConfiguration)
    assert found.env == {"A": "own", "B": "a", "C": "b"}


def test_what_follows_from_a_misread_value_is_not_told_too() -> None:
    assert [p.code for p in problems(TASK + "ports: [8000:22]\nnodes: 0x2\n")] == ["ambiguous-number"] * 2


def test_a_number_that_stays_a_number_may_be_written_any_way() -> None:
    found = parse(TASK + "max_price: 1.50\npython: 3.10\nmax_duration: 90.0\n")
    assert isinstance(found, TaskConfiguration)
    assert (found.max_price, found.python, found.max_duration) == (1.5, "3.10", 90)


def test_keys_are_text_whatever_yaml_thinks() -> None:
    found = parse("type: task\ncommands: [a]\nenv: {NO: x, 8080: y, null: z}\n")
    assert isinstance(found, TaskConfiguration)
    assert found.env == {"NO": "x", "8080": "y", "null": "z"}


def test_old_words_are_placed_where_they_stand() -> None:
    (problem,) = problems("type: service\nport: 1\nreplicas:\n  - count: 1\n    comands: [a]\n    image: x\n")
    assert (problem.line, problem.column, problem.hint) == (5, 5, "did you mean `commands`?")


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(Invalid) as caught:
        parse_bytes(b"type: task\nname: \xff\n", filename="f")
    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.column) == ("not-utf8", 2, 7)


def test_a_byte_order_mark_is_no_matter() -> None:
    assert isinstance(parse_bytes(b"\xef\xbb\xbftype: task\ncommands: [a]\n"), TaskConfiguration)


def test_profiles_file() -> None:
    found = parse_profiles("profiles:\n  - name: big\n    max_price: 3\n    default: true\n")
    assert found.profiles[0].max_price == 3
    with pytest.raises(Invalid) as caught:
        parse_profiles("profiles:\n  - name: a\n    max_prize: 3\n  - name: b\n    spot_policy: x\n")
    assert [(p.path, p.line) for p in caught.value.problems] == [
        ("profiles.0.max_prize", 3),
        ("profiles.1.spot_policy", 5),
    ]


@pytest.mark.slow
def test_ten_thousand_problems_are_cut_short() -> None:
    assert len(problems(TASK + "ports:\n" + "- x\n" * 10_000)) == 200


# --- no input raises anything else -----------------------------------------------------------------------------------

_texts = st.sampled_from(
    [*TYPES, "aws", "a", "1", "1.10", "off", "x:y", "24GB..", "a/b", "${{ run.args }}", "", "..", "-1", "*:80"]
)
_scalars = _texts | st.text(max_size=8) | st.integers() | st.booleans() | st.none() | st.floats()
_keys = st.sampled_from(
    sorted(
        {field for model in TYPES.values() for field in model.model_fields}
        | {"gpu", "min", "backend", "region", "path"}
    )
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4), max_leaves=8
)


@settings(max_examples=many(400))
@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_refused_in_our_words(text: str) -> None:
    try:
        parse(text)
    except Invalid as error:
        assert error.problems


@settings(max_examples=many(400))
@given(st.binary())
def test_any_bytes_are_refused_in_our_words(raw: bytes) -> None:
    try:
        parse_bytes(raw)
    except Invalid as error:
        assert error.problems


@settings(max_examples=many(200))
@given(st.sampled_from(list(TYPES)), st.dictionaries(_keys, _values, max_size=6))
@pytest.mark.slow
def test_any_values_are_refused_in_our_words(kind: str, fields: dict[str, object]) -> None:
    import yaml

    text = yaml.safe_dump({**fields, "type": kind}, allow_unicode=True)
    try:
        parse(text)
    except Invalid as error:
        for problem in error.problems:
            assert problem.message
            assert "Input should" not in problem.message
            assert "?" not in problem.path
