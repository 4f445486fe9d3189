"""ClusterPlan: a plan as the machines of a cluster run it, with what a manifest has to ask for, and their script."""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import Struct

from tui_train.base import webhook
from tui_train.base.command import (
    PYTHONPATH_VARIABLE,
    RUN_DIR_VARIABLE,
    Command,
    CommandPart,
    ConfigFile,
    EnvSetting,
    JoinedWord,
    join_pieces,
)
from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.types import Toolchain
from tui_train.plan.render import render_files
from tui_train.plan.render.script.script_head import takes_checkpoint
from tui_train.plan.run_files import PROFILE_FILE_NAME, RenderedFile
from tui_train.plan.types import Plan
from tui_train.profile.mounts import Mount
from tui_train.profile.types import ClusterOptions, Profile
from tui_train.setup.machine import container
from tui_train.trainers.trainer import SHIM_FOLDER_NAME

# The name of a pod is that of its set, with those of job and host, and has at most 63 letters.
_MAX_LABEL_LENGTH = 40
_MIG_UUID_PREFIX = "MIG-"
_PYTHON_IN_IMAGE = "python"
# Where the supervisor of a machine writes.
OWN_FOLDER_LINE = 'own=$run; [ "$rank" = 0 ] || own=$run/node-$rank\n'
# $rank, $run and $own are set before. A signal goes to the supervisor, which lets the training save.
_MACHINE_SCRIPT_TEMPLATE = """\
mkdir -p "$own" || exit 73
number=1 logs=()
while [ -e "$own/attempt-$number.log" ]; do number=$((number + 1)); done
for ((more = 0; more < {attempts}; more++)); do logs+=("$own/attempt-$((number + more)).log"); done
bash "$run/launch.sh"{words} &
training=$!
trap 'kill -TERM "$training" 2> /dev/null' TERM INT
tail -q -n +1 -F --pid="$training" "${{logs[@]}}" 2> /dev/null &
shown=$!
while wait "$training"; code=$?; kill -0 "$training" 2> /dev/null; do :; done
wait "$training"
code=$?
wait "$shown"
exit "$code"
"""


class VolumeClaim(Struct, frozen=True):
    """A PersistentVolumeClaim by name, and the folder where pods see it."""

    name: str
    folder: str


class RenderedManifest(Struct, frozen=True):
    """A manifest's text, and what is said at its head and on the screen: a sentence each."""

    text: str
    notes: tuple[str, ...]


