"""What OpenAI's own client gets from a server, one line of JSON a call: run with the Python that has it.

    echo '{"base_url": …, "api_key": …, "model": …, "calls": [CALL, …]}' | .venvs/openai/bin/python FILE

A line asks for some calls, and is answered by one with what came of each: importing the client takes a second.

The server is the mock from PyPI, or a door before it. Each call checks what came back, types and texts, and says `ok`,
or what was wrong. `broken` in the settings names a model whose requests all fail with 503, `empty` one without replicas
yet, `stranger` the token of a user of another project; calls that need them are made only if asked for by name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import openai

MESSAGES = [{"role": "user", "content": "Say hello"}]
HELLO = "Hello. It's nice to meet you."
WAV = ("hello.wav", b"RIFF" + bytes(60_000), "audio/wav")


class Calls:
    def __init__(self, settings: dict[str, str]) -> None:
        self.model, self.settings = settings["model"], settings
        headers = {"Host": settings["host"]} if settings.get("host") else None
        self.client = openai.OpenAI(
            base_url=settings["base_url"],
            api_key=settings["api_key"],
            default_headers=headers,
            max_retries=0,
            timeout=120,
        )

    # --- what every door passes on --------------------------------------------------------------------------------

    def models(self) -> None:
        listed = list(self.client.models.list())
        assert self.model in [each.id for each in listed], listed
        one = self.client.models.retrieve(self.model)
        assert (one.id, one.object) == (self.model, "model") and one.created > 0, one

    def chat(self) -> None:
        made = self.client.chat.completions.create(model=self.model, messages=MESSAGES)
        assert made.choices[0].message.content == HELLO, made
        assert made.usage is not None and made.usage.completion_tokens > 0, made

    def chat_with_a_picture(self) -> None:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
        messages: Any = [{"role": "user", "content": [{"type": "text", "text": "Say hello"}, picture]}]
        made = self.client.chat.completions.create(model=self.model, messages=messages)
        assert made.choices[0].finish_reason == "stop", made

    def chat_stream(self) -> None:
        usage = {"include_usage": True}
        chunks = list(
            self.client.chat.completions.create(model=self.model, messages=MESSAGES, stream=True, stream_options=usage)
        )
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert text == HELLO and len(chunks) > 2, chunks
        assert any(choice.finish_reason == "stop" for chunk in chunks for choice in chunk.choices), chunks
        counted = [chunk.usage for chunk in chunks if chunk.usage is not None]
        assert counted and counted[-1].total_tokens > 0, chunks

    def completions(self) -> None:
        made = self.client.completions.create(model=self.model, prompt="Say hello")
        assert made.choices[0].text and made.usage is not None, made
        assert len(list(self.client.completions.create(model=self.model, prompt="Say hello", stream=True))) > 1

    def embeddings(self) -> None:
        made = self.client.embeddings.create(model=self.model, input=["one", "two"])
        assert [len(each.embedding) for each in made.data] == [1536, 1536]

    def responses(self) -> None:
        made = self.client.responses.create(model=self.model, input="Say hello")
        assert made.output_text == HELLO, made
        assert self.client.responses.retrieve(made.id).output_text == made.output_text
        assert self.client.responses.input_items.list(made.id).data

    def responses_stream(self) -> None:
        events = [event.type for event in self.client.responses.create(model=self.model, input="Hello", stream=True)]
        assert (events[0], events[-1]) == ("response.created", "response.completed"), events
        assert "response.output_text.delta" in events, events

    def audio(self) -> None:
        assert self.client.audio.speech.create(model=self.model, voice="alloy", input="hello").content
        assert self.client.audio.transcriptions.create(model=self.model, file=WAV).text

    # --- what a door says itself ----------------------------------------------------------------------------------

    def no_such_model(self) -> None:
        try:
            self.client.chat.completions.create(model="nobody/serves-this", messages=MESSAGES)
        except openai.NotFoundError as error:
            assert error.code == "model_not_found" and self.model in str(error), error
        else:
            raise AssertionError("it answered")

    def wrong_key(self) -> None:
        for key in ("not-a-token", self.settings.get("stranger", "")):
            try:
                self.client.with_options(api_key=key or "x").models.list()
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                assert isinstance(error.body, dict) and error.body.get("message"), error
            else:
                raise AssertionError(f"{key} may list models")

    def time_out(self) -> None:
        """A client that waits for less long than the door holds its request."""
        try:
            self.client.with_options(timeout=0.5).chat.completions.create(
                model=self.settings["empty"], messages=MESSAGES
            )
        except openai.APITimeoutError:
            return
        else:
            raise AssertionError("it answered")

    def failing(self) -> None:
        """An engine's own 503 comes through as it is, after the client's two tries more."""
        try:
            client = self.client.with_options(max_retries=2)
            client.chat.completions.create(model=self.settings["broken"], messages=MESSAGES)
        except openai.InternalServerError as error:
            assert error.status_code == 503 and error.request.headers["x-stainless-retry-count"] == "2", error
        else:
            raise AssertionError("it answered")

    def nobody_ready(self) -> None:
        """A door's 503 says when to come again."""
        try:
            self.client.chat.completions.create(model=self.settings["empty"], messages=MESSAGES)
        except openai.InternalServerError as error:
            assert error.status_code == 503 and int(error.response.headers["retry-after"]) > 0, error
            assert isinstance(error.body, dict) and error.body.get("message"), error
        else:
            raise AssertionError("it answered")

    def retried(self) -> None:
        """The client comes again by itself, and is answered once there is a replica."""
        client = self.client.with_options(max_retries=5)
        made = client.chat.completions.create(model=self.settings["empty"], messages=MESSAGES)
        assert made.choices[0].message.content, made


def outcome(call: Callable[[], None]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:2000]
    return "ok"


def main() -> None:
    for line in sys.stdin:
        settings = json.loads(line)
        names, calls = settings.pop("calls"), Calls(settings)
        print(json.dumps({name: outcome(getattr(calls, name)) for name in names}), flush=True)


if __name__ == "__main__":
    main()
