"""`python -m infra.restore` as a whole on an emulator, with functions that really stop. Only the moment is kept by a
stand-in (`tests/emulators/moments.py`)."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from chalicelib.domain.fences import Fence, FenceState
from chalicelib.domain.keys import FENCE, RESTORATION, Key
from chalicelib.domain.restorations import Met
from chalicelib.engine.hold import EventHold, go_on
from chalicelib.runtime.migration.stage import POLL
from chalicelib.store import nouns
from chalicelib.store.dynamo import DynamoStore, create_table
from chalicelib.store.port import Change, Delete, Put, Record
from infra import command, restore
from infra.functions import HOLDS, reserved
from tests.emulators.ministack import Emulator
from tests.emulators.moments import Moments
from tests.world import nouns as b
from tests.world.time import Clock

STAGE, TABLE = "back", "dstack-back"
COPY = f"{TABLE}-at-20261121T080000"
AT = datetime(2026, 11, 21, 8, tzinfo=UTC)
CODE = "import uuid\nPROCESS = str(uuid.uuid4())\n\ndef handler(event, context):\n    return PROCESS\n"
FUNCTIONS = ("api", "reconcile")
FLEET = b.fleet("cloud")


class Killed(BaseException):
    """The command ends here."""


@dataclass
class RealStage:
    emulator: Emulator
    live: DynamoStore
    moments: Moments
    lines: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    commits: int = 0
    dies_at: int = 0  # before this commit
    seen: list[dict[str, Any]] = field(default_factory=list)  # at each question

    def run(self, *, yes: bool = True) -> int:
        aws = restore.Aws(clients=self.client, store=self.store, clock=Clock(), sleep=self.sleep, poll=0.01)
        parser = command.parser("infra.restore", "")
        parser.add_argument("--at")
        given = parser.parse_args([STAGE, "--at", AT.isoformat()])
        return command.run(
            given, lambda given, say, agree: restore.restore(given, self.lines.append, partial(self.asked, yes), aws)
        )

    def sleep(self, seconds: float) -> None:
        """No call is under way here, so only the emulator is waited for, while it makes new processes."""
        if seconds == POLL:
            time.sleep(POLL / 4)
        else:
            self.waited.append(seconds)

    def client(self, service: str) -> Any:
        return self.moments if service == "dynamodb" else self.emulator.client(service)

    def store(self, table: str) -> Any:
        return _Mortal(self) if table == TABLE else DynamoStore(table, endpoint=self.emulator.url)

    def asked(self, answer: bool, question: str) -> bool:
        self.seen.append({"processes": self.processes(), "tables": self.tables()})
        return answer

    def processes(self) -> list[str | None]:
        """Which process answers for each function; None if it may not run."""
        functions, found = self.emulator.client("lambda"), list[str | None]()
        for name in FUNCTIONS:
            try:
                answer = functions.invoke(FunctionName=f"{TABLE}-{name}", Payload=b"{}")
                found.append(json.loads(answer["Payload"].read()))
            except functions.exceptions.TooManyRequestsException:
                found.append(None)
        return found

    def tables(self) -> set[str]:
        return {name for name in self.emulator.client("dynamodb").list_tables()["TableNames"] if name.startswith(TABLE)}

    def records(self) -> list[Record]:
        found, after = list[Record](), None
        while page := self.live.scan(after):
            found += page
            after = page[-1].key
        return sorted((each for each in found if each.key not in restore.OURS), key=lambda record: record.key)


class _Mortal:
    """The table's store, at one of whose commits the command is killed."""

    def __init__(self, stage: RealStage) -> None:
        self._stage = stage

    def commit(self, changes: list[Change]) -> None:
        self._stage.commits += 1
        if self._stage.commits == self._stage.dies_at:
            raise Killed
        self._stage.live.commit(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.live, name)


