"""Every short form and what it stands for; and invalid ones, with the hint that fixes them."""

import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from chalicelib.configuration.problems import problems_of
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs import quantities
from chalicelib.domain.specs.cron import problem as cron_problem
from chalicelib.domain.specs.env import Env, EnvSentinel, plain, unresolved
from chalicelib.domain.specs.fleets import FleetNodesSpec
from chalicelib.domain.specs.mounts import (
    FilePathMapping,
    InstanceMountPoint,
    MountPoint,
    PortMapping,
    RepoSpec,
    ServicePort,
)
from chalicelib.domain.specs.reading import Spec
from chalicelib.domain.specs.references import EntityReference
from chalicelib.domain.specs.resources import CPUSpec, DiskSpec, GPUSpec, ResourcesSpec
from tests.harness.rows import each


def adapter(kind: Any) -> TypeAdapter[Any]:
    """Variables are no model: the numbers-to-text of the models around them has to be given."""
    return TypeAdapter(kind, config=Spec.model_config) if kind is Env else TypeAdapter(kind)


def read(kind: Any, written: Any) -> Any:
    return adapter(kind).validate_python(written)


def wire(kind: Any, written: Any) -> Any:
    return adapter(kind).dump_python(read(kind, written), mode="json", exclude_none=True)


def error_of(kind: Any, written: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        read(kind, written)
    return "\n".join(problem.render() for problem in problems_of(caught.value))


DURATIONS = [
    ("30", 30),
    (90, 90),
    (1.7, 1),
    ("30s", 30),
    ("5m", 300),
    ("5 m", 300),
    ("2h", 7200),
    ("3d", 259_200),
    ("1w", 604_800),
    (0, 0),
    ("0s", 0),
]


@each(("written", "seconds"), DURATIONS)
@each("flavour", ["Duration", "OffableDuration", "IdleDuration", "InactivityDuration"])
def test_durations(flavour: str, written: Any, seconds: int) -> None:
    assert read(getattr(quantities, flavour), written) == seconds


@each(
    "written",
    ["1h30m", "1.5h", "5M", "m", "", "5 minutes", [], {}, "1" * 400, math.inf, math.nan, 1e300, "9" * 11 + "w"],
)
@each("flavour", ["Duration", "OffableDuration", "IdleDuration", "InactivityDuration"])
def test_not_durations(flavour: str, written: Any) -> None:
    assert "duration" in error_of(getattr(quantities, flavour), written) or "hundred years" in error_of(
        getattr(quantities, flavour), written
    )


@pytest.mark.parametrize(
    ("flavour", "off", "yes", "negative"),
    [
        ("Duration", "refused", "refused", "refused"),
        ("OffableDuration", "off", None, "refused"),
        ("IdleDuration", -1, None, -5),
        ("InactivityDuration", None, None, "refused"),
    ],
)
def test_flavours_of_durations(flavour: str, off: Any, yes: Any, negative: Any) -> None:
    kind = getattr(quantities, flavour)
    for written, meant in ((False, off), ("off", off), (True, yes), (-5, negative), ("-5", negative)):
        if meant == "refused":
            assert "duration" in error_of(kind, written)
        else:
            assert read(kind, written) == meant
    if flavour != "Duration":
        assert read(kind, None) is None


def test_hints_for_durations() -> None:
    assert "one unit only: `90m`" in error_of(quantities.Duration, "1h30m")
    assert "one unit only: `61s`" in error_of(quantities.Duration, "1m1s")
    assert "units are lower-case letters: `5m`" in error_of(quantities.Duration, "5M")


@pytest.mark.parametrize(
    ("written", "gb"),
    [
        (16, 16),
        (0.5, 0.5),
        ("16GB", 16),
        ("16gb", 16),
        ("16 GB", 16),
        ("512MB", 0.5),
        ("1.5TB", 1536),
        ("8", 8),
        (" 8 ", 8),
    ],
)
def test_memory(written: Any, gb: float) -> None:
    assert read(quantities.Memory, written) == gb


@pytest.mark.parametrize(
    "written", ["16G", "16GiB", "GB", "", "-1GB", -1, True, None, [], "1..2", math.inf, "1e9GB", "1" * 30]
)
def test_not_memory(written: Any) -> None:
    assert "memory" in error_of(quantities.Memory, written)


@pytest.mark.parametrize("written", [1e10, "1000000TB", "9" * 30, "99999999999999999999 TB", math.inf])
def test_too_much(written: Any) -> None:
    assert "is too much memory" in error_of(quantities.Memory, written)
    assert "is too much disk space (at most 1,000,000,000 GB)" in error_of(quantities.DiskSize, written)


def test_hint_for_memory() -> None:
    assert "units are MB, GB and TB: `16GB`" in error_of(quantities.Memory, "16G")
    assert "`16GB`" in error_of(quantities.Memory, "16GiB")


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [
        ("8GB", 8, 8),
        ("8GB..", 8, None),
        ("..8GB", None, 8),
        ("8GB..16GB", 8, 16),
        ("8 gb .. 16 GB", 8, 16),
        ("8..16", 8, 16),
        (8, 8, 8),
        ({"min": "8GB"}, 8, None),
        ({"min": 1, "max": "1TB"}, 1, 1024),
    ],
)
def test_memory_ranges(written: Any, low: float | None, high: float | None) -> None:
    assert read(quantities.MemoryRange, written) == Range[float](min=low, max=high)


