"""Reading a configuration, putting it on the wire and reading that again changes nothing."""

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chalicelib.configuration.parse import TYPES, parse, volume_types
from chalicelib.configuration.reading import read
from chalicelib.errors import Invalid
from tests.configuration.test_recorded import REWORDED, STRICTER, recorded
from tests.harness.examples import many

# Ten times as fast to draw as by a regular expression.
_name = st.builds("{}{}".format, st.sampled_from("abz"), st.text("abyz059-", min_size=1, max_size=8))
_duration = st.one_of(st.integers(0, 10**6), st.builds("{}{}".format, st.integers(0, 99), st.sampled_from("smhdw")))
_offable = _duration | st.sampled_from(["off", False, True, None])
_memory = st.builds("{}{}".format, st.integers(1, 999), st.sampled_from(["MB", "GB", "TB", "gb", " GB", ""]))
_memories = st.one_of(_memory, _memory.map("{}..".format), _memory.map("..{}".format), st.floats(0, 1e6))
_count = st.one_of(st.integers(0, 99), st.integers(0, 99).map("{}..".format), st.integers(0, 9).map("0..{}".format))
_cpu = st.one_of(_count, _count.map("arm:{}".format), st.just("x86"), st.fixed_dictionaries({"count": _count}))
_gpu = st.one_of(
    _count,
    st.none(),
    st.builds(
        "{}:{}GB:{}".format, st.sampled_from(["A100", "H100,A100", "amd:MI300X"]), st.integers(1, 99), st.integers(1, 8)
    ),
    st.fixed_dictionaries({}, optional={"name": st.lists(_name, min_size=1), "count": _count, "memory": _memories}),
)
_resources = st.fixed_dictionaries(
    {}, optional={"cpu": _cpu, "gpu": _gpu, "memory": _memories, "disk": _memories | st.none(), "shm_size": _memory}
)
_port = st.integers(1, 65535) | st.builds("{}:{}".format, st.just("*") | st.integers(1, 65535), st.integers(1, 65535))
_text = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)
_env = st.lists(st.builds("{}={}".format, st.sampled_from("ABC"), _text), max_size=2) | st.dictionaries(
    st.sampled_from("ABC"), _text | st.integers()
)
_mount = st.builds("{}:/{}".format, _name, _name) | st.builds("/{}:/{}".format, _name, _name)
_reference = _name | st.builds("{}/{}".format, _name, _name) | st.fixed_dictionaries({"name": _name})
_instance = (
    _name
    | st.fixed_dictionaries({"hostname": _name})
    | st.fixed_dictionaries({"fleet": _reference, "instance": st.integers(0, 9)})
)

_retry = st.booleans() | st.fixed_dictionaries({}, optional={"on_events": st.just(["error"]), "duration": _duration})

_profile: dict[str, st.SearchStrategy[Any]] = {
    "regions": st.lists(_name),
    "spot_policy": st.sampled_from(["spot", "on-demand", "auto"]),
    "retry": _retry,
    "max_duration": _offable,
    "stop_duration": _offable,
    "idle_duration": _offable | st.integers(-5, 5),
    "max_price": st.floats(0.01, 1e6),
    "fleets": st.lists(_reference),
    "instances": st.lists(_instance, min_size=1, max_size=2),
    "tags": st.dictionaries(_name, _name),
    "schedule": st.just({"cron": "0 9 * * mon"}),
}
_run = _profile | {
    "name": _name,
    "env": _env,
    "resources": _resources,
    "volumes": st.lists(_mount, max_size=2),
    "priority": st.integers(0, 100),
    "python": st.sampled_from([3.10, "3.12"]),
    "files": st.lists(_name, max_size=2),
}
_commands = st.lists(_text, min_size=1, max_size=2)
_task = st.fixed_dictionaries(
    {"type": st.just("task"), "commands": _commands},
    optional=_run | {"ports": st.lists(_port, max_size=2), "nodes": st.integers(1, 9)},
)
_dev = st.fixed_dictionaries({"type": st.just("dev-environment")}, optional=_run | {"inactivity_duration": _offable})
_service = st.fixed_dictionaries(
    {"type": st.just("service"), "port": st.integers(1, 65535), "commands": _commands},
    optional=_run
    | {"model": _name, "gateway": st.booleans() | _reference, "replicas": st.integers(0, 9), "https": st.booleans()},
)
_fleet = st.fixed_dictionaries(
    {"type": st.just("fleet"), "nodes": _count},
    optional={
        "resources": _resources,
        "idle_duration": _offable,
        "blocks": st.integers(1, 8) | st.just("auto"),
        "retry": _retry,
    },
)
_volume = st.fixed_dictionaries(
    {"type": st.just("volume"), "backend": st.sampled_from(["aws", "gcp"]), "region": _name, "size": _memory},
    optional={"auto_cleanup_duration": _offable, "tags": st.dictionaries(_name, _name)},
)


@pytest.mark.slow
@settings(max_examples=many(200))
@given(_task | _dev | _service | _fleet | _volume)
def test_wire_forms_are_read_as_themselves(written: dict[str, Any]) -> None:
    try:
        first = parse(json.dumps(written))
    except Invalid:
        assume(False)
    wire = first.model_dump(mode="json")
    assert type(first).model_validate(wire) == first
    again = parse(json.dumps(wire))
    assert again == first
    assert again.model_dump(mode="json") == wire


@pytest.mark.slow
def test_what_the_genuine_client_sends_is_kept_to_the_letter() -> None:
    for case in recorded():
        wire = case.wire
        if wire is not None and not (case.reason(STRICTER) or case.reason(REWORDED)):
            model = volume_types()[wire["backend"]] if wire["type"] == "volume" else TYPES[wire["type"]]
            assert read(model, wire).model_dump(mode="json") == wire, str(case)
