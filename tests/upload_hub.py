"""A Hugging Face Hub stood in for on loopback that takes uploads as huggingface_hub sends them, over Git LFS."""

import base64
import contextlib
import hashlib
import json
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

import yaml
from hub import LoopbackServer

TOKEN = "hf_" + "Qz7" * 11 + "k"
LFS_SUFFIXES = (".safetensors", ".bin")


class HubRepo:
    """A repository: its files, by name, each as it would be downloaded; `ignored` names are never committed."""

    def __init__(self, files=(), *, private=True, licence=""):
        self.files = {".gitattributes": b"", **dict(files)}
        self.private = private
        self.licence = licence
        self.ignored = ()
        self.commits = ["0" * 40]


class UploadHub(LoopbackServer):
    """A Hub of `repos`, by id, to which only `token` may write, below the names `ann` and `acme`.

    `refusals` are statuses with words for requests whose path ends so; `asked` are the requests that came.
    """

    def __init__(self, **repos):
        self.repos = {name.replace("__", "/"): repo for name, repo in repos.items()}
        self.objects = {}
        self.token, self.role = TOKEN, "write"
        self.refusals = {}
        super().__init__(_Handler)

    def wrote(self):
        """Return the requests that would change something."""
        return [path for method, path in self.asked if method in {"POST", "PUT"} and "validate-yaml" not in path]


@contextlib.contextmanager
def logged_in_hub(home, monkeypatch, **repos):
    """A Hub on which somebody is logged in by a variable, for all that is started meanwhile."""
    with UploadHub(**repos) as hub:
        for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_HOME", str(home))
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        yield hub


class _Handler(BaseHTTPRequestHandler):
    hub: UploadHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.answer()

    def do_PUT(self):
        self.answer()

    def answer(self):
        path = urlsplit(self.path).path
        self.hub.asked.append((self.command, path))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        refused = next((found for end, found in self.hub.refusals.items() if path.endswith(end)), None)
        if refused:
            self.send(refused[0], {"error": refused[1]})
        elif self.command == "PUT":
            # As of a store of objects, whose address is signed: the token is not for it.
            assert not self.headers.get("Authorization")
            assert hashlib.sha256(body).hexdigest() == path.rpartition("/")[2]
            self.hub.objects[path.rpartition("/")[2]] = body
            self.send(200, {})
        elif self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self.send(401, {"error": f"Invalid credentials: {self.headers.get('Authorization')}"})
        elif path == "/api/whoami-v2":
            token = {"accessToken": {"role": self.hub.role}}
            self.send(200, {"name": "ann", "orgs": [{"name": "acme"}], "auth": token})
        elif path == "/api/repos/create":
            self.create(json.loads(body))
        elif path == "/api/validate-yaml":
            self.validate(json.loads(body)["content"])
        else:
            self.answer_for_repo(path, body)

    def create(self, asked):
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] not in {"ann", "acme"}:
            self.send(403, {"error": f"You don't have the rights to create a model under {asked['organization']}"})
        elif name in self.hub.repos:
            self.send(409, {"error": "You already created this model repo"})
        else:
            self.hub.repos[name] = HubRepo(private=asked["visibility"] == "private")
            self.send(200, {"url": f"{self.hub.url}/{name}"})

    def validate(self, content):
        try:
            head = yaml.safe_load(content.split("---\n")[1])
            assert isinstance(head["tags"], list)
            self.send(200, {"errors": [], "warnings": []})
        except (IndexError, KeyError, AssertionError, yaml.YAMLError) as error:
            self.send(400, {"errors": [{"message": str(error)}], "warnings": []})

    def answer_for_repo(self, path, body):
        words = path.removeprefix("/api/models").strip("/").split("/")
        name, rest = "/".join(words[:2]).removesuffix(".git"), words[2:]
        repo = self.hub.repos.get(name)
        if repo is None:
            self.send(404, {"error": "Repository not found"}, error_code="RepoNotFound")
        elif self.command == "GET":
            siblings = [{"rfilename": file} for file in repo.files]
            info = {"id": name, "sha": repo.commits[-1], "private": repo.private, "siblings": siblings, "tags": []}
            self.send(200, info | {"cardData": {"license": repo.licence}} if repo.licence else info)
        elif rest[0] == "preupload":
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(LFS_SUFFIXES) else "regular",
                    "shouldIgnore": file["path"] in repo.ignored,
                }
                for file in json.loads(body)["files"]
            ]
            self.send(200, {"files": files})
        elif rest[0] == "info":
            self.send(200, {"objects": [self.lfs_object(asked) for asked in json.loads(body)["objects"]]})
        else:
            self.commit(name, repo, [json.loads(line) for line in body.splitlines()])

    def lfs_object(self, asked):
        known = {"oid": asked["oid"], "size": asked["size"]}
        upload = {"upload": {"href": f"{self.hub.url}/objects/{asked['oid']}"}}
        return known if asked["oid"] in self.hub.objects else known | {"actions": upload}

    def commit(self, name, repo, lines):
        if lines[0]["value"].get("parentCommit") not in {None, repo.commits[-1]}:
            self.send(412, {"error": "A commit has happened since. Please refresh and try again."})
            return
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "lfsFile":
                repo.files[value["path"]] = self.hub.objects[value["oid"]]
            else:
                assert (line["key"], value["encoding"]) == ("file", "base64")
                repo.files[value["path"]] = base64.b64decode(value["content"])
        repo.commits.append(hashlib.sha1(str(len(repo.commits)).encode()).hexdigest())  # noqa: S324 - as in git
        url = f"{self.hub.url}/{name}/commit/{repo.commits[-1]}"
        self.send(200, {"commitUrl": url, "commitOid": repo.commits[-1]})

    def send(self, status, value, error_code=""):
        body = json.dumps(value).encode()
        self.send_response(status)
        if error_code:
            self.send_header("X-Error-Code", error_code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