@pytest.mark.parametrize("written", ["..", "16GB..8GB", "a..b", {}, {"min": None}, True, [], None, "1..2..3"])
def test_not_memory_ranges(written: Any) -> None:
    assert error_of(quantities.MemoryRange, written)


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [("2", 2, 2), ("2..8", 2, 8), ("2..", 2, None), ("..8", None, 8), (" 2 .. 8 ", 2, 8), (3, 3, 3)],
)
def test_ranges(written: Any, low: int | None, high: int | None) -> None:
    assert read(Range[int], written) == Range[int](min=low, max=high)


def test_an_exact_value_means_exactly_that() -> None:
    exact = read(Range[int], 4)
    assert exact.holds(4)
    assert not exact.holds(8)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (4, {"count": {"min": 4, "max": 4}}),
        ("4", {"count": {"min": 4, "max": 4}}),
        ("2..", {"count": {"min": 2}}),
        ("..8", {"count": {"max": 8}}),
        ("arm", {"arch": "arm", "count": {"min": 2}}),
        ("ARM:4", {"arch": "arm", "count": {"min": 4, "max": 4}}),
        ("2..4:x86", {"arch": "x86", "count": {"min": 2, "max": 4}}),
        ({"arch": "X86"}, {"arch": "x86", "count": {"min": 2}}),
        ({"min": 1, "max": 3}, {"count": {"min": 1, "max": 3}}),
        ({"count": "1..2"}, {"count": {"min": 1, "max": 2}}),
        ({}, {"count": {"min": 2}}),
    ],
)
def test_cpu(written: Any, meant: Any) -> None:
    assert wire(CPUSpec, written) == meant


@pytest.mark.parametrize(
    "written", ["x86:arm", "2:4", "four", "", ":", "2:", 2.0, True, None, -1, "5..2", "..", "mips", {"arch": "mips"}]
)
def test_not_cpu(written: Any) -> None:
    assert error_of(CPUSpec, written)


ONE_OR_MORE = {"min": 1}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (8, {"count": {"min": 8, "max": 8}}),
        ("2", {"count": {"min": 2, "max": 2}}),
        ("0..8", {"count": {"min": 0, "max": 8}}),
        ("24..", {"count": {"min": 24}}),
        ("24GB", {"memory": {"min": 24, "max": 24}, "count": ONE_OR_MORE}),
        ("24GB..", {"memory": {"min": 24}, "count": ONE_OR_MORE}),
        ("40gb..80gb", {"memory": {"min": 40, "max": 80}, "count": ONE_OR_MORE}),
        ("A100", {"name": ["A100"], "count": ONE_OR_MORE}),
        ("A100,H100", {"name": ["A100", "H100"], "count": ONE_OR_MORE}),
        ("A100:40GB:2", {"name": ["A100"], "memory": {"min": 40, "max": 40}, "count": {"min": 2, "max": 2}}),
        ("2:40GB:A100", {"name": ["A100"], "memory": {"min": 40, "max": 40}, "count": {"min": 2, "max": 2}}),
        ("4090:24GB", {"memory": {"min": 24, "max": 24}, "count": {"min": 4090, "max": 4090}}),
        ("NVIDIA:24GB", {"vendor": "nvidia", "memory": {"min": 24, "max": 24}, "count": ONE_OR_MORE}),
        ("amd:2", {"vendor": "amd", "count": {"min": 2, "max": 2}}),
        ("tpu:v2-8", {"vendor": "google", "name": ["v2-8"], "count": ONE_OR_MORE}),
        ("tt:n150", {"vendor": "tenstorrent", "name": ["n150"], "count": ONE_OR_MORE}),
        ("v5litepod-4", {"name": ["v5litepod-4"], "count": ONE_OR_MORE}),
        ("tpu-v2-8", {"name": ["v2-8"], "count": ONE_OR_MORE}),
        ({"name": "A100"}, {"name": ["A100"], "count": ONE_OR_MORE}),
        ({"name": ["A100", "H100"], "count": 2}, {"name": ["A100", "H100"], "count": {"min": 2, "max": 2}}),
        ({"vendor": "TT"}, {"vendor": "tenstorrent", "count": ONE_OR_MORE}),
        ({"compute_capability": 7.5}, {"compute_capability": [7, 5], "count": ONE_OR_MORE}),
        ({"compute_capability": "8.0"}, {"compute_capability": [8, 0], "count": ONE_OR_MORE}),
        ({"compute_capability": [9, 0]}, {"compute_capability": [9, 0], "count": ONE_OR_MORE}),
        ({"total_memory": "80GB.."}, {"total_memory": {"min": 80}, "count": ONE_OR_MORE}),
    ],
)
def test_gpu(written: Any, meant: Any) -> None:
    assert wire(GPUSpec, written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "A100::2",
        "",
        "A100:H100",
        "24GB:40GB",
        "1:2",
        "A100,",
        "nvidia:amd",
        True,
        1.5,
        [],
        -1,
        "..",
        "16G",
        {"name": "A,B"},
        {"count": "x"},
    ],
)
def test_not_gpu(written: Any) -> None:
    assert error_of(GPUSpec, written)


