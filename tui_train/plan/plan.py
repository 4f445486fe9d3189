"""plan(): what will happen, from what the user chose and what is; pure, and refused when a check finds an error."""

from importlib import resources

from msgspec import Struct

from tui_train.checks import check
from tui_train.errors import BadInput, Unavailable
from tui_train.facts.types import Facts, Toolchain
from tui_train.memory.ladder import climb
from tui_train.plan import batch, nemo
from tui_train.plan.arguments import fill
from tui_train.plan.launchers import LAUNCHERS
from tui_train.plan.launchers.job import Job
from tui_train.plan.resolve import Resolved, resolve
from tui_train.plan.types import (
    CHECKPOINT,
    Attempt,
    CheckpointRule,
    Command,
    Part,
    Plan,
    ProgramFile,
    Setting,
    Word,
    in_run_dir,
    joined,
)
from tui_train.presets import Argument
from tui_train.profile.types import Profile, Recipe
from tui_train.text import counted

_SAMPLE = "sample.txt"


class _Step(Struct, frozen=True):
    """One attempt before it has a command: the rung that led to it and the profile that it runs."""

    rung: str
    title: str
    profile: Profile


def plan(profile: Profile, facts: Facts) -> Plan:
    """Return the plan of a profile on this machine; BadInput or Unavailable when a check finds an error."""
    for finding in check(profile, facts):
        if finding.level == "error":
            raise (Unavailable if finding.machine else BadInput)(finding.message, finding.remedy)
    resolved = resolve(profile, facts)
    toolchain = resolved.toolchain
    assert toolchain is not None, "a check refuses a profile that no Python can train"  # noqa: S101 - for the type
    job = _job(profile, resolved, toolchain)
    steps = [_Step("", "as planned", profile)]
    steps += [_Step(name, change.title, changed) for name, change, changed in climb(profile, resolved.room)]
    builtin = profile.trainer.kind == "builtin"
    recipe = profile.recipe
    return Plan(
        name=profile.name,
        title=_title(profile, resolved),
        python=toolchain.python,
        launcher=resolved.launcher,
        device=resolved.device,
        gpus=job.gpus,
        gpu_names=tuple(gpu.name for gpu in resolved.gpus) if job.gpus else (),
        world_size=job.world_size,
        micro_batch=recipe.micro_batch,
        accumulation=_accumulation(profile, resolved.copies),
        global_batch=recipe.global_batch,
        learning_rate=batch.learning_rate(recipe),
        steps=recipe.steps,
        numbers=_numbers(recipe, resolved),
        attempts=tuple(_attempt(step, profile, resolved, job, facts) for step in steps),
        configs=LAUNCHERS[resolved.launcher].configs(job),
        programs=_programs(profile) if builtin else (),
        nemo=nemo.file(profile, resolved.nemo, resolved.gpus, facts) if resolved.nemo else None,
        resumes_itself=resolved.nemo is not None,
        secrets=profile.trainer.secrets,
        notes=nemo.notes(profile, resolved.nemo) if resolved.nemo else _notes(resolved),
    )


def _job(profile: Profile, resolved: Resolved, toolchain: Toolchain) -> Job:
    return Job(
        python=toolchain.python,
        world_size=resolved.world_size,
        gpus=tuple(gpu.uuid for gpu in resolved.gpus) if resolved.device == "cuda" else (),
        precision=profile.recipe.precision,
    )


def _title(profile: Profile, resolved: Resolved) -> str:
    names = {"builtin": "the built-in trainer", "script": profile.trainer.script, "nemo": resolved.preset.label}
    what = names[profile.trainer.kind] + (f" {profile.nemo.recipe}" if resolved.nemo == "recipes" else "")
    devices = counted(len(resolved.gpus), "GPU") if resolved.device == "cuda" else "the CPU"
    processes = counted(resolved.world_size, "process", "processes")
    return f"{what} under {LAUNCHERS[resolved.launcher].LABEL}, {processes} on {devices}"


def _numbers(recipe: Recipe, resolved: Resolved) -> tuple[str, ...]:
    said = {"learning_rate": f"learning rate {batch.learning_rate(recipe):g}", "steps": counted(recipe.steps, "step")}
    return tuple(words for name, words in said.items() if name in resolved.room.takes)


def _programs(profile: Profile) -> tuple[ProgramFile, ...]:
    folder = resources.files("tui_train").joinpath("target/trainer")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".py"))
    files = [ProgramFile(f"trainer/{name}", f"target/trainer/{name}") for name in names]
    if not profile.trainer.data:
        files.append(ProgramFile(_SAMPLE, f"target/{_SAMPLE}"))
    return tuple(files)


def _notes(resolved: Resolved) -> tuple[str, ...]:
    if resolved.preset.checkpoints:
        return ()
    return (f"The preset “{resolved.preset.label}” cannot resume: each attempt starts from step 0.",)


def _accumulation(profile: Profile, copies: int) -> int:
    recipe = profile.recipe
    return batch.accumulation(recipe.global_batch, recipe.micro_batch, copies) or 1


