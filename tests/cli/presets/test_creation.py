"""A preset from `dstack apply` to the service that is kept: what is shown, started, measured, stopped and stored."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from chalicelib.configuration.parse import parse
from cli.presets import records
from cli.presets.records import KEEP, RUNS, STOP, TRACE
from cli.presets.search import DEFAULT_SECONDS
from tests.cli.conftest import NOW, interrupt_at
from tests.cli.plane import log_page, machine, offer
from tests.cli.presets.conftest import Work
from tests.cli.presets.samples import trial
from tests.cli.presets.scripted import Service, answer

APPLY = ("apply", "-f", "qwen.dstack.yml", "-y")
FIRST, SECOND = "more memory", "longer batches"


def names(work: Work) -> list[str]:
    """The runs of the trials, without the preset's id."""
    return [spec["run_name"].removeprefix(f"preset-{work.preset()['id']}") for spec in work.cloud.specs]


def before_submission(work: Work, act: Callable[[str], object]) -> None:
    """Lets something happen just before a run of this name is there."""

    def apply(body: Any) -> Any:
        act(body["plan"]["run_spec"]["run_name"])
        return work.cloud.apply(body)

    work.plane.answers["/runs/apply"] = apply


# --- the plan ---


def test_the_plan_shows_what_it_is_and_what_it_costs_and_starts_nothing(work: Work) -> None:
    ended = work("apply", "-f", "qwen.dstack.yml", answers="n\n")
    assert ended.code == 0, ended
    for line in (
        "Model    Qwen/Qwen3-8B, or derived from it",
        "Load     2 concurrent requests, 64 tokens in, 8 out",
        "Limits   context 4096, TTFT 60000ms, 2 at a time",
        "Trials   2, the first a baseline, each 1h at most",
        f"Agent    planner at {work.scripted.url}/llm/v1",
        "Cost: at most $4, if every trial runs for 1h,",
        "Nothing was started.",
    ):
        assert line in ended.out, (line, ended)
    assert max(map(len, ended.out.splitlines())) <= 80
    assert records.every(work.dstack.terminal.home) == [] and not work.cloud.specs and not work.scripted.asked


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("max_duration: 30m\n", "Cost: at most $2, if every trial runs for 30m,"),
        ("prompt: be quick\ndataset: d.jsonl\n", "2 concurrent requests, of the dataset"),
    ],
)
def test_the_plan_follows_the_file(work: Work, more: str, text: str) -> None:
    (work.dstack.terminal.cwd / "d.jsonl").write_text('{"prompt": "hi"}\n')
    work.write(more)
    if "dataset" in more:
        path = work.dstack.terminal.cwd / "qwen.dstack.yml"
        path.write_text(
            "".join(line for line in path.read_text().splitlines(keepends=True) if "put_tokens" not in line)
        )
    assert text in work("apply", "-f", "qwen.dstack.yml", answers="n\n").out


def test_own_machines_cost_nothing(work: Work) -> None:
    work.cloud.price = 0.0
    assert "Cost: nothing for machines" in work("apply", "-f", "qwen.dstack.yml", answers="n\n").out


def test_machines_without_gpus_are_shown_where_there_are_no_others(work: Work) -> None:
    work.cloud.offers = 0
    ended = work("apply", "-f", "qwen.dstack.yml", answers="n\n")
    least = [
        body["run_spec"]["configuration"]["resources"]["gpu"]["count"]["min"]
        for body in work.plane.bodies("/runs/get_plan")
    ]
    assert least == [1, 0] and "No machine is available now" in ended.out


@pytest.mark.parametrize(
    ("more", "without", "text"),
    [
        ("", "trials", "a preset needs `trials`"),
        ("", "max_ttft", "a preset needs `max_ttft`"),
        ("schedule: {cron: '0 0 * * *'}\n", "", "isn't created on a schedule"),
        ("previous: [nothing]\n", "", "no preset nothing"),
        ("prompt: {path: none.md}\n", "", "The prompt none.md can't be read"),
        ("prompt: {path: long.md}\n", "", "has 10001 characters"),
        ("prompt: {}\n", "", "`text` or a `path`"),
        ("env: [NOT_THERE]\n", "", "NOT_THERE"),
        ("name: My Model\n", "name: q", "`My Model` can't be the name of a preset"),
    ],
)
def test_what_cant_be_created_is_refused_before_it_costs_anything(
    work: Work, more: str, without: str, text: str
) -> None:
    (work.dstack.terminal.cwd / "long.md").write_text("x" * 10_001)
    work.write(more)
    path = work.dstack.terminal.cwd / "qwen.dstack.yml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not without or not line.startswith(without)))
    ended = work(*APPLY)
    assert ended.code == 1 and text in ended.err, ended
    assert not work.cloud.specs and not work.scripted.asked


