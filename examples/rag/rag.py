"""Answers questions from a file of passages, with two models behind one address: `rag.py NOTES`.

`POST /ask` takes `{"question": …}` and gives the answer with the passages that it was made from.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BEST = 2  # passages that the answer is made from


def called(path: str, body: dict[str, Any]) -> Any:
    """A call of OpenAI's API at the address of all the project's models."""
    env = os.environ
    address = f"{env['DSTACK_SERVER_URL']}/proxy/models/{env['DSTACK_PROJECT']}"
    headers = {"Authorization": f"Bearer {env['MODELS_TOKEN']}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/{path}", json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  # the address is the server's
        return json.load(answer)


def vectors(texts: list[str]) -> list[list[float]]:
    found = called("embeddings", {"model": os.environ["EMBED"], "input": texts})["data"]
    return [each["embedding"] for each in sorted(found, key=lambda each: each["index"])]


def likeness(one: list[float], other: list[float]) -> float:
    lengths = sum(x * x for x in one) * sum(x * x for x in other)
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths**0.5 if lengths else 0.0


class Notes:
    def __init__(self, passages: list[str]) -> None:
        self.passages = passages
        self._vectors = vectors(passages)

    def best(self, question: str) -> list[str]:
        asked = vectors([question])[0]
        ranked = sorted(range(len(self.passages)), key=lambda at: -likeness(asked, self._vectors[at]))
        return [self.passages[at] for at in ranked[:BEST]]

    def answer(self, question: str) -> dict[str, Any]:
        passages = self.best(question)
        told = "Answer from these notes alone, in one sentence:\n\n" + "\n\n".join(passages)
        messages = [{"role": "system", "content": told}, {"role": "user", "content": question}]
        found = called("chat/completions", {"model": os.environ["CHAT"], "messages": messages, "max_tokens": 500})
        return {"answer": found["choices"][0]["message"]["content"], "passages": passages}


class Handler(BaseHTTPRequestHandler):
    notes: Notes

    def do_GET(self) -> None:
        self._send(200, {"passages": len(self.notes.passages)})

    def do_POST(self) -> None:
        try:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            question = asked["question"]
        except (ValueError, KeyError, TypeError):
            self._send(400, {"error": 'Send {"question": "…"}.'})
            return
        try:
            self._send(200, self.notes.answer(question))
        except urllib.error.URLError as error:
            self._send(502, {"error": f"A model didn't answer: {error}"})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def read(path: Path) -> Notes:
    """Waits for the model of vectors, which may start later than this."""
    passages = [each.strip() for each in path.read_text(encoding="utf-8").split("\n\n") if each.strip()]
    while True:
        try:
            return Notes(passages)
        except urllib.error.URLError as error:
            print(f"waiting for {os.environ['EMBED']}: {error}", flush=True)
            time.sleep(5)


def main(path: Path) -> None:
    Handler.notes = read(path)
    print(f"{len(Handler.notes.passages)} passages", flush=True)
    ThreadingHTTPServer(("", int(os.environ["DSTACK_SERVICE_PORT"])), Handler).serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