def test_no_gpu_asked_is_not_the_same_as_a_gpu() -> None:
    assert ResourcesSpec().gpu == GPUSpec(count=Range[int](min=0))
    assert read(ResourcesSpec, {"gpu": None}).gpu is None
    assert read(ResourcesSpec, {"gpu": {}}).gpu == GPUSpec(count=Range[int](min=1))


def test_disk() -> None:
    assert wire(DiskSpec, "50GB..") == wire(DiskSpec, {"size": "50GB.."}) == {"size": {"min": 50}}
    assert read(ResourcesSpec, {"disk": None}).disk is None


@pytest.mark.parametrize(
    ("written", "local", "container"),
    [(8080, 8080, 8080), ("8080", 8080, 8080), ("80:90", 80, 90), ("*:90", None, 90), ({"container_port": 5}, None, 5)],
)
def test_ports(written: Any, local: int | None, container: int) -> None:
    assert read(PortMapping, written) == PortMapping(local_port=local, container_port=container)


@pytest.mark.parametrize(
    "written", ["8080:", ":80", "a", 0, 65536, "80:90000", True, 1.5, None, {}, "1:2:3", "٣", "9" * 99]
)
def test_not_ports(written: Any) -> None:
    assert error_of(PortMapping, written)


def test_a_service_has_one_port() -> None:
    assert wire(ServicePort, 8000) == {"local_port": 80, "container_port": 8000}
    assert wire(ServicePort, "81:90") == {"local_port": 81, "container_port": 90}
    assert wire(ServicePort, {"container_port": 9}) == {"container_port": 9}
    assert "write `port: 80`" in error_of(ServicePort, "*:80")


def test_env_in_three_forms() -> None:
    assert read(Env, ["A=1", "B=", "C", "D=x=y"]) == {"A": "1", "B": "", "C": EnvSentinel(key="C"), "D": "x=y"}
    assert read(Env, {"A": 1, "B": "x", "C": 2.5}) == {"A": "1", "B": "x", "C": "2.5"}
    found = read(Env, ["A=1", "B"])
    assert ([problem.path for problem in unresolved(found, "env")], plain(found)) == (["env.B"], {"A": "1"})
    assert wire(Env, ["B"]) == {"B": {"key": "B"}}


@pytest.mark.parametrize(
    "written", [["A", "A=1"], ["1A=2"], ["A B=1"], [5], [{"A": "b"}], {"A": None}, {"A": True}, "A=1", 5, None]
)
def test_not_env(written: Any) -> None:
    assert error_of(Env, written)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("v:/a", {"name": "v", "path": "/a"}),
        ("v:/a/", {"name": "v", "path": "/a"}),
        ("/h:/b", {"instance_path": "/h", "path": "/b", "optional": False}),
        ({"name": ["x", "y"], "path": "/c"}, {"name": ["x", "y"], "path": "/c"}),
        (
            {"instance_path": "/i", "path": "/d", "optional": True},
            {"instance_path": "/i", "path": "/d", "optional": True},
        ),
    ],
)
def test_mounts(written: Any, meant: Any) -> None:
    assert wire(MountPoint, written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "a",
        "a:b",
        "/a/../b:/c",
        "a:/b:ro",
        ":/a",
        "a:",
        {"path": "/a"},
        {"name": "a", "instance_path": "/b", "path": "/c"},
        5,
        None,
        "./h:/b",
    ],
)
def test_not_mounts(written: Any) -> None:
    assert error_of(MountPoint, written)


