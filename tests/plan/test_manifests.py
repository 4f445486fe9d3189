"""A plan as a JobSet, a TrainJob and a SkyPilot task: the schemas take it, and what a pod would run is run here."""

import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace
from support import (
    HOSTILE_VALUES,
    UUIDS,
    boxed,
    facts,
    free_port,
    gpu,
    inside,
    make_executable,
    make_stub,
    plain_environment,
    prepare_without_errors,
    profile,
    run_cli,
    sample,
    stub_calls,
    wait_until,
)

from tui_train.base.command import argv
from tui_train.base.errors import BadInput, TuiTrainError
from tui_train.cli.app import cli
from tui_train.cli.group import run_command_line
from tui_train.plan.render.manifests import MANIFESTS, kubernetes, skypilot, with_cluster_address
from tui_train.plan.render.manifests.cluster import VolumeClaim, plan_for_cluster
from tui_train.plan.run_files import RenderedFile
from tui_train.setup.setup import Setup

SCHEMAS = Path(__file__).parents[1] / "schemas"
PODS = [kind for kind, member in MANIFESTS.items() if member.ACCEPTS_CLAIMS]
DATA = VolumeClaim("data", "/data")
IMAGE = {"container.image": "ghcr.io/acme/train:1"}
TWO = {"nodes.count": 2, "recipe.global_batch": 32}
SECRET = {"trainer.secrets": ("HF_TOKEN",)}
CARDS = [gpu(0), gpu(1)]


def made(kind, values, found=None, claims=None):
    """What a profile becomes for a cluster, with its manifest, and that as data."""
    chosen = with_cluster_address(profile(values), kind)
    found = found or facts()
    default = (DATA,) if MANIFESTS[kind].ACCEPTS_CLAIMS else ()
    asked = default if claims is None else claims
    toolchain = Setup(chosen, found).toolchain
    cluster = plan_for_cluster(
        prepare_without_errors(chosen, found).plan, chosen, claims=asked, paths=found.paths, toolchain=toolchain
    )
    manifest = MANIFESTS[kind].render_manifest(cluster)
    return cluster, manifest, read(manifest.text)


def read(text):
    """The documents of a file, by the faster reader where it is there."""
    return [*yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))]


def validator(found):
    from jsonschema import Draft202012Validator

    return Draft202012Validator(found)


def schema(name):
    return validator(json.loads((SCHEMAS / f"{name}.json").read_text()))


def accept(kind, documents):
    """Hold documents against the schemas; unknown keys are errors."""
    if kind == "skypilot":
        (task,) = documents
        schema("skypilot-task").validate(task)
        schema("skypilot-resources").validate(task.get("resources", {}))
        return
    files, job = documents
    schema("configmap").validate(files)
    schema(kind).validate(job)


