"""Common parts of JobSet and TrainJob: ConfigMap, volumes, variables, the pod's command."""

import base64
import re
from collections.abc import Sequence
from typing import Any

from tui_train.base.errors import BadInput
from tui_train.base.text import size_text, visible
from tui_train.plan.render.manifests.cluster import (
    OWN_FOLDER_LINE,
    ClusterPlan,
    RenderedManifest,
    VolumeClaim,
    is_within,
    machine_run_script,
)
from tui_train.plan.render.manifests.pod_options import pod_option_notes
from tui_train.plan.render.manifests.text import manifest_text
from tui_train.plan.render.quoting import quoted_word
from tui_train.plan.run_files import RenderedFile
from tui_train.profile.types import Container
from tui_train.runner.run_folder.lock_owner import LOCK_LEASE_SECONDS
from tui_train.setup.machine import container

POD_FILES_FOLDER = "/tui-train/files"
# Those of ClusterOptions that every pod can have.
POD_OPTION_NAMES = frozenset({
    "cpus", "memory", "disk", "resources", "node_labels", "tolerations", "pull_secrets", "queue", "user", "ipc_lock",
    "host_paths",
})  # fmt: skip
_POD_RUNS_FOLDER = "/tui-train/runs"
# Bytes: the limit of the API server for all values of a ConfigMap.
MAX_CONFIG_MAP_BYTES = 1 << 20
_CLAIM_NAME_PATTERN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_RESERVED_POD_FOLDERS = ("/tui-train", container.CONTAINER_CACHE_FOLDER, "/dev", "/proc", "/sys")
_KEEP_OUTPUT_REMEDY = (
    "Name a volume: --claim CLAIM:/FOLDER, and an output folder on it (trainer.output). "
    "Or take it from the disk of the node: --set cluster.host_paths=yes."
)
_SECONDS_FOR_SUPERVISOR_TO_END = 15
_MEMORY_SIZE_PATTERN = re.compile(r"(\d+)([bkmg]?)(i?b)?", re.IGNORECASE | re.ASCII)
_HOST_PATH_TYPE_BY_KIND = {"file": "File", "folder": "Directory"}
_COPY_RUN_FOLDER_SCRIPT = """\
set -u
trap 'exit 143' TERM INT # the first process of a pod has no default for signals
files={files} run={run} rank={rank}
if [ ! -e "$run/launch.sh" ]; then # of pods that share the volume, the first one writes the folder, whole
  mkdir -p "${{run%/*}}" && new=$(mktemp -d "${{run%/*}}/.new.XXXXXX") || exit 73
  chmod 755 "$new" && cp -RL "$files"/* "$new" || exit 73
  mv -T "$new" "$run" 2> /dev/null || rm -rf "$new"
  [ -e "$run/launch.sh" ] || exit 73
fi
"""
_WAIT_FOR_FIRST_POD_SCRIPT = """\
first=${{TUI_TRAIN_ADDRESS:-{address}}} said=''
known='import socket, sys; socket.getaddrinfo(sys.argv[1], None)'
until "${{TUI_TRAIN_PYTHON:-python}}" -c "$known" "$first" 2> /dev/null; do
  [ -n "$said" ] || echo "waiting for the name of the first pod, $first"
  said=yes
  sleep 2
done
"""
# A pod that was killed leaves its lock, which nobody renews.
_WAIT_FOR_LOCK_SCRIPT = """\
for ((waited = 0; waited < {lease}; waited += 5)); do
  touched=$(stat -c %Y "$own/.lock/owner" 2> /dev/null) || break
  [ $(($(date +%s) - touched)) -lt {lease} ] || break
  sleep 5
done
"""
# All look before any of them trains: none does until all are there. Whether to train on what another plan left in the
# output folder is for the user to say.
_RESUME_TOGETHER_SCRIPT = """\
if [ -e "$own/events.jsonl" ] &&
  [ -n "$("${TUI_TRAIN_PYTHON:-python}" -I -S -X utf8 "$run/runner.pyz" checkpoint all 2> /dev/null)" ]; then
  export TUI_TRAIN_RESUME=${TUI_TRAIN_RESUME-1}
fi
"""
_UNSET_PET_VARIABLES_SCRIPT = 'unset "${!PET_@}" # launch.sh says all of it itself\n'