@pytest.fixture
def stage(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealStage]:
    for name, value in {**emulator.environment, "DSTACK_AWS_ENDPOINT": emulator.url}.items():
        monkeypatch.setenv(name, value)
    dynamo, functions, ssm = (emulator.client(name) for name in ("dynamodb", "lambda", "ssm"))
    create_table(dynamo, TABLE)
    dynamo.update_continuous_backups(
        TableName=TABLE, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    settings = {"table": TABLE, "bucket": "b", "wake_function": f"{TABLE}-reconcile", "api_url": "https://plane"}
    for name, text in {"settings": json.dumps(settings), "install-key": "a1" * 32, "master-key": "a1" * 32}.items():
        ssm.put_parameter(Name=f"/{TABLE}/{name}", Value=text, Type="String", Overwrite=True)
    for name in FUNCTIONS:
        functions.create_function(
            FunctionName=f"{TABLE}-{name}",
            Runtime="python3.11",
            Role="arn:aws:iam::000000000000:role/any",
            Handler="one.handler",
            Code={"ZipFile": zipped()},
            Timeout=7,
            Environment={"Variables": {HOLDS: "1"}},
        )
    yield RealStage(emulator, DynamoStore(TABLE, endpoint=emulator.url), Moments(dynamo))
    for name in FUNCTIONS:
        functions.delete_function(FunctionName=f"{TABLE}-{name}")
    for table in (TABLE, COPY):
        if table in dynamo.list_tables()["TableNames"]:
            dynamo.delete_table(TableName=table)


def zipped() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("one.py", CODE)
    return content.getvalue()


@pytest.mark.slow
def test_a_stage_gets_its_records_of_then_while_its_functions_rest_also_if_the_command_is_killed(
    stage: RealStage,
) -> None:
    live, old, bought = stage.live, b.host(0, FLEET), b.host(1, FLEET)
    live.commit([nouns.put(old), Put(Record(Key("run/1", "status"), 1, b'{"name":"a"}', ("p", "s")), expect=0)])
    stage.moments.keep(TABLE, AT)
    then = stage.records()
    live.commit([nouns.put(bought), Delete(Key("run/1", "status"))])
    for first in (0, 90):
        live.commit([Put(Record(Key(f"later/{n:03}", "x"), 1, b"{}"), expect=0) for n in range(first, first + 90)])
    live.commit([nouns.put(Fence(state=FenceState.active, migration="m"))])
    now, before = stage.records(), stage.processes()
    assert None not in before

    assert stage.run(yes=False) == 1 and stage.records() == now and None not in stage.processes()
    assert stage.seen == [{"processes": [None, None], "tables": {TABLE, COPY}}] and stage.tables() == {TABLE}
    assert any(f"instance {bought.name} ({bought.status}) will be unknown" in line for line in stage.lines)
    assert stage.waited == [7], "as long as a call may still take"

    stage.dies_at = 3  # the mark, some records, and no more
    with pytest.raises(Killed):
        stage.run()
    assert stage.records() not in (now, then) and stage.processes() == [None, None]
    assert EventHold(live, Clock()).looking and stage.tables() == {TABLE, COPY}

    assert stage.run() == 0
    assert stage.records() == then and stage.tables() == {TABLE}
    assert [record.key for record in live.query("gsi1", "p").records] == [Key("run/1", "status")]
    assert live.get(FENCE) is not None, "it stays"
    after = stage.processes()
    assert None not in after and not {*after} & {*before}
    functions = stage.emulator.client("lambda")
    usual = reserved(functions.get_account_settings()["AccountLimit"]["ConcurrentExecutions"])
    for name in FUNCTIONS:
        found = functions.get_function_concurrency(FunctionName=f"{TABLE}-{name}")
        assert found.get("ReservedConcurrentExecutions") == usual.get(name), "as a deployment has it"

    hold, clock = EventHold(live, Clock()), Clock()
    hold.met(Met(kind="machine", id="i-1", says="a machine that no record names"))
    assert hold.looking and [each.id for each in go_on(live, clock).met] == ["i-1"]  # type: ignore[union-attr]
    assert live.get(RESTORATION) is not None and not EventHold(live, clock).looking


def test_a_moment_that_isnt_kept_is_refused_before_anything_stops(
    stage: RealStage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.run() == 1
    assert "AWS refused to restore the moment" in capsys.readouterr().err
    assert None not in stage.processes() and stage.waited == []
