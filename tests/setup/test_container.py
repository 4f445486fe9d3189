"""Containers: the words that reach the engine, and what a real docker client makes of them."""

import http.server
import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlparse

import msgspec
import pytest
from support import (
    BASH_OWN_VARIABLES,
    HOSTILE_VALUES,
    UUIDS,
    boxed,
    export_run,
    gpu,
    inside,
    make_engine_stub,
    make_executable,
    plain_environment,
    plan,
    profile,
    run_launch_script,
    stub_calls,
)  # fmt: skip

from tui_train.base.command import RUNTIME_VARIABLE_NAMES
from tui_train.cli.plans.plans import _attempt_argv
from tui_train.facts.machine import container_images
from tui_train.facts.machine.child_process import run_child
from tui_train.profile import mounts
from tui_train.profile.mounts import Mount
from tui_train.runner.containers.container import mount_option
from tui_train.setup.machine import container

DOCKER = shutil.which("docker")
CARDS = (gpu(0), gpu(1))
ENGINES = ("docker", "podman", "apptainer")
SEVERAL = {"nodes.count": 2, "nodes.address": "10.0.0.1"}
SECRET = "s3cret $(touch pwned)\nvalue"  # noqa: S105


def image_of(engine, folder):
    """An image's name as the engine takes it."""
    if engine != "apptainer":
        return "nvcr.io/nvidia/nemo:25.04"
    (folder / "an image.sif").write_text("")
    return str(folder / "an image.sif")


def built(folder, engine, values, **more):
    """A script in a folder of odd names, and what else it reads and writes, in a container with two cards."""
    odd = folder / "it's 中文 $(touch pwned)"
    odd.mkdir(parents=True, exist_ok=True)
    (odd / "train.py").write_text("")
    chosen = {
        "trainer.kind": "script", "trainer.preset": "custom", "trainer.launcher": "torchrun",
        "trainer.script": str(odd / "train.py"),
        "trainer.arguments": (*values, "--model={model}", "--in={data}"),
        "trainer.environment": {f"HOSTILE_{number}": value for number, value in enumerate(values)},
        "trainer.data": (str(folder / "data, a.txt" if engine != "podman" else folder / "data a.txt"),),
        "trainer.model": str(folder / "hub/models--x--y/snapshots/abc"),
        "trainer.output": str(folder / "out put"),
        "trainer.secrets": ("HF_TOKEN",),
        "container.mounts": (f"{folder}:/mnt/all:ro",),
    }  # fmt: skip
    if any("{steps}" in value for value in values):
        chosen["recipe.steps"] = 60
    image = image_of(engine, folder)
    made = profile(chosen | inside(engine, image) | more)
    return made, boxed(engine, image, gpus=CARDS)


def words_of(made):
    return [word for part in made.container.parts for word in part.words if isinstance(word, str)]


def with_engine(folder, engine):
    """An environment with an engine that only notes what it is told."""
    make_engine_stub(folder / "bin" / engine)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), XDG_CACHE_HOME=str(folder / "cache"))
    return environment | {"PATH": f"{folder / 'bin'}:{environment['PATH']}"}


