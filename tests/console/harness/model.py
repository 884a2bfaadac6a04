"""A model server that needs nothing but Python: it answers as OpenAI's does, word by word, with what it was asked."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "parrot", "object": "model"}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = ("You said: " + asked["messages"][-1]["content"]).split(" ")
        usage = {"prompt_tokens": len(words), "completion_tokens": len(words), "total_tokens": 2 * len(words)}
        about = {"id": "1", "created": 0, "model": asked["model"]}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": " ".join(words)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.answer({**about, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number, word in enumerate(words):
            delta = {"content": (" " if number else "") + word}
            self.event({**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self.event({**about, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, found):
        self.wfile.write(("data: " + json.dumps({"object": "chat.completion.chunk", **found}) + "\n\n").encode())
        self.wfile.flush()

    def answer(self, found):
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("", int(os.environ["DSTACK_SERVICE_PORT"])), Model).serve_forever()
