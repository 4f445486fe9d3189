"""The variables of an attempt, each with why it is set and who asked for it."""

from collections.abc import Mapping

from tui_train.base.command import CARDS, PYTHONPATH, RUN_DIR, Joined, Setting, Word, joined
from tui_train.base.versions import at_least, older
from tui_train.facts.types import Facts
from tui_train.launchers import LAUNCHERS
from tui_train.launchers.job import Job
from tui_train.presets import Argument, applies
from tui_train.profile.types import Profile
from tui_train.resolve import communication, container
from tui_train.resolve.arguments import fill, plain
from tui_train.resolve.resolve import Resolved
from tui_train.resolve.values import Value, words
from tui_train.trainers import nemo, takes_field, trainer_of
from tui_train.trainers.trainer import SHIM

_TORCH_GRACE = 30
# Before it the Hugging Face Trainer resumes with the micro batch of the checkpoint, whatever it is told.
_OWN_MICRO_BATCH = "5.2"


def settings(
    profile: Profile, resolved: Resolved, job: Job, facts: Facts, found: Mapping[str, Value]
) -> tuple[Setting, ...]:
    """Return the variables of an attempt; the user's own win over those of the plan."""
    threads = max(1, facts.machine.cpu_count // job.processes)
    settings = [
        Setting("PYTHONUNBUFFERED", "1", "every line reaches the log at once", "launcher"),
        Setting("OMP_NUM_THREADS", str(threads), "processor cores shared among the processes", "machine"),
    ]
    if job.gpus:
        order = "numbers as nvidia-smi prints them, for tools that show any"
        cards = "the chosen cards by UUID, which is right under any order"
        settings.append(Setting("CUDA_DEVICE_ORDER", "PCI_BUS_ID", order, "machine"))
        uuids: Word = ",".join(job.gpus) if job.nodes == 1 else Joined((CARDS,))
        settings.append(Setting("CUDA_VISIBLE_DEVICES", uuids, cards, "profile"))
    else:
        settings.append(Setting("CUDA_VISIBLE_DEVICES", "", "trains on the CPU: hides every card", "profile"))
    settings += LAUNCHERS[resolved.launcher].settings(job)
    settings += communication.settings(
        profile.communication,
        resolved.backend,
        resolved.toolchain,
        cuda=bool(job.gpus),
        nodes=job.nodes,
        script=takes_field(profile, "trainer.script"),
    )
    grace = resolved.preset.stop.grace
    torch = resolved.toolchain.torch if resolved.toolchain else None
    if job.world_size > 1 and grace > _TORCH_GRACE and at_least(torch, "2.12"):
        why = "seconds to save in, after a stop; torch itself gives 30"
        settings.append(Setting("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(grace), why, "launcher"))
    settings += container.settings(profile.container)
    settings += nemo.settings(profile.nemo, resolved.gpus) if resolved.nemo else ()
    if profile.recipe.expandable_segments and job.gpus:
        why = "the allocator grows its blocks: less memory lost to fragmentation"
        settings.append(Setting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", why, "ladder"))
    if found["micro_batch"] and _keeps_micro_batch(profile, resolved):
        why = f"transformers before {_OWN_MICRO_BATCH} would resume with the micro batch of the checkpoint"
        settings.append(Setting("TUI_TRAIN_MICRO_BATCH", str(profile.recipe.micro_batch), why, "ladder"))
    text = words(found)
    for variable in resolved.preset.variables:
        if applies(variable.when, plain(text)):
            filled = fill(Argument((variable.value,)), text)
            settings += [
                Setting(variable.name, str(one[0]), "the preset passes it so", "profile") for one in filled[:1]
            ]
    mine = {setting.name: setting for setting in settings}
    yours = {name: Setting(name, value, "yours", "profile") for name, value in profile.trainer.environment.items()}
    return tuple({**mine, **yours, **_shim(profile)}.values())


def _keeps_micro_batch(profile: Profile, resolved: Resolved) -> bool:
    rule, tool = resolved.preset.checkpoints, resolved.toolchain
    saves = rule is not None and "trainer_state.json" in rule.complete and not trainer_of(profile).shipped
    told = "micro_batch" in resolved.context.takes
    return saves and told and tool is not None and older(tool.transformers, _OWN_MICRO_BATCH)


def _shim(profile: Profile) -> dict[str, Setting]:
    """Put the folder of our module before the PYTHONPATH of the profile, or else before that of whoever starts it."""
    if trainer_of(profile).shipped or profile.container.engine != "none":
        return {}
    name = "PYTHONPATH"
    yours = profile.trainer.environment.get(name)
    after = PYTHONPATH if yours is None else f":{yours}" if yours else ""
    why = "shows which device each process uses; TUI_TRAIN_SHOW_DEVICES=0 turns it off"
    return {name: Setting(name, joined((RUN_DIR, f"/{SHIM}", after)), why, "launcher")}
