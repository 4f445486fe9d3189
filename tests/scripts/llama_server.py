#!/usr/bin/env python3
"""Answers as llama.cpp's server does, for a prompt of 49 tokens, with the same token over and over."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_GET(self):
        self.answer({"status": "ok"})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/completion":
            self.answer({"content": "a" * asked["n_predict"], "tokens": [260] * asked["n_predict"]})
        else:
            self.answer({"usage": {"prompt_tokens": 49}, "choices": [{"message": {"content": "a"}}]})

    def answer(self, value):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())


HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
