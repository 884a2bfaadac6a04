"""Small models behind OpenAI's API, in the place of large ones: `standin.py embed|chat`.

WordLlama's weights come in its package. It makes real vectors; and instead of writing an answer, `chat` picks the
sentence of what it was told that is most like the question.
"""

from __future__ import annotations

import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def embedded(model: Any, body: dict[str, Any]) -> dict[str, Any]:
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    found = enumerate(model.embed(texts).tolist())
    return {"object": "list", "model": body["model"], "data": [{"index": at, "embedding": each} for at, each in found]}


def chosen(model: Any, body: dict[str, Any]) -> dict[str, Any]:
    told, asked = body["messages"][0]["content"], body["messages"][-1]["content"]
    notes = told.partition("\n\n")[2]  # without the instruction
    sentences = [each.strip() for each in re.split(r"(?<=[.?!])\s+", notes) if each.strip()]
    best, _ = model.rank(asked, sentences)[0]
    message = {"role": "assistant", "content": best}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"object": "chat.completion", "model": body["model"], "choices": choices}


def loaded() -> Any:
    """From the files in the package: its own `load` looks for one of them under another name, then on a model hub."""
    import wordllama
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer
    from wordllama.inference import WordLlamaInference

    folder = Path(wordllama.__file__).parent
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    weights = load_file(folder / "weights" / "l2_supercat_256.safetensors")
    return WordLlamaInference(tokenizer=tokenizer, embedding=weights["embedding.weight"])


PARTS = {"embed": ("/v1/embeddings", embedded), "chat": ("/v1/chat/completions", chosen)}


def main(part: str) -> None:
    path, answer = PARTS[part]
    model = loaded()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == path, self.path
            self._send(answer(model, body))

        def _send(self, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    ThreadingHTTPServer(("", int(os.environ["DSTACK_SERVICE_PORT"])), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
