"""Models of the Hugging Face Hub: the cache of a machine, ids, what the Hub says, and the download."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hub import MAIN_COMMIT, FakeHub, commit_of_revision, model_files, safetensors_bytes
from pilot import THREE_CARD_MACHINE, go_to_fields, press_keys, wait_for_workers
from ssh import survey_this_machine
from support import boxed, facts, findings_of, inside, plan, prepare, profile, sample, wait_until

from tui_train.diagnose import diagnose_run
from tui_train.facts.models import hub as hub_facts
from tui_train.facts.models.hub import CachedModel, HubCache, HubModel
from tui_train.places.place import Place
from tui_train.places.profile_facts import probe_profile_facts
from tui_train.profile import fields
from tui_train.profile.changes import apply_change
from tui_train.profile.fields import profile_with_value
from tui_train.programs import hub_cache
from tui_train.runs.status import read_status
from tui_train.setup.setup import Setup
from tui_train.views.overview import training_outline_lines

PROGRAM = Path(hub_cache.__file__).parent / "hub_download.py"
TRL = {"trainer.kind": "script", "trainer.preset": "trl", "ladder.rungs": ()}
MIB = 2**20


def kept(cache, name, content, *, main=True):
    """Lay a model into a cache, as huggingface_hub does: links to blobs."""
    model = cache / f"models--{name.replace('/', '--')}"
    snapshot = model / "snapshots" / MAIN_COMMIT
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    for number, (file, data) in enumerate(content.items()):
        (model / "blobs" / str(number)).write_bytes(data)
        (snapshot / file).symlink_to(f"../../blobs/{number}")
    if main:
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text(MAIN_COMMIT)
    return snapshot


def cache_of(path, **more):
    return hub_facts.read_hub_cache({"HF_HUB_CACHE": str(path), "HF_HOME": str(path), **more})


# ---- the cache ---------------------------------------------------------------------------------------------------


def test_a_cached_model_is_complete_with_its_size_and_type(tmp_path):
    snapshot = kept(tmp_path, "acme/tiny", model_files())
    (model,) = cache_of(tmp_path).models
    assert (model.id, model.folder, model.is_complete, model.causal) == ("acme/tiny", str(snapshot), True, True)
    assert (model.dtype, model.kind) == ("bf16", "llama")
    assert model.size == sum(map(len, model_files().values()))


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"torch_dtype": None}, "fp16"),
        ({"torch_dtype": None, "dtype": "float32"}, "fp32"),
        ({"torch_dtype": None, "text_config": {"dtype": "bfloat16"}}, "bf16"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"torch_dtype": ["x"]}, "fp16"),
    ],
)
def test_the_type_is_that_of_the_config_or_else_of_the_weights(tmp_path, config, dtype):
    kept(tmp_path, "acme/tiny", model_files(**config))
    assert cache_of(tmp_path).models[0].dtype == dtype


INDEX = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"config.json": None}, ("config.json",)),
        ({"tokenizer.json": None}, ("tokenizer",)),
        ({"model.safetensors": None}, ("weights",)),
        ({"model.safetensors": b""}, ("weights",)),
        ({"config.json": b"[1]"}, ("config.json",)),
        ({"model.safetensors": None, "pytorch_model.bin": b"x"}, ()),
        ({"model.safetensors": None, "model.safetensors.index.json": json.dumps(INDEX).encode(),
          "model-1.safetensors": b"x"}, ("model-2.safetensors",)),
        ({"model.safetensors": None, "model.safetensors.index.json": b'{"weight_map": {"a": 3}}'}, ("3",)),
    ],
)  # fmt: skip
def test_what_a_model_lacks_is_named(tmp_path, change, missing):
    content = {name: data for name, data in (model_files() | change).items() if data is not None}
    kept(tmp_path, "acme/tiny", content)
    assert cache_of(tmp_path).models[0].missing == missing


def test_a_file_whose_link_leads_nowhere_is_missing(tmp_path):
    snapshot = kept(tmp_path, "acme/tiny", model_files())
    (snapshot / "model.safetensors").resolve().rename(tmp_path / "models--acme--tiny" / "blobs" / "9.incomplete")
    (model,) = cache_of(tmp_path).models
    assert (model.missing, model.partial) == (("weights",), len(model_files()["model.safetensors"]))


def test_a_revision_that_main_does_not_name_is_not_complete(tmp_path):
    kept(tmp_path, "acme/tiny", model_files(), main=False)
    assert cache_of(tmp_path).models[0].missing == ("refs/main",)


def test_hostile_and_damaged_folders_are_passed_over(tmp_path):
    kept(tmp_path, "acme/good", model_files())
    for name in ("models--", "models--..--etc", "models--a--b--c", "models--\x1b[31m", "models--x", "datasets--a--b"):
        (tmp_path / name).mkdir()
    (tmp_path / "models--file--file").write_text("no folder")
    pipes = kept(tmp_path, "evil/pipes", {})
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        os.mkfifo(pipes / name)
    up = tmp_path / "models--evil--up"
    (up / "refs").mkdir(parents=True)
    (up / "refs" / "main").write_text("../../models--acme--good/snapshots/" + MAIN_COMMIT)
    endless = kept(tmp_path, "evil/endless", {})
    (endless / "config.json").symlink_to("/dev/zero")
    (endless / "loop").symlink_to("loop")
    deep = kept(tmp_path, "evil/deep", {"config.json": b"[" * 100_000})
    (deep.parent.parent / "refs" / "main").unlink()
    os.mkfifo(deep.parent.parent / "refs" / "main")
    found = cache_of(tmp_path)
    complete = [model.id for model in found.models if model.is_complete]
    assert complete == ["acme/good"]
    assert {model.id for model in found.models} == {
        "acme/good", "evil/pipes", "evil/up", "evil/endless", "evil/deep", "file/file", "x",
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_cache_that_may_not_be_read_is_a_problem(tmp_path):
    (tmp_path / "hub").mkdir(mode=0)
    assert cache_of(tmp_path / "hub").problem


def test_no_cache_is_no_problem(tmp_path):
    found = cache_of(tmp_path / "not" / "there")
    assert (found.models, found.problem) == ((), "")
    assert found.free


def test_what_takes_too_long_is_left_out_and_said(tmp_path):
    kept(tmp_path, "acme/tiny", model_files())
    assert hub_cache.describe_hub_cache({"HF_HUB_CACHE": str(tmp_path)}, -1)["problem"]


def test_a_cache_in_which_nothing_can_be_saved_is_known(tmp_path):
    (tmp_path / "file").touch()
    for folder, why in (
        (tmp_path / "new" / "hub", ""),
        (tmp_path / "file" / "hub", f"{tmp_path}/file is a file"),
    ):
        assert hub_facts.read_hub_cache({"HF_HUB_CACHE": str(folder)}).unwritable == why


@pytest.mark.parametrize(("engine", "there"), [("none", True), ("docker", False)])
def test_a_host_reads_the_cache_that_the_profile_names(tmp_path, engine, there):
    """In a container the host's own folder is mounted, whatever the profile says."""
    kept(tmp_path / "mine" / "hub", "acme/small", model_files())
    own = {"trainer.environment": {"HF_HOME": f"{tmp_path}/mine"}, "container.engine": engine}
    question = {"only_named": True, "hub_variables": hub_facts.cache_location_variables(profile(own))}
    cache = survey_this_machine(question, {"HF_HOME": f"{tmp_path}/hosts", "PATH": os.environ["PATH"]}).hub
    assert cache.folder == f"{tmp_path}/{'mine' if there else 'hosts'}/hub"
    assert [model.id for model in cache.models] == ["acme/small"] * there


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({}, "~/.cache/huggingface/hub"),
    ],
)
def test_the_folder_is_that_of_huggingface_hub(environment, folder):
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE", "XDG_"))}
    code = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    told = subprocess.run(
        [sys.executable, "-c", code], env=plain | environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    expected = os.path.expanduser(folder)  # noqa: PTH111
    assert (str(hub_cache.hub_cache_folder(environment)), told) == (expected, expected)


IDS = (
    "gpt2", "acme/tiny", "a.b_c-D/9", "a" * 96, "a" * 97, "a/b/c", "a//b", "/a", "a/", "-a", "a-", ".a", "a.", "a--b",
    "a..b", "a.git", "a/b.git", "ä/b", "a b", "", "a\n", "datasets/a/b", "_a/b_", "a/" + "b" * 96, "~/a", "a\0b",
)  # fmt: skip


@pytest.mark.parametrize("text", IDS)
def test_an_id_is_what_huggingface_hub_takes(text):
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    refusal = contextlib.nullcontext() if hub_cache.is_valid_model_id(text) else pytest.raises(HFValidationError)
    with refusal:
        validate_repo_id(text)


# ---- the profile -------------------------------------------------------------------------------------------------


def test_an_id_stays_and_a_folder_becomes_absolute(tmp_path, monkeypatch):
    row = fields.get_field("trainer.model")
    (tmp_path / "mine").mkdir()
    typed = ("acme/tiny", " gpt2 ", "mine", "./new", "a/b/c", "/x y", "")
    monkeypatch.chdir(tmp_path)
    read = [fields.parse_value(row, text) for text in typed]
    assert read == ["acme/tiny", "gpt2", f"{tmp_path}/mine", f"{tmp_path}/new", f"{tmp_path}/a/b/c", "/x y", ""]


def test_the_profile_decides_whether_the_hub_is_asked():
    where = msgspec.structs.replace(facts(), hub=HubCache(folder="/hub", free=2**40))
    values = TRL | {"trainer.model": "acme/new", "trainer.environment": {"HF_HUB_OFFLINE": "1"}}
    (finding,) = findings_of(profile(values), where)
    assert (finding.level, finding.change.edits) == ("error", (("trainer.environment", {}),))


@pytest.mark.parametrize(
    ("values", "token", "found"),
    [({}, False, "error"), ({"trainer.secrets": ("HF_TOKEN",)}, False, "note"), ({}, True, "note")],
)
def test_a_gated_model_needs_a_token_by_its_name(values, token, found):
    where = msgspec.structs.replace(
        facts(), hub=HubCache(folder="/hub", free=2**40, token=token), hub_models={"a/b": HubModel(size=1, gated=True)}
    )
    first = findings_of(profile(TRL | {"trainer.model": "a/b"} | values), where)[0]
    assert first.level == found
    if found == "error":
        assert first.start
        assert first.change.edits == (("trainer.secrets", ("HF_TOKEN",)),)


def test_each_of_several_machines_fetches_what_it_lacks():
    here = HubCache(folder="/hub", free=2**40, offline=True, models=(CachedModel(id="acme/tiny", folder="/x"),))
    where = msgspec.structs.replace(facts(), hub=here)
    chosen = TRL | {"trainer.model": "acme/tiny", "recipe.global_batch": 64}
    several = {"nodes.count": 2, "nodes.address": "10.0.0.1", "trainer.launcher": "torchrun"}
    assert plan(profile(chosen), where).preparations == ()
    made = plan(profile(chosen | several), where)
    assert [item.name for item in made.preparations] == ["model"]
    assert {"prepare/hub_download.py", "prepare/hub_cache.py"} <= {program.path for program in made.programs}
    assert not [one for one in findings_of(profile(chosen | several), where) if one.key == "trainer.model"]


@pytest.mark.parametrize("name", ["HF_HOME", "HF_HUB_CACHE"])
def test_a_cache_that_a_container_would_lose_is_an_error(name):
    values = TRL | inside() | {"trainer.model": "a/b", "trainer.environment": {name: "/big/hf", "KEPT": "1"}}
    (finding,) = [one for one in findings_of(profile(values), boxed()) if one.key == "trainer.environment"]
    assert (finding.level, finding.change.edits) == ("error", (("trainer.environment", {"KEPT": "1"}),))
    for more in ({"container.mounts": ("/big:/big",)}, {"container.engine": "none", "container.image": ""}):
        found = findings_of(profile(values | more), boxed())
        assert not [one for one in found if one.key == "trainer.environment" and one.level == "error"]


def test_a_full_disk_has_a_remedy_that_holds_in_a_container():
    here = {"hub": HubCache(folder="/hub", free=1), "hub_models": {"a/b": HubModel(size=2**30)}}
    remedies = []
    for more, where in (({}, facts()), (inside(), boxed())):
        found = findings_of(profile(TRL | {"trainer.model": "a/b"} | more), msgspec.structs.replace(where, **here))
        remedies += [one.remedy for one in found if one.key == "trainer.model" and one.level == "error"]
    assert ["trainer.environment" in remedy for remedy in remedies] == [True, False]


# ---- the Hub -----------------------------------------------------------------------------------------------------


def test_the_hub_is_asked_for_size_and_access():
    more = {"model.gguf": bytes(10 * MIB), "pytorch_model.bin": bytes(MIB), "onnx/model.onnx": bytes(MIB)}
    with FakeHub({"acme/tiny": model_files() | more, "acme/gated": model_files()}, gated=["acme/gated"]) as hub:
        tiny, gated = (hub_facts.query_hub_model(name, hub.url) for name in ("acme/tiny", "acme/gated"))
        none = hub_facts.query_hub_model("acme/none", hub.url)
    assert (tiny.size, tiny.gated, tiny.refusal) == (sum(map(len, model_files().values())), False, "")
    assert (gated.gated, none.refusal) == (True, "missing")


@pytest.mark.whole
def test_a_hub_that_cannot_be_asked_is_said_in_time():
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        answer = hub_facts.query_hub_model("acme/tiny", f"http://127.0.0.1:{silent.getsockname()[1]}", deadline=3)
    assert answer.refusal == "unreachable"
    assert hub_facts.query_hub_model("acme/tiny", "file:///etc").refusal == "unusable"


# ---- the download ------------------------------------------------------------------------------------------------


def run(home, hub, *words, python=sys.executable, before=None, **more):
    environment = os.environ | {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", **more}
    environment.pop("HF_TOKEN", None) if "HF_TOKEN" not in more else None
    return subprocess.run(
        [python, str(PROGRAM), words[0], str(home / "done.json"), *words[1:]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=before,
    )


@pytest.mark.whole
def test_a_model_is_downloaded_once(tmp_path):
    more = {"model.gguf": b"gg", "pytorch_model.bin": b"old"}
    with FakeHub({"acme/tiny": model_files() | more}) as hub:
        assert run(tmp_path, hub, "acme/tiny").returncode == 0
        (model,) = cache_of(tmp_path / "hub").models
        assert model.is_complete
        assert {path.name for path in Path(model.folder).iterdir()} == set(model_files())
        hub.asked.clear()
        assert run(tmp_path, hub, "acme/tiny").returncode == 0
        assert hub.asked == []
        (Path(model.folder) / "tokenizer.json").resolve().unlink()
        assert run(tmp_path, hub, "acme/tiny").returncode == 0
        assert hub.ranges("model.safetensors") == []
        assert cache_of(tmp_path / "hub").models[0].is_complete


PINNED = ("v1", "refs/pr/1", commit_of_revision("v1"))


@pytest.mark.parametrize("revision", PINNED[1:])
@pytest.mark.whole
def test_a_revision_is_downloaded_once_beside_main(tmp_path, revision):
    older = model_files(32)
    with FakeHub({"acme/tiny": model_files()}, revisions={("acme/tiny", name): older for name in PINNED[:2]}) as hub:
        asked = hub_facts.query_hub_model("acme/tiny", hub.url, revision)
        assert asked.size == sum(map(len, older.values()))
        assert hub_facts.query_hub_model("acme/tiny", hub.url, "v9").refusal == "revision"
        assert run(tmp_path, hub, "acme/tiny", "v9").returncode == 1
        assert run(tmp_path, hub, "acme/tiny", revision).returncode == 0
        found = cache_of(tmp_path / "hub").find_model("acme/tiny", revision)
        assert (found.is_complete, Path(found.folder, "model.safetensors").read_bytes()) == (
            True,
            safetensors_bytes(32),
        )
        assert hub_facts.snapshot_folder({"HF_HOME": str(tmp_path)}, "acme/tiny", revision) == found.folder
        # Of main only its configuration is there.
        assert cache_of(tmp_path / "hub").find_model("acme/tiny").missing == ("weights", "tokenizer")
        for done in ("done.json", "done.begun"):
            (tmp_path / done).unlink()
        hub.asked.clear()
        assert run(tmp_path, hub, "acme/tiny", revision).returncode == 0
        assert hub.asked == []
        assert run(tmp_path, hub, "acme/tiny").returncode == 0
        both = cache_of(tmp_path / "hub")
        assert both.find_model("acme/tiny", "main").is_complete
        assert both.find_model("acme/tiny").size == asked.size + 32
        assert both.find_model("acme/tiny", revision) == found


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("v1.0", True), ("refs/pr/1", True), ("a" * 40, True), ("feature/x_y-z", True), ("", False), ("../x", False),
        ("a b", False), ("-x", False), ("a..b", False), ("/a", False), ("a/", False), ("a\n", False), ("ä", False),
        ("a/.b", False), ("a.lock", False),
    ],
)  # fmt: skip
def test_a_revision_is_a_name_that_git_takes(text, valid):
    assert hub_cache.is_valid_revision(text) == valid


def test_a_model_that_is_here_needs_no_hub(tmp_path):
    kept(tmp_path / "hub", "acme/tiny", model_files())
    with FakeHub({"acme/tiny": model_files()}) as hub:
        assert run(tmp_path, hub, "acme/tiny").returncode == 0
        assert hub.asked == []
        (tmp_path / "done.begun").touch()
        assert run(tmp_path, hub, "acme/tiny").returncode == 0
        assert hub.asked != []


@pytest.mark.whole
def test_a_connection_that_breaks_goes_on_where_it_was(tmp_path):
    with FakeHub({"acme/tiny": model_files(24 * MIB)}) as hub:
        hub.cut["model.safetensors"] = (1, 22 * MIB)
        assert run(tmp_path, hub, "acme/tiny").returncode == 0
        first, second, *_ = hub.ranges("model.safetensors")
    assert first is None
    assert int(second.removeprefix("bytes=").rstrip("-")) > MIB
    assert cache_of(tmp_path / "hub").models[0].is_complete


@pytest.mark.whole
def test_a_second_run_fetches_only_what_the_first_did_not(tmp_path):
    shards = {"model-1.safetensors": safetensors_bytes(MIB), "model-2.safetensors": safetensors_bytes(2 * MIB)}
    content = {name: data for name, data in model_files().items() if name != "model.safetensors"} | shards
    content["model.safetensors.index.json"] = json.dumps(INDEX).encode()
    with FakeHub({"acme/tiny": content}) as hub:
        hub.held["model-2.safetensors"] = MIB
        environment = os.environ | {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, str(PROGRAM), "acme/tiny", str(tmp_path / "done.json")]
        with subprocess.Popen(command, env=environment) as downloading:
            # Before the list of the parts is there, the weights are missing as such.
            lacking = ("model-2.safetensors",)
            wait_until(lambda: [one for one in cache_of(tmp_path / "hub").models if one.missing == lacking], 60)
            wait_until(lambda: hub.ranges("model-2.safetensors"), 60)
            downloading.kill()
        hub.held.clear()
        hub.released.set()
        hub.asked.clear()
        assert run(tmp_path, hub, "acme/tiny").returncode == 0
        assert (hub.ranges("model-1.safetensors"), len(hub.ranges("model-2.safetensors"))) == ([], 1)
    assert cache_of(tmp_path / "hub").models[0].is_complete


# ---- a run -------------------------------------------------------------------------------------------------------

READS = """
import sys
from huggingface_hub import try_to_load_from_cache
model, revision = sys.argv[1:]
print("read", len(open(try_to_load_from_cache(model, "model.safetensors", revision=revision), "rb").read()), "bytes")
"""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with a model, one that is gated, and a cache of this test's own."""
    older = {("acme/tiny", "v1"): model_files(2 * MIB)}
    with FakeHub(
        {"acme/tiny": model_files(3 * MIB), "acme/gated": model_files()}, revisions=older, gated=["acme/gated"]
    ) as stood_in:
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_ENDPOINT", stood_in.url)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
        yield stood_in


def loading(folder, name, **more):
    """A profile whose script reads the weights of a model in the cache."""
    (folder / "loads.py").write_text(READS)
    values = {
        "name": "loads", "hardware.device": "cpu", "trainer.kind": "script", "trainer.preset": "custom",
        "trainer.script": str(folder / "loads.py"), "trainer.arguments": ("{model}", "main"), "trainer.model": name,
        "trainer.python": sys.executable, "ladder.rungs": (),
    }  # fmt: skip
    return profile(values | more)


def trained(chosen):
    """The run of a profile, at its end."""
    prepared = prepare(chosen, probe_profile_facts(chosen))
    assert prepared.plan, prepared.findings
    run_dir = Place().submit(prepared, prepared.plan)
    wait_until(lambda: not read_status(run_dir).is_live, 90)
    return run_dir


def test_a_run_downloads_its_model_and_then_trains(tmp_path, hub):
    chosen = loading(tmp_path, "acme/tiny")
    (note,) = [
        finding for finding in findings_of(chosen, probe_profile_facts(chosen)) if finding.key == "trainer.model"
    ]
    assert note.level == "note"
    first = trained(chosen)
    log = first.attempt_log(1).read_text()
    assert read_status(first).state == "finished", log
    said = [line.split()[0] for line in log.splitlines()]
    assert said.index("download:") < said.index("read")
    hub.asked.clear()
    # What is here is neither downloaded nor asked for, and the plan has no such step.
    again = prepare(chosen, probe_profile_facts(chosen))
    assert again.plan.preparations == ()
    assert hub.asked == []
    assert read_status(trained(chosen)).state == "finished"


@pytest.mark.whole
def test_a_run_downloads_the_revision_that_is_pinned(tmp_path, hub):
    chosen = loading(tmp_path, "acme/tiny")
    pinned = profile_with_value(
        profile_with_value(chosen, "trainer.revision", "v1"), "trainer.arguments", ("{model}", "{revision}")
    )
    (note,) = [
        finding for finding in findings_of(pinned, probe_profile_facts(pinned)) if finding.key == "trainer.model"
    ]
    assert (note.level, "acme/tiny@v1 is downloaded" in note.message, "2 MiB" in note.message) == ("note", True, True)
    done = trained(pinned)
    log = done.attempt_log(1).read_text()
    assert read_status(done).state == "finished", log
    assert f"read {len(safetensors_bytes(2 * MIB))} bytes" in log
    assert prepare(pinned, probe_profile_facts(pinned)).plan.preparations == ()
    # Main is another one.
    assert prepare(chosen, probe_profile_facts(chosen)).plan.preparations


@pytest.mark.parametrize(("revision", "shown"), [("", "tiny"), ("v1", "tiny@v1"), ("a" * 40, "tiny@aaaaaaaaaaaa")])
def test_the_preview_names_the_revision(revision, shown):
    chosen = profile(TRL | {"trainer.model": "acme/tiny", "trainer.revision": revision})
    assert training_outline_lines(Setup(chosen, facts()))[0].value == shown


@pytest.mark.parametrize(
    ("revision", "values", "why"),
    [
        ("v9", {}, "has no revision v9"),
        ("v1", {"trainer.model": "/m"}, "only a model of the Hub"),
        ("v1", {"trainer.preset": "hf-trainer"}, "does not take it"),
        ("v1", {"trainer.kind": "builtin"}, "takes none"),
    ],
)
def test_a_revision_that_cannot_be_taken_is_an_error(hub, revision, values, why):
    chosen = profile(TRL | {"trainer.model": "acme/tiny", "trainer.revision": revision} | values)
    found = [
        one
        for one in findings_of(chosen, probe_profile_facts(chosen))
        if (one.key, one.level) == ("trainer.revision", "error")
    ]
    assert [why in one.message for one in found] == [True]
    assert apply_change(found[0].change, chosen).trainer.revision == ""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "failure"),
    sample([("acme/gated", "gated"), ("acme/none", "missing"), ("acme/tiny", "unreachable"), ("acme/tiny", "full")], 4),
)
def test_each_failure_of_a_download_is_named(tmp_path, hub, monkeypatch, name, failure):
    chosen = loading(tmp_path, name)
    if failure == "unreachable":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    # With a token that the Hub does not take, it can be tried.
    monkeypatch.setenv("HF_TOKEN", "hf_" + "b" * 34)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if failure == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, limits[1]))
    try:
        run_dir = trained(chosen)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    diagnosis = diagnose_run(run_dir)
    expected = {"gated": "hub_auth", "missing": "hub_not_found", "unreachable": "hub_network", "full": "disk_full"}
    assert diagnosis.failure == expected[failure], run_dir.attempt_log(1).read_text()