def ran(folder, engine, values, **more):
    """Run a profile's script with an engine that only notes; return the run, its plan, and what was noted."""
    folder = folder.resolve()
    chosen, found = built(folder, engine, values, **more)
    run, made = export_run(folder / "run of 中", chosen, found)
    environment = with_engine(folder, engine) | {"HF_TOKEN": SECRET, "TUI_TRAIN_RUN_ID": "the-mark"}
    done = run_launch_script(run, "--plain", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not [*folder.rglob("pwned")]
    (note,) = stub_calls(folder / "notes")
    return run, made, note, environment


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_is_handed_exactly_what_the_plan_says(tmp_path, engine):
    run, made, note, _ = ran(tmp_path, engine, HOSTILE_VALUES)
    name = next((word.removeprefix("--name=") for word in note["argv"] if word.startswith("--name=")), "")
    assert engine == "apptainer" or re.fullmatch(r"tui-train-plain-[0-9]+", name)
    cache, user = tmp_path.resolve() / "cache", f"--user={os.getuid()}:{os.getgid()}"
    values = {
        "RUN_DIR": str(run.path), "CONTAINER": name, "USER": user, "MEMLOCK": "-1",
        "RUN_MOUNT": mount_option(engine, str(run.path), str(run.path)),
        "CACHE_MOUNT": mount_option(engine, str(cache / "tui-train/container"), "/cache"),
        "HUGGING_FACE_MOUNT": mount_option(engine, str(cache / "huggingface"), "/cache/huggingface"),
    }  # fmt: skip
    if engine == "apptainer":
        values["CACHE_MOUNT"] = f"--home={cache}/tui-train/container:/cache"
    wanted = container.container_command(made.container, made.attempts[0].command, values)
    assert note["argv"][1:] == wanted[1:]
    assert note["argv"][0].endswith(f"/{engine}")
    mark = "APPTAINERENV_TUI_TRAIN_RUN_ID" if engine == "apptainer" else "TUI_TRAIN_RUN_ID"
    assert note["env"][mark] == "the-mark"
    assert note["cwd"] == "/"
    assert all((tmp_path.resolve() / place).is_dir() for place in ("cache/huggingface", "out put"))
    if engine == "apptainer":
        for setting in made.attempts[0].command.env:
            assert note["env"][f"APPTAINERENV_{setting.name}"] == setting.value
        assert note["env"]["APPTAINERENV_HF_TOKEN"] == SECRET
    else:
        assert note["env"]["HF_TOKEN"] == SECRET
        assert "--env=HF_TOKEN" in note["argv"]
    assert not [word for word in note["argv"] if "s3cret" in word]
    assert not [path for path in run.path.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]


@pytest.mark.parametrize("engine", ENGINES)
def test_dry_run_prints_what_would_be_started(tmp_path, engine):
    run, _, note, environment = ran(tmp_path, engine, HOSTILE_VALUES[:12], **{"ladder.rungs": ()})
    shown = run_launch_script(run, "--dry-run", env=environment)
    assert (shown.stderr, b"s3cret" in shown.stdout) == (b"", False)
    (folder,) = {path.parent for path in tmp_path.rglob("notes")}
    block = re.sub(rb"^# attempt .*\n", b"", shown.stdout)
    subprocess.run(["bash", "-c", 'eval "$1"', "bash", block], env=environment, check=True, stdout=subprocess.DEVNULL)
    again = stub_calls(folder / "notes")[-1]

    def without_name(words):
        return [word for word in words if not word.startswith("--name=")]

    assert without_name(again["argv"]) == without_name(note["argv"])
    assert len(again["argv"]) == len(note["argv"])
    kept = BASH_OWN_VARIABLES | {
        "HF_TOKEN",
        "APPTAINERENV_HF_TOKEN",
        "TUI_TRAIN_RUN_ID",
        "APPTAINERENV_TUI_TRAIN_RUN_ID",
    }
    same = [{name: value for name, value in told["env"].items() if name not in kept} for told in (note, again)]
    assert same[0] == same[1]


class _Api(http.server.BaseHTTPRequestHandler):
    """As much of a docker daemon as a client asks before it makes a container, which is then refused."""

    made: list = []  # noqa: RUF012 - each test makes a class of its own

    def answer(self, code, data):
        text = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Api-Version", "1.45")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def do_HEAD(self):
        self.answer(200, "OK")

    def do_GET(self):
        path = urlparse(self.path).path
        if path.endswith("/containers/json"):
            self.answer(200, [])
        elif path.endswith("/info"):
            self.answer(200, {"ServerVersion": "28", "SecurityOptions": ["name=seccomp"]})
        elif "/images/" in path:
            self.answer(200, {"Id": "sha256:1"})
        else:
            self.answer(200 if path.endswith("_ping") else 404, {"message": "No such container"})

    def do_DELETE(self):
        self.answer(404, {"message": "No such container"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlparse(self.path)
        if address.path.endswith("/containers/create"):
            self.made.append((unquote(parse_qs(address.query)["name"][0]), json.loads(body)))
            self.answer(400, {"message": "this is only a test"})
        else:
            self.answer(404, {"message": "No such container"})

    def address_string(self):
        return "client"

    def log_message(self, *_):
        pass


@pytest.fixture
def daemon(tmp_path_factory):
    """A daemon that notes what a real docker client asks it to make; the environment to reach it."""
    if not DOCKER:
        pytest.skip("NOT TESTED: there is no docker client to read the words")

    class Api(_Api):
        made: list = []  # noqa: RUF012

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    socket = tmp_path_factory.mktemp("d") / "s"
    with Server(str(socket), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Api.made, {"DOCKER_HOST": f"unix://{socket}"}
        server.shutdown()
        thread.join()


def test_a_docker_client_reads_what_is_meant(tmp_path, daemon):
    """The real client parses the words, and sends the daemon what they mean to it."""
    folder = tmp_path.resolve()
    made, environment = daemon
    chosen, found = built(folder, "docker", HOSTILE_VALUES)
    run, planned = export_run(folder / 'run, "a" 中', chosen, found)
    environment |= plain_environment(HF_TOKEN=SECRET, XDG_CACHE_HOME=str(folder / "cache, 2"))
    mounts = {
        "RUN": (str(run.path), str(run.path)),
        "CACHE": (str(folder / "cache, 2/tui-train/container"), "/cache"),
        "HUGGING_FACE": (str(folder / "cache, 2/huggingface"), "/cache/huggingface"),
    }
    environment |= {f"TUI_TRAIN_{name}_MOUNT": mount_option("docker", *paths) for name, paths in mounts.items()}
    own = {"RUN_ID": "the-mark", "CONTAINER_NAME": "the-name", "REMOVE": "--rm=false"}
    environment |= {f"TUI_TRAIN_{name}": value for name, value in own.items()}
    done = run_launch_script(run, "--plain", env=environment)
    assert done.returncode != 0
    assert b"this is only a test" in done.stderr
    ((name, body),) = made
    host = body["HostConfig"]
    assert (name, body["Image"]) == ("the-name", "nvcr.io/nvidia/nemo:25.04")
    (asked,) = host["DeviceRequests"]
    assert (asked["DeviceIDs"], asked["Count"], ["gpu"] in asked["Capabilities"]) == ([*UUIDS], 0, True)
    assert (host["IpcMode"], host.get("ShmSize", 0)) == ("host", 0)
    assert {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in host["Ulimits"]} == {
        "memlock": (-1, -1),
        "stack": (67108864, 67108864),
    }
    assert (host["Init"], host["AutoRemove"], host["SecurityOpt"]) == (True, False, ["label=disable"])
    assert body["User"] == f"{os.getuid()}:{os.getgid()}"
    script = folder / "it's 中文 $(touch pwned)"
    assert body["WorkingDir"] == str(script)
    assert {(m["Source"], m["Target"], m.get("ReadOnly", False)) for m in host["Mounts"]} == {
        (str(run.path), str(run.path), False),
        (str(folder / "cache, 2/tui-train/container"), "/cache", False),
        (str(folder / "cache, 2/huggingface"), "/cache/huggingface", False),
        (str(script), str(script), False),
        (str(folder / "out put"), str(folder / "out put"), False),
        (str(folder / "data, a.txt"), str(folder / "data, a.txt"), True),
        (str(folder / "hub/models--x--y"), str(folder / "hub/models--x--y"), True),
        (str(folder), "/mnt/all", True),
    }
    inner = [word if isinstance(word, str) else "" for part in planned.attempts[0].command.parts for word in part.words]
    assert body["Cmd"][:2] == ["sh", "-c"]
    assert body["Cmd"][3:] == [f"{run.path}/shim", *inner]
    assert inner[0] == "python"
    variables = dict(entry.split("=", 1) for entry in body["Env"])
    wanted = {setting.name: setting.value for setting in planned.attempts[0].command.env}
    assert variables == wanted | {"HF_TOKEN": SECRET, "TUI_TRAIN_RUN_ID": "the-mark"}
    assert variables["CUDA_VISIBLE_DEVICES"] == ",".join(UUIDS)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_shared_memory_is_said_once(engine):
    for size in ("host", "8g"):
        made = plan(profile(inside(engine, container__shared_memory=size)), boxed(engine))
        told = "--ipc=host" if size == "host" else "--shm-size=8g"
        assert [word for word in words_of(made) if "shm" in word or "ipc" in word] == [told]


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_each_machine_shows_its_container_its_own_gpus(tmp_path, engine):
    several = SEVERAL | {"recipe.global_batch": 64, "trainer.launcher": "torchrun"}
    run, made = export_run(tmp_path / "run", profile(inside(engine) | several), boxed(engine, gpus=CARDS))
    environment = with_engine(tmp_path, engine)
    for words, cards in ((("--node-rank=1", "--gpus=GPU-a,GPU-b"), ("GPU-a", "GPU-b")), (("--node-rank=0",), UUIDS)):
        done = run_launch_script(run, "--dry-run", *words, env=environment)
        assert done.returncode == 0, done.stderr
        script = 'eval "$(tail -n 1)"'
        last = subprocess.run(
            ["bash", "-c", f'{engine}() {{ printf "%s\\n" "$@"; }}\n{script}'],
            input=done.stdout, env=environment, capture_output=True, check=True,
        ).stdout.decode().splitlines()  # fmt: skip
        assert f"--env=CUDA_VISIBLE_DEVICES={','.join(cards)}" in last
        if engine == "podman":
            assert [word for word in last if "gpu=" in word] == [f"--device=nvidia.com/gpu={uuid}" for uuid in cards]
        else:
            assert last[last.index("--gpus") + 1] == f'"device={",".join(cards)}"'
    told = container.container_command(
        made.container, made.attempts[0].command, {name: f"${name}" for name in RUNTIME_VARIABLE_NAMES}
    )
    assert "--env=CUDA_VISIBLE_DEVICES=$GPUS" in told


def test_a_container_has_its_machine_s_own_number_of_processes():
    several = SEVERAL | {"nodes.processes": (2, 1), "recipe.global_batch": None}
    made = plan(profile(inside() | several | {"trainer.launcher": "torchrun"}), boxed(gpus=CARDS))
    assert "--nproc-per-node=2" in _attempt_argv(made, made.attempts[0])


def test_apptainer_shows_other_cards_where_they_are_chosen(tmp_path):
    chosen, found = built(tmp_path.resolve(), "apptainer", ["x"])
    run, _ = export_run(tmp_path / "run", chosen, found)
    shown = run_launch_script(run, "--dry-run", "--gpus=GPU-a,GPU-b", env=plain_environment()).stdout.decode()
    assert not [uuid for uuid in UUIDS if uuid in shown]
    assert "CUDA_VISIBLE_DEVICES=GPU-a\\,GPU-b" in shown


def test_the_host_needs_a_python_for_the_supervisor(tmp_path):
    run, _ = export_run(tmp_path / "run", profile(inside()), boxed())
    (tmp_path / "bin").mkdir()
    for name in ("bash", "readlink"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    said = "launch.sh: needs python3 3.8 or newer on this machine, outside the container (not with --plain)\n"
    done = run_launch_script(run, env=plain_environment(PATH=str(tmp_path / "bin")))
    assert (done.returncode, done.stderr.decode()) == (69, said)
    (tmp_path / "bin/python3").symlink_to("/bin/false")
    done = run_launch_script(run, env=plain_environment(PATH=str(tmp_path / "bin")))
    assert (done.returncode, done.stderr.decode()) == (69, said)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("own", [{}, {"NCCL_SOCKET_IFNAME": "mine"}])
def test_the_interface_that_is_found_reaches_the_container(tmp_path, engine, own):
    folder = tmp_path.resolve()
    several = SEVERAL | {"recipe.global_batch": 64, "trainer.environment": own}
    found = boxed(engine, image_of(engine, folder), gpus=CARDS)
    run, _ = export_run(folder / "run", profile(inside(engine, image_of(engine, folder)) | several), found)
    environment = with_engine(folder, engine)
    environment |= {"NCCL_SOCKET_IFNAME": "=eth7", "GLOO_SOCKET_IFNAME": "eth7"}
    done = run_launch_script(run, "--plain", "--node-rank=0", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    (note,) = stub_calls(folder / "notes")
    if engine == "apptainer":
        assert note["env"]["APPTAINERENV_NCCL_SOCKET_IFNAME"] == own.get("NCCL_SOCKET_IFNAME", "=eth7")
        assert note["argv"][note["argv"].index(image_of(engine, folder)) + 1] == "sh"
        return
    last = [word for word in note["argv"] if word.startswith("--env=NCCL_SOCKET_IFNAME")][-1]
    assert last == ("--env=NCCL_SOCKET_IFNAME=mine" if own else "--env=NCCL_SOCKET_IFNAME")


def test_on_the_cpu_no_card_is_asked_for():
    for engine in ENGINES:
        image = "/x.sif" if engine == "apptainer" else "x"
        made = plan(profile(inside(engine, image) | {"hardware.device": "cpu"}), boxed(engine, image, gpus=CARDS))
        assert not [word for word in words_of(made) if "gpu" in word or word == "--nv"]


def test_several_machines_share_the_network_of_the_host():
    for values, wanted in (inside(), False), (inside() | SEVERAL, True):
        around = container.container_wrapper(profile(values), (), ())
        assert any("--network=host" in part.words for part in around.parts) is wanted


def test_the_images_own_python_trains_and_its_torch_judges():
    old = boxed(gpus=CARDS, arch_list=("sm_90",), cuda="12.8")
    made = plan(profile(inside() | {"trainer.launcher": "python", "hardware.device": "cpu"}), old)
    assert made.python == "python"
    with pytest.raises(Exception, match=r"cannot train|no GPU here can train"):
        plan(profile(inside() | {"hardware.device": "cuda"}), old)


def test_what_a_user_sets_wins():
    made = plan(profile(inside() | {"trainer.environment": {"HF_HOME": "/mine"}}), boxed())
    assert {item.name: item.value for item in made.attempts[0].command.env}["HF_HOME"] == "/mine"


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/a:/b", Mount("/a", "/b")),
        ("/a b:/c d:ro", Mount("/a b", "/c d", read_only=True)),
        ("/a:b:/c:rw", Mount("/a:b", "/c")),
        ("/a,b:/c", Mount("/a,b", "/c")),
        ("a:/b", None),
        ("/a", None),
        ("/a:b", None),
        ("", None),
        ("volume:/data", None),
    ],
)
def test_mounts_are_read(text, mount):
    assert mounts.parse_mount(text) == mount


def test_what_a_pretraining_with_nemo_reads_is_mounted():
    chosen = {"trainer.kind": "nemo", "nemo.tokenizer": "/words/tokenizer.model", "trainer.data": ("/texts/books.bin",)}
    mounted = container.container_mounts(profile(chosen | inside()))
    assert {mount.host for mount in mounted if mount.read_only} >= {
        "/words/tokenizer.model",
        "/texts/books.bin",
        "/texts/books.idx",
    }


@pytest.mark.parametrize(
    ("engine", "path", "word"),
    [
        ("docker", "/a b", "--mount=type=bind,src=/a b,dst=/x"),
        ("docker", '/a,"b', '--mount=type=bind,"src=/a,""b",dst=/x'),
        ("docker", "/a\r\nb", None),
        ("podman", "/a,b", "--volume=/a,b:/x"),
        ("podman", "/a:b", "--mount=type=bind,src=/a:b,dst=/x"),
        ("podman", "/a:b,c", None),
        ("podman", "/a\\", "--mount=type=bind,src=/a\\,dst=/x"),
        ("apptainer", "/a:b", "--mount=type=bind,src=/a:b,dst=/x"),
    ],
)
def test_a_mount_in_the_words_of_an_engine(engine, path, word):
    assert mount_option(engine, path, "/x") == word


def test_what_is_not_there_is_said_first(tmp_path):
    run, _ = export_run(tmp_path / "run", profile(inside()), boxed())
    (tmp_path / "bin").mkdir()
    for name, path in (
        ("bash", shutil.which("bash")),
        ("readlink", shutil.which("readlink")),
        ("python3", sys.executable),
    ):
        (tmp_path / "bin" / name).symlink_to(Path(path).resolve())
    done = run_launch_script(run, env=plain_environment(PATH=str(tmp_path / "bin")))
    assert (done.returncode, "there is no docker on this machine" in done.stderr.decode()) == (69, True)
    assert not run.events_file.exists()


# ---- what is found out about engines and images


@pytest.fixture
def path(tmp_path, monkeypatch):
    """An empty PATH but for what a test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def put(name, text):
        make_executable(tmp_path / "bin" / name, f"#!/bin/sh\n{text}\n")

    return put


def test_without_engines_there_are_none(path):
    assert container_images.read_engines() == ()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo permission denied while trying to connect to the Docker daemon >&2; exit 1", "join the group docker"),
        ("echo Cannot connect to the Docker daemon >&2; exit 1", "systemctl start docker"),
        ("echo '{\"host\":{}}'", "podman"),
        ("exit 3", "exit code 3"),
        ("echo '[]'", "no usable answer"),
    ],
)
def test_a_docker_that_cannot_be_used_says_why(path, script, problem):
    path("docker", script)
    (found,) = container_images.read_engines()
    assert problem in found.problem


def test_a_docker_that_works(path):
    info = {"ServerVersion": "28.2", "Runtimes": {"nvidia": {}}}
    path("docker", f"case $1 in info) echo '{json.dumps(info)}';; image) echo a:1; echo '<none>:<none>';; esac")
    (found,) = container_images.read_engines()
    assert (found.version, found.images, found.problem) == ("28.2", ("a:1",), "")
    assert found.gpus


def test_another_machine_is_asked_by_its_own_commands(path, tmp_path):
    told = {"prefix": "/usr", "executable": "", "toolchain": {"python": "/p", "torch": "2.7"}}
    inspected = "*inspect*) echo sha256:abc arm64 5000000000;; *) echo a:1;;"
    words = f"""info*) echo '{{"ServerVersion": "28.2"}}';; run*) echo '{json.dumps(told)}';; {inspected}"""
    make_executable(tmp_path / "there" / "docker", f'#!/bin/sh\ncase "$*" in {words} esac\n')

    def run(command, seconds):
        return run_child(command, seconds, {"PATH": str(tmp_path / "there")})

    assert container_images.read_engines() == ()
    (engine,) = container_images.read_engines(run)
    assert (engine.name, engine.version, engine.images, engine.gpus) == ("docker", "28.2", ("a:1",), False)
    found = container_images.probe_image("docker", "a:1", run)
    assert (found.id, found.architecture, found.size, found.toolchain.torch) == ("abc", "arm64", 5 * 10**9, "2.7")
    assert container_images.probe_image("docker", "a:1").problem, "there is no docker here"


def test_an_image_is_asked_once(path, tmp_path):
    told = {"prefix": "/usr", "executable": "/p", "toolchain": {"python": "/usr/bin/python", "torch": "2.7"}}
    answer = f"echo a banner; echo '{json.dumps(told)}'; echo x >> {tmp_path}/asked"
    path("docker", f"case $1 in image) echo sha256:abc;; run) {answer};; esac")
    for _ in range(2):
        found = container_images.probe_image("docker", "a:1")
        assert (found.id, found.toolchain.torch, found.toolchain.label) == ("abc", "2.7", "a:1")
    assert (tmp_path / "asked").read_text() == "x\n"
    path("docker", f"case $1 in image) echo sha256:another;; run) {answer};; esac")
    assert container_images.probe_image("docker", "a:1").id == "another"
    assert (tmp_path / "asked").read_text() == "x\nx\n"


def test_an_image_is_never_fetched(path, tmp_path):
    answer = "case $1 in image) echo 'Error: No such image: a:1' >&2; exit 1;; esac"
    path("docker", f'echo "$*" >> {tmp_path}/asked; {answer}')
    assert container_images.probe_image("docker", "a:1").missing
    assert all(line.startswith("image inspect") for line in (tmp_path / "asked").read_text().splitlines())


def test_an_image_that_does_not_answer_is_not_left_running(path, tmp_path):
    words = f'echo "$*" >> {tmp_path}/asked'
    path("docker", f"{words}; case $1 in image) echo sha256:abc;; run) exec /bin/sleep 30;; esac")
    found = container_images.probe_image("docker", "a:1", deadline=0.5)
    assert "no answer in time" in found.problem
    asked = (tmp_path / "asked").read_text()
    name = re.search(r"--name=(\S+)", asked).group(1)
    assert f"rm -f {name}" in asked
    assert "--pull=never" in asked
    assert "--network=none" in asked


def test_the_validation_says_what_is_missing(path):
    from tui_train.actions.image_check import check_image, image_check_text

    tool = {"python": "/p", "torch": "2.7", "packages": {"nemo_toolkit": "2.3"}}
    told = {"prefix": "/usr", "executable": "", "toolchain": tool}
    probe, cards = f"echo '{json.dumps(told)}'", f"echo 'GPU 0: RTX ({UUIDS[0]})'"
    path(
        "docker",
        f'case "$1 $*" in image*) echo sha256:a;; *nvidia-smi*) {cards};; *qwen*) echo missing;; *) {probe};; esac',
    )
    found = check_image("docker", "a:1", UUIDS, "qwen25_500m")
    assert f"GPUs not visible inside: {UUIDS[1]}" in found.wrong
    assert any("qwen25_500m" in problem for problem in found.wrong)
    assert "NeMo    2.3" in image_check_text(found)
    good = check_image("docker", "a:1", UUIDS[:1])
    assert good.wrong == ()
    assert image_check_text(good).endswith("It can train.")
    assert msgspec.json.decode(msgspec.json.encode(good))["image"]["name"] == "a:1"
