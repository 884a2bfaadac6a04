"""A program that answers as a model would, one word after another: `python stand_in.py SECONDS_A_WORD MOST_TOKENS`."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAUSE, MOST = float(sys.argv[1]), int(sys.argv[2])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = sum(len(message["content"].split()) for message in body["messages"])
        if tokens + body["max_tokens"] > MOST:
            self.send_error(400, f"at most {MOST} tokens")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for _ in range(body["max_tokens"]):
            time.sleep(PAUSE)
            self.event({"choices": [{"index": 0, "delta": {"content": "word "}}]})
        self.event({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": body["max_tokens"]}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, found: object) -> None:
        self.wfile.write(f"data: {json.dumps(found)}\n\n".encode())
        self.wfile.flush()


ThreadingHTTPServer(("0.0.0.0", int(os.environ["DSTACK_SERVICE_PORT"])), Handler).serve_forever()