@pytest.mark.parametrize("flag", ["--force", "--web", "-v", "--repo .", "--host 0.0.0.0", "--full-offers"])
def test_flags_that_mean_nothing_for_a_preset_are_refused(work: Work, flag: str) -> None:
    ended = work(*APPLY, *flag.split())
    assert ended.code == 2 and f"{flag.split(maxsplit=1)[0]} doesn't apply to a preset" in ended.err, ended


# --- trials ---


@pytest.mark.slow
def test_each_trial_is_one_service_that_is_stopped_before_the_next(work: Work) -> None:
    work.scripted.answers = [answer(FIRST), answer(SECOND, commands=["vllm serve m --max-num-seqs 64"])]
    ended = work(*APPLY)
    assert ended.code == 0, ended
    assert names(work) == ["-1", "-2"] and work.cloud.active() == [] and len(work.cloud.stopped) == 2
    preset = work.preset()
    assert [each["hypothesis"] for each in preset["trials"]] == [FIRST, SECOND]
    assert (preset["status"], preset["best"], preset["cost"]) == ("done", preset["best"], 0.5)
    assert preset["trials"][0]["baseline"] and not preset["trials"][1]["baseline"]
    first = preset["trials"][0]
    assert first["machine"]["gpu"] == "A100:80GB:1" and first["machine"]["price"] == 2.0
    assert (first["benchmark"]["requests"], first["benchmark"]["output_tokens"]) == (8, 64)
    assert 4096 * 0.95 <= first["benchmark"]["context_length"] <= 4096
    assert "default settings" in work.scripted.prompts()[0] and FIRST in work.scripted.prompts()[1]


@pytest.mark.slow
def test_a_service_gets_the_users_settings_and_an_end(work: Work) -> None:
    work.write("max_price: 3\nspot_policy: spot\ngateway: false\nenv: [HF_TOKEN, MODE=fast]\ntags: {team: a}\n")
    env = {**work.dstack.terminal.env, "HF_TOKEN": "hf-secret"}
    assert work(*APPLY, env=env).code == 0
    sent = work.cloud.specs[0]["configuration"]
    assert (sent["max_duration"], sent["max_price"], sent["spot_policy"]) == (DEFAULT_SECONDS, 3, "spot")
    assert (sent["env"], sent["gateway"], sent["tags"]) == (
        {"HF_TOKEN": "hf-secret", "MODE": "fast"},
        False,
        {"team": "a"},
    )
    assert sent["model"]["name"] == "Qwen/Qwen3-8B"
    assert "HF_TOKEN, MODE" in work.scripted.prompts()[0] and "hf-secret" not in json.dumps(work.scripted.asked)


@pytest.mark.slow
def test_no_secret_is_on_disk(work: Work) -> None:
    work.write("env: [HF_TOKEN]\n")
    work(*APPLY, env={**work.dstack.terminal.env, "HF_TOKEN": "hf-secret"})
    assert work.scripted.keys == ["sk-very-secret"] * 2
    for path in work.folder().path.rglob("*"):
        if path.is_file():
            assert b"hf-secret" not in path.read_bytes() and b"sk-very" not in path.read_bytes(), path
    assert work.folder().path.stat().st_mode & 0o077 == 0


def test_what_a_service_prints_of_a_secret_is_neither_stored_nor_told(work: Work) -> None:
    work.write("env: [HF_TOKEN]\n")
    work.plane.answers["/logs/poll"] = log_page("HF_TOKEN=hf-secret\n")
    before_submission(work, lambda name: work.cloud.unfit.update({name: "it printed hf-secret"}))
    work(*APPLY, env={**work.dstack.terminal.env, "HF_TOKEN": "hf-secret"})
    assert "HF_TOKEN=***" in work.scripted.prompts()[1] and "hf-secret" not in json.dumps(work.scripted.asked)
    assert "hf-secret" not in json.dumps(work.preset()) and "hf-secret" not in work("preset", "logs", "qwen").out


