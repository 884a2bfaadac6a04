"""What is wrong with a machine, from its tools' words, its kernel's log and its disks: all of them are inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chalicelib.agent.kernel import limits
from chalicelib.agent.program.health import MIB, TOOLS_EVERY, HealthChecks
from chalicelib.agent.program.kernel_log import STANDS, KernelLog, address, xid_of
from chalicelib.usecases import agent_message as server
from tests.agent.program.test_session import greeted, message, session

CARD = "GPU-aa"
BUS = "00000000:83:00.0"


class Machine:
    """A machine whose tools answer what a test says, with a clock that a test moves."""

    def __init__(self, root: Path, vendors: str = "nvidia") -> None:
        self.root, self.vendors, self.now = root, {vendors}, 100_000.0
        self.columns: dict[str, str] = {"index": "0", "pci.bus_id": BUS, "uuid": CARD}
        self.more = ""  # lines of nvidia-smi beside the card's
        self.exits: dict[str, int] = {}
        self.says: dict[str, str] = {}
        self.unknown: set[str] = set()  # fields that the driver doesn't have
        self.calls: list[str] = []
        self.disks: dict[str, tuple[int, int]] = {"/data": (100 << 30, 50 << 30)}  # size, free
        self.engine = ""
        (root / "dev").mkdir()
        self.log = root / "dev/kmsg"
        self.log.write_text("")
        self.health = self.restarted()

    def restarted(self) -> HealthChecks:
        return HealthChecks(lambda: dict.fromkeys(self.disks, "the agent's"), [lambda: self.engine], self.run,
                      str(self.root), lambda: self.now, self.statvfs)  # fmt: skip

    def statvfs(self, path: str) -> Any:
        size, free = self.disks[path]
        return SimpleNamespace(f_blocks=size >> 12, f_bavail=free >> 12, f_frsize=4096)

    def run(self, argv: list[str]) -> tuple[int, str]:
        tool = argv[0]
        self.calls.append(tool)
        if self.exits.get(tool):
            return self.exits[tool], self.says.get(tool, "")
        if tool == "nvidia-smi":
            fields = argv[1].removeprefix("--query-gpu=").split(",")
            if bad := self.unknown & set(fields):
                return 2, f'Field "{bad.pop()}" is not a valid field to query.\n'
            row = ", ".join(self.columns.get(name, "0" if "errors" in name else "[N/A]") for name in fields)
            return 0, self.more + (row + "\n" if self.columns else "")
        return (0, self.says[tool]) if tool in self.says else (127, "")

    def logs(self, *lines: str, at: float | None = None) -> None:
        stamp = round((self.now if at is None else at) * 1e6)
        with self.log.open("a") as file:
            file.writelines(f"3,{number},{stamp},-;{line}\n SUBSYSTEM=pci\n" for number, line in enumerate(lines))

    def check(self, passed: float = TOOLS_EVERY) -> list[tuple[str, str]]:
        self.now += passed
        return self.health.check(self.vendors)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- NVIDIA ----------------------------------------------------------------------------------------------------------


def test_a_healthy_machine(machine: Machine) -> None:
    assert machine.check() == []


@pytest.mark.parametrize(
    ("field", "value", "status", "message"),
    [
        ("ecc.errors.uncorrected.volatile.total", "3", "failure", "uncorrected memory errors"),
        ("ecc.errors.uncorrected.volatile.total", "[N/A]", "", ""),
        ("remapped_rows.failure", "Yes", "failure", "can't be remapped"),
        ("remapped_rows.pending", "Yes", "warning", "waits to be remapped"),
        ("remapped_rows.pending", "No", "", ""),
        ("gpu_recovery_action", "None", "", ""),
        ("gpu_recovery_action", "Drain and Reset", "failure", "it needs: Drain and Reset"),
        ("gpu_recovery_action", "[GPU requires reset]", "failure", "requires a reset"),
    ],
)
def test_what_a_card_reports(machine: Machine, field: str, value: str, status: str, message: str) -> None:
    machine.columns[field] = value
    found = machine.check()
    assert [each for each, _ in found] == ([status] if status else [])
    assert all(message in text and text.startswith("GPU 0: ") for _, text in found)
    machine.columns.pop(field)
    assert machine.check() == [], "it is over once the tool says so"


@pytest.mark.parametrize("unknown", ["gpu_recovery_action", "remapped_rows.pending"])
def test_a_driver_without_some_fields_is_asked_for_the_others(machine: Machine, unknown: str) -> None:
    machine.unknown = {unknown}
    machine.columns["ecc.errors.uncorrected.volatile.total"] = "1"
    assert [status for status, _ in machine.check()] == ["failure"]
    machine.calls.clear()
    assert [status for status, _ in machine.check()] == ["failure"]
    assert machine.calls.count("nvidia-smi") == 1, "what it knows was found once"


LOST = "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error\n"


def test_a_card_that_its_driver_lost(machine: Machine) -> None:
    machine.more = LOST
    assert machine.check() == [("failure", "GPU 3: its driver can't reach it any more")]
    machine.exits["nvidia-smi"], machine.says["nvidia-smi"] = 15, LOST
    assert machine.check() == [("failure", "GPU 3: its driver can't reach it any more")]


def test_a_card_that_is_no_longer_listed(machine: Machine) -> None:
    assert machine.check() == []
    machine.columns = {}
    assert machine.check() == [("failure", "GPU 0: nvidia-smi doesn't list it any more")]


def test_a_tool_that_fails_counts_when_it_fails_again(machine: Machine) -> None:
    machine.exits["nvidia-smi"] = 9
    assert machine.check() == []
    assert machine.check(10.0) == [("failure", "nvidia-smi fails with exit status 9")], "asked again at once"
    machine.exits["nvidia-smi"] = 126
    assert machine.check() == []
    assert machine.check(10.0) == [("failure", "nvidia-smi doesn't answer")]
    machine.exits.clear()
    assert machine.check(10.0) == []


def test_a_driver_that_has_answered_everything_is_not_asked_for_less_when_it_fails(machine: Machine) -> None:
    machine.check()
    machine.calls.clear()
    machine.exits["nvidia-smi"] = 9
    machine.check()
    assert machine.calls.count("nvidia-smi") == 1


def test_a_tool_that_isnt_there_proves_nothing(machine: Machine) -> None:
    machine.exits["nvidia-smi"] = 127
    assert machine.check() == machine.check() == []


def test_tools_are_asked_seldom_and_only_those_of_the_machines_gpus(machine: Machine) -> None:
    for _ in range(13):
        machine.check(10.0)
    assert machine.calls == ["nvidia-smi"] * 2
    machine.vendors = set()
    machine.calls.clear()
    assert machine.check() == [] and machine.calls == []


# --- the kernel's log ------------------------------------------------------------------------------------------------

FELL = "NVRM: Xid (PCI:0000:83:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("line", "card", "number", "text"),
    [
        (FELL, "0000:83:00", 79, "GPU has fallen off the bus."),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", 14, "Channel 00000001"),
        (
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC",
            "0000:9b:00", 119, "Timeout after 6s of waiting for RPC",
        ),
        ("NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0", "0009:01:00", 149,
         "NETIR_LINK_EVT  Fatal   XC0"),
        ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", "0000:29:00", 79, "GPU has fallen off the bus."),
        ("NVRM: GPU 18:00.0: GPU has fallen off the bus.", "0000:18:00", 79, "GPU has fallen off the bus."),
        ("NVRM: Xid (PCI:0000:05:00): 48", "0000:05:00", 48, ""),
    ],
)  # fmt: skip
def test_lines_of_errors(line: str, card: str, number: int, text: str) -> None:
    assert xid_of(7.0, line) == (7.0, card, number, text)


@pytest.mark.parametrize("line", ["NVRM: Xid (invalid): 79, x", "NVRM: Xid", "NVRM: loading", "GPU has fallen off"])
def test_other_lines(line: str) -> None:
    assert xid_of(7.0, line) is None


def test_addresses_of_all_sources_are_the_same() -> None:
    assert {address(text) for text in (BUS, "0000:83:00", "83:00.0", "PCI:0000:83:00"[4:])} == {"0000:83:00"}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (FELL, "failure"),
        ("NVRM: Xid (PCI:0000:83:00): 95, uncontained", "failure"),
        ("NVRM: Xid (PCI:0000:83:00): 63, row remapped", "warning"),
        ("NVRM: Xid (PCI:0000:83:00): 31, pid=7, name=python, MMU Fault", ""),
        ("NVRM: Xid (PCI:0000:83:00): 13, Graphics Exception", ""),
        ("NVRM: Xid (PCI:0000:83:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
         "failure"),
        ("NVRM: Xid (PCI:0000:83:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)", ""),
    ],
)  # fmt: skip
def test_what_an_error_means(machine: Machine, line: str, status: str) -> None:
    machine.check()
    machine.logs(line)
    machine.logs(line)
    assert [each for each, _ in machine.check(10.0)] == ([status] if status else [])


def test_a_failure_stands_for_a_day_and_a_warning_for_an_hour(machine: Machine) -> None:
    machine.logs(FELL, "NVRM: Xid (PCI:0000:83:00): 63, row remapped")
    assert [status for status, _ in machine.check(10.0)] == ["failure", "warning"]
    assert [status for status, _ in machine.check(STANDS["warning"])] == ["failure"]
    assert machine.check(STANDS["failure"]) == []


def test_an_error_is_as_old_as_the_log_says_when_an_agent_starts(machine: Machine) -> None:
    machine.logs(FELL, at=machine.now - STANDS["failure"])
    machine.logs("NVRM: Xid (PCI:0000:84:00): 48, DBE", at=machine.now - 60)
    machine.health = machine.restarted()
    assert machine.check(0.0) == [("failure", "GPU 0000:84:00: Xid 48, DBE")]


def test_a_card_that_its_driver_calls_sound_again_is_taken_back(machine: Machine) -> None:
    machine.check()
    machine.logs(FELL)
    assert machine.check(10.0)[0][0] == "failure"
    machine.columns["gpu_recovery_action"] = "None"
    assert machine.check()[0][0] == "warning"
    machine.logs(FELL, at=machine.now + 5)
    assert machine.check(10.0)[0][0] == "failure", "it happened again since"


def test_where_only_root_reads_the_log_dmesg_is_asked_and_each_line_counts_once(tmp_path: Path) -> None:
    texts = ["[171167.620236] " + FELL, "[171168.000000] NVRM: Xid (PCI:0000:84:00): 48, DBE"]
    answers = [(0, "\n".join(texts[:1])), (0, "\n".join(texts)), (1, "dmesg: Operation not permitted")]
    log = KernelLog(lambda argv: answers.pop(0), str(tmp_path))
    assert [(xid.at, xid.number) for xid in log.new_errors()] == [(171167.620236, 79)]
    assert [(xid.at, xid.number) for xid in log.new_errors()] == [(171168.0, 48)]
    assert log.new_errors() == []


# --- other vendors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [lambda cards: cards, lambda cards: {"gpu_data": cards}])
def test_errors_that_ras_counted(tmp_path: Path, shape: Callable[[Any], Any]) -> None:
    machine = Machine(tmp_path, "amd")
    cards: list[Any] = [
        {"gpu": 0, "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 0}},
        {"gpu": 1, "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 2}},
        {"gpu": 2, "ecc": "N/A"},
        {"gpu": 3, "ecc": {"total_uncorrectable_count": "N/A"}},
    ]
    machine.says["amd-smi"] = json.dumps(shape(cards))
    assert machine.check() == [("failure", "GPU 1: uncorrectable errors since its driver was loaded")]
    machine.says["amd-smi"] = "not JSON"
    assert machine.check() == []


def test_errors_of_gaudi_cards(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "intel")
    machine.says["hl-smi"] = "0, 0\n1, 4\n2, N/A\n"
    assert machine.check() == [("failure", "GPU 1: uncorrected memory errors since its driver was loaded")]
    machine.exits["hl-smi"] = 1
    assert machine.check() == []
    assert machine.check() == [("failure", "hl-smi fails with exit status 1")]


# --- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "free", "status"),
    [
        (100 << 30, 1024 * MIB, ""),
        (100 << 30, 1024 * MIB - 4096, "warning"),
        (100 << 30, 256 * MIB, "warning"),
        (100 << 30, 256 * MIB - 4096, "failure"),
        (1000 * MIB, 100 * MIB, ""),
        (1000 * MIB, 99 * MIB, "warning"),
        (1000 * MIB, 49 * MIB, "failure"),
    ],
)
def test_a_disk_that_fills(machine: Machine, size: int, free: int, status: str) -> None:
    machine.disks = {"/data": (size, free)}
    assert [each for each, _ in machine.check()] == ([status] if status else [])


def test_a_disk_at_its_threshold_doesnt_come_and_go(machine: Machine) -> None:
    machine.disks = {"/data": (100 << 30, 255 * MIB)}
    assert machine.check() == [("failure", "the disk under /data (the agent's) is full")]
    machine.disks = {"/data": (100 << 30, 300 * MIB)}
    assert machine.check()[0][0] == "failure"
    machine.disks = {"/data": (100 << 30, 1100 * MIB)}
    assert machine.check()[0][0] == "warning"
    machine.disks = {"/data": (100 << 30, 1300 * MIB)}
    assert machine.check() == []


def test_an_engine_that_is_gone_for_longer_than_a_restart(machine: Machine) -> None:
    machine.engine = "the Docker engine at /d.sock doesn't answer: refused"
    assert machine.check(10.0) == []
    machine.engine = ""
    assert machine.check(10.0) == []
    machine.engine = "the Docker engine at /d.sock doesn't answer: refused"
    assert machine.check(10.0) == []
    assert machine.check(10.0) == [("failure", "the Docker engine at /d.sock doesn't answer: refused")]
    machine.engine = ""
    assert machine.check(10.0) == []


# --- to the server ---------------------------------------------------------------------------------------------------


def test_troubles_are_reported_at_once_with_their_ages_and_only_when_they_change() -> None:
    agent = greeted(session(), next_sync_in=60)
    agent.health_changed([("failure", "engine gone")], 5.0)
    sent = message(agent, 7.0)
    assert sent.body["health"] == [{"status": "failure", "message": "engine gone", "age": 2}]
    agent.failed(sent, "network", 7.0)
    sent = message(agent, 9.0)
    assert sent.body["health"][0]["age"] == 4, "repeated until it was answered"
    agent.answered(sent, {"next_sync_in": 60}, 9.0)
    agent.health_changed([("failure", "engine gone")], 20.0)
    assert agent.next(20.0) == 69.0
    agent.health_changed([("failure", "engine gone"), ("warning", "x")], 40.0)
    sent = message(agent, 41.0)
    assert [each["age"] for each in sent.body["health"]] == [36, 1]
    agent.health_changed([], 42.0)
    agent.answered(sent, {"next_sync_in": 60}, 42.0)
    assert message(agent, 42.0).body["health"] == [], "what changed while a message was on its way comes with the next"


def test_that_all_is_well_waits_for_the_next_message() -> None:
    agent = greeted(session(), next_sync_in=60)
    agent.health_changed([], 5.0)
    assert agent.next(5.0) == 60.0
    assert message(agent, 60.0).body["health"] == []


def test_a_server_that_refuses_it_gets_the_rest() -> None:
    agent = greeted(session())
    agent.health_changed([("failure", "engine gone")], 5.0)
    agent.failed(message(agent, 5.0), "unacceptable", 5.0)
    assert "health" not in message(agent, 7.0).body


def test_whatever_is_wrong_the_server_takes_it() -> None:
    agent = greeted(session())
    agent.health_changed([("failure", f"{number} " + "\udcff\U0001f600" * 500) for number in range(99)], 5.0)
    read = server.read_message(json.dumps(message(agent, 6.0).body).encode())
    assert read.health is not None and len(read.health) == limits.TROUBLES_MOST