def pod_spec(kind, job):
    """What Kubernetes gets of a pod: of a TrainJob the patch of its runtime, with the container of the trainer."""
    jobs = job["spec"]
    if kind == "trainjob":
        (patch,) = jobs["runtimePatches"]
        jobs = patch["trainingRuntimeSpec"]["template"]["spec"]
    spec = jobs["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    if kind == "jobset":
        return spec
    trainer = job["spec"]["trainer"]
    return {**spec, "containers": [{**spec["containers"][0], **trainer, "resources": trainer.get("resourcesPerNode")}]}


def pod(kind, job):
    """The container and the volumes of a pod."""
    spec = pod_spec(kind, job)
    (box,) = spec["containers"]
    return box, spec["volumes"], box["volumeMounts"]


def script(kind, documents):
    """The bash that a machine runs."""
    if kind == "skypilot":
        return documents[0]["run"]
    shell, option, text = pod(kind, documents[1])[0]["command"]
    assert (shell, option) == ("bash", "-c")
    return text


PLANS = {
    "cpu": (IMAGE, None),
    "cards": ({**IMAGE, **SECRET, "name": "Zwei Karten 2"}, facts(gpus=CARDS)),
    "box": (inside(container__shared_memory="16g", container__mounts=("/corpora/zh:/zh:ro",)), boxed(gpus=CARDS)),
    "machines": ({**IMAGE, **TWO, "trainer.launcher": "torchrun"}, facts(gpus=CARDS)),
    "restarted": ({**IMAGE, **TWO, "cluster.restarts": 2, "cluster.user": "1000"}, facts(gpus=CARDS)),
    "accelerate": ({**IMAGE, **TWO, "trainer.launcher": "accelerate"}, facts(gpus=CARDS)),
    "sharded": ({**IMAGE, "trainer.launcher": "accelerate", "trainer.strategy": "fsdp2"}, facts(gpus=CARDS)),
}  # fmt: skip
# Several machines that SkyPilot starts again are refused.
MANIFEST_PLANS = [pair for pair in product(MANIFESTS, PLANS) if pair != ("skypilot", "restarted")]


def test_the_command_line_knows_all_of_them():
    (option,) = [option for option in cli.commands["export"].params if option.name == "kind"]
    assert list(option.type.choices) == [*MANIFESTS]
    assert len({member.FILE_NAME for member in MANIFESTS.values()}) == len(MANIFESTS)


@pytest.mark.parametrize(("kind", "name"), sample(MANIFEST_PLANS, 5))
def test_the_schemas_take_every_manifest(kind, name):
    cluster, manifest, documents = made(kind, *PLANS[name])
    accept(kind, documents)
    whole = "".join(file.text for file in cluster.files if file.path != "profile.toml") + manifest.text
    assert not [uuid for uuid in UUIDS if uuid in whole], "the cluster chooses the cards"
    assert cluster.gpus == (0 if name == "cpu" else 2)
    assert not re.search(r"docker\s+run|docker$", cluster.files[0].text, re.MULTILINE), "the pod is the container"
    head = re.sub(r"\n#\s+", " ", manifest.text.partition("\napi")[0])
    assert all(re.sub(r"\s+", " ", line) in re.sub(r"\s+", " ", head) for line in manifest.notes)


@pytest.mark.skipif(
    "TUI_TRAIN_TEST_CRDS" not in os.environ,
    reason="NOT TESTED: the definitions of a cluster, for which TUI_TRAIN_TEST_CRDS names a folder",
)
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("kind", PODS)
def test_the_definitions_of_a_cluster_take_every_manifest(kind, name):
    definition = yaml.safe_load(Path(os.environ["TUI_TRAIN_TEST_CRDS"], f"{kind}.yaml").read_text())
    job = made(kind, *PLANS[name])[2][1]
    version = job["apiVersion"].rpartition("/")[2]
    (found,) = [item["schema"] for item in definition["spec"]["versions"] if item["name"] == version]
    validator(pruned(found["openAPIV3Schema"])).validate(job)


def pruned(value):
    """A definition's schema, which refuses what the API server would drop."""
    if isinstance(value, list):
        return [pruned(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    same = {key: pruned(item) for key, item in value.items()}
    if isinstance(value.get("properties"), dict):
        same["additionalProperties"] = False
    return same


@pytest.mark.parametrize("kind", PODS)
def test_what_a_pod_is_given(kind):
    cluster, _, (files, job) = made(kind, {**PLANS["box"][0], **SECRET}, PLANS["box"][1])
    box, volumes, mounts = pod(kind, job)
    assert box["image"] == "nemo:25.04"
    assert box["resources"] == {each: {"nvidia.com/gpu": "2"} for each in ("requests", "limits")}
    at = {mount["mountPath"]: mount for mount in mounts}
    by_name = {volume.pop("name"): volume for volume in volumes}
    assert by_name[at["/dev/shm"]["name"]] == {"emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}  # noqa: S108
    assert by_name[at["/data"]["name"]] == {"persistentVolumeClaim": {"claimName": "data"}}
    assert "hostPath" not in str(job), "PodSecurity refuses it"
    (secret,) = [item for item in box["env"] if item["name"] == "HF_TOKEN"]
    assert secret["valueFrom"] == {"secretKeyRef": {"name": f"{cluster.name}-secrets", "key": "HF_TOKEN"}}
    items = by_name[at["/tui-train/files"]["name"]]["configMap"]["items"]
    data = config_data(files)
    assert {item["path"]: data[item["key"]] for item in items} == {file.path: file.content for file in cluster.files}


def config_data(config):
    """The bytes of a ConfigMap by their keys."""
    binary = {key: base64.b64decode(text) for key, text in config["binaryData"].items()}
    return {key: text.encode() for key, text in config["data"].items()} | binary


@pytest.mark.parametrize("kind", PODS)
def test_a_mount_is_of_the_disk_of_the_node_where_that_is_chosen(kind):
    values = {**PLANS["box"][0], "cluster.host_paths": True}
    _, volumes, mounts = pod(kind, made(kind, values, PLANS["box"][1])[2][1])
    (mounted,) = [mount for mount in mounts if mount["mountPath"] == "/zh"]
    assert mounted["readOnly"]
    assert {"name": mounted["name"], "hostPath": {"path": "/corpora/zh"}} in volumes


def test_what_lies_in_a_claim_is_not_taken_from_the_node():
    values = {
        **IMAGE,
        "cluster.host_paths": True,
        "trainer.output": "/data/out",
        "trainer.data": ("/data/a.txt", "/elsewhere/b.txt"),
    }
    found = facts(paths={"/data/a.txt": "file", "/elsewhere/b.txt": "file"})
    _, manifest, (_, job) = made("jobset", values, found)
    hosts = [volume["hostPath"] for volume in pod("jobset", job)[1] if "hostPath" in volume]
    assert hosts == [{"path": "/elsewhere/b.txt", "type": "File"}]
    assert any("/elsewhere/b.txt" in line for line in manifest.notes)
    alone = pod("jobset", made("jobset", values, found, ())[2][1])[1]
    kinds = {volume["hostPath"]["path"]: volume["hostPath"]["type"] for volume in alone if "hostPath" in volume}
    assert kinds == {"/data/out": "DirectoryOrCreate", "/data/a.txt": "File", "/elsewhere/b.txt": "File"}


def test_a_task_for_skypilot():
    values = {**PLANS["machines"][0], **SECRET, "trainer.data": ("/corpora/a.txt",)}
    (task,) = made("skypilot", values, facts(gpus=CARDS, paths={"/corpora/a.txt": "file"}))[2]
    assert (task["num_nodes"], task["workdir"], task["secrets"]) == (2, ".", {"HF_TOKEN": None})
    assert task["resources"] == {"accelerators": {"RTX3090": 2}, "image_id": "docker:ghcr.io/acme/train:1"}
    assert task["file_mounts"] == {"/corpora/a.txt": "/corpora/a.txt"}
    (bare,) = made("skypilot", {}, facts(torch="2.13.0+cu128"))[2]
    accept("skypilot", [bare])
    assert "torch==2.13.0" in bare["setup"]
    assert "resources" not in bare


def test_a_version_that_a_python_tells_stays_a_word_in_the_setup_of_skypilot():
    told = "1.0' ; touch /tmp/made; '"
    (task,) = made("skypilot", {}, facts(accelerate=told))[2]
    assert f"accelerate=={told}" in shlex.split(task["setup"].splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000-Ada"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA GeForce GTX 1080 Ti", "GTX1080-Ti"),
    ],
)
def test_gpus_as_skypilot_names_them(name, named):
    assert skypilot.accelerator_name(name) == named


MIG = gpu(0, "MIG-41b3359c-e721-56e5-8009-12e5797ed514")


@pytest.mark.parametrize("kind", PODS)
@pytest.mark.parametrize(
    ("values", "found", "claims", "said"),
    [
        ({}, None, None, "no image is named"),
        (IMAGE, None, (), "is lost with its pod"),
        ({**IMAGE, "trainer.output": "/out"}, None, None, "on no claim"),
        ({**IMAGE, "cluster.memory": "64GB"}, None, None, "no quantity"),
        ({**IMAGE, "cluster.disk": "lots"}, None, None, "no quantity"),
        ({**IMAGE, "cluster.resources": ("rdma=1",)}, None, None, "no extended resource"),
        ({**IMAGE, "cluster.resources": ("rdma/hca=0",)}, None, None, "no extended resource"),
        ({**IMAGE, "cluster.resources": ("nvidia.com/gpu=2",)}, facts(gpus=CARDS), None, "no extended resource"),
        ({**IMAGE, "cluster.node_labels": ("gpu",)}, None, None, "is not KEY=VALUE"),
        ({**IMAGE, "cluster.tolerations": ("gpu:Never",)}, None, None, "names no taint"),
        ({**IMAGE, "cluster.tolerations": ("=x",)}, None, None, "names no taint"),
        ({**IMAGE, "cluster.pull_secrets": ("Secret 1",)}, None, None, "not the name of a Secret"),
        ({**IMAGE, "cluster.queue": "team_a"}, None, None, "not the name of a queue"),
        ({**IMAGE, "cluster.user": "root"}, None, None, "is no user"),
        (IMAGE, None, (VolumeClaim("Data", "/data"),), "not one of a PersistentVolumeClaim"),
        (IMAGE, None, (VolumeClaim("data", "/"),), "no folder that a pod can mount"),
        (IMAGE, None, (VolumeClaim("data", "/a/../b"),), "no folder that a pod can mount"),
        (IMAGE, None, (VolumeClaim("data", "/cache/x"),), "pods have that folder"),
        (IMAGE, None, (DATA, VolumeClaim("more", "/data/")), "given twice"),
        ({"container.image": "a b"}, None, None, "not a valid image name"),
        (inside("apptainer", "/i.sif"), boxed("apptainer", "/i.sif"), None, "cannot pull"),
        ({**IMAGE, "hardware.gpus": (MIG.uuid,)}, facts(gpus=[MIG]), None, "a part of a GPU"),
    ],
)
def test_what_no_pod_can_do_is_refused(kind, values, found, claims, said):
    with pytest.raises(BadInput) as refused:
        made(kind, values, found, claims)
    assert said in refused.value.message
    assert refused.value.remedy


EVERY_OPTION = {
    "cluster.cpus": 16, "cluster.memory": "64Gi", "cluster.disk": "100Gi", "cluster.resources": ("rdma/hca=1",),
    "cluster.node_labels": ("nvidia.com/gpu.product=A100",), "cluster.pull_secrets": ("ghcr", "nvcr"),
    "cluster.tolerations": ("nvidia.com/gpu", "team=a:NoSchedule"), "cluster.queue": "team-a",
    "cluster.user": "1000:50", "cluster.restarts": 3, "cluster.ttl": 3600, "cluster.spot": True, "cluster.autostop": 30,
}  # fmt: skip


@pytest.mark.parametrize("kind", PODS)
def test_a_pod_with_every_option(kind):
    _, manifest, documents = made(kind, {**IMAGE, **EVERY_OPTION}, facts(gpus=CARDS))
    accept(kind, documents)
    job = documents[1]
    spec = pod_spec(kind, job)
    (box,) = spec["containers"]
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}
    amounts = {
        "cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "2", "rdma/hca": "1",
    }  # fmt: skip
    assert box["resources"] == {"requests": amounts, "limits": amounts}, "a quota wants both of each container"
    assert not spec.get("initContainers")
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "A100"}
    assert spec["imagePullSecrets"] == [{"name": "ghcr"}, {"name": "nvcr"}]
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
    ]
    unused = "cluster.spot, cluster.autostop" if kind == "jobset" else "cluster.restarts, cluster.ttl, cluster.spot"
    assert any(note.startswith("Not used by") and unused in note for note in manifest.notes)
    if kind == "jobset":
        assert job["spec"]["failurePolicy"] == {"maxRestarts": 3}
        assert job["spec"]["ttlSecondsAfterFinished"] == 3600