def test_a_share_of_a_machine_is_what_was_measured(work: Work) -> None:
    work.cloud.price = 8.0
    work.cloud.share = offer("a8", 1.0, resources=machine(gpus=(("A100", 81920),)), blocks=1, total_blocks=8)
    assert work(*APPLY, "--trials", "1").code == 0
    found = work.preset()["trials"][0]["machine"]
    assert (found["gpu"], found["price"], found["instance_type"]) == ("A100:80GB:1", 1.0, "a8")


def test_profiles_and_flags_apply_as_to_a_run(work: Work) -> None:
    (work.dstack.terminal.cwd / ".dstack").mkdir()
    (work.dstack.terminal.cwd / ".dstack" / "profiles.yml").write_text(
        "profiles: [{name: short, default: true, max_duration: 10m}]\n"
    )
    ended = work(*APPLY, "--max-price", "2.5", "--trials", "1", "-n", "other", "-e", "A=b")
    assert ended.code == 0 and "each 10m at most" in ended.out, ended
    assert work.preset()["name"] == "other" and len(work.preset()["trials"]) == 1
    sent = work.cloud.specs[0]
    assert (sent["configuration"]["max_price"], sent["configuration"]["env"]) == (2.5, {"A": "b"})
    assert sent["profile"]["name"] == "short" and sent["configuration"]["max_duration"] == 600


def test_a_profiles_schedule_is_refused(work: Work) -> None:
    """Its service would begin again and again, with nobody to stop it."""
    (work.dstack.terminal.cwd / ".dstack").mkdir()
    (work.dstack.terminal.cwd / ".dstack" / "profiles.yml").write_text(
        "profiles:\n- name: nightly\n  default: true\n  schedule: {cron: '0 0 * * *'}\n"
    )
    ended = work(*APPLY)
    assert ended.code == 1 and "profiles.yml:4" in ended.err and "isn't created on a schedule" in ended.err, ended


@pytest.mark.slow
def test_a_dataset_takes_the_place_of_random_requests(work: Work) -> None:
    work.write("dataset: d.jsonl\n")
    path = work.dstack.terminal.cwd / "qwen.dstack.yml"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "put_tokens" not in line))
    (work.dstack.terminal.cwd / "d.jsonl").write_text('{"prompt": "my own question", "output_tokens": 3}\n')
    assert work(*APPLY).code == 0
    own = [body for _, body in work.scripted.served if body["messages"][0]["content"] == "my own question"]
    assert len(own) == 16 and {body["max_tokens"] for body in own} == {3}


@pytest.mark.slow
def test_a_service_that_ends_is_a_trial_with_the_end_of_its_log(work: Work) -> None:
    work.scripted.answers = [answer(FIRST), answer(SECOND)]
    before_submission(work, lambda name: name.endswith("-1") and work.cloud.unfit.update({name: "exited with 1"}))
    ended = work(*APPLY)
    assert ended.code == 0 and work.preset()["best"] == 2, ended
    first = work.preset()["trials"][0]
    assert "exited with 1" in first["error"] and "CUDA error: out of memory" in first["error"]
    assert not first["meets"] and first["benchmark"] is None
    assert "CUDA error: out of memory" in work.scripted.prompts()[1], "the next one is told"


@pytest.mark.slow
def test_one_that_never_starts_is_given_up_and_stopped(work: Work) -> None:
    before_submission(work, work.cloud.waiting.add)
    work.write("max_duration: 2m\n", trials="4")
    ended = work(*APPLY)
    preset = work.preset()
    assert ended.code == 1 and preset["status"] == "failed", ended
    assert len(preset["trials"]) == 3 and "3 trials in a row weren't measured" in preset["reason"]
    assert "didn't answer within 2m" in preset["trials"][0]["error"]
    assert "the quota of the project is used up" in preset["trials"][0]["error"]
    assert work.cloud.active() == [] and 3 * 120 <= work.clock.now - NOW <= 3 * 140


