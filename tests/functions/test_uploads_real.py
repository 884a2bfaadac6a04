"""The agent's session and the functions, from a job that writes a lot to a person who reads it: the bytes go straight
into the bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulators.ministack import Emulator
from tests.scenarios.stages import Virtual
from tests.world.aws import AwsSite

LINE = "x" * 1_000
TASK = 'type: task\nname: wordy\nenv: {LINE: %s}\nresources: {cpu: 2.., memory: 8GB..}\ncommands: ["%s"]\n'


def test_much_output_goes_into_the_bucket_and_is_read_whole(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in emulator.environment.items():
        monkeypatch.setenv(name, value)
    site = AwsSite("uploads", emulator)
    stage = Virtual(site, tmp_path, "work")
    commands = ["echo $LINE"] * 100
    (tmp_path / "task.dstack.yml").write_text(
        TASK % (LINE, " && ".join([*commands, "sleep 5", *commands, "sleep 30", "echo end"]))
    )
    (tmp_path / "fleet.dstack.yml").write_text("type: fleet\nname: machines\nnodes: 1\n")
    assert stage.dstack(["apply", "-y", "-f", "fleet.dstack.yml"])[1] == 0
    assert stage.dstack(["apply", "-y", "-f", "task.dstack.yml"])[1] == 0
    assert stage.dstack(["logs", "wordy"]) == (f"{LINE}\n" * 200 + "end\n", 0)
    sizes = [
        item["Size"] for item in emulator.client("s3").list_objects_v2(Bucket="uploads", Prefix="logs/")["Contents"]
    ]
    assert max(sizes) > 100_000 and len(sizes) < 20
    actions = {action for action, _ in site.policed.seen["agent_sync"]}
    assert "dynamodb:PutItem" in actions and "s3:ListBucket" not in actions, "nothing is listed on the way"
    site.close()