def why_refused(kind, job, level):
    """What PodSecurity refuses of a pod, by the fields of its standards that we could set."""
    spec = pod_spec(kind, job)
    (box,) = spec["containers"]
    of_pod, of_box = spec["securityContext"], box["securityContext"]
    allowed = {"volumes": {"configMap", "emptyDir", "persistentVolumeClaim"}}
    found = {"volumes": {key for volume in spec["volumes"] for key in volume} - {"name"} - allowed["volumes"]}
    # None that we might add is on the list of baseline.
    found["capabilities"] = of_box.get("capabilities", {}).get("add", [])
    if level == "restricted":
        found["root"] = not of_pod.get("runAsNonRoot") or not of_pod["runAsUser"]
        found["escalation"] = of_box["allowPrivilegeEscalation"]
        found["all dropped"] = of_box.get("capabilities", {}).get("drop") != ["ALL"]
        found["seccomp"] = of_pod["seccompProfile"] != {"type": "RuntimeDefault"}
    return {name for name, what in found.items() if what}


@pytest.mark.parametrize("kind", PODS)
@pytest.mark.parametrize(
    ("options", "baseline", "restricted"),
    [
        ({}, set(), {"root", "all dropped"}),
        ({"cluster.user": "1000"}, set(), set()),
        ({"cluster.user": "0"}, set(), {"root", "all dropped"}),
        ({"cluster.ipc_lock": True}, {"capabilities"}, {"capabilities", "root", "all dropped"}),
        ({"cluster.host_paths": True}, {"volumes"}, {"volumes", "root", "all dropped"}),
    ],
)
def test_what_pod_security_takes(kind, options, baseline, restricted):
    values = {**IMAGE, "trainer.data": ("/corpora/a.txt",), **options}
    _, manifest, documents = made(kind, values, facts(paths={"/corpora/a.txt": "file"}))
    accept(kind, documents)
    assert why_refused(kind, documents[1], "baseline") == baseline
    assert why_refused(kind, documents[1], "restricted") == restricted
    notes = " ".join(manifest.notes)
    assert ("`baseline` refuses" in notes) == bool(baseline)
    assert ("cluster.user" in notes) == ("root" in restricted)
    assert "cluster.cpus and cluster.memory" in notes, "for a quota"