@pytest.mark.slow
def test_limits_are_kept(work: Work) -> None:
    def behave(name: str) -> None:
        work.scripted.services[name] = Service(context=2000) if name.endswith("-1") else Service(refusals=3)

    before_submission(work, behave)
    ended = work(*APPLY)
    first, second = work.preset()["trials"]
    assert ended.code == 1, ended
    assert first["error"] == "a request of 4096 tokens, `min_context_length`, got no response"
    assert second["error"].startswith("3 of 8 requests failed: HTTP 503") and work.preset()["best"] is None
    assert "None of 2 keeps to all limits" in ended.out
    assert "no trial that keeps to all limits" in work("preset", "export", "qwen", "-f", "x.yml").err


@pytest.mark.slow
def test_a_bad_answer_is_corrected_and_costs_no_machine(work: Work) -> None:
    work.scripted.answers = ["no idea", answer(privileged=True), answer(FIRST), answer(SECOND)]
    assert work(*APPLY).code == 0
    assert [len(body["messages"]) for body in work.scripted.asked] == [2, 4, 6, 2]
    assert "can't have privileged" in work.scripted.prompts()[2]
    assert len(work.cloud.specs) == 2 and len(work.folder().lines(TRACE)) == 4


def test_a_model_that_never_answers_well_ends_the_search(work: Work) -> None:
    work.scripted.answers = ["no idea"]
    work.write(trials="9")
    ended = work(*APPLY)
    assert ended.code == 1 and "no proposal of 3 could be used" in ended.out, ended
    assert len(work.scripted.asked) == 9 and not work.cloud.specs


def test_a_proposal_without_a_machine_isnt_started(work: Work) -> None:
    note = {"subject": "fleet `cloud`", "text": "has no H100", "hint": "ask for an A100", "waits": False}
    work.plane.answers["/runs/get_plan"] = lambda body: {
        **work.cloud.plan(body),
        **({"job_plans": [{**work.cloud.plan(body)["job_plans"][0], "offers": []}], "notes": [note]}
           if (body["run_spec"]["run_name"] or "").startswith("preset-") else {}),
    }  # fmt: skip
    ended = work(*APPLY)
    assert ended.code == 1 and not work.cloud.specs, ended
    assert "has no H100" in work.scripted.prompts()[1] and "ask for an A100" in work.scripted.prompts()[1]


@pytest.mark.slow
def test_one_that_may_wait_for_a_machine_is_started(work: Work) -> None:
    work.write("retry: true\n")
    work.plane.answers["/runs/get_plan"] = lambda body: {
        **work.cloud.plan(body), "job_plans": [{**work.cloud.plan(body)["job_plans"][0], "offers": []}]
    }  # fmt: skip
    assert work(*APPLY).code == 0 and len(work.cloud.specs) == 2


@pytest.mark.slow
def test_earlier_presets_and_the_prompt_are_told(work: Work) -> None:
    assert work(*APPLY, "--trials", "1").code == 0
    first = work.preset()["id"]
    (work.dstack.terminal.cwd / "hints.md").write_text("Prefer SGLang.")
    work.write("prompt: {path: hints.md}\n")
    work.clock.now += 60
    assert work(*APPLY, "--previous", first).code == 0
    assert (
        f"An earlier search, {first}" in work.scripted.prompts()[1] and "Prefer SGLang." in work.scripted.prompts()[1]
    )


# --- the end ---


def test_the_best_one_can_be_exported_and_applied(work: Work) -> None:
    work.write("env: [HF_TOKEN, MODE=fast]\n")
    work.scripted.answers = [answer(env={"LEVEL": "3"})]
    work(*APPLY, "--trials", "1", env={**work.dstack.terminal.env, "HF_TOKEN": "hf-secret"})
    ended = work("preset", "export", "qwen", "-f", "out.dstack.yml", "-n", "chat")
    assert ended.code == 0, ended
    text = (work.dstack.terminal.cwd / "out.dstack.yml").read_text()
    found = yaml.safe_load(text)
    assert found["name"] == "chat" and found["env"] == ["LEVEL=3", "HF_TOKEN", "MODE=fast"]
    assert found["resources"] == {"gpu": "A100:80GB:1"} and found["model"] == "Qwen/Qwen3-8B"
    assert "output tokens/s" in text and "hf-secret" not in text
    assert parse(text).type == "service"
    again = work("preset", "export", "qwen", "-f", "out.dstack.yml")
    assert again.code == 1 and "--force" in again.err
    assert work("preset", "export", "qwen", "-f", "out.dstack.yml", "--force").code == 0
    assert (work.folder().path / "preset.yml").read_text().startswith(f"# Preset {work.preset()['id']}, trial 1: ")
    assert work.preset()["service"]["resources"] == {"gpu": "A100:80GB:1"}