def refuse_plan_unfit_for_pods(cluster: ClusterPlan) -> None:
    """Refuse what cannot become pods."""
    if not cluster.image:
        message = "no image is named, and a pod has no other place for Python and its libraries"
        raise BadInput(message, "Name one: --set container.image=NAME:TAG.")
    for claim in cluster.claims:
        _refuse_invalid_claim(claim, cluster.claims)
    total = sum(len(file.content) for file in cluster.files)
    if total > MAX_CONFIG_MAP_BYTES:
        limit = size_text(MAX_CONFIG_MAP_BYTES)
        message = f"the files of the run take {size_text(total)}, and a ConfigMap holds {limit}"
        raise BadInput(message, "Export without --for to a folder of a volume that the pods mount.")
    if not cluster.claims and not cluster.outputs:
        message = "the output folder lies in the run folder, which is lost with its pod"
        raise BadInput(message, _KEEP_OUTPUT_REMEDY)
    mounted = {mount.host for mount in cluster.mounts}
    lost = [output for output in cluster.outputs if output in mounted and not cluster.options.host_paths]
    if lost:
        raise BadInput(
            f"the output folder {visible(lost[0])} is on no claim, and lost with its pod", _KEEP_OUTPUT_REMEDY
        )


def _refuse_invalid_claim(claim: VolumeClaim, claims: Sequence[VolumeClaim]) -> None:
    shown = f"--claim {visible(claim.name)}:{visible(claim.folder)}"
    if not _CLAIM_NAME_PATTERN.fullmatch(claim.name):
        raise BadInput(f"{shown}: the name is not one of a PersistentVolumeClaim", "See `kubectl get pvc`.")
    folder = claim.folder.rstrip("/")
    if not folder or ":" in folder or not folder.isprintable() or ".." in folder.split("/"):
        raise BadInput(f"{shown}: this is no folder that a pod can mount", "Write CLAIM:/FOLDER, such as data:/data.")
    if any(is_within(folder, own) for own in _RESERVED_POD_FOLDERS):
        raise BadInput(f"{shown}: pods have that folder for something else", "Name another, such as /data.")
    if sum(other.folder.rstrip("/") == folder for other in claims) > 1:
        raise BadInput(f"{shown}: that folder is given twice", "Give each claim a folder of its own.")


def pod_run_folder(cluster: ClusterPlan) -> str:
    """Return where pods have the run folder: on the first claim, or else in the pod itself."""
    claims = cluster.claims
    above = f"{claims[0].folder.rstrip('/')}/tui-train" if claims else _POD_RUNS_FOLDER
    return f"{above}/{cluster.run_name}"


def pod_command(cluster: ClusterPlan, rank_variable: str) -> list[str]:
    """Return what a pod runs; `rank_variable` is the variable with the number of the pod."""
    several = cluster.plan.nodes > 1
    script = _COPY_RUN_FOLDER_SCRIPT.format(
        files=POD_FILES_FOLDER, run=quoted_word(pod_run_folder(cluster)), rank=f"${rank_variable}" if several else "0"
    )
    script += OWN_FOLDER_LINE
    script += _WAIT_FOR_FIRST_POD_SCRIPT.format(address=cluster.plan.address) if several else ""
    script += _WAIT_FOR_LOCK_SCRIPT.format(lease=int(LOCK_LEASE_SECONDS)) if cluster.options.restarts else ""
    script += _RESUME_TOGETHER_SCRIPT if several and resumes_together(cluster) else ""
    return ["bash", "-c", script + _UNSET_PET_VARIABLES_SCRIPT + machine_run_script(cluster)]


def resumes_together(cluster: ClusterPlan) -> bool:
    """Return whether pods that start again are told to resume: all see the checkpoints, which the trainer loads."""
    return cluster.outputs_are_kept and cluster.can_resume and not cluster.plan.resumes_itself


