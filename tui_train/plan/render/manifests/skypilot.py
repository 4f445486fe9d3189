"""A SkyPilot task: its working directory is the exported folder, its machines run launch.sh."""

import re
import shlex
from typing import Any

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.plan.render.manifests.cluster import OWN_FOLDER_LINE, ClusterPlan, RenderedManifest, machine_run_script
from tui_train.plan.render.manifests.text import manifest_text

LABEL: str = "SkyPilot"
FILE_NAME: str = "skypilot.yaml"
ACCEPTS_CLAIMS: bool = False

_GIB_PATTERN = re.compile(r"[1-9]\d{0,6}Gi", re.ASCII)
_USED_OPTION_NAMES = frozenset({"cpus", "memory", "restarts", "spot", "autostop"})
_VENV_FOLDER = "~/tui-train-python"
_SET_ADDRESS_LINE = (
    "export TUI_TRAIN_ADDRESS=${SKYPILOT_NODE_IPS%%$'\\n'*} # one address a line, that of rank 0 first\n"
)
# As SkyPilot names them; the first that fits. Other names lose the words of the maker.
_ACCELERATOR_PATTERNS = (
    (r"\bA100\b.*\b80GB\b", "A100-80GB"),
    (r"\bRTX 6000 Ada\b", "RTX6000-Ada"),
    (r"\bV100\b.*\b32GB\b", "V100-32GB"),
    (r"\b(GB300|GB200|B300|B200|GH200|H200|H100|A100|A10G|A10|A16|A30|A40|L40S|L40|L4|V100|P100|P40|P4|T4)\b", r"\1"),
    (r"\bRTX A(\d+)\b", r"A\1"),
)


def first_machine_address(run_name: str) -> str:
    """Return a name that says where the address comes from: it is known only when the machines run."""
    del run_name
    return "first-of-SKYPILOT_NODE_IPS"


def accelerator_name(gpu_name: str) -> str:
    """Return a GPU, as its driver names it, in the words of SkyPilot."""
    for pattern, named in _ACCELERATOR_PATTERNS:
        if match := re.search(pattern, gpu_name):
            return match.expand(named)
    plain = re.sub(r"\b(NVIDIA|GeForce|Tesla|Quadro)\b", "", gpu_name).strip()
    return plain.replace("RTX ", "RTX").replace("GTX ", "GTX").replace(" ", "-")


def render_manifest(cluster: ClusterPlan) -> RenderedManifest:
    """Return the task; BadInput where it cannot hold the plan."""
    has_image = bool(cluster.image)
    if not has_image and not cluster.library_requirements:
        message = "neither an image nor a Python is known, from which the libraries of the training could come"
        raise BadInput(message, "Name an image: --set container.image=NAME:TAG.")
    _refuse_if_restart_would_fail(cluster)
    document: dict[str, Any] = {"name": cluster.name, "num_nodes": cluster.plan.nodes}
    resources: dict[str, Any] = {}
    if cluster.gpus:
        resources["accelerators"] = {accelerator_name(cluster.gpu_name): cluster.gpus}
    if has_image:
        resources["image_id"] = f"docker:{cluster.image}"
    resources |= _machine_resources(cluster)
    document |= {"resources": resources} if resources else {}
    document["workdir"] = "."
    copied = {mount.inside: mount.host for mount in cluster.mounts if mount.host not in cluster.outputs}
    document |= {"file_mounts": copied} if copied else {}
    document |= {"secrets": dict.fromkeys(cluster.secret_variables)} if cluster.secret_variables else {}
    if not has_image:
        document["setup"] = _setup_script(cluster)
    document["run"] = _run_script(cluster, has_image=has_image)
    notes = (*_task_notes(cluster, has_image=has_image),)
    comment = (f"{cluster.plan.name}: {cluster.plan.title}", *notes)
    return RenderedManifest(manifest_text(comment, (document,)), notes)


def _is_managed(cluster: ClusterPlan) -> bool:
    """Return whether SkyPilot starts the training again by itself, as a managed job."""
    return cluster.options.spot or cluster.options.restarts > 0


def _refuse_if_restart_would_fail(cluster: ClusterPlan) -> None:
    """Refuse a managed job whose second start would end with an error, as soon as there is a checkpoint.

    Its machines are new ones: none knows whether the checkpoints are of this training, nor whether all see them.
    """
    if cluster.plan.nodes > 1 and _is_managed(cluster) and cluster.can_resume and not cluster.plan.resumes_itself:
        option = "cluster.spot" if cluster.options.spot else "cluster.restarts"
        why = f"{option}: several machines that SkyPilot starts again do not resume by themselves, and would fail"
        remedy = f"Leave {option} out, train on one machine, or use --for jobset with --claim, whose pods do resume."
        raise BadInput(why, remedy)