@pytest.mark.slow
def test_the_best_one_is_kept_if_asked(work: Work) -> None:
    ended = work(*APPLY, "--keep-service")
    assert ended.code == 0 and work.cloud.active() == ["qwen"], ended
    assert work.preset()["kept_run"] == "qwen" and "Run qwen is left running" in ended.out
    assert work.cloud.specs[-1]["configuration"]["max_duration"] is None
    work("preset", "delete", "qwen", "-y")
    assert work.cloud.active() == ["qwen"], "it is the user's now"


@pytest.mark.slow
def test_a_run_of_the_users_with_the_presets_name_is_left_alone(work: Work) -> None:
    work.cloud.runs["qwen"] = "running"
    ended = work(*APPLY, "--keep-service")
    assert "qwen isn't left running: a run of that name is there, and stays as it is" in ended.out
    assert work.cloud.active() == ["qwen"] and "qwen" not in work.cloud.stopped
    assert "qwen" not in [spec["run_name"] for spec in work.cloud.specs] and work.preset()["kept_run"] is None


def test_one_whose_worker_was_killed_after_its_last_trial_can_go_on(work: Work) -> None:
    work.working = False
    work(*APPLY)
    for each in (trial(1, 100.0), trial(2, 200.0)):
        work.folder().write_trial(each)
    work.working = True
    ended = work("preset", "resume", "qwen", "--keep-service")
    assert ended.code == 0 and work.preset()["best"] == 2 and work.cloud.active() == ["qwen"], ended


@pytest.mark.parametrize(
    ("written", "of_a_trial"),
    [
        ("true", {"on_events": ["no-capacity"], "duration": None}),
        ("{on_events: [error, no-capacity], duration: 5m}", {"on_events": ["no-capacity"], "duration": 300}),
        ("{on_events: [error]}", False),
    ],
)
def test_a_trial_that_fails_isnt_begun_anew(work: Work, written: str, of_a_trial: Any) -> None:
    """Each new submission may run for `max_duration`: without a worker that stops it, it would never end."""
    work.write(f"retry: {written}\n")
    assert work(*APPLY, "--trials", "1", "--keep-service").code == 0
    measured, kept = (spec["configuration"]["retry"] for spec in work.cloud.specs)
    assert measured == of_a_trial and kept != of_a_trial, "what is left running is retried as the user says"


def test_what_a_language_model_writes_can_be_stored_shown_and_exported(work: Work) -> None:
    """Breaks of lines that only Unicode knows, halves of characters, and sequences for terminals."""
    good = answer("more\u2028memory \x1b[31m\ud83d\x07", env=["LEVEL=3"])
    work.scripted.answers = [answer(**{"imag\u2028e\ud83d": "x"}), good]
    work.write("env: [MODE=fast]\n")
    ended = work(*APPLY, "--trials", "1")
    assert ended.code == 0 and "Trial 1: more memory ?" in work("preset", "logs", "qwen").out, ended
    assert work("preset", "export", "qwen", "-f", "out.dstack.yml").code == 0
    found = yaml.safe_load((work.dstack.terminal.cwd / "out.dstack.yml").read_text())
    assert found["env"] == ["LEVEL=3", "MODE=fast"], "in either form"


@pytest.mark.slow
def test_one_that_cant_be_kept_is_stopped(work: Work) -> None:
    work.cloud.unfit["qwen"] = "out of memory"
    ended = work(*APPLY, "--keep-service")
    assert ended.code == 0 and work.cloud.active() == [] and work.preset()["kept_run"] is None
    assert "qwen isn't left running: it failed: out of memory" in ended.out


@pytest.mark.slow
def test_the_language_models_silence_ends_the_search_with_what_there_is(work: Work) -> None:
    work.scripted.answers = [answer(FIRST), (401, {"error": {"message": "your key has expired"}})]
    ended = work(*APPLY)
    assert ended.code == 0 and work.preset()["best"] == 1, ended
    assert "your key has expired" in work.preset()["reason"] and "The best is trial 1" in work.preset()["reason"]