# ---- the wizard --------------------------------------------------------------------------------------------------


@pytest.mark.whole
async def test_a_model_is_chosen_from_the_cache_or_typed_by_its_id(tmp_path, hub, machine, monkeypatch):
    from textual.events import Key
    from textual.widgets import OptionList

    from tui_train.wizard import make_wizard

    machine(THREE_CARD_MACHINE)
    pause = "tui_train.screens.app.profile_edits.TYPING_PAUSE_SECONDS"
    monkeypatch.setattr(pause, 600.0)
    kept(tmp_path / "hf" / "hub", "acme/kept", model_files(dtype="float32", torch_dtype=None))
    kept(tmp_path / "hf" / "hub", "acme/part", {"config.json": b"{}"})
    app = make_wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        await press_keys("enter")(pilot)
        app.edits.set_profile(profile(TRL))
        await press_keys("enter", "up", "m")(pilot)
        shown = [str(option.prompt).split() for option in app.screen.query_one(OptionList).options]
        assert [(words[0], "fp32" in words, "lacks" in words) for words in shown] == [
            ("acme/kept", True, False),
            ("acme/part", False, True),
        ]
        await press_keys("enter")(pilot)
        assert app.profile.trainer.model == "acme/kept"
        await go_to_fields(pilot, "trainer.model")
        await press_keys("ctrl+u", *"acme/k", "tab")(pilot)
        assert app.profile.trainer.model == "acme/kept"
        await press_keys("ctrl+u")(pilot)
        # What is asked waits until nothing more is typed, here for a time that no machine takes for a key.
        monkeypatch.setattr(pause, 3.0)
        for letter in "acme/tiny":
            app.post_message(Key("slash" if letter == "/" else letter, letter))
        await wait_for_workers(pilot)
        assert app.profile.trainer.model == "acme/tiny"
        for _ in range(100):
            await wait_for_workers(pilot)
            if "acme/tiny" in app.facts.hub_models:
                break
            await pilot.pause(0.1)
        assert {name: model.size > 3 * MIB for name, model in app.facts.hub_models.items()} == {"acme/tiny": True}
        (finding,) = [one for one in app.screen.findings() if one.key == "trainer.model"]
        assert "3 MiB" in finding.message