def test_pods_that_start_again_say_from_where():
    def notes(values, claims=None):
        return " ".join(made("jobset", {**IMAGE, "cluster.restarts": 2, **values}, facts(gpus=CARDS), claims)[1].notes)

    assert "up to 2 times" in notes({})
    assert "resumes from its newest checkpoint" in notes({})
    elsewhere = {"trainer.output": "/out", "cluster.host_paths": True}
    assert "its output folder is on no claim" in notes(elsewhere)
    assert "TUI_TRAIN_RESUME" in notes({**elsewhere, **TWO})
    assert "TUI_TRAIN_RESUME" not in notes(TWO)
    _, _, (_, job) = made("jobset", IMAGE)
    assert job["spec"]["failurePolicy"] == {"maxRestarts": 0}

    def tells_to_resume(values):
        documents = made("jobset", {**IMAGE, **values}, facts(gpus=CARDS))[2]
        return "export TUI_TRAIN_RESUME" in script("jobset", documents)

    assert tells_to_resume(TWO)
    assert not tells_to_resume({}), "one machine resumes by itself"
    assert not tells_to_resume({**TWO, **elsewhere}), "each would see checkpoints of its own"


def test_a_managed_job_of_skypilot():
    _, manifest, (task,) = made("skypilot", {**IMAGE, **EVERY_OPTION}, facts(gpus=CARDS))
    accept("skypilot", [task])
    asked = task["resources"]
    assert (asked["use_spot"], asked["cpus"], asked["memory"]) == (True, "16+", "64+")
    assert (asked["job_recovery"], asked["autostop"]) == ({"max_restarts_on_errors": 3}, {"idle_minutes": 30})
    notes = " ".join(manifest.notes)
    assert "sky jobs launch -n" in notes
    assert "bucket" in notes
    assert "cluster.queue" in notes
    assert "TUI_TRAIN_RESUME" not in notes
    for option in ({"cluster.spot": True}, {"cluster.restarts": 2}):
        with pytest.raises(BadInput, match="several machines that SkyPilot starts again do not resume by themselves"):
            made("skypilot", {**IMAGE, **TWO, **option}, facts(gpus=CARDS))
    plain = made("skypilot", {**IMAGE, "cluster.autostop": 30}, facts(gpus=CARDS))
    assert "sky launch -c" in " ".join(plain[1].notes)
    assert not {"use_spot", "job_recovery", "cpus"} & {*plain[2][0]["resources"]}
    with pytest.raises(BadInput, match="whole Gi"):
        made("skypilot", {**IMAGE, "cluster.memory": "500Mi"})