def test_an_error_of_the_server_ends_it_and_stops_its_run(work: Work) -> None:
    work.plane.answers["/runs/apply"] = (400, {"detail": [{"msg": "The quota of 4 GPUs is reached", "code": "error"}]})
    ended = work(*APPLY)
    assert ended.code == 1 and "The quota of 4 GPUs is reached" in work.preset()["reason"], ended
    assert work.cloud.active() == []


def test_detached_and_as_json(work: Work) -> None:
    work.working = False
    ended = work(*APPLY, "-d")
    assert ended.code == 0 and f"dstack preset logs {work.preset()['id']} -f" in ended.out, ended
    work.clock.now += 60
    ended = work(*APPLY, "--json")
    assert json.loads(ended.out)["id"] == work.preset()["id"] and not work.cloud.specs


# --- stopping, and going on ---


def test_ctrl_c_asks_and_stops_what_was_started(work: Work) -> None:
    """The worker takes over the lock, sees the request to stop, and ends; `dstack apply` waits for that."""
    held: list[int] = []
    press = interrupt_at(2)

    def sleep(seconds: float) -> None:
        press(seconds)
        if work.folder().is_requested(STOP):
            work.worker(work.folder()).run()
            os.close(held.pop())

    ended = work(
        "apply", "-f", "qwen.dstack.yml", answers="y\ny\n", sleep=sleep,
        begin=lambda arguments, log, lock: held.append(os.dup(lock)),
    )  # fmt: skip
    assert ended.code == 1 and "Stopping its run" in ended.err, ended
    assert (work.preset()["status"], work.preset()["reason"]) == ("stopped", "Stopped, as asked.")
    assert work.cloud.active() == [] and not work.folder().is_requested(STOP)


def test_ctrl_c_with_n_leaves_it(work: Work) -> None:
    held: list[int] = []
    ended = work(
        "apply", "-f", "qwen.dstack.yml", answers="y\nn\n", sleep=interrupt_at(1),
        begin=lambda arguments, log, lock: held.append(os.dup(lock)),
    )  # fmt: skip
    assert ended.code == 0 and "goes on" in ended.out and not work.folder().is_requested(STOP), ended
    assert work.preset()["status"] == "creating"
    assert work("preset", "delete", "qwen", "-y").code == 1, "somebody works on it"
    os.close(held[0])
    assert work.preset()["status"] == "interrupted"


def test_a_stop_ends_a_trial_at_once_and_its_run(work: Work) -> None:
    def stop_it() -> None:
        work.folder().request(STOP)

    before_submission(work, lambda name: work.scripted.services.update({name: Service(on_request=stop_it)}))
    ended = work(*APPLY)
    assert ended.code == 1 and work.preset()["status"] == "stopped", ended
    assert work.cloud.active() == [] and len(work.cloud.stopped) == 1 and not work.folder().is_requested(STOP)


@pytest.mark.slow
def test_what_a_killed_worker_left_is_stopped_when_it_goes_on(work: Work) -> None:
    work.working = False
    assert work(*APPLY).code == 1, "interrupted"
    folder = work.folder()
    left = f"preset-{folder.id}-2"
    folder.write_trial(trial(1, 100.0))
    folder.append(RUNS, NOW, run=left)
    work.cloud.runs[left] = "running"
    shown = work("preset").out
    assert "interrupted" in shown
    work.working = True
    ended = work("preset", "resume", "qwen")
    assert ended.code == 0 and f"Stopping {left}, which was left behind" in ended.out, ended
    assert [each["number"] for each in work.preset()["trials"]] == [1, 2] and names(work) == ["-2"]
    assert work.cloud.active() == []
    again = work("preset", "resume", "qwen")
    assert again.code == 1 and "nothing left to try" in again.err


def test_stopping_one_that_nobody_works_on_stops_what_it_left(work: Work) -> None:
    work.working = False
    work(*APPLY)
    left = f"preset-{work.folder().id}-1"
    work.folder().append(RUNS, NOW, run=left)
    work.folder().write_trial(trial(1, 100.0))
    work.cloud.runs[left] = "running"
    ended = work("preset", "stop", "qwen", "-y")
    assert ended.code == 0 and left in ended.out and work.cloud.active() == [], ended
    found = work.preset()
    assert (found["status"], found["best"], found["service"]["name"]) == ("stopped", 1, "qwen") and found["finished_at"]
    assert "is stopped already" in work("preset", "stop", "qwen", "-y").out