class ClusterPlan(Struct, frozen=True, kw_only=True):
    """A plan for the machines of a cluster."""

    name: str
    """A DNS label."""
    plan: Plan
    files: tuple[RenderedFile, ...]
    """The files of the run."""
    image: str
    gpus: int
    """The GPUs of each machine."""
    gpu_name: str
    """The card that it was planned for."""
    mounts: tuple[Mount, ...]
    """The paths outside the run folder that the training reads or writes, without those in a claim."""
    outputs: tuple[str, ...]
    """The mounts that the training makes."""
    claims: tuple[VolumeClaim, ...]
    paths: Mapping[str, str]
    """"file" or "folder", where that is known."""
    shared_memory: str
    library_requirements: tuple[str, ...]
    """NAME==VERSION, as the plan was made for."""
    had_container: bool
    """The plan had a container."""
    options: ClusterOptions
    """Requests, placement and rights, as the profile has them."""

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """The variables whose values are secrets."""
        named = self.plan.notify.webhook if self.plan.notify else ""
        return tuple(dict.fromkeys((*self.plan.secrets, *([named[1:]] if named.startswith("$") else []))))

    @property
    def outputs_are_kept(self) -> bool:
        """Whether all that the training saves lies on a claim, where its next pod finds it."""
        return bool(self.claims) and all(
            any(is_within(output, claim.folder) for claim in self.claims) for output in self.outputs
        )

    @property
    def can_resume(self) -> bool:
        """Whether a second start resumes from the newest checkpoint."""
        return self.plan.resumes_itself or (
            self.plan.attempts[0].checkpoints is not None and takes_checkpoint(self.plan)
        )

    def unused_option_notes(self, label: str, used: Collection[str]) -> tuple[str, ...]:
        """Return a note on the chosen options that a kind of manifest has no words for, none where there are none."""
        default = ClusterOptions()
        names = [
            f"cluster.{name}"
            for name in self.options.__struct_fields__
            if name not in used and getattr(self.options, name) != getattr(default, name)
        ]
        return (f"Not used by {label}: {', '.join(names)}.",) if names else ()

    @property
    def notes_on_values_of_planning_machine(self) -> tuple[str, ...]:
        """Notes on values taken from the machine that the plan was made for."""
        env = self.plan.attempts[0].command.env
        threads = next((setting for setting in env if setting.name == "OMP_NUM_THREADS"), None)
        if threads is None or threads.origin != "machine":
            return ()
        why = f"OMP_NUM_THREADS={threads.value} is from the CPU cores of the machine that was planned for"
        return (f"{why}; --set trainer.environment=OMP_NUM_THREADS=N sets another value.",)

    @property
    def notify_notes(self) -> tuple[str, ...]:
        """Notes on the notification at the end of a run."""
        command = self.plan.notify.command if self.plan.notify else ()
        return (f"notify.command runs there, which must have {command[0]}.",) if command else ()

    @property
    def run_name(self) -> str:
        """The name of the run folder: with a digest of its files, so that another plan never finds this one's.

        The profile is not among them: with more memory for its pods a training is the same.
        """
        files = (file for file in self.files if file.path != PROFILE_FILE_NAME)
        digest = hashlib.sha256(b"\0".join(file.path.encode() + b"\0" + file.content for file in files)).hexdigest()
        return f"{self.name}-{digest[:8]}"


def to_dns_label(name: str) -> str:
    """Return a name as DNS takes it: small letters, digits and hyphens, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return (plain if plain[:1].isalpha() else f"run-{plain}")[:_MAX_LABEL_LENGTH].strip("-")


def plan_for_cluster(
    plan: Plan,
    profile: Profile,
    *,
    claims: Sequence[VolumeClaim],
    paths: Mapping[str, str],
    toolchain: Toolchain | None,
) -> ClusterPlan:
    """Return a profile's plan for a cluster; BadInput where what it asks for has no words there."""
    _refuse_plan_unfit_for_cluster(plan, profile)
    cluster_side = without_machine_parts(plan)
    folders = (attempt.checkpoints.folder for attempt in plan.attempts if attempt.checkpoints)
    outputs = tuple(dict.fromkeys(word for word in (plan.output, *folders) if isinstance(word, str) and word))
    all_mounts = container.container_mounts(profile, outputs)
    return ClusterPlan(
        name=to_dns_label(plan.name),
        plan=cluster_side,
        files=render_files(cluster_side, profile),
        image=profile.container.image,
        gpus=len(plan.gpus),
        gpu_name=plan.gpu_names[0] if plan.gpu_names else "",
        mounts=tuple(
            mount for mount in all_mounts if not any(is_within(mount.inside, claim.folder) for claim in claims)
        ),
        outputs=outputs,
        claims=tuple(claims),
        paths=paths,
        shared_memory=profile.container.shared_memory,
        library_requirements=_library_requirements(toolchain),
        had_container=plan.container is not None,
        options=profile.cluster,
    )