def _attempt(step: _Step, first: Profile, resolved: Resolved, job: Job, facts: Facts) -> Attempt:
    trainer, recipe = step.profile.trainer, step.profile.recipe
    output = _output(step.profile, first)
    script: Word = in_run_dir("trainer/train.py") if trainer.kind == "builtin" else trainer.script
    program = nemo.program(resolved.nemo) if resolved.nemo else (Part((script,)),)
    launcher = LAUNCHERS[resolved.launcher]
    rule = resolved.preset.checkpoints
    resume = tuple(_from_checkpoint(word) for word in rule.resume) if rule else ()
    parts = (
        *launcher.parts(job),
        *program,
        *_arguments(step.profile, resolved, output),
        *([Part(resume, "only where there is a complete checkpoint")] if resume else []),
    )
    accumulation = _accumulation(step.profile, resolved.copies)
    processes = counted(job.world_size, "process", "processes")
    if resolved.copies != job.world_size:
        processes = f"{counted(resolved.copies, 'copy', 'copies')} of the model"
    product = f"micro batch {recipe.micro_batch} x accumulation {accumulation} x {processes}"
    return Attempt(
        rung=step.rung,
        title=step.title,
        batch=f"{product} = global batch {recipe.global_batch}"
        if batch.TAKEN & resolved.room.takes
        else f"{processes}, with the script's own batch",
        command=Command(parts, _settings(step.profile, resolved, job, facts), _folder(step.profile)),
        checkpoints=CheckpointRule(output, rule.prefix, rule.complete) if rule else None,
    )


def _output(profile: Profile, first: Profile) -> Word:
    """Keep checkpoints of another model apart: they cannot be resumed from."""
    suffix = "" if profile.recipe.layers == first.recipe.layers else f"-{profile.recipe.layers}-layers"
    output = profile.trainer.output
    return f"{output}{suffix}" if output else in_run_dir(f"output{suffix}")


def _from_checkpoint(word: str) -> Word:
    before, found, after = word.partition("{checkpoint}")
    return joined((before, CHECKPOINT, after)) if found else word


def _arguments(profile: Profile, resolved: Resolved, output: Word) -> tuple[Part, ...]:
    recipe, trainer = profile.recipe, profile.trainer
    accumulation = _accumulation(profile, resolved.copies)
    data: tuple[Word, ...] = trainer.data
    if trainer.kind == "builtin" and not data:
        data = (in_run_dir(_SAMPLE),)
    values: dict[str, tuple[Word, ...]] = {
        "output": (output,),
        "data": data,
        "model": (trainer.model,) if trainer.model else (),
        "learning_rate": (repr(batch.learning_rate(recipe)),),
        "activation_checkpointing": ("yes" if recipe.activation_checkpointing else "no",),
        "accumulation": (str(accumulation),),
        "total_batch": (str(recipe.micro_batch * resolved.world_size),),
        "world_size": (str(resolved.world_size),),
        "device": (resolved.device,),
    }
    plain = ("layers", "hidden_size", "heads", "sequence_length", "micro_batch", "global_batch", "precision", "steps")
    for name in (*plain, "checkpoint_every", "seed"):
        values[name] = (str(getattr(recipe, name)),)
    parts = [Part(words) for argument in resolved.preset.arguments for words in fill(argument, values)]
    yours = [words for word in trainer.arguments for words in fill(Argument((word,)), values)]
    parts += [Part(words, "" if place else "yours, from here on") for place, words in enumerate(yours)]
    return tuple(parts)


def _folder(profile: Profile) -> Word:
    trainer = profile.trainer
    if trainer.working_directory:
        return trainer.working_directory
    return in_run_dir("") if trainer.kind != "script" else trainer.script.rpartition("/")[0] or "/"


def _settings(profile: Profile, resolved: Resolved, job: Job, facts: Facts) -> tuple[Setting, ...]:
    threads = max(1, facts.machine.cpu_count // job.world_size)
    settings = [
        Setting("PYTHONUNBUFFERED", "1", "every line reaches the log at once", "launcher"),
        Setting("OMP_NUM_THREADS", str(threads), "processor cores shared among the processes", "machine"),
    ]
    if job.gpus:
        order = "numbers as nvidia-smi prints them, for tools that show any"
        cards = "the chosen cards by UUID, which is right under any order"
        settings.append(Setting("CUDA_DEVICE_ORDER", "PCI_BUS_ID", order, "machine"))
        settings.append(Setting("CUDA_VISIBLE_DEVICES", ",".join(job.gpus), cards, "profile"))
    else:
        settings.append(Setting("CUDA_VISIBLE_DEVICES", "", "trains on the CPU: hides every card", "profile"))
    settings += LAUNCHERS[resolved.launcher].settings(job)
    settings += nemo.settings(profile.nemo, resolved.gpus) if resolved.nemo else ()
    if profile.recipe.expandable_segments and job.gpus:
        why = "the allocator grows its blocks: less memory lost to fragmentation"
        settings.append(Setting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", why, "ladder"))
    mine = {setting.name: setting for setting in settings}
    yours = {name: Setting(name, value, "yours", "profile") for name, value in profile.trainer.environment.items()}
    return tuple({**mine, **yours}.values())