def test_a_run_that_took_the_name_of_one_it_left_stays(work: Work) -> None:
    work.working = False
    work(*APPLY)
    work.folder().append(RUNS, NOW, run="qwen", id="an earlier one")
    work.cloud.runs["qwen"] = "running"
    assert work("preset", "stop", "qwen", "-y").code == 0 and work.cloud.active() == ["qwen"]


def test_deleting_one_stops_what_it_left_or_refuses(work: Work) -> None:
    work.working = False
    work(*APPLY)
    left = f"preset-{work.folder().id}-1"
    work.folder().append(RUNS, NOW, run=left)
    work.cloud.runs[left] = "running"
    answers, work.plane.answers["/runs/get"] = work.plane.answers["/runs/get"], (500, {"detail": "broken"})
    ended = work("preset", "delete", "qwen", "-y")
    assert ended.code == 1 and "can't be stopped" in ended.err and work.folder().path.exists(), ended
    work.plane.answers["/runs/get"] = answers
    assert work("preset", "delete", "qwen", "-y").code == 0 and work.cloud.active() == []
    assert records.every(work.dstack.terminal.home) == []


def test_a_resumed_one_needs_the_variables_again(work: Work) -> None:
    work.write("env: [HF_TOKEN]\n")
    work.working = False
    work(*APPLY, env={**work.dstack.terminal.env, "HF_TOKEN": "x"})
    work.working = True
    ended = work("preset", "resume", "qwen")
    assert ended.code == 1 and "The variable HF_TOKEN has no value" in ended.out, ended


@pytest.mark.slow
def test_a_server_that_is_away_for_a_while_loses_no_run(work: Work) -> None:
    """Neither while a service is awaited, nor while it is to stop."""
    count = {"get": 0}

    def get(body: Any) -> Any:
        count["get"] += 1
        return (502, {"detail": "away"}) if count["get"] % 2 else work.cloud.run(body["run_name"])

    work.plane.answers["/runs/get"] = get
    assert work(*APPLY).code == 0 and work.cloud.active() == []


def test_a_preset_of_another_server_isnt_worked_on(work: Work) -> None:
    work.working = False
    work(*APPLY)
    document = work.preset()
    work.folder().write({**document, "url": "http://elsewhere:3000"})
    work.working = True
    ended = work("preset", "resume", "qwen")
    assert ended.code == 1 and "is of project main on http://elsewhere:3000" in ended.out, ended


def test_a_mistake_of_this_program_is_recorded(work: Work) -> None:
    work.working = False
    work(*APPLY)
    worker = work.worker(work.folder())
    broken = replace(worker.terminal, sleep=lambda seconds: 1 / 0)
    worker.terminal = broken
    work.cloud.waiting.add(f"preset-{work.folder().id}-1")
    with pytest.raises(ZeroDivisionError):
        worker.run()
    assert "An error of this program: ZeroDivisionError" in work.preset()["reason"]


def test_keep_service_can_be_asked_for_later(work: Work) -> None:
    work.working = False
    work(*APPLY)
    ended = work("preset", "logs", "qwen", "-f", "--keep-service")
    assert ended.code == 1 and "--keep-service" in ended.err and not work.folder().is_requested(KEEP), ended
    with work.folder().taken():
        ended = work("preset", "logs", "qwen", "-f", "--keep-service", sleep=interrupt_at(1))
        assert ended.code == 0 and work.folder().is_requested(KEEP), ended


def test_a_preset_isnt_deleted_by_its_file(work: Work) -> None:
    ended = work("delete", "-f", "qwen.dstack.yml", "-y")
    assert ended.code == 1 and "dstack preset delete qwen" in ended.err, ended


def test_the_plan_shows_what_is_left_of_the_quota(work: Work) -> None:
    work.plane.answers["/runs/get_plan"] = lambda body: {**work.cloud.plan(body), "quota": ["4 of 8 GPUs are in use"]}
    assert "Quota    4 of 8 GPUs are in use" in work("apply", "-f", "qwen.dstack.yml", answers="n\n").out
