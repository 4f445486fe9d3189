"""A Hugging Face Hub stood in for on loopback: model info, file lists and files, with ranges, faults and a record."""

import contextlib
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

MAIN_COMMIT = "1" * 40


class LoopbackServer:
    """A server on loopback, whose handlers know it as `hub`."""

    def __init__(self, handler):
        self.asked = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answer", (handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class FakeHub(LoopbackServer):
    """A Hub that serves `models`, the files of each by id; `gated` ones are refused without `token`.

    `revisions` has the files of others than main, by id and name. Each is also found by its commit.

    `cut` closes the connection after so many bytes of a file, as often as is said; `held` sends no more of a file after
    so many bytes until it is `released`. `asked` are the requests that came: method, path, and range; `signed` the
    hosts that were asked with the token. Files are redirected to the address `moved`.
    """

    def __init__(self, models, *, revisions=None, gated=(), token="hf_" + "a" * 34):
        self.models = models
        self.revisions = revisions or {}
        self.gated = set(gated)
        self.token = token
        self.cut = {}
        self.held = {}
        self.released = threading.Event()
        self.signed = []
        self.moved = ""
        super().__init__(_HubRequestHandler)

    def __exit__(self, *_):
        self.released.set()
        super().__exit__()

    def files(self, model, revision):
        """Return the files and the commit of a model at a revision; None where there is none of that name."""
        if revision in {"main", MAIN_COMMIT}:
            return self.models.get(model), MAIN_COMMIT
        named = {commit_of_revision(name): name for (owner, name) in self.revisions if owner == model}
        name = named.get(revision, revision)
        return self.revisions.get((model, name)), commit_of_revision(name)

    def ranges(self, name):
        """Return the ranges in which a file was asked for, in order, None for the whole file."""
        return [span for method, path, span in self.asked if method == "GET" and path.endswith(f"/{name}")]


class _HubRequestHandler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        parts = urlsplit(self.path)
        self.hub.asked.append((self.command, parts.path, self.headers.get("Range")))
        if self.headers.get("Authorization"):
            self.hub.signed.append(self.headers.get("Host"))
        if self.hub.moved and self.headers.get("Host") not in self.hub.moved:
            self.send_response(307)
            self.send_header("Location", self.hub.moved + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif parts.path.startswith("/api/models/"):
            self.answer_model_info(parts.path.removeprefix("/api/models/"), parse_qs(parts.query))
        elif "/resolve/" in parts.path:
            model, _, rest = parts.path[1:].partition("/resolve/")
            revision, _, name = rest.partition("/")
            self.answer_file(model, unquote(revision), name)
        else:
            self.send_error_answer(404, "EntryNotFound", "there is nothing here")

    def answer_model_info(self, path, query):
        model, _, rest = path.partition("/tree/")
        model, _, revision = model.partition("/revision/")
        files, commit = self.hub.files(model, unquote(revision or rest.partition("/")[0]) or "main")
        if files is None and model in self.hub.models:
            self.send_error_answer(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif files is None:
            # As the Hub does where nobody is logged in: who may not see a model learns nothing of it.
            self.send_error_answer(401, "RepoNotFound", "Invalid username or password.")
        elif rest:
            entries = [
                {"type": "file", "oid": file_etag(data), "size": len(data), "path": name}
                for name, data in files.items()
            ]
            self.send_json(json.dumps(entries).encode())
        else:
            names = [
                {"rfilename": name, **({"size": len(data)} if "blobs" in query else {})} for name, data in files.items()
            ]
            gated = "manual" if model in self.hub.gated else False
            self.send_json(
                json.dumps(
                    {"id": model, "modelId": model, "sha": commit, "private": False, "gated": gated, "siblings": names}
                ).encode()
            )

    def answer_file(self, model, revision, name):
        files, commit = self.hub.files(model, revision)
        if files is None:
            self.send_error_answer(404, "RepoNotFound", "Repository not found")
        elif model in self.hub.gated and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self.send_error_answer(
                403 if self.headers.get("Authorization") else 401, "GatedRepo", f"Access to {model} is restricted"
            )
        elif name not in files:
            self.send_error_answer(404, "EntryNotFound", "Entry not found")
        else:
            self.send_file(name, files[name], commit)

    def send_file(self, name, data, commit):
        start = 0
        span = self.headers.get("Range")
        if span:
            start = int(span.removeprefix("bytes=").partition("-")[0])
            end = span.partition("-")[2]
            self.send_response(206)
            rest = data[start : int(end) + 1 if end else None]
            self.send_header("Content-Range", f"bytes {start}-{start + len(rest) - 1}/{len(data)}")
        else:
            rest = data
            self.send_response(200)
        self.send_header("ETag", f'"{file_etag(data)}"')
        self.send_header("X-Repo-Commit", commit)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if self.command == "HEAD":
            return
        times, after = self.hub.cut.get(name, (0, 0))
        if times and start < after:
            self.hub.cut[name] = (times - 1, after)
            self.wfile.write(rest[: after - start])
            self.wfile.flush()
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(2)
            return
        first = max(0, self.hub.held.get(name, len(data)) - start)
        with contextlib.suppress(OSError):
            self.wfile.write(rest[:first])
            if rest[first:]:
                self.wfile.flush()
                self.hub.released.wait(60)
                self.wfile.write(rest[first:])

    def send_error_answer(self, code, name, words):
        self.send_response(code)
        self.send_header("X-Error-Code", name)
        self.send_header("X-Error-Message", words)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_json(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def commit_of_revision(revision):
    """Return the commit that a revision other than main is."""
    return hashlib.sha1(revision.encode()).hexdigest()  # noqa: S324 - as in git


def file_etag(data):
    """Return the etag of a file's content, as Git LFS names it."""
    return hashlib.sha256(data).hexdigest()


MODEL_CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}


def safetensors_bytes(size):
    """A safetensors file of one tensor with so many bytes."""
    header = json.dumps({"w": {"dtype": "F16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def model_files(size=64, **config):
    """The files of a small model."""
    return {
        "config.json": json.dumps({**MODEL_CONFIG, **config}).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": safetensors_bytes(size),
    }