def _refuse_plan_unfit_for_cluster(plan: Plan, profile: Profile) -> None:
    image = profile.container.image
    if profile.container.engine == "apptainer":
        message = f"{visible(image)} is a file of this machine, which a cluster cannot pull"
        raise BadInput(
            message, "Name the image in a registry: --set container.engine=none --set container.image=NAME:TAG."
        )
    if image.startswith("-") or not image.isprintable() or " " in image:
        raise BadInput(f"{visible(image)} is not a valid image name", "Write it as a registry has it: NAME:TAG.")
    if any(uuid.startswith(_MIG_UUID_PREFIX) for uuid in plan.gpus):
        message = "this plan trains on a part of a GPU (MIG), and a cluster has its own names for those"
        raise BadInput(message, "Choose whole GPUs: --set hardware.gpus=UUID,UUID.")

    if profile.notify.webhook and not webhook.is_variable_reference(profile.notify.webhook):
        message = "the address of notify.webhook is in a file of this machine, which a pod does not have"
        raise BadInput(message, "Name a variable that holds it: --set 'notify.webhook=$NAME'.")


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies in it."""
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _library_requirements(toolchain: Toolchain | None) -> tuple[str, ...]:
    """Return the libraries of a Python without the build of their versions; none of those whose version is unknown."""
    if toolchain is None:
        return ()
    known = {"torch": toolchain.torch, "accelerate": toolchain.accelerate, "transformers": toolchain.transformers}
    versions = {name: (version or "").partition("+")[0] for name, version in (known | toolchain.packages).items()}
    return tuple(f"{name}=={version}" for name, version in versions.items() if version[:1].isdigit())


def without_machine_parts(plan: Plan) -> Plan:
    """Return a plan without what belongs to this machine: its container, its Python, its GPUs' UUIDs."""
    replace = msgspec.structs.replace
    wrapper = plan.container
    attempts = tuple(
        replace(attempt, command=_command_without_machine_parts(attempt.command, plan)) for attempt in plan.attempts
    )
    preparations = tuple(
        replace(item, command=_command_without_machine_parts(item.command, plan)) for item in plan.preparations
    )
    return replace(
        plan,
        title=plan.title.removesuffix(f" by {wrapper.engine}") if wrapper else plan.title,
        python=_PYTHON_IN_IMAGE,
        gpus=(),
        gpu_names=(),
        container=None,
        attempts=attempts,
        preparations=preparations,
        configs=tuple(_config_without_machine_gpus(config) for config in plan.configs),
    )


def _command_without_machine_parts(command: Command, plan: Plan) -> Command:
    first, *others = command.parts
    env = [
        setting for setting in command.env if setting.origin != "container" and not _is_machine_gpus_variable(setting)
    ]
    if plan.container:
        env = [*(setting for setting in env if setting.name != "PYTHONPATH"), _python_path_setting_with_shim(env)]
    return Command(
        (CommandPart((_PYTHON_IN_IMAGE, *first.words[1:]), first.why, first.resumes), *others), tuple(env), command.cwd
    )


def _is_machine_gpus_variable(setting: EnvSetting) -> bool:
    """Return whether a variable names GPUs of this machine; an empty one hides all."""
    return setting.name == "CUDA_VISIBLE_DEVICES" and setting.value != "" and setting.origin == "profile"


def _python_path_setting_with_shim(env: Sequence[EnvSetting]) -> EnvSetting:
    """Return PYTHONPATH as it is without a container, whose own shell would add the shim."""
    current = next((setting.value for setting in env if setting.name == "PYTHONPATH"), None)
    after = current.pieces if isinstance(current, JoinedWord) else (current,) if current else ()
    rest = (":", *after) if after else (PYTHONPATH_VARIABLE,) if current is None else ()
    why = "prints the device of each process; TUI_TRAIN_SHOW_DEVICES=0 turns it off"
    return EnvSetting("PYTHONPATH", join_pieces((RUN_DIR_VARIABLE, f"/{SHIM_FOLDER_NAME}", *rest)), why, "launcher")


def _config_without_machine_gpus(config: ConfigFile) -> ConfigFile:
    """Return a file without the GPUs of this machine: without the key accelerate takes all."""
    values = {name: value for name, value in config.values.items() if name != "gpu_ids"}
    return msgspec.structs.replace(config, values=values)


def machine_run_script(cluster: ClusterPlan) -> str:
    """Return bash that trains in the folder `$run` as the machine `$rank`, and ends with the exit code of launch.sh."""
    words = ' --node-rank="$rank"' if cluster.plan.nodes > 1 else ""
    return _MACHINE_SCRIPT_TEMPLATE.format(attempts=len(cluster.plan.attempts), words=words)