def _machine_resources(cluster: ClusterPlan) -> dict[str, Any]:
    """Return what is asked of the machines besides GPUs and image; spot machines are recovered by a managed job."""
    options = cluster.options
    if options.memory and not _GIB_PATTERN.fullmatch(options.memory):
        raise BadInput(
            f"cluster.memory: SkyPilot takes whole Gi, and not {visible(options.memory)}", "Write it as 64Gi."
        )
    recovery: dict[str, Any] = {"max_restarts_on_errors": options.restarts}
    return {
        **({"cpus": f"{options.cpus}+"} if options.cpus else {}),
        **({"memory": f"{options.memory.removesuffix('Gi')}+"} if options.memory else {}),
        **({"use_spot": True} if options.spot else {}),
        **({"job_recovery": recovery} if options.restarts else {}),
        **({"autostop": {"idle_minutes": options.autostop}} if options.autostop else {}),
    }


def _setup_script(cluster: ClusterPlan) -> str:
    libraries = " ".join(map(shlex.quote, cluster.library_requirements))
    return (
        f"[ -x {_VENV_FOLDER}/bin/python ] || python3 -m venv {_VENV_FOLDER}\n"
        f"{_VENV_FOLDER}/bin/python -m pip install --quiet {libraries}\n"
    )


def _run_script(cluster: ClusterPlan, *, has_image: bool) -> str:
    several = cluster.plan.nodes > 1
    lines = "" if has_image else f"export TUI_TRAIN_PYTHON={_VENV_FOLDER}/bin/python\n"
    lines += _SET_ADDRESS_LINE if several else ""
    rank = "$SKYPILOT_NODE_RANK" if several else "0"
    return f"{lines}run=$PWD rank={rank}\n{OWN_FOLDER_LINE}{machine_run_script(cluster)}"


def _recovery_notes(cluster: ClusterPlan) -> list[str]:
    options = cluster.options
    lines = []
    if _is_managed(cluster):
        lost = "machines that are taken away are replaced" if options.spot else "lost machines are replaced"
        lines.append(
            f"A managed job: {lost}. It resumes only where trainer.output is on storage that outlives them: add a "
            "bucket to file_mounts in mode MOUNT, at that folder."
        )
        if not options.restarts:
            lines.append("A training that fails by itself is not started again (cluster.restarts).")
    if options.autostop and _is_managed(cluster):
        lines.append("A managed job ends its machines itself: cluster.autostop is for `sky launch`.")
    return [*lines, *cluster.unused_option_notes(LABEL, _USED_OPTION_NAMES)]


def _task_notes(cluster: ClusterPlan, *, has_image: bool) -> list[str]:
    secrets = "".join(f" --secret {name}" for name in cluster.secret_variables)
    start = f"sky jobs launch -n {cluster.name}" if _is_managed(cluster) else f"sky launch -c {cluster.name}"
    lines = [f"Start in this folder: {start}{secrets} {FILE_NAME}", *_recovery_notes(cluster)]
    if cluster.secret_variables:
        lines.append(
            f"{', '.join(cluster.secret_variables)} must be exported in that shell; the file has only the names."
        )
    if cluster.gpus:
        named = accelerator_name(cluster.gpu_name)
        lines.append(f"Asks for {cluster.gpus} x {named} a machine; `sky gpus list` has the names.")
    if not has_image:
        lines.append(
            "setup installs the libraries that the plan was made for; add there what your script needs besides."
        )
    elif not cluster.had_container:
        libraries = ", ".join(cluster.library_requirements).replace("==", " ")
        lines.append(f"The image needs bash 4.4, coreutils and `python`. The plan was made for {libraries}.")
    copied = [mount.host for mount in cluster.mounts if mount.host not in cluster.outputs]
    if copied:
        lines.append(f"Copied to the same path on each machine: {', '.join(copied)}.")
    lines.append("Shared memory has the size that SkyPilot gives it; container.shared_memory is not used.")
    lines.append("The run folder is ~/sky_workdir; it, its log and its weights last as long as the cluster.")
    if cluster.outputs:
        lines.append(f"Output on the disk of the machine, which must be writable: {', '.join(cluster.outputs)}.")
    if cluster.plan.nodes > 1:
        lines.append("No fallbacks: several machines do not agree on one. The first that fails ends the training.")
        lines.append(
            "To resume, the output folder must be on a disk that all share (file_mounts of a bucket, MOUNT mode)."
        )
    return [*lines, *cluster.notes_on_values_of_planning_machine, *cluster.notify_notes]