def pod_variables(cluster: ClusterPlan) -> list[dict[str, Any]]:
    """Return the variables of a container: the home and the caches, and the secrets by name."""
    settings = container.container_variables(Container(engine="docker"))
    plain: list[dict[str, Any]] = [{"name": setting.name, "value": setting.value} for setting in settings]
    secret = secret_name(cluster)
    return plain + [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}
        for name in cluster.secret_variables
    ]


def secret_name(cluster: ClusterPlan) -> str:
    """Return the name of the Secret that the user makes."""
    return f"{cluster.name}-secrets"


def pod_volumes_and_mounts(cluster: ClusterPlan) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes of a pod, and where its container has them."""
    limit = _kubernetes_size_text(cluster.shared_memory)
    memory = {"medium": "Memory"} | ({"sizeLimit": limit} if limit else {})
    items = [{"key": key, "path": file.path} for key, file in _file_by_config_map_key(cluster).items()]
    rows: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("shared-memory", {"emptyDir": memory}, {"mountPath": "/dev/shm"}),  # noqa: S108
        (
            "files",
            {"configMap": {"name": f"{cluster.name}-files", "items": items}},
            {"mountPath": POD_FILES_FOLDER, "readOnly": True},
        ),
        ("cache", {"emptyDir": {}}, {"mountPath": container.CONTAINER_CACHE_FOLDER}),
    ]
    if not cluster.claims:
        rows.append(("runs", {"emptyDir": {}}, {"mountPath": _POD_RUNS_FOLDER}))
    for number, claim in enumerate(cluster.claims):
        volume = {"persistentVolumeClaim": {"claimName": claim.name}}
        rows.append((f"claim-{number}", volume, {"mountPath": claim.folder}))
    for number, mount in enumerate(cluster.mounts if cluster.options.host_paths else ()):
        known_kind = _HOST_PATH_TYPE_BY_KIND.get(cluster.paths.get(mount.host, ""))
        kind = "DirectoryOrCreate" if mount.host in cluster.outputs else known_kind
        volume = {"hostPath": {"path": mount.host} | ({"type": kind} if kind else {})}
        mounted = {"mountPath": mount.inside} | ({"readOnly": True} if mount.read_only else {})
        rows.append((f"host-{number}", volume, mounted))
    volumes = [{"name": name, **volume} for name, volume, _ in rows]
    return volumes, [{"name": name, **mounted} for name, _, mounted in rows]


def _kubernetes_size_text(text: str) -> str:
    """Return a size as docker writes it in the words of Kubernetes; empty for that of the machine."""
    match = _MEMORY_SIZE_PATTERN.fullmatch(text)
    if not match:
        return ""
    unit = match[2].lower()
    return match[1] + (f"{unit.upper()}i" if unit in {"k", "m", "g"} else "")


def config_map(cluster: ClusterPlan) -> dict[str, Any]:
    """Return the files of the run as a ConfigMap."""
    files = _file_by_config_map_key(cluster)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{cluster.name}-files"},
        "data": {key: file.text for key, file in files.items() if not file.data},
        "binaryData": {key: base64.b64encode(file.data).decode() for key, file in files.items() if file.data},
    }


def _file_by_config_map_key(cluster: ClusterPlan) -> dict[str, RenderedFile]:
    """Return the files by the keys of the ConfigMap, which have no slashes."""
    keys: dict[str, RenderedFile] = {}
    for number, file in enumerate(cluster.files):
        key = re.sub(r"[^-._a-zA-Z0-9]", ".", file.path)[-200:]
        keys[f"{number}-{key}" if key in keys else key] = file
    return keys


def pod_grace_seconds(cluster: ClusterPlan) -> int:
    """Return the seconds from the signal to the end of a pod: those to save, and what the supervisor takes."""
    return cluster.plan.grace + _SECONDS_FOR_SUPERVISOR_TO_END


def render_with_config_map(
    cluster: ClusterPlan, file_name: str, document: dict[str, Any], needs: str, after_failure: tuple[str, ...]
) -> RenderedManifest:
    """Return the ConfigMap and a document; `needs` is what the cluster must have, `after_failure` what then happens."""
    kind, nodes = str(document["kind"]).lower(), cluster.plan.nodes
    pods = f"-l jobset.sigs.k8s.io/jobset-name={cluster.name} --prefix --max-log-requests={max(5, nodes)}"
    stop = f"Stop, and let it save: kubectl delete {kind} {cluster.name}."
    notes = (*_manifest_notes(cluster, file_name), f"Watch: kubectl logs -f {pods}. {stop}", *after_failure)
    comment = (f"{cluster.plan.name}: {cluster.plan.title}", needs, *notes)
    return RenderedManifest(manifest_text(comment, (config_map(cluster), document)), notes)


def _manifest_notes(cluster: ClusterPlan, file_name: str) -> list[str]:
    """Return what the user has to do, and what of the plan does not hold in pods."""
    lines = [
        (
            f"Start: kubectl apply --server-side -f {file_name}"
            " (without --server-side the files are too large for kubectl)."
        )
    ]
    if cluster.secret_variables:
        words = " ".join(f'--from-literal={name}="${name}"' for name in cluster.secret_variables)
        lines.append(f"Before it, once: kubectl create secret generic {secret_name(cluster)} {words}")
    if cluster.gpus and cluster.gpu_name and not cluster.options.node_labels:
        each = "GPU" if cluster.gpus == 1 else "GPUs"
        lines.append(
            f"Each pod gets {cluster.gpus} {each} of any type; the plan is for {cluster.gpu_name}: "
            "cluster.node_labels=nvidia.com/gpu.product=NAME asks for a type."
        )
    lines += pod_option_notes(cluster)
    lines += _image_requirement_notes(cluster)
    lines += _folder_notes(cluster)
    return [*lines, *cluster.notes_on_values_of_planning_machine, *cluster.notify_notes]


def _image_requirement_notes(cluster: ClusterPlan) -> list[str]:
    if cluster.had_container:
        return ["Limits of locked memory and of the stack are those of the node: a pod cannot set them."]
    libraries = ", ".join(cluster.library_requirements).replace("==", " ")
    made_for = f" The plan was made for {libraries}." if libraries else ""
    return [f"The image needs bash 4.4, coreutils and `python` with the libraries of the training.{made_for}"]


def _folder_notes(cluster: ClusterPlan) -> list[str]:
    lines = []
    if cluster.mounts and cluster.options.host_paths:
        names = ", ".join(mount.host for mount in cluster.mounts)
        lines.append(
            f"Taken from the disk of the node (hostPath), which must have them: {names}. PodSecurity `baseline` "
            "refuses such pods; --claim does without."
        )
    elif cluster.mounts:
        names = ", ".join(mount.inside for mount in cluster.mounts)
        lines.append(
            f"On no claim, so the image must have them: {names}. Put them on a claim (--claim), or take them from the "
            "disk of the node (cluster.host_paths)."
        )
    run, several = pod_run_folder(cluster), cluster.plan.nodes > 1
    if cluster.claims:
        lines.append(
            f"The run folder is {run}, on the claim {cluster.claims[0].name}; the same plan started again uses it."
        )
    else:
        lines.append(f"The run folder {run} is lost with the pod, with its log and events; --claim keeps it.")
    if several and cluster.claims:
        lines.append("The claim must be ReadWriteMany: all pods write to the run folder.")
    if several:
        lines.append(
            "No fallbacks: the pods could not all change to the same one. The first pod that fails ends the training."
        )
        if cluster.can_resume and not resumes_together(cluster) and not cluster.plan.resumes_itself:
            lines.append("To resume from a checkpoint add the variable TUI_TRAIN_RESUME with the value '1'.")
        if not cluster.outputs_are_kept:
            lines.append("The output folder must be on a disk that all nodes share, or they cannot resume.")
    return lines


def restart_note(cluster: ClusterPlan) -> str:
    """Return what happens to a training whose pods start again."""
    if not cluster.can_resume:
        return "A training that is started again begins with the first step: it saves nothing from which it can resume."
    if not cluster.outputs_are_kept:
        return "A training that is started again begins with the first step: its output folder is on no claim."
    return "A training that is started again resumes from its newest checkpoint."