def test_files_that_no_config_map_holds_are_refused():
    cluster = made("jobset", IMAGE)[0]
    big = RenderedFile("big.txt", "x" * kubernetes.MAX_CONFIG_MAP_BYTES)
    with pytest.raises(BadInput, match="a ConfigMap holds"):
        MANIFESTS["jobset"].render_manifest(replace(cluster, files=(*cluster.files, big)))


def test_another_plan_has_another_run_folder():
    first, again = made("jobset", IMAGE)[0], made("jobset", IMAGE)[0]
    other = made("jobset", {**IMAGE, "recipe.steps": 7})[0]
    assert first.run_name == again.run_name != other.run_name
    assert made("jobset", {**IMAGE, "cluster.memory": "64Gi"})[0].run_name == first.run_name
    assert first.name == other.name


@pytest.mark.parametrize(("kind", "text"), sample(product(MANIFESTS, HOSTILE_VALUES), 11))
def test_hostile_names_stay_text(kind, text):
    values = {**IMAGE, "name": text or "x", "trainer.environment": {"A": text}}
    _, manifest, documents = made(kind, values)
    accept(kind, documents)
    name = documents[-1]["name"] if kind == "skypilot" else documents[-1]["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", name)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", "".join(manifest.notes))


@pytest.mark.parametrize("name", sample(PLANS, 3))
def test_what_machines_run_is_clean(tmp_path, name):
    for kind in (kind for kind, plan in MANIFEST_PLANS if plan == name):
        (tmp_path / f"{kind}.sh").write_text("#!/usr/bin/env bash\n" + script(kind, made(kind, *PLANS[name])[2]))
    tool = Path(sys.executable).with_name("shellcheck")
    scripts = sorted(tmp_path.glob("*.sh"))
    # SC2088: SkyPilot's own ~ is of the machine there; SC2154, SC1090: variables and files of the cluster.
    checked = subprocess.run([tool, "--norc", *scripts], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout[:3000]


# ---- what a pod would run, run here


def machine(folder, kind, values, found=None):
    """The words and the folder of a machine of the cluster, laid out as Kubernetes or SkyPilot does."""
    claim = folder / "claim"
    claims = (VolumeClaim("data", str(claim)),) if MANIFESTS[kind].ACCEPTS_CLAIMS else ()
    cluster, _, documents = made(kind, values, found, claims)
    if kind == "skypilot":
        work = folder / "sky_workdir"
        for file in cluster.files:
            (work / file.path).parent.mkdir(parents=True, exist_ok=True)
            (work / file.path).write_bytes(file.content)
        return cluster, ["bash", "-c", script(kind, documents)], work, work
    config, job = documents
    box, volumes, _ = pod(kind, job)
    files, hidden = folder / "files", folder / "files" / "..2026_11_23"
    (items,) = [volume["configMap"]["items"] for volume in volumes if "configMap" in volume]
    for item in items:
        (hidden / item["path"]).parent.mkdir(parents=True, exist_ok=True)
        (hidden / item["path"]).write_bytes(config_data(config)[item["key"]])
    (files / "..data").symlink_to(hidden.name)
    for top in hidden.iterdir():
        (files / top.name).symlink_to(f"..data/{top.name}")
    words = [word.replace(kubernetes.POD_FILES_FOLDER, str(files)) for word in box["command"]]
    return cluster, words, folder, claim / "tui-train" / cluster.run_name


def there(kind, rank, address="127.0.0.1"):
    """The variables that a cluster sets on one of its machines."""
    return {
        "jobset": {"JOB_COMPLETION_INDEX": str(rank), "TUI_TRAIN_ADDRESS": address},
        "trainjob": {"PET_NODE_RANK": str(rank), "PET_NNODES": "2", "TUI_TRAIN_ADDRESS": address},
        "skypilot": {"SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NODE_IPS": f"{address}\n10.0.0.9"},
    }[kind]


@pytest.mark.whole
@pytest.mark.parametrize(("kind", "name"), sample(product(MANIFESTS, ["cards", "box", "machines", "accelerate"]), 5))
def test_a_machine_starts_what_the_plan_says(tmp_path, kind, name):
    """Without the container of this machine, without its cards, with the address and the rank that it has there."""
    values, found = PLANS[name]
    cluster, words, work, run = machine(tmp_path.resolve(), kind, values, found)
    environment = plain_environment(STUB_NOTES=str(tmp_path / "notes"), **there(kind, 1))
    environment |= dict.fromkeys(cluster.secret_variables, "x")
    environment["TUI_TRAIN_PYTHON"] = str(python_that_notes(tmp_path / "python"))
    done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    note = stub_calls(tmp_path / "notes")[-1]
    assert note["argv"][1:] == argv(cluster.plan.attempts[0].command, str(run), "", 1, "127.0.0.1")[1:]
    assert note["env"]["PYTHONPATH"] == f"{run}/shim"
    assert "CUDA_VISIBLE_DEVICES" not in note["env"]
    assert not [variable for variable in note["env"] if variable.startswith("PET_")]
    assert note["cwd"] == str(run)
    assert not [*run.parent.glob(".new.*")]


def python_that_notes(path):
    """A Python that notes how a training was started, and runs everything else."""
    noting = make_stub(path.with_name("noting"))
    case = f'case $1 in -I | -c) exec {sys.executable} "$@" ;; *) exec {noting} "$@" ;; esac'
    return make_executable(path, f"#!/bin/sh\n{case}\n")


TINY = {
    **IMAGE, "recipe.layers": 1, "recipe.hidden_size": 32, "recipe.heads": 2, "recipe.sequence_length": 32,
    "recipe.micro_batch": 4, "recipe.global_batch": 8, "recipe.checkpoint_every": 4, "ladder.rungs": ("micro_batch",),
}  # fmt: skip


@pytest.mark.training
@pytest.mark.parametrize(
    ("kind", "launcher"),
    sample([("jobset", "torchrun"), ("trainjob", "accelerate"), ("skypilot", "torchrun")], 3, 1),
)
def test_two_machines_train_together(tmp_path, warm_python, kind, launcher):
    values = {**TINY, "nodes.count": 2, "nodes.port": free_port(), "recipe.steps": 12, "trainer.launcher": launcher}
    cluster, words, work, run = machine(tmp_path.resolve(), kind, values, facts(python=warm_python))
    works = [work, work]
    if kind == "skypilot":  # each machine has a copy of its own
        shutil.copytree(work, tmp_path / "second")
        works[1] = tmp_path.resolve() / "second"
    both = [
        subprocess.Popen(
            words, cwd=works[rank], env=plain_environment(TUI_TRAIN_PYTHON=warm_python, **there(kind, rank)),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    said = [process.communicate(timeout=240)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "rank 0/2" in said[0]
    assert "rank 1/2" in said[1]
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", said[0])]
    assert len(losses) == 12
    assert losses[-1] < losses[0]
    assert (run / "output" / "checkpoint-12").is_dir()
    own = works[1] if kind == "skypilot" else run
    assert (own / "node-1" / "events.jsonl").is_file()
    assert cluster.plan.nodes == 2


@pytest.mark.whole
@pytest.mark.training
def test_a_pod_that_is_stopped_saves_and_its_next_one_goes_on(tmp_path, warm_python):
    values = {**TINY, "recipe.steps": 100000, "recipe.checkpoint_every": 100000}
    _, words, work, run = machine(tmp_path.resolve(), "jobset", values, facts(python=warm_python))
    environment = plain_environment(TUI_TRAIN_PYTHON=warm_python)

    def stopped(number):
        with subprocess.Popen(
            words, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as first:
            wait_until(lambda: "'loss'" in (run / f"attempt-{number}.log").read_text(), 120)
            first.send_signal(signal.SIGTERM)
            said = first.communicate(timeout=120)[0]
        return first.returncode, said

    code, said = stopped(1)
    assert code == 143, said
    (saved,) = (run / "output").glob("checkpoint-*")
    code, said = stopped(2)
    assert code == 143, said
    assert saved.name in said
    assert len([*(run / "output").glob("checkpoint-*")]) == 2


@pytest.mark.whole
def test_pods_resume_together_only_what_they_trained(tmp_path):
    """What another plan left in the output folder is trained on only where the user says so."""
    output = tmp_path.resolve() / "claim" / "output"
    values = {**IMAGE, **TWO, "trainer.output": str(output)}
    _, words, work, _ = machine(tmp_path.resolve(), "jobset", values, facts(gpus=CARDS))
    (output / "checkpoint-7").mkdir(parents=True)
    for name in ("trainer_state.json", "model.safetensors", "optimizer.pt"):
        (output / "checkpoint-7" / name).write_text("{}")
    environment = plain_environment(STUB_NOTES=str(tmp_path / "notes"), **there("jobset", 1))
    environment["TUI_TRAIN_PYTHON"] = str(python_that_notes(tmp_path / "python"))

    def trained(**variables):
        return subprocess.run(
            words, cwd=work, env={**environment, **variables}, capture_output=True, text=True, timeout=60, check=False
        )

    for _ in range(2):
        refused = trained()
        assert (refused.returncode, "there is a checkpoint at" in refused.stderr) == (64, True), refused.stderr
    assert trained(TUI_TRAIN_RESUME="1").returncode == 0
    assert trained().returncode == 0, "this plan has trained on it"
    assert "checkpoint-7" in " ".join(stub_calls(tmp_path / "notes")[-1]["argv"])


@pytest.mark.whole
def test_the_first_pod_writes_the_run_folder_once(tmp_path):
    """Two that come at once, and one whose files are there already."""
    _, words, work, run = machine(tmp_path.resolve(), "jobset", IMAGE)
    environment = plain_environment(STUB_NOTES=str(tmp_path / "notes"))
    environment["TUI_TRAIN_PYTHON"] = str(python_that_notes(tmp_path / "python"))
    both = [subprocess.Popen(words, cwd=work, env=environment, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert sorted(process.wait(60) for process in both) in ([0, 0], [0, 75])
    assert {path.name for path in run.parent.iterdir()} == {run.name}
    kept = (run / "launch.sh").stat()
    assert subprocess.run(words, cwd=work, env=environment, check=False, stderr=subprocess.DEVNULL).returncode == 0
    assert (run / "launch.sh").stat().st_ino == kept.st_ino


@pytest.mark.parametrize("kind", PODS)
@pytest.mark.whole
def test_a_pod_waits_until_the_first_one_has_its_name(tmp_path, kind):
    cluster, words, work, run = machine(tmp_path.resolve(), kind, PLANS["machines"][0], facts(gpus=CARDS))
    environment = plain_environment(STUB_NOTES=str(tmp_path / "notes"), **there(kind, 1))
    python, asked = python_that_notes(tmp_path / "python"), tmp_path / "asked"
    first = f"[ $1 != -c ] || [ -e {asked} ] || {{ echo >> {asked}; exit 1; }}"
    slow = make_executable(tmp_path / "slow", f'#!/bin/sh\n{first}\nexec {python} "$@"\n')
    environment["TUI_TRAIN_PYTHON"] = str(slow)
    done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("waiting for the name") == 1
    assert (run / "node-1" / "events.jsonl").is_file()
    assert cluster.plan.address.endswith(f"-0-0.{cluster.name}")


def test_what_comes_from_this_machine_is_said():
    values = {**IMAGE, "notify.webhook": "$HOOK"}
    assert any("OMP_NUM_THREADS=2" in line for line in made("skypilot", values)[1].notes)
    assert made("jobset", values)[0].secret_variables == ("HOOK",)


@pytest.mark.parametrize("webhook", ["https://example.org/hook", "/home/me/hook"])
def test_a_webhook_in_a_file_here_is_refused_for_a_cluster(webhook):
    with pytest.raises(BadInput, match="a file of this machine"):
        made("jobset", {**IMAGE, "notify.webhook": webhook})


# ---- the command


def test_the_command_writes_the_manifest_beside_the_script(tmp_path):
    chosen = ("--set", "container.image=ghcr.io/acme/train:1", "--set", "hardware.device=cpu")
    done = run_cli("export", "quickstart", tmp_path / "run", "--for", "jobset", "--claim", "data:/data", *chosen)
    accept("jobset", read((tmp_path / "run" / "jobset.yaml").read_text()))
    assert (tmp_path / "run" / "launch.sh").is_file()
    assert "--server-side" in done.stdout
    assert "container.image" not in done.stderr
    assert "cluster.toml" not in done.stdout


def test_the_command_names_what_it_took_from_a_site(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "etc"))
    (tmp_path / "etc" / "tui-train").mkdir(parents=True)
    (tmp_path / "etc" / "tui-train" / "cluster.toml").write_text('[cluster]\nqueue = "team-a"\nrestarts = 2\n')
    chosen = ("--set", "container.image=ghcr.io/acme/train:1", "--set", "hardware.device=cpu")
    done = run_cli("export", "quickstart", tmp_path / "run", "--for", "jobset", "--claim", "data:/data", *chosen)
    assert "Defaults of cluster.toml: cluster.queue, cluster.restarts\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--claim", "data:/data"), 64, "--claim needs --for"),
        (("--for", "skypilot", "--claim", "data:/data"), 65, "has no PersistentVolumeClaims"),
        (("--for", "jobset", "--claim", "data"), 65, "is not CLAIM:/FOLDER"),
        (("--for", "podman"), 64, "'podman' is not one of"),
    ],
)
def test_the_command_refuses(tmp_path, capsys, words, code, said):
    try:
        ended = run_command_line(
            ["export", "quickstart", str(tmp_path / "run"), *words, "--set", "hardware.device=cpu"]
        )
        told = capsys.readouterr().err
    except TuiTrainError as error:
        ended, told = error.exit_code, f"{error.message}. {error.remedy}"
    assert (ended, said in told) == (code, True), told
    assert not (tmp_path / "run").exists()