def test_a_read_mount_is_read_as_itself() -> None:
    mount = InstanceMountPoint(instance_path="/a", path="/b")
    assert read(MountPoint, mount) == mount


def test_files() -> None:
    assert wire(FilePathMapping, "a") == {"local_path": "a", "path": "a"}
    assert wire(FilePathMapping, "a:/b") == {"local_path": "a", "path": "/b"}
    assert wire(FilePathMapping, "C:\\a:/b") == {"local_path": "C:\\a", "path": "/b"}
    for wrong in ("a:b:c", "", ":b", "a:", 5, {"local_path": "a"}):
        assert error_of(FilePathMapping, wrong)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (".", {"local_path": ".", "path": "."}),
        ("../app:/app", {"local_path": "../app", "path": "/app"}),
        ("https://example.com/a/b", {"url": "https://example.com/a/b", "path": "."}),
        ("https://example.com/a/b:/app", {"url": "https://example.com/a/b", "path": "/app"}),
        ("ssh://git@example.com:22/a/b", {"url": "ssh://git@example.com:22/a/b", "path": "."}),
        ("git@example.com:a/b.git", {"url": "git@example.com:a/b.git", "path": "."}),
        ("git@example.com:a/b.git:app", {"url": "git@example.com:a/b.git", "path": "app"}),
    ],
)
def test_repos(written: Any, meant: Any) -> None:
    assert wire(RepoSpec, written) == meant | {"if_exists": "error"}


@pytest.mark.parametrize(
    "written",
    [{}, {"url": "a", "local_path": "b"}, {"url": "a", "path": "~other/x"}, {"url": "a", "if_exists": "x"}, 5],
)
def test_not_repos(written: Any) -> None:
    assert error_of(RepoSpec, written)


def test_references() -> None:
    assert read(EntityReference, "a") == EntityReference(name="a")
    assert read(EntityReference, "p/a") == EntityReference(project="p", name="a")
    assert (str(read(EntityReference, "p/a")), str(read(EntityReference, "a"))) == ("p/a", "a")
    for wrong in ("a/b/c", "a/", "/a", "", " ", {"nam": "a"}, 5, None):
        assert error_of(EntityReference, wrong)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (2, {"min": 2, "max": 2}),
        ("2", {"min": 2, "max": 2}),
        ("0..2", {"min": 0, "max": 2}),
        ("..4", {"min": 0, "max": 4}),
        ("1..", {"min": 1}),
        ({"max": 4}, {"min": 0, "max": 4}),
        ({"min": 1, "target": 2, "max": 4}, {"min": 1, "target": 2, "max": 4}),
        ({}, {"min": 0}),
        (0, {"min": 0, "max": 0}),
    ],
)
def test_nodes_of_a_fleet(written: Any, meant: Any) -> None:
    assert wire(FleetNodesSpec, written) == meant
    assert read(FleetNodesSpec, written).target == meant.get("target", meant["min"])


@pytest.mark.parametrize(
    "written",
    [
        -1,
        "a",
        "2..1",
        "..",
        True,
        {"min": 2, "max": 1},
        {"min": 2, "max": 4, "target": 5},
        {"min": 2, "target": 1},
        None,
    ],
)
def test_not_nodes_of_a_fleet(written: Any) -> None:
    assert error_of(FleetNodesSpec, written)


@pytest.mark.parametrize(
    "expression",
    ["* * * * *", "*/5 0-6 1,15 jan-mar mon-fri", "0 9 * * 0", "0 0 last * *", "59 23 31 12 6", "0 9 * * SUN"],
)
def test_cron(expression: str) -> None:
    assert cron_problem(expression) is None


@pytest.mark.parametrize(
    "expression",
    [
        "@daily",
        "* * * *",
        "60 * * * *",
        "0 9 * * 7",
        "5-2 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "0 9 * * mo",
        "",
        "1;2 * * * *",
    ],
)
def test_not_cron(expression: str) -> None:
    assert cron_problem(expression)


@pytest.mark.parametrize("written", ["x", "", "1..x", "..", "5..2", "1...3", "9" * 40, 2.5, "2.5", True, None, []])
def test_not_ranges_and_one_problem_each(written: Any) -> None:
    assert "\n" not in error_of(CPUSpec, {"count": written})
