"""What a door's one address for all models of a project must do.

A door joins if its facts say `models`; `models_of` tells where it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from typing import Any

import pytest

from chalicelib.domain.serving import Served, ServedModel, ServedReplica
from tests.harness.conformance import needs
from tests.harness.server import until
from tests.serving.app import OWN_PAGE
from tests.serving.caller import Answer
from tests.serving.contract import Doors, Spawn
from tests.serving.contract_live import stepwise
from tests.serving.door import STRANGER, TOKEN, Door, Replica, Visitor, bearer, service, values

LLAMA, QWEN = "meta-llama/Llama-3.1-8B", "qwen3:8b"
JSON = ("Content-Type", "application/json")


class Models:
    """The models of the project `main`, as one of its members asks for them."""

    def __init__(self, door: Door, token: str = TOKEN) -> None:
        self.host, self.path = door.models_of("main")
        self.door, self.token = door, token

    def ask(
        self, path: str, body: Any = None, method: str = "", headers: list[tuple[str, str]] | None = None
    ) -> Answer:
        visitor = Visitor(self.door, service())
        visitor.host = self.host
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = [bearer(self.token), *(headers if headers is not None else [JSON])]
        return visitor.ask(self.path + path, method or ("POST" if sent else "GET"), given, sent)


def served(*replicas: Replica | ServedReplica, model: str = LLAMA, prefix: str = "/v1", **fields: Any) -> Served:
    name = fields.pop("name", model.rpartition("/")[2].lower().replace(":", "-").replace(".", "-"))
    return service(replicas, name=name, **{"auth": True, "model": ServedModel(name=model, prefix=prefix), **fields})


@needs("models")
class ServesModels(Doors):
    @pytest.fixture
    def models(self, door: Door, replica: Replica) -> Models:
        """Two models and a service without one, all of the fixture's replica."""
        door.allow(TOKEN, "main")
        door.allow(STRANGER, "other")
        elsewhere = served(replica, model="theirs", project="other")
        door.serve(served(replica, since=7_000_000), served(replica, model=QWEN), service((replica,)), elsewhere)
        return Models(door)

    def test_they_are_listed(self, models: Models) -> None:
        for path in ("models", "v1/models"):
            answer = models.ask(path)
            assert answer.status == 200 and answer.header("content-type") == "application/json"
            listed = answer.json()
            assert listed["object"] == "list" and [each["id"] for each in listed["data"]] == [LLAMA, QWEN]
            assert listed["data"][0] == {"id": LLAMA, "object": "model", "created": 7, "owned_by": "main"}

    def test_one_is_told_of_by_its_name(self, models: Models) -> None:
        for path in (f"models/{LLAMA}", "models/meta-llama%2FLlama-3.1-8B"):
            assert models.ask(path).json()["id"] == LLAMA
        assert models.ask("models/theirs").json()["error"]["code"] == "model_not_found"

    @pytest.mark.parametrize("path", ["embeddings", "v1/rerank", "audio/speech", "chat/completions?x=%2F&y"])
    def test_what_is_asked_goes_on_byte_for_byte(self, models: Models, path: str) -> None:
        body = b'{ "new_field": [1.0, 1e3],\r\n"model" : "qwen3:8b", "input":"\\u00e9\xc3\xa9" }'
        answer = models.ask(path.replace("chat/completions", "completions"), body)
        got = answer.json()
        assert got["method"] == "POST"
        assert got["target"] == "/v1/" + path.replace("chat/completions", "completions").removeprefix("v1/")
        assert got["sha256"] == hashlib.sha256(body).hexdigest()
        assert values(got, "content-type") == ["application/json"]

    def test_it_goes_under_the_models_prefix(self, models: Models, door: Door, replica: Replica) -> None:
        door.serve(served(replica, prefix="/api/openai/"))
        assert models.ask("embeddings", {"model": LLAMA}).json()["target"] == "/api/openai/embeddings"

    @pytest.mark.parametrize("auth", [True, False])
    def test_only_members_may_ask_and_no_replica_sees_their_token(
        self, models: Models, door: Door, replica: Replica, auth: bool
    ) -> None:
        door.serve(served(replica, auth=auth))
        assert TOKEN not in json.dumps(models.ask("embeddings", {"model": LLAMA}).json())
        for token in (STRANGER, "nobody's"):
            for path, body in (("models", None), ("embeddings", {"model": LLAMA})):
                answer = Models(door, token).ask(path, body)
                assert answer.status == 403 and answer.json()["error"]["message"]

    def test_a_name_that_nobody_serves(self, models: Models) -> None:
        answer = models.ask("chat/completions", {"model": "gpt-5"})
        assert answer.status == 404
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert LLAMA in error["message"] and QWEN in error["message"] and "theirs" not in error["message"]

    @pytest.mark.parametrize("body", [b"{}", b"[1]", b"hello", b'{"model": 3}'])
    def test_a_body_without_a_name(self, models: Models, body: bytes) -> None:
        answer = models.ask("chat/completions", body)
        assert answer.status == 400 and answer.json()["error"]["code"] == "model_not_given"

    @pytest.mark.parametrize(("method", "path", "status"), [("GET", "embeddings", 405), ("POST", "fine-tunes", 404)])
    def test_what_isnt_there(self, models: Models, method: str, path: str, status: int) -> None:
        answer = models.ask(path, {"model": LLAMA}, method)
        assert answer.status == status and "message" in answer.json()["error"]

    @pytest.mark.parametrize("chunked", [False, True])
    def test_a_large_body_is_passed_on_as_it_comes(self, models: Models, door: Door, chunked: bool) -> None:
        size, before = 24 * 1024 * 1024, door.memory()
        head = json.dumps({"model": LLAMA}).encode()[:-1] + b', "input": "'
        digest = hashlib.sha256()
        with Visitor(door, service()).connect() as caller:
            length = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(head) + size))
            caller.head("POST", models.path + "embeddings", models.host, [bearer(TOKEN), JSON, length])
            for part in chain([head], repeat(b"a" * 65536, size // 65536)):
                caller.send(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                digest.update(part)
            caller.send(b"0\r\n\r\n" if chunked else b"")
            got = caller.answer().json()
        assert (got["length"], got["sha256"]) == (len(head) + size, digest.hexdigest())
        assert door.memory() - before < 20 * 1024 * 1024

    def test_a_name_behind_a_megabyte(self, models: Models, door: Door, replica: Replica) -> None:
        late = {"messages": "A" * 4_000_000, "model": LLAMA}
        answer = models.ask("embeddings", late)
        assert answer.status == 400 and "first" in answer.json()["error"]["message"]
        door.serve(served(replica))  # with one model only there is no question
        assert models.ask("embeddings", late).json()["length"] == len(json.dumps(late))

    @pytest.mark.parametrize(("before", "status"), [(90, 200), (200, 400), (150_000, 400)])
    def test_a_forms_model_is_among_its_first_parts(self, models: Models, before: int, status: int) -> None:
        part = b'\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + QWEN.encode() + b"\r\n"
        form = b"--b\r\n" * before + b"--b" + part + b"--b--\r\n"
        kind = ("Content-Type", "multipart/form-data; boundary=b")
        assert models.ask("audio/transcriptions", form, headers=[kind]).status == status

    def test_a_body_of_signs_keeps_nobody_else_waiting(self, models: Models) -> None:
        signs = b'{"a": 0' + b"," * 50_000 + b'"model": "' + QWEN.encode() + b'"}'
        with ThreadPoolExecutor(4) as pool:
            pending = [pool.submit(models.ask, "chat/completions", signs) for _ in range(3)]
            between = 0
            while not all(each.done() for each in pending):
                assert models.ask("models").status == 200
                between += 1
        assert between > 3, "it was worked on in one go"
        assert {each.result().status for each in pending} <= {200, 400, 500, 502}

    def test_a_form_goes_on_with_its_recording(self, models: Models) -> None:
        line = b"--of-this-form\r\n"
        form = line + b'Content-Disposition: form-data; name="model"\r\n\r\n' + QWEN.encode() + b"\r\n" + line
        form += b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + bytes(300_000) + b"\r\n"
        form += b"--of-this-form--\r\n"
        kind = ("Content-Type", "multipart/form-data; boundary=of-this-form")
        got = models.ask("audio/transcriptions", form, headers=[kind]).json()
        assert got["sha256"] == hashlib.sha256(form).hexdigest() and got["target"] == "/v1/audio/transcriptions"

    def test_a_stream_isnt_held_up_and_keeps_its_usage(self, models: Models, door: Door, replica: Replica) -> None:
        pace, usage = os.urandom(4).hex(), {"stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps({"model": LLAMA, "n_tokens": 5, "pace": pace, **usage}).encode()
        with Visitor(door, service()).connect() as caller:
            length = ("Content-Length", str(len(body)))
            caller.head("POST", models.path + "chat/completions", models.host, [bearer(TOKEN), JSON, length])
            caller.send(body)
            came = stepwise(caller.begin("POST"), replica, pace)
        assert came[-1] == "[DONE]" and json.loads(came[-2])["usage"]["completion_tokens"] == 5

    @needs("tokens")
    @pytest.mark.parametrize("stream", [False, True])
    def test_tokens_are_counted_as_the_engine_says(
        self, models: Models, door: Door, replica: Replica, stream: bool
    ) -> None:
        counted = served(replica)
        door.serve(counted)
        with_usage = {"n_tokens": 5, "stream": stream, "stream_options": {"include_usage": True}}
        for options in (
            with_usage,
            with_usage,
            {"n_tokens": 5, "stream": True},
        ):  # the last doesn't ask the engine to say
            assert models.ask("chat/completions", {"model": LLAMA, **options}).status == 200
        found = door.traffic(counted)
        assert found is not None and (found.prompt_tokens, found.completion_tokens) == (6, 10)

    def test_services_with_one_model_share_its_requests(self, models: Models, door: Door, spawn: Spawn) -> None:
        big = served(*(spawn(f"big-{number}") for number in range(3)), name="big")
        small = served(spawn("small"), name="small")
        door.serve(big, small)
        body = {"model": LLAMA}
        seen = Counter(models.ask("embeddings", body).json()["replica"].partition("-")[0] for _ in range(120))
        assert 55 < seen["big"] < 117 and seen["small"] > 3, seen  # 90 and 30, on average
        counted = [door.traffic(each) for each in (big, small)]
        assert sum(bucket.requests for found in counted if found for bucket in found.buckets) == 120

    def test_a_service_without_replicas_gets_none_meanwhile(self, models: Models, door: Door, replica: Replica) -> None:
        door.serve(served(name="asleep"), served(replica, name="awake"))
        assert {models.ask("embeddings", {"model": LLAMA}).status for _ in range(10)} == {200}

    def test_a_request_waits_for_a_replica(self, models: Models, door: Door, replica: Replica) -> None:
        asleep = served(replica.served(ready=False))
        door.serve(asleep)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(models.ask, "embeddings", {"model": LLAMA})
            until("it to wait", lambda: (found := door.traffic(asleep)) and found.held == 1)
            door.serve(asleep.with_(replicas=(replica.served(),)))
            assert waiting.result().json()["body"] == json.dumps({"model": LLAMA})

    def test_a_response_is_asked_of_the_replica_that_made_it(self, models: Models, door: Door, spawn: Spawn) -> None:
        door.serve(served(*(spawn(f"r{number}") for number in range(3))))
        for stream in (False, True):
            made = models.ask("responses", {"model": LLAMA, "stream": stream})
            name, id = made.body.decode().split('"id": "')[1].split('"')[0].split("_")[1:]
            for method, suffix in (("GET", ""), ("GET", "/input_items?limit=5"), ("POST", "/cancel"), ("DELETE", "")):
                got = models.ask(f"responses/resp_{name}_{id}{suffix}", method=method).json()
                assert (got["replica"], got["target"]) == (name, f"/v1/responses/resp_{name}_{id}{suffix}")
            body = {"model": LLAMA, "previous_response_id": f"resp_{name}_{id}"}
            again = {models.ask("responses", body).body.decode().split("resp_")[1].split("_")[0] for _ in range(4)}
            assert again == {name}

    def test_a_response_that_nobody_made(self, models: Models) -> None:
        answer = models.ask("responses/resp_of_nobody")
        assert answer.status == 404 and answer.json()["error"]["code"] == "response_not_found"

    def test_a_browser_may_ask_first(self, models: Models) -> None:
        models.token = "none"
        headers = [("Origin", "https://app.example"), ("Access-Control-Request-Method", "POST")]
        answer = models.ask("chat/completions", method="OPTIONS", headers=headers)
        assert (answer.status, answer.header("access-control-allow-origin")) == (204, "*")

    def test_every_answer_may_be_read_by_a_browser(self, models: Models) -> None:
        origin = [("Origin", "https://app.example"), JSON]
        for path, body in (("models", None), ("embeddings", {"model": LLAMA}), ("embeddings", {"model": "none"})):
            assert models.ask(path, body, headers=origin).all("access-control-allow-origin") == ["*"], path
        own = models.ask("embeddings", {"model": LLAMA}, headers=[("Origin", OWN_PAGE), JSON])
        assert own.all("access-control-allow-origin") == [OWN_PAGE]


@needs("models")
class Impatience(Doors):
    hold = 1.0

    def test_nobody_waits_for_ever(self, door: Door) -> None:
        door.allow(TOKEN, "main")
        door.serve(served())
        answer = Models(door).ask("chat/completions", {"model": LLAMA})
        assert answer.status == 503 and answer.header("retry-after") == "5"
        assert answer.json()["error"]["message"]
