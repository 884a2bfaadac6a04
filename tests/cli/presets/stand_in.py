"""A program that answers as a model would, one word after another: `python stand_in.py SECONDS_A_WORD`."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAUSE = float(sys.argv[1])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        tokens = sum(len(message["content"].split()) for message in body["messages"])
        for _ in range(body["max_tokens"]):
            time.sleep(PAUSE)
            self.event({"choices": [{"index": 0, "delta": {"content": "word "}}]})
        self.event({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": body["max_tokens"]}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, found: object) -> None:
        self.wfile.write(f"data: {json.dumps(found)}\n\n".encode())
        self.wfile.flush()


ThreadingHTTPServer(("0.0.0.0", int(os.environ["DSTACK_SERVICE_PORT"])), Handler).serve_forever()
