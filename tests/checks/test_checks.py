"""Checks: each finds its fault and only that, says what to do, and what it offers to change fixes it."""

import shlex

import pytest
from faults import error, note, warning
from msgspec.structs import replace
from nemo_faults import FAULTS as NEMO_FAULTS
from support import UUIDS, boxed, facts, findings_of, gpu, inside, machine, plan, prepare, profile, toolchain
from tui_train.screens.widgets import preview_lines

from tui_train.checks import CHECKS
from tui_train.facts.data.data_report import (
    AnswersOnlySupport,
    DataImages,
    DataProblem,
    DataQuestion,
    DataReport,
    RewardQuestion,
    RewardTrial,
    TokenCounts,
)
from tui_train.facts.data.data_use import facts_key_of_question as data_key
from tui_train.facts.machine.communication_tests import CommunicationTestResult, Examination, TriedFix
from tui_train.facts.models.dimensions import ModelDimensions
from tui_train.facts.models.hub import CachedModel, HubCache, HubModel
from tui_train.facts.models.model_folders import ModelFolder
from tui_train.facts.other_machines.cluster import Cluster, NodeGroup, Partition, Reservation
from tui_train.facts.types import (
    ContainerEngine,
    ContainerImage,
    FactGap,
    Facts,
    GpuProcess,
    HelpFlag,
    InheritedVariable,
    LogoutEffect,
    NumaNode,
    PcieLink,
    ResourcesInUse,
    ScriptHelp,
    ScriptImport,
    ScriptParameter,
    ScriptSource,
    TrainingHost,
    YamlDocument,
)
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.presets import Preset, PresetArgument, UserPreset
from tui_train.profile.types import Profile
from tui_train.trainers import profile_paths_to_check
from tui_train.trainers.finetune import FinetuneTrainer
from tui_train.views import plain_text

GIB = 2**30
# What finds no fault with them, so that one value can be wrong at a time.
AT_HOME = {"trainer.kind": "script", "trainer.script": "/home/a/t.py", "ladder.rungs": ()}
TWO = facts(gpus=(gpu(0), gpu(1)))
OLD = facts(gpus=(gpu(0, name="NVIDIA GeForce GTX 1080", compute_capability="7.5"),))
# Without a fallback to a smaller batch, for which it must be known.
SCRIPT = {"trainer.kind": "script", "trainer.script": "/t.py", "ladder.rungs": ()}
CUSTOM = SCRIPT | {"trainer.preset": "custom"}
FALLS = SCRIPT | {"ladder.rungs": ("micro_batch",)}
OWN_OUTPUT = {SCRIPT["trainer.script"]: ScriptSource(parameters=(ScriptParameter(name="--out", type="str"),))}
TORCHRUN = {"trainer.launcher": "torchrun"}
ALONE = {SCRIPT["trainer.script"]: ScriptSource(no_process_group=True)}
FSDP2 = {"trainer.strategy": "fsdp2"}
ACCELERATE = CUSTOM | {"trainer.launcher": "accelerate"}
MACHINES = {"nodes.count": 2}
HOSTS = {"nodes.hosts": ("a", "b"), "recipe.global_batch": 32}
MESHED = MACHINES | {"nodes.address": "10.0.0.1", "recipe.global_batch": 32}
WORKERS = SCRIPT | {"trainer.preset": "hf-trainer", "trainer.arguments": ("--dataloader_num_workers=300",)}
UNEVEN = MACHINES | {"nodes.address": "10.0.0.1", "nodes.processes": (2, 1), "recipe.global_batch": 24}
COUNTS = "nodes.processes"
GAP = FactGap("The GPUs cannot be read", "the driver hangs", "Reboot.")
NEWER = replace(machine(gpus=(gpu(0), gpu(1))), driver_cuda="13.0")


def peers(gpus=None, **more):
    """Two hosts with two cards; what the other one has, besides the same."""
    paths = {name: more.pop(name) for name in [*more] if name.startswith("/")}
    tools = (more.pop("first", toolchain()),)
    own = {"machine": machine(gpus=gpus or (gpu(0), gpu(1))), "toolchain": toolchain(), "paths": paths} | more
    first = replace(facts(gpus=(gpu(0), gpu(1)), paths=dict.fromkeys(paths, "file")), toolchains=tools)
    return replace(first, training_hosts={"b": TrainingHost(**own)})


DOCKER = ContainerEngine(name="docker", version="28.2.2", gpus=True)


def peers_in_containers(engine=DOCKER, **of_image):
    """Two hosts with GPUs and the same image but for what is said of the second one's."""
    first = boxed(gpus=(gpu(0), gpu(1)))
    there = replace(first.images[0], toolchain=None, **of_image)
    second = TrainingHost(machine=first.machine, engine=engine, image=None if engine.problem else there)
    return replace(first, training_hosts={"b": second})


def foreign_image():
    """A machine whose image was made for another one."""
    found = boxed()
    images = (replace(found.images[0], architecture="arm64"),)
    return replace(found, machine=replace(found.machine, architecture="x86_64"), images=images)


def configured(config):
    """Two cards, a script that uses accelerate, and what `accelerate config` wrote."""
    return replace(
        facts(gpus=(gpu(0), gpu(1))),
        accelerate_config="/c.yaml",
        documents={"/c.yaml": YamlDocument(values=config)},
        sources={SCRIPT["trainer.script"]: ScriptSource(creates_accelerator=True, mentions_checkpoint=True)},
    )


def found(values, where):
    return findings_of(profile(values), where)


def paths(**states):
    return facts(paths={f"/{name}": state for name, state in states.items()})


def read(**documents):
    """Facts in which these YAML files hold that."""
    more = {f"/{name}.yaml": found for name, found in documents.items()}
    return replace(facts(), documents=more)


def beside(*taken):
    """Two cards, and what live runs have."""
    return replace(TWO, resources_in_use=taken)


NEEDED = (ScriptImport("cv2", 3), ScriptImport("yaml", 2, "net.py"))


def source_of(where, **found):
    """A machine, and what the text of the script says."""
    return replace(where, sources={SCRIPT["trainer.script"]: ScriptSource(**found)})


def reads(**found):
    return source_of(facts(), **found)


def examined():
    """Two cards, and a test of their communication that failed, and worked without something of NCCL."""
    failed = CommunicationTestResult(processes=2, works=False, cause="it broke")
    cure = TriedFix(
        change=Change("without it", "costs nothing", (("communication.without", ("shm",)),)),
        result=CommunicationTestResult(processes=2, works=True),
    )
    return replace(
        TWO,
        communication={make_setup(profile(), TWO).communication_test_key: Examination(result=failed, cures=(cure,))},
    )


def standing(card=None, *, both=None, **fields):
    """Two cards on a machine with these fields; the second card, or both of them, with others of its own."""
    cards = (gpu(0, **(both or {})), gpu(1, **(card or both or {})))
    return replace(TWO, machine=replace(machine(gpus=cards), **fields))


def on_nodes(*nodes, driver_cuda="12.8", **of_cards):
    """Two cards, each on a NUMA node of its own: whether it has memory, how many CPUs, and how many are usable."""
    known = tuple(
        NumaNode(number=number, has_memory=memory, cpus=cpus, usable_cpus=usable)
        for number, (memory, cpus, usable) in enumerate(nodes)
    )
    there = machine(gpus=tuple(gpu(number, numa_node=number, **of_cards) for number in (0, 1)))
    return replace(TWO, machine=replace(there, numa_nodes=known, driver_cuda=driver_cuda))


def at_logout(**what):
    return replace(TWO, machine=replace(TWO.machine, logout=LogoutEffect(**what)))


def hub(model="", answer=None, **cache):
    """Facts with a cache of Hugging Face that has a model, and what the Hub says of acme/new."""
    held = (
        (CachedModel(id="acme/new", folder="/hub/new", architecture=model, causal=model.endswith("CausalLM")),)
        if model
        else ()
    )
    of_hub = HubCache(folder="/hub", **{"free": 9 * GIB, "models": held, **cache})
    return replace(facts(), hub=of_hub, hub_models={"acme/new": answer} if answer else {})


TRL = {"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": "acme/new", "ladder.rungs": ()}
PART = CachedModel(id="acme/new", folder="/hub/new", size=GIB, missing=("model-2.safetensors", "tokenizer"))
PINNED = CachedModel(id="acme/kept", folder="/hub/kept", names=("1" * 40, "v1"))
YAML = {"trainer.preset": "total-batch-yaml", "trainer.config": "/c.yaml", "ladder.rungs": ()} | SCRIPT
BATCH_OF_TWO = {"recipe.micro_batch": 8, "recipe.global_batch": 16}

FINE = {"trainer.kind": "finetune", "trainer.model": "/m", "trainer.data": ("/d.jsonl",)}
TOKENS = TokenCounts(counted=2, total=9, learned=9, epoch=9, shortest=4, median=4, p95=5, longest=5)
FULL = FINE | {"finetune.tuning": "full"}
LOOKED_AT = DataQuestion(files=("/d.jsonl",), model="/m")
TUNED = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0", "bitsandbytes": "0.49.0"}


# What the plan of FINE sets of TRL, but for packing.
TRL_NAMES = (
    "model_name_or_path learning_rate lr_scheduler_type weight_decay num_train_epochs max_steps logging_steps"
    " save_strategy save_steps save_total_limit seed warmup_steps use_peft lora_r lora_alpha lora_dropout"
    " lora_target_modules"
)


def tuned(options=None, **more):
    """A machine that can fine-tune, and has read the data."""
    look = DataReport(**{"rows": 2, "usable": 2, "format": "text"} | more)
    with_data = facts(gpus=(gpu(0), gpu(1)), packages=TUNED, trl_options=options or {})
    return replace(with_data, data={data_key(LOOKED_AT): look})


def named_in_container(*folders):
    """A machine with an image that can fine-tune, and data whose rows name images in folders."""
    look = DataReport(rows=2, usable=2, format="text", images=DataImages(rows=2, count=2, files=2, folders=folders))
    return replace(boxed(packages=TUNED), data={data_key(DataQuestion(files=("/d.jsonl",), rows=2000)): look})


TAKES_PACKING = tuned(options={"": (*TRL_NAMES.split(), "packing"), "sft": ("packing_strategy", "padding_free")})
GRPO = FINE | {"finetune.method": "grpo", "finetune.rewards": ("/x/my.py:score",)}


def tried(**trial):
    """A machine on which a reward was tried on the data."""
    asked = DataQuestion(
        files=("/d.jsonl",),
        model="/m",
        method="grpo",
        rewards=(RewardQuestion("/x/my.py:score", "my.score", "/x/my.py"),),
    )
    look = DataReport(rows=2, usable=2, format="prompt", rewards=(RewardTrial("/x/my.py:score", **trial),))
    return replace(tuned(), data={data_key(asked): look})


def on_host(available):
    """A machine with so many GiB of memory available, that can fine-tune a model of 0.7 billion parameters."""
    small = ModelDimensions(layers=8, hidden=2048, heads=32, ffn=8192, vocab=32000, dtype="bfloat16")
    where = replace(tuned(), models={"/m": ModelFolder(dimensions=small)})
    return replace(where, machine=replace(where.machine, memory_available=available * GIB))


# A model whose weights were read.
LAYERS = replace(
    tuned(), models={"/m": ModelFolder(layer_paths=("model.embed_tokens", "model.layers.0.self_attn.q_proj"))}
)
WITHOUT_IMAGES = replace(
    tuned(), data={data_key(replace(LOOKED_AT, max_pixels=100_000)): DataReport(rows=2, usable=2, format="text")}
)
CLUSTERED = replace(
    facts(),
    scheduler="slurm",
    cluster=Cluster(
        partitions=(Partition(name="gpu", default=True, limit=3600, nodes=(NodeGroup(count=2),)),),
        accounts=("lab",),
        qos=("long", "normal"),
        reservations=(Reservation(name="monday", active=True),),
    ),
)
FAULTS = [
    error(FINE | {"trainer.data": ()}, tuned(), "trainer.data", "no training data is chosen"),
    error(FINE | {"trainer.model": ""}, tuned(), "trainer.model", "no model is chosen"),
    error(FINE, replace(tuned(), paths=dict.fromkeys(FinetuneTrainer(profile(FINE)).own_paths(), "missing")),
        "trainer.model", "no weights in /m"),
    warning(FINE, tuned(usable=1, counts={"empty": 1}), "trainer.data", "1 is empty"),
    error(FINE | {"finetune.tuning": "qlora", "hardware.device": "cpu"}, tuned(), "finetune.tuning", "needs a GPU",
        fix=True),
    warning(FINE, tuned(limit=512), "recipe.sequence_length", "than the 512 tokens", fix=True),
    warning(FINE | {"recipe.learning_rate": 3e-3}, tuned(), "recipe.learning_rate", "is high", fix=True),
    error(FINE | {"recipe.sequence_length": 100_000}, replace(tuned(), models={"/m": ModelFolder(max_tokens=1024)}),
        "recipe.sequence_length", "is more than the 1", fix=True),
    error(TRL | {"trainer.model": "/m", "recipe.sequence_length": 100_000}, replace(facts(packages=TUNED),
        models={"/m": ModelFolder(max_tokens=1024)}), "recipe.sequence_length", "is more than the 1",
        fix=True),
    error({"recipe.learning_rate": 3.0}, facts(), "recipe.learning_rate", "000 x the usual", fix=True),
    note(FINE | {"recipe.checkpoint_every": 60}, tuned(usable=320, rows=320), "recipe.checkpoint_every",
        "no checkpoint before the end: 57 steps", fix=True),
    error(FINE, replace(tuned(), models={"/m": ModelFolder(bad_weights="model.safetensors: it has only 5 of 9 bytes")}),
        "trainer.model", "the weights of the model cannot be loaded: model.safetensors: it has only 5 of 9 bytes"),
    error(SCRIPT | {"trainer.arguments": ("--model_name_or_path=/m",)}, replace(facts(), models={"/m": ModelFolder(
        bad_weights="a.safetensors is missing")}), "trainer.arguments", "cannot be loaded: a.safetensors is missing"),
    error(FINE | {"trainer.model": "/m", "finetune.targets": ("query_key_value", "dense")}, LAYERS, "finetune.targets",
        "the model has no layer called query_key_value or dense: LoRA would have nothing to train", fix=True),
    warning(FINE | {"trainer.model": "/m", "finetune.targets": ("q_proj", "c_attn")}, LAYERS, "finetune.targets",
        "called c_attn: only q_proj would get an adapter", fix=True),
    warning(FINE | {"recipe.steps": 200, "recipe.epochs": 2.0}, tuned(), "recipe.epochs", "ends after 200 steps",
        fix=True),
    note(FINE | {"finetune.tuning": "full", "ladder.rungs": ("lora",), "ladder.consent": ("lora",)}, tuned(),
        "recipe.learning_rate", "learning rate, 0.0002"),
    error(FINE | {"finetune.method": "kto", "recipe.micro_batch": 1}, tuned(), "recipe.micro_batch",
        "needs a micro batch of 2"),
    error(FINE, tuned(format="messages", images=DataImages(rows=2, count=3, text_only=True)), "trainer.model",
        "2 rows have images, and /m reads text only"),
    error(FINE, tuned(format="messages", processor="no torchvision"),
        "trainer.python", "the processor of /m for text too: no torchvision"),
    error(FINE, tuned(format="messages", images=DataImages(rows=2, count=3, problem="no torchvision")),
        "trainer.python", "cannot be read as /m reads them: no torchvision"),
    error(FINE, tuned(format="messages", images=DataImages(rows=2, count=3, problem="no torchvision",
        needs_torchvision=True)), "trainer.python", "cannot be read as /m reads them: no torchvision"),
    error(FINE, tuned(format="messages", images=DataImages(rows=2, count=3, checked=False)), "trainer.python",
        "this Python has no Pillow"),
    error(FINE | {"finetune.packing": True}, tuned(format="messages", images=DataImages(rows=2, count=3)),
        "finetune.packing", "which TRL does not pack", fix=True),
    warning(FINE | {"finetune.packing": True, "trainer.arguments": ("--packing_strategy", "wrapped")}, TAKES_PACKING,
        "trainer.arguments", "wrapped packing cuts samples", fix=True),
    error(FINE | {"trainer.arguments": ("--padding_free=True",)}, TAKES_PACKING, "trainer.arguments",
        "TRL refuses that", fix=True),
    error(FINE | {"recipe.fused_cross_entropy": True}, tuned(), "recipe.fused_cross_entropy",
        "fused cross entropy needs liger-kernel, which", fix=True),
    error(FULL | {"finetune.freeze_vision": True}, tuned(), "finetune.freeze_vision",
        "no option of it freezes the vision tower", fix=True),
    error(FINE | {"finetune.freeze_vision": True, "finetune.targets": ("q_proj",)}, tuned(), "finetune.freeze_vision",
        "layers are named for LoRA", fix=True),
    warning(FINE | {"data.max_pixels": 100_000}, WITHOUT_IMAGES, "data.max_pixels",
        "Image pixels is set", fix=True),
    error(FINE | {"finetune.freeze_vision": True}, LAYERS, "finetune.freeze_vision",
        "/m reads no images", fix=True),
    error(GRPO | {"finetune.rewards": ()}, tuned(), "finetune.rewards", "GRPO needs a reward function"),
    error(GRPO | {"finetune.rewards": ("/x/my.py",)}, tuned(), "finetune.rewards", "/x/my.py names no function"),
    error(GRPO, replace(tuned(), paths={"/x/my.py": "missing"}), "finetune.rewards", "there is no /x/my.py"),
    error(GRPO | {"finetune.rewards": ("/x/my.py:a", "/y/my.py:b")}, tuned(), "finetune.rewards",
        "have the same module name"),
    error(GRPO | {"finetune.generations": 5}, tuned(), "recipe.global_batch", "whole groups of 5 answers", fix=True),
    error(GRPO, tried(problem="line 3: KeyError: 'x'"), "finetune.rewards", "as a reward: line 3: KeyError"),
    warning(GRPO, tried(untried="it gave no answer in time"), "finetune.rewards", "my.py:score was not tried"),
    warning(GRPO, tried(seconds=7.0), "finetune.rewards", "my.py:score took 7 s for three answers"),
    error(FINE | {"trainer.arguments": ("--use_peft=False",)}, tuned(), "trainer.arguments",
        "--use_peft=False would override what", fix=True),
    note(FINE | {"trainer.arguments": ("--nonsense=1",)}, tuned(), "trainer.arguments",
        "whether this TRL takes --nonsense=1"),
    warning(FINE, tuned(options={"": tuple(TRL_NAMES.split()), "sft": ()}), "trainer.python",
        "ignores 1 value of the plan: packing"),
    note(FINE, tuned(format="messages", chat=True, answers=AnswersOnlySupport(why="the template does not mark answers"),
        tokens=TOKENS), "finetune.answers_only", "the users' messages are learned as well"),
    warning(FINE | {"data.evaluation": 0.1, "recipe.evaluate_every": 30, "recipe.checkpoint_every": 100}, tuned(),
        "recipe.checkpoint_every", "the best checkpoint may be lost", fix=True),
    note(FINE | inside() | {"finetune.answers_only": True, "hardware.device": "cpu"}, boxed(packages=TUNED),
        "finetune.answers_only", "the data has not been read here"),
    error(FINE | {"data.weights": (1, 2)}, tuned(), "data.weights", "2 weights for 1 file", fix=True),
    warning(FINE | {"recipe.evaluate_every": 5}, tuned(), "recipe.evaluate_every", "so nothing is evaluated", fix=True),
    error({"trainer.model": "acme/new"}, hub("LlamaForCausalLM"), "trainer.model", "loads a folder", fix=True),
    error(TRL | {"trainer.revision": "a b"}, hub("LlamaForCausalLM"), "trainer.revision",
        "cannot be the name of a revision", fix=True),
    warning(TRL | {"trainer.revision": "v1", "trainer.model": "acme/kept"}, replace(facts(packages={"trl": "1.12.0"}),
        hub=HubCache(folder="/hub", models=(PINNED,))), "trainer.revision",
        "TRL 1.12.0 takes the tokenizer of acme/kept from main"),
    warning(TRL, hub("BertForMaskedLM"), "trainer.model", "is a BertForMaskedLM"),
    note(TRL, hub(answer=HubModel(size=3 * GIB)), "trainer.model", "training: 3.0 GiB"),
    note(TRL, hub(answer=HubModel(size=3 * GIB), models=(PART,)), "trainer.model", "training: 2.0 GiB"),
    note(TRL, facts(), "trainer.model", "unknown whether"),
    error(TRL, hub(answer=HubModel(size=10 * GIB)), "trainer.model", "needs 10.0 GiB"),
    error(TRL, hub(answer=HubModel(size=3 * GIB), unwritable="you may not write in /hub"), "trainer.model",
        "acme/new cannot be downloaded to /hub: you may not write in /hub"),
    error(TRL, hub(offline=True, models=(PART,)), "trainer.model", "lacks model-2."),
    error(TRL, hub(answer=HubModel(refusal="missing", problem="none")), "trainer.model", "no public model acme/new"),
    warning(TRL, hub(answer=HubModel(refusal="unreachable", problem="no route")), "trainer.model",
        "cannot be reached: no route"),
    error(TRL, replace(hub(), toolchains=(toolchain("/p", transformers=None),)), "trainer.model", "no huggingface_hub"),
    error({"trainer.python": "/gone"}, facts(), "trainer.python", "/gone was not", machine=True),
    error({"trainer.python": "/p"}, facts(python="/p", torch=None), "trainer.python", "has no torch", machine=True),
    warning({"trainer.launcher": "torchrun"}, facts(gpus=(gpu(0), gpu(1), gpu(2, "GPU-2", problem="it is lost"))),
        "hardware.gpus", "GPU 2 cannot be opened: it is lost"),
    warning({"hardware.gpus": UUIDS}, facts(gpus=(gpu(0), gpu(1), *(gpu(n, f"GPU-{n}") for n in range(2, 33)))),
        "hardware.gpus", "more than 32 GPUs"),
    error({"communication.backend": "nccl", "hardware.processes": 2}, facts(), "communication.backend",
        "NCCL works on GPUs only", fix=True),
    warning({"communication.backend": "gloo"}, TWO, "communication.backend", "Gloo is slow on GPUs", fix=True),
    error({"communication.without": ("p3p",)}, TWO, "communication.without", "no option named p3p"),
    error({"communication.interface": "eth9"}, replace(TWO, machine=replace(TWO.machine, interfaces=("lo", "eth0"))),
        "communication.interface", "no network interface eth9", machine=True),
    warning({}, examined(), "communication.backend", "reach each other: it broke", fix=True),
    warning({"trainer.environment": {"ACCELERATE_USE_GLOO": "1"}}, facts(), "trainer.environment",
        "no version of accelerate reads it", fix=True),
    warning({"trainer.environment": {"NCCL_IB_DISABLED": "1"}}, TWO, "trainer.environment",
        "nothing reads a variable of that name: NCCL_IB_DISABLE is meant", fix=True),
    warning({}, replace(TWO, variables=(InheritedVariable("CUDA_VISIBLE_DEVICES", "the environment", value="1"),)),
        "hardware.gpus", "of your shell is not followed: GPU 0, GPU 1 would train", fix=True),
    error({"trainer.kind": "script", "trainer.preset": "axolotl", "trainer.config": "/c.yaml"},
        replace(facts(packages={}), documents={"/c.yaml": YamlDocument()}), "trainer.python", "has no axolotl",
        machine=True),
    error(TRL | {"trainer.model": "/m"}, facts(python="/p", modules=("torch",)), "trainer.python",
        "/p has no trl, which “TRL” needs", machine=True),
    warning(MACHINES | {"nodes.address": "localhost"}, facts(), "nodes.address", "this machine's name for itself"),
    error({"trainer.python": "/p"}, facts(python="/p", problem="it crashed"), "trainer.python", "it crashed",
        machine=True),
    error({"trainer.preset": "axolotl", "trainer.kind": "script"}, facts(), "trainer.config",
        "needs a config file, and none is set"),
    error({"trainer.config": "/c.yaml"} | SCRIPT, facts(), "trainer.config",
        "(trainer.config) is set, but not used: “Hugging Face Trainer” does not take it", fix=True),
    error(YAML, facts(paths={"/c.yaml": "missing"}), "trainer.config", "/c.yaml does not exist"),
    error(YAML, facts(), "trainer.config", "still being read"),
    error(YAML, read(c=YamlDocument(problem="it is not YAML: line 3")), "trainer.config",
        "/c.yaml cannot be used: it is not YAML: line 3"),
    error(YAML, read(c=YamlDocument(values={"training": 5})), "trainer.config",
        "training in /c.yaml is a single value"),
    warning(SCRIPT, replace(facts(), presets={"hf-trainer": UserPreset(path="/p", problem="it is a shipped one")}),
        "trainer.preset", "it is a shipped one"),
    error({"trainer.preset": "mine"} | SCRIPT, replace(facts(), presets={"mine": UserPreset(path="/p",
        problem="/p: label: is empty")}), "trainer.preset", "mine cannot be used: /p: label: is empty", fix=True),
    error({"trainer.preset": "custom", "trainer.progress": "step ("} | SCRIPT, facts(), "trainer.progress",
        "the expression is not a regular expression", fix=True),
    error({"trainer.preset": "custom", "trainer.progress": r"(?P<step>(\d+)+)x"} | SCRIPT, facts(), "trainer.progress",
        "takes hours", fix=True),
    error({"tracking.tensorboard": True}, facts(), "tracking.tensorboard", "not have the package tensor", fix=True),
    error({"tracking.trackio": True}, facts(packages={"trackio": "0.43.0"}, transformers="4.53.3"), "tracking.trackio",
        "transformers 4.53.3", fix=True),
    error({"trainer.preset": "accelerate", "tracking.wandb": True, "tracking.trackio": True} | SCRIPT,
        facts(packages={"wandb": "0.31.0", "trackio": "0.43.0"}), "tracking.wandb", "reports to one tracker", fix=True),
    error({"trainer.preset": "custom", "tracking.wandb": True} | SCRIPT, facts(packages={"wandb": "0.31.0"}),
        "tracking.wandb", "has no argument for it", fix=True),
    warning({"tracking.wandb": True}, replace(facts(packages={"wandb": "0.31.0"}), wandb_key=False), "trainer.secrets",
        "tracking.wandb is chosen", fix=True),
    error({}, Facts(machine=facts().machine), "trainer.python", "none was found", machine=True),
    error({}, facts(label="here", accelerate=None, transformers=None), "trainer.python", "here has no accelerate",
        machine=True),
    error({"hardware.gpus": ("GPU-x",)}, facts(gpus=(gpu(0),)), "hardware.gpus", "GPU-x is not in", machine=True),
    error({"hardware.gpus": UUIDS[:1]}, facts(gpus=(gpu(0, problem="lost"), gpu(1))), "hardware.gpus", "lost",
        machine=True),
    warning({"hardware.gpus": UUIDS} | TORCHRUN, facts(gpus=(gpu(0), gpu(1, memory_total=2 * GIB))), "hardware.gpus",
        "limit the others"),
    error({"hardware.device": "cuda"}, facts(), "hardware.device", "none was found", fix=True, machine=True),
    error({"hardware.device": "cuda"}, facts(gpus=(gpu(0, problem="lost one"), gpu(1, problem="lost two"))),
        "hardware.device", "lost one; GPU 1 NVIDIA GeForce RTX 3090: lost two", fix=True, machine=True),
    error({"hardware.device": "cuda"}, replace(facts(), machine=replace(machine(), gaps=(GAP,))),
        "hardware.device", "the driver hangs", fix=True, machine=True),
    error({}, facts(gpus=(gpu(0),), cuda=None), "hardware.device",
        "1 RTX 3090 is idle: this Python's torch cannot use GPUs", fix=True, machine=True),
    error({}, facts(gpus=(gpu(0, sm_clock_max=1500), gpu(1, compute_capability="12.0", sm_clock_max=1900)),
        arch_list=("sm_86",)), "hardware.gpus", "would train; 1 RTX 3090 is idle: this Python's torch", fix=True,
        machine=True),
    error({"trainer.launcher": "python"}, TWO, "trainer.launcher", "2 can train", fix=True),
    error({"hardware.gpus": UUIDS, "trainer.launcher": "python"}, TWO, "trainer.launcher", "2 are wanted", fix=True),
    error({"hardware.processes": 4, "recipe.global_batch": 32} | TORCHRUN, TWO, "hardware.processes",
        "4 processes on 2 GPUs", fix=True),
    error(HOSTS | {"hardware.processes": 4, "recipe.global_batch": None}, peers(), "hardware.processes",
        "4 processes on 2 GPUs", fix=True),
    error({"hardware.processes": 1} | TORCHRUN, TWO, "hardware.processes", "1 process on 2 GPUs", fix=True),
    error({"recipe.micro_batch": 8, "recipe.global_batch": 20}, facts(), "recipe.global_batch",
        "20 is not a multiple of micro batch 8 x 1", fix=True),
    error({"recipe.hidden_size": 100}, facts(), "recipe.hidden_size", "2 × 4 heads", fix=True),
    error({"recipe.precision": "fp16"}, facts(), "recipe.precision", "on the CPU", fix=True),
    error({"recipe.precision": "bf16"}, OLD, "recipe.precision", "RTX 30, A100", fix=True),
    error(SCRIPT | {"trainer.script": ""}, facts(), "trainer.script", "no script is named"),
    error(SCRIPT, paths(**{"t.py": "missing"}), "trainer.script", "/t.py does not"),
    error(SCRIPT, replace(paths(**{"t.py": "missing"}), other_machine="box"), "trainer.script",
        "does not exist on box"),
    error(SCRIPT, paths(**{"t.py": "folder"}), "trainer.script", "is not a file"),
    error({"trainer.data": ("/a", "/b")}, paths(a="file", b="missing"), "trainer.data", "/b"),
    error({"trainer.data": ("/a",)}, paths(a="unreadable"), "trainer.data", "cannot be"),
    error({"trainer.model": "/m"}, paths(m="file"), "trainer.model", "is not a folder"),
    error({"trainer.working_directory": "/w"}, paths(w="missing"), "trainer.working_directory", "does not"),
    error({"trainer.output": "/o"}, paths(o="file"), "trainer.output", "is a file", fix=True),
    error({"trainer.output": "/o"}, replace(facts(), unwritable={"/o": "you may not write in /"}), "trainer.output",
        "/o cannot be used: you may not write in /", fix=True),
    error({}, replace(facts(), free={"": 5 << 20}), "trainer.output",
        "a checkpoint takes 10 MiB (weights 3 MiB, optimizer 6 MiB), and the disk of the runs has 5 MiB free"),
    warning({"trainer.output": "/o"}, replace(facts(), free={"": GIB, "/o": 25 << 20}), "trainer.output",
        "3 checkpoints of 10 MiB at a time take up to 29 MiB, and /o has 25 MiB free", fix=True),
    warning({"trainer.output": "/o"}, paths(o="folder"), "trainer.output", "already"),
    warning({}, replace(facts(), temporary_folder="/t", free={"/t": 1 << 20}), "trainer.environment",
        "temporary files cannot be made in /t: 1 MiB are free"),
    error({"trainer.environment": {"CUDA_VISIBLE_DEVICES": "1"}}, facts(), "trainer.environment",
        "CUDA_VISIBLE_DEVICES is set by tui-train"),
    error({"trainer.environment": {"HF_TOKEN": "x"}}, facts(), "trainer.environment", "looks like a secret", fix=True),
    error({"trainer.environment": {"a b": "x"}}, facts(), "trainer.environment", "'a b' is not a variable name"),
    error({"trainer.secrets": ("HF_TOKEN=hf_x",)}, facts(), "trainer.secrets", "is not a variable name"),
    error({"ladder.rungs": ("micro",)}, facts(), "ladder.rungs", "no fallback micro"),
    error({"ladder.rungs": ("micro_batch",) * 2}, facts(), "ladder.rungs", "twice", fix=True),
    warning({"ladder.rungs": ("layers",)}, facts(), "ladder.consent", "not allowed yet", fix=True),
    note({"ladder.consent": ("layers",)}, facts(), "ladder.consent", "is allowed, but is not tried", fix=True),
    note({"recipe.checkpoint_every": 61}, facts(), "recipe.checkpoint_every", "60 steps, one every 61;", fix=True),
    warning({"hardware.gpus": UUIDS[:1]}, facts(gpus=(gpu(0, processes=(GpuProcess(7, "python", "ada", 20 * GIB),)),)),
        "hardware.gpus", "is busy: "),
    warning({"trainer.arguments": ("--x={microbatch}", '--json={"a":{}}')}, facts(), "trainer.arguments",
        "{microbatch} is no placeholder"),
    warning({"trainer.offload": True}, TWO, "trainer.offload", "ddp does not shard", fix=True),
    error(FSDP2, facts(), "trainer.strategy", "shards none on the CPU", fix=True),
    error(FSDP2 | TORCHRUN, TWO, "trainer.strategy", "needs the launcher acc", fix=True),
    error(FSDP2, facts(gpus=(gpu(0),)), "trainer.strategy", "there is only one", fix=True),
    warning({"recipe.evaluate_every": 5}, facts(), "recipe.evaluate_every",
        "nothing is evaluated", fix=True),
    warning(FSDP2 | SCRIPT | BATCH_OF_TWO | {"trainer.preset": "total-batch"}, TWO, "trainer.strategy",
        "could not be seen"),
    error({"trainer.strategy": "zero3", "trainer.python": "/p"} | SCRIPT, facts(python="/p", gpus=(gpu(0), gpu(1))),
        "trainer.python", "has no deepspeed", machine=True),
    error(FSDP2 | {"trainer.python": "/p"}, facts(python="/p", gpus=(gpu(0), gpu(1)), accelerate="1.4.0"),
        "trainer.python", "accelerate 1.4.0, and fsdp2 needs 1.6", machine=True),
    error(SCRIPT | {"trainer.preset": "accelerate", "recipe.epochs": 1.5}, facts(), "recipe.epochs",
        "takes whole epochs, and 1.5 are set", fix=True),
    error({"communication.without": ("p2p",), "trainer.environment": {"NCCL_P2P_DISABLE": "0"}} | TORCHRUN, TWO,
        "trainer.environment", "NCCL_P2P_DISABLE=0 in your environment overrides communication.without", fix=True),
    warning(ACCELERATE, configured({"distributed_type": "MEGATRON_LM"}), "trainer.accelerate_config",
        "is for MEGATRON_LM"),
    error(ACCELERATE, configured({"distributed_type": "NO", "parallelism_config": {"parallelism_config_tp_size": 2}}),
        "trainer.accelerate_config", "parallelism_config in"),
    warning(ACCELERATE, configured({"distributed_type": "NO", "backend": "gloo"}), "trainer.accelerate_config",
        "backend in your accelerate config"),
    note(ACCELERATE | {"hardware.device": "cpu"}, configured({"distributed_type": "NO", "mixed_precision": "fp16"}),
        "recipe.precision", "sets fp16 for GPUs"),
    note(ACCELERATE, configured({"distributed_type": "MULTI_GPU", "enable_cpu_affinity": True}), "trainer.environment",
        "has no effect", fix=True),
    warning(ACCELERATE | {"trainer.preset": "hf-trainer"}, configured({"distributed_type": "FSDP", "num_processes": 2}),
        "trainer.strategy", "shards the model (FSDP)", fix=True),
    note(ACCELERATE, configured({"distributed_type": "MULTI_GPU", "num_processes": 4}), "hardware.processes",
        "starts 4 processes, and this plan 2"),
    warning(CUSTOM, configured({"distributed_type": "NO", "mixed_precision": "bf16"}), "trainer.launcher",
        "only `accelerate launch` reads", fix=True),
    error({"slurm.partition": "a b", "hardware.device": "cpu"}, replace(facts(), scheduler="slurm"), "slurm.partition",
        "cannot be the value of slurm.partition"),
    error({"slurm.partition": "gpux", "hardware.device": "cpu"}, CLUSTERED, "slurm.partition", "no partition gpux",
        fix=True, machine=True),
    error({"slurm.account": "other", "hardware.device": "cpu"}, CLUSTERED, "slurm.account", "no account other",
        fix=True, machine=True),
    warning({"slurm.options": ("--qos=fast",), "hardware.device": "cpu"}, CLUSTERED, "slurm.options", "no QOS fast",
        fix=True, machine=True),
    error({"slurm.options": ("--reserv=fri",), "hardware.device": "cpu"}, CLUSTERED, "slurm.options",
        "no reservation fri", fix=True, machine=True),
    error({"slurm.time": "2:00:00", "hardware.device": "cpu"}, CLUSTERED, "slurm.time", "above that of gpu", fix=True,
        machine=True),
    error({"nodes.count": 3, "hardware.device": "cpu", "recipe.global_batch": 24}, CLUSTERED, "nodes.count",
        "gpu has 2", fix=True, machine=True),
    error(HOSTS | {"hardware.device": "cpu"}, replace(facts(), scheduler="slurm"), "nodes.hosts", "Slurm chooses",
        fix=True),
    error({"nodes.hosts": ("a",)}, facts(), "nodes.hosts", "only host", fix=True),
    error({"nodes.hosts": ("a", "a")}, facts(), "nodes.hosts", "twice"),
    error({"nodes.hosts": ("a", "-oX=y")}, facts(), "nodes.hosts", "not a host"),
    error(HOSTS | {"nodes.count": 3}, facts(), "nodes.count", "2 hosts", fix=True),
    error(HOSTS, peers(problem="Permission denied"), "nodes.hosts", "b: Perm", fix=True, machine=True),
    error(HOSTS, replace(peers(), training_hosts=dict.fromkeys("ab", TrainingHost(is_first=True))), "nodes.hosts",
        "a and b are the same machine", fix=True, machine=True),
    warning(HOSTS, peers(machine=None), "nodes.hosts", "not known", machine=True),
    error(HOSTS, peers(is_first=True), "nodes.hosts", "start on b, but the first", fix=True, machine=True),
    error(HOSTS, replace(peers(), training_hosts={"a": TrainingHost(is_first=False)}), "nodes.hosts",
          "start on this machine, but the first", fix=True, machine=True),
    error(HOSTS, peers(same_as="a"), "nodes.hosts", "a and b are the same machine", fix=True, machine=True),
    error(HOSTS, peers(toolchain=None), "nodes.hosts", "does not run there", fix=True, machine=True),
    warning(HOSTS, peers(toolchain=toolchain(problem="it did not answer")), "nodes.hosts",
        "could not be examined there: it did not answer", machine=True),
    error(HOSTS, peers(toolchain=toolchain(torch="2.6.0+cu124")), "nodes.hosts", "b: torch 2.6.0+cu124", fix=True,
        machine=True),
    warning(HOSTS, peers(machine=NEWER, toolchain=toolchain(torch="2.13.0+cu130", cuda="13.0")), "nodes.hosts",
        "for CUDA 13.0, a has it for 12.8", machine=True),
    warning(HOSTS, peers(toolchain=toolchain(version="3.12.1", accelerate="1.0.0")), "nodes.hosts",
        "b: Python 3.12, accelerate 1.0.0; a has 3.11, 1.15.0", machine=True),
    error(HOSTS | {"recipe.global_batch": None}, peers(gpus=(gpu(0),)), "nodes.hosts", "1 GPU, and a trains on 2",
        fix=True, machine=True),
    warning(HOSTS, peers(gpus=(gpu(0), gpu(1, name="NVIDIA H100"))), "nodes.hosts", "b: 1 × NVIDIA H100", machine=True),
    error(HOSTS | SCRIPT, peers(**{"/t.py": "missing"}), "nodes.hosts", "there is no /t.py", fix=True, machine=True),
    error(HOSTS | SCRIPT, source_of(peers(first=toolchain(modules=("torch", "cv2", "yaml")), toolchain=toolchain(
        modules=("torch", "yaml"))), imports=NEEDED), "nodes.hosts", "b: there is no cv2, which the script imports",
        fix=True, machine=True),
    error(HOSTS | inside(), peers_in_containers(engine=replace(DOCKER, problem="it is not installed")), "nodes.hosts",
        "b: docker cannot be used: it is not installed", fix=True, machine=True),
    error(HOSTS | inside(), peers_in_containers(engine=replace(DOCKER, gpus=False)), "nodes.hosts",
        "b: docker cannot show the GPUs", fix=True, machine=True),
    error(HOSTS | inside(), peers_in_containers(missing=True), "nodes.hosts", "b: the image nemo:25.04 is not there",
        fix=True, machine=True),
    error(HOSTS | inside(), peers_in_containers(id="2"), "nodes.hosts", "b: nemo:25.04 is another image there",
        fix=True, machine=True),
    error(inside(), replace(boxed(), engines=None, other_machine="box.json"), "container.engine",
        "can only be looked into on the machine that trains, and that is box.json"),
    error(inside(), foreign_image(), "container.image", "nemo:25.04 is for arm64, and this machine is amd64",
        machine=True),
    error(inside(image="nemo:99"), replace(boxed(), other_machine="gpu-box"), "container.image",
        "nemo:99 is not on gpu-box", machine=True),
    warning(HOSTS, peers(clock_offset=-240.0), "nodes.hosts", "4 minutes behind", machine=True),
    error(UNEVEN | {"nodes.processes": (2, 1, 1)}, facts(), COUNTS, "3 numbers", fix=True),
    error(UNEVEN | {"nodes.processes": (3, 1)}, facts(gpus=(gpu(0), gpu(1))), COUNTS,
        "says 3 for the first machine, which trains on 2 GPUs", fix=True),
    error(UNEVEN | {"trainer.launcher": "accelerate"}, facts(), COUNTS, "accelerate starts the same number", fix=True),
    error({"nodes.count": 2, "nodes.processes": (2, 1), "hardware.device": "cpu", "recipe.global_batch": 24}, CLUSTERED,
        COUNTS, "Slurm starts the same number", fix=True),
    error(MACHINES, facts(), "nodes.address", "2 machines train"),
    error(MACHINES | {"nodes.address": "10.0.0.1 10.0.0.2"}, facts(), "nodes.address", "is not an address"),
    warning(MACHINES | {"nodes.address": "10.0.0.1", "nodes.port": 80}, facts(), "nodes.port", "opened by root",
        fix=True),
    error(inside("podman"), replace(boxed(), images=boxed("podman").images, toolchains=facts().toolchains),
        "container.engine", "podman cannot be used: it is not installed", fix=True, machine=True),
    error(inside(), replace(boxed(about={"problem": "you may not use it"}), toolchains=facts().toolchains),
        "container.engine", "docker cannot be used: you may not", fix=True, machine=True),
    error(inside(), boxed(gpus=(gpu(0),), about={"gpus": False}), "container.engine",
        "NVIDIA's Container Toolkit is not set up", machine=True),
    warning(inside("none"), facts(), "container.image",
        "(container.image) is set, but not used: no container is chosen", fix=True),
    warning(inside() | {"trainer.python": "/p"}, boxed(), "trainer.python", "the image has its own Python", fix=True),
    error(inside(image=""), boxed(), "container.image", "no image is named"),
    error(inside(image="--privileged"), boxed(), "container.image", "not a valid image name"),
    error(inside("apptainer", "x.sif"), boxed("apptainer", "x.sif"), "container.image", "not an absolute path"),
    error(inside(image="nemo:99"), boxed(), "container.image", "nemo:99 is not on this machine", machine=True),
    error(inside(), replace(boxed(), images=(ContainerImage(engine="docker", name="nemo:25.04",
        problem="no `python`"),)), "container.image", "cannot train this: no `python`", machine=True),
    error(inside(), boxed(torch=None), "container.image", "has no torch", machine=True),
    error(inside(container__shared_memory="lots"), boxed(), "container.shared_memory", "'lots' is not a memory",
        fix=True),
    note(inside("apptainer", "/x.sif", container__shared_memory="1g"), boxed("apptainer", "/x.sif"),
        "container.shared_memory", "always shares", fix=True),
    error(inside(container__mounts=("/data",)), boxed(), "container.mounts", "/data does not say what to mount"),
    error(inside(container__mounts=("/data:/d",)), boxed(paths={"/data": "missing"}), "container.mounts",
        "/data does not exist"),
    error(inside(container__mounts=("/data:/usr",)), boxed(), "container.mounts", "hide the image"),
    error(inside() | {"trainer.kind": "script", "trainer.script": "/opt/t.py", "ladder.rungs": ()}, boxed(),
        "trainer.script", "/opt would hide"),
    warning(inside() | {"trainer.environment": {"HF_HOME": "/big/hf"}}, boxed(), "trainer.environment",
        "HF_HOME=/big/hf is not mounted", fix=True),
    warning(inside(container__mounts=("/data:/mnt:ro",)) | AT_HOME | {"trainer.arguments": ("--model=/models/x",
        "/home/a/c.yaml", "/mnt/d", "--lr=1/2")}, boxed(), "container.mounts", "does not see /models/x",
        fix=True),
    warning(inside() | AT_HOME | {"trainer.environment": {"PYTHONPATH": "/home/a:/lib/own"}}, boxed(),
        "container.mounts", "does not see /lib/own", fix=True),
    error(FINE | inside(container__mounts=("/d/a:/d/a",)), named_in_container("/d/a/b", "/d/pics"), "container.mounts",
        "rows of the data name images in /d/pics, which the container does not see", fix=True),
    error(inside("podman") | AT_HOME | {"trainer.output": "/a:b,c"}, boxed("podman"), "trainer.output",
        "cannot mount /a:b,c"),
    error({"hardware.gpus": UUIDS[:1]}, beside(ResourcesInUse(run="a", gpus=UUIDS[:1])), "hardware.gpus",
        "the run a is already training on 1 GPU of these", fix=True, machine=True),
    error({}, beside(ResourcesInUse(run="a", gpus=UUIDS)), "hardware.gpus", "the run a is already training on 2 GPUs",
        machine=True),
    warning(SCRIPT | {"trainer.arguments": ("--out=/data//out/",)},
        replace(beside(ResourcesInUse(run="a", outputs=("/data/out",))), sources=OWN_OUTPUT), "trainer.arguments",
        "the run a is already writing to /data/out", machine=True),
    warning(SCRIPT | {"trainer.arguments": ("--out=/data/m.pt",)},
        replace(beside(ResourcesInUse(run="a", saved=("/data/m.pt",), command=(SCRIPT["trainer.script"],))),
            sources=OWN_OUTPUT), "trainer.arguments",
        "/data/m.pt, saved by the run a, would be written over", machine=True),
    error({"trainer.output": "/data//out/"}, beside(ResourcesInUse(run="a", outputs=("/data/out",))), "trainer.output",
        "the run a is already writing to /data/out", machine=True),
    error(MACHINES | {"nodes.address": "10.0.0.1", "trainer.launcher": "torchrun", "recipe.global_batch": 32},
        beside(ResourcesInUse(port=29500)), "nodes.port", "another program uses port 29500", fix=True, machine=True),
    warning({}, at_logout(kills=True), "hardware.device", "ends all your processes when you log out"),
    note({}, at_logout(removes_shared_memory=True), "hardware.device", "RemoveIPC=yes"),
    note({}, at_logout(unknown="no answer in time"), "hardware.device", "no answer in time"),
    warning({}, standing(shm_total=64 << 20, shm_free=30 << 20), "communication.backend",
        "has 30 MiB free of 64 MiB, and NCCL needs about 37 MiB for 2 processes"),
    warning(inside(container__shared_memory="30m"), boxed(gpus=(gpu(0), gpu(1))), "container.shared_memory",
        "the container's shared memory (/dev/shm) has 30 MiB, and NCCL needs about 37 MiB", fix=True),
    warning(MESHED, standing(both={"peers": (0, 1)}, shm_free=50 << 20), "communication.backend",
        "NCCL needs about 63 MiB"),
    warning({}, standing(shm_problem="does not exist"), "communication.backend",
        "does not exist, and NCCL cannot start without it"),
    warning(WORKERS, replace(facts(), machine=replace(machine(), shm_problem="is read-only")), "communication.backend",
        "is read-only, and 300 DataLoader workers cannot"),
    note({}, standing(shm_file_system="overlay"), "communication.backend", "is a folder on a disk (overlay)"),
    warning({}, standing(max_open_files=200), "hardware.device", "may open 200 files, and needs about 256"),
    warning(WORKERS, replace(facts(), machine=replace(machine(), max_open_files=1024)), "hardware.device",
        "needs about 3256 with 300 DataLoader workers"),
    warning({}, standing(free_tasks=99), "hardware.device",
        "99 more processes and threads may be started, and 2 processes need about 130"),
    warning(HOSTS, peers(machine=replace(machine(gpus=(gpu(0), gpu(1))), free_tasks=9)), "nodes.hosts",
        "b: 9 more processes"),
    warning(MESHED, standing(rdma_devices=("mlx5_0",), max_locked_bytes=8 << 20), "communication.backend",
        "a process may lock 8 MiB of memory: too little for NCCL over mlx5_0"),
    warning({}, on_nodes((True, 8, 8), (False, 8, 8)), "communication.without",
        "without memory (NUMA node 1)", fix=True),
    warning({}, on_nodes((True, 0, 0), (True, 8, 8)), "communication.without", "without CPUs (NUMA node 0)", fix=True),
    note({}, on_nodes((True, 8, 8), (True, 8, 0)), "hardware.gpus", "copies to GPU 1 are slow"),
    warning({}, standing({"uncorrected_errors": 2, "repair": "pending"}), "hardware.gpus",
        "GPU 1 NVIDIA GeForce RTX 3090 had 2 memory errors"),
    warning({}, standing({"repair": "failed"}), "hardware.gpus", "its memory is faulty and could not be repaired"),
    note({}, standing({"repair": "pending"}), "hardware.gpus", "faulty memory is replaced"),
    warning({}, standing({"throttled_by": ("the power limit", "overheating")}), "hardware.gpus",
        "is slowed down now by overheating"),
    note({}, standing({"power_limit": 200, "power_limit_default": 350}), "hardware.gpus",
        "is limited to 200 W (its default is 350 W)"),
    note({}, standing({"pcie": PcieLink(1, 4, 4, 16, 16)}), "hardware.gpus", "uses 4 of 16 PCIe lanes"),
    warning(FULL, on_host(3), "trainer.model", "2 processes load the model into the machine's main memory"),
    warning(FULL | FSDP2 | {"trainer.offload": True}, on_host(7), "trainer.offload",
        "main memory (offload), and 7.0 GiB"),
    error(CUSTOM | {"trainer.arguments": ("--hub", "hf_" + "a" * 30)}, facts(), "trainer.arguments",
        "--hub looks like a secret"),
    warning(CUSTOM | {"trainer.arguments": ("-p", "hunter22")}, facts(), "trainer.arguments", "-p looks like a secret"),
    error({"hardware.host": "gpu-box", "notify.webhook": "https://hooks.example.org/x"}, facts(), "notify.webhook",
        "lies in a file on this machine, and gpu-box"),
    warning(FALLS | {"trainer.arguments": ("--a", "--per_device_train_batch_size", "2", "--b=1")}, facts(),
        "trainer.arguments", "--per_device_train_batch_size 2 in your arguments sets the batch", fix=True),
    error(FALLS | BATCH_OF_TWO | {"trainer.arguments": ("--per_device_train_batch_size=3",
        "--gradient_accumulation_steps=5")}, facts(), "trainer.arguments",
        "--per_device_train_batch_size=3 --gradient_accumulation_steps=5 in your arguments overrides", fix=True),
    error(SCRIPT | {"trainer.arguments": ("--learning_rate=1", "--x"), "recipe.learning_rate": 1e-4}, facts(),
        "trainer.arguments", "--learning_rate=1 in your arguments overrides", fix=True),
    error(SCRIPT | {"recipe.layers": 12}, facts(), "recipe.layers",
        "Layers (recipe.layers) is set, but not used: this preset does not pass it", fix=True),
    error(SCRIPT | {"trainer.data": ("/a.jsonl",)}, paths(**{"a.jsonl": "file"}), "trainer.data",
        "is set, but not used", fix=True),
    error({"trainer.model": "/m", "recipe.hidden_size": 256}, paths(m="folder"), "recipe.hidden_size",
        "the model folder decides", fix=True),
    warning({"nemo.recipe": "qwen25_500m"}, facts(), "nemo.recipe", "only a NeMo recipe takes it", fix=True),
    warning({"nodes.address": "10.0.0.1"}, facts(), "nodes.address", "only for several machines", fix=True),
    error(CUSTOM | {"trainer.arguments": ("--bs={micro_batch}",), "ladder.rungs": ()}, facts(), "recipe.micro_batch",
        "{micro_batch} in trainer.arguments has no value"),
    note(FALLS | {"trainer.preset": "total-batch"}, facts(), "recipe.micro_batch", "no smaller batch can be tried"),
    note(FALLS | {"trainer.preset": "hf-trainer"}, facts(), "recipe.micro_batch",
        "8 is Hugging Face Trainer's default, which the script may replace", fix=True),
    error(SCRIPT | {"trainer.preset": "total-batch", "recipe.global_batch": 16}, facts(), "recipe.micro_batch",
        "the global batch 16 needs a micro batch"),
    error(SCRIPT | BATCH_OF_TWO | {"trainer.preset": "total-batch", "recipe.lr_scaling": "linear"}, facts(),
        "recipe.lr_scaling", "the trainer's learning rate is not known", fix=True),
    error(SCRIPT | {"trainer.launcher": "python", "trainer.preset": "custom"}, reads(rank_line=3,
        rank_name="LOCAL_RANK"), "trainer.launcher", "line 3 of t.py reads LOCAL_RANK, which python does not set",
        fix=True),
    error(CUSTOM, reads(train_switch_line=9), "trainer.arguments", "line 9 of the script trains only if --do_train",
        fix=True),
    warning(CUSTOM | {"trainer.arguments": ("--base-model=x", "--noflag", "--bogus=3")}, reads(kind="fire",
        parameters=(ScriptParameter(name="--base_model"), ScriptParameter(name="--flag"))), "trainer.arguments",
        "no parameter of the script takes --bogus: Fire would train to the end"),
    error(CUSTOM | {"hardware.processes": 2}, reads(no_process_group=True), "hardware.processes",
        "the script does not share work: each of 2 processes", fix=True),
    *(error(CUSTOM | several, replace(TWO, sources=ALONE), "hardware.processes",
        "the script does not share work: each of 2 processes", fix=True)for several in (TORCHRUN,
        {"hardware.gpus": UUIDS[:2]})),
    *(note(CUSTOM | one, replace(TWO, sources=ALONE), "trainer.script",
        "the script uses one GPU only, so 1 RTX 3090 is idle")for one in ({}, {"hardware.processes": 1},
        {"trainer.launcher": "python"})),
    warning(CUSTOM | {"trainer.arguments": ("--train_file=d.json",)}, replace(reads(kind="argparse",
        parameters=(ScriptParameter(name="--train_file"),)), paths={"/d.json": "missing"}), "trainer.arguments",
        "--train_file: /d.json does not exist"),
    error(CUSTOM, reads(problem="it is not Python", non_python_label="a notebook"), "trainer.script",
        "/t.py is a notebook"),
    error(SCRIPT | {"trainer.python": "/p"}, source_of(facts(python="/p", modules=("torch",)), imports=NEEDED),
        "trainer.python", "/p has no cv2 (t.py, line 3), yaml (net.py, line 2)", machine=True),
    error(SCRIPT | {"trainer.python": "/p"}, source_of(facts(python="/p", modules=("torch", "pip")),
        imports=(ScriptImport("imp", 1),)), "trainer.python", "/p has no imp (t.py, line 1)", machine=True),
    error(SCRIPT | {"trainer.python": "/p"}, source_of(facts(python="/p", modules=("torch", "pip")),
        imports=(ScriptImport("nobodys", 1),)), "trainer.python", "/p has no nobodys (t.py, line 1)", machine=True),
    error(SCRIPT | inside(), source_of(boxed(modules=("torch",)), imports=NEEDED), "container.image",
        "the image nemo:25.04 has no cv2", machine=True),
    warning(SCRIPT, source_of(facts(modules=("torch",)), imports=(ScriptImport("net", 4),),
        parent_packages={"net": "/project"}), "trainer.script", "imports net (t.py, line 4) from /project", fix=True),
    error(SCRIPT | {"trainer.python": "/p"}, source_of(facts(python="/p", version="3.9.1"), minor_version=10,
        minor_version_line=7), "trainer.python", "line 7 of t.py needs Python 3.10", machine=True),
    warning({"trainer.preset": "hf-trainer", "ladder.rungs": ()} | SCRIPT, replace(facts(),
        help={"/t.py": ScriptHelp(flags=(HelpFlag("--batch_size"), HelpFlag("--bs")))}), "trainer.preset",
        "the script does not take --output_dir, --logging_steps, ", fix=True),
    warning({"trainer.preset": "hf-trainer"} | SCRIPT, reads(train_without_checkpoint_line=7,
        corrected_train_call="trainer.train(last)"), "trainer.script",
        "train() on line 7 of the script is given no checkpoint"),
    warning({"trainer.preset": "custom", "trainer.launcher": "torchrun"} | SCRIPT, reads(local_rank_line=3),
        "trainer.script", "line 3 of the script takes --local_rank"),
    error(CUSTOM | {"trainer.arguments": ("--size=a",)}, reads(kind="argparse",
        parameters=(ScriptParameter(name="--size", type="int", line=9),)), "trainer.arguments",
        "--size is 'a', which is not a whole number (line 9 of the script)", fix=True),
    error(CUSTOM | {"trainer.arguments": ("--sise=1",)}, reads(kind="argparse",
        parameters=(ScriptParameter(name="--size", line=9),)), "trainer.arguments",
        "the script does not take --sise; it takes --size", fix=True),
    note(CUSTOM, reads(parameters=(ScriptParameter(name="--eta", type="float", default="0.1"),)), "trainer.arguments",
        "--eta looks like the training's learning rate", fix=True),
    warning(SCRIPT | {"trainer.preset": "auto", "recipe.learning_rate": 50.0}, reads(kind="argparse",
        parameters=(ScriptParameter(name="--lr", type="float", default="0.05"),)), "recipe.learning_rate",
        "50 is 1 000 x the script's own 0.05", fix=True),
    warning(SCRIPT | {"trainer.preset": "auto", "trainer.arguments": ("--lr", "100")}, reads(kind="argparse",
        parameters=(ScriptParameter(name="--lr", type="float", default="0.05"),)), "trainer.arguments",
        "100 is 2 000 x the script's own 0.05", fix=True),
    note(CUSTOM | {"trainer.arguments": ("--eta", "0.2")},
        reads(kind="argparse", parameters=(ScriptParameter(name="--eta", type="float", default="0.1"),)),
        "trainer.arguments", "--eta 0.2 looks like the training's learning rate", fix=True),
    error(CUSTOM, replace(facts(paths={SCRIPT["trainer.script"]: "missing"}),
        similar_paths={SCRIPT["trainer.script"]: "/opt/there.py"}), "trainer.script",
        "does not exist; there is /opt/there.py", fix=True),
    error(CUSTOM, replace(facts(paths={SCRIPT["trainer.script"]: "missing"}),
        similar_paths={SCRIPT["trainer.script"]: "/opt/"}), "trainer.script", "does not exist; there is /opt/"),
    error(CUSTOM, reads(kind="click", subcommands=("export", "train"), requires_subcommand=True), "trainer.arguments",
        "the script needs a subcommand, one of export, train", fix=True),
    error(CUSTOM, reads(kind="argparse", parameters=(ScriptParameter(name="--eta", is_required=True, type="float",
        line=9),)), "trainer.arguments", "missing required argument: --eta (line 9)"),
    warning({"recipe.lr_base_batch": 8}, facts(), "recipe.lr_base_batch", "has no effect", fix=True),
    error({"trainer.kind": "script", "trainer.preset": "llama-factory", "trainer.config": "/c.yaml"},
        read(c=YamlDocument(values={"do_train": False})), "trainer.config", "/c.yaml does not set do_train: true"),
    error({"trainer.kind": "script", "trainer.preset": "trl", "trainer.data": ("/a.xml",)}, paths(**{"a.xml": "file"}),
        "trainer.data", "the name of the data file does not say its format"),
    warning(SCRIPT | {"trainer.arguments": ("--auto_find_batch_size",)}, facts(), "trainer.arguments",
        "auto_find_batch_size lowers the micro batch"),
    warning({"recipe.hidden_size": 2048, "recipe.heads": 16, "recipe.layers": 16, "recipe.sequence_length": 2048},
        facts(gpus=(gpu(0),)), "recipe.micro_batch", " of tensors), and GPU 0", fix=True),
    error(SCRIPT | {"trainer.preset": "hf"}, facts(), "trainer.preset", "no preset hf", fix=True),
]  # fmt: skip
# What runs that live now have.
TAKEN = [fault for fault in FAULTS if fault.facts.resources_in_use]


def test_a_model_folder_that_is_not_there_is_told_once():
    chosen = profile(FINE)
    paths = dict.fromkeys(("/m", *FinetuneTrainer(chosen).own_paths()), "missing")
    found = findings_of(chosen, replace(tuned(), paths=paths))
    assert [one.message for one in found if one.key == "trainer.model"] == ["model: /m does not exist"]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_found_alone_and_what_is_offered_fixes_it(fault):
    (finding,) = found(fault.values, fault.facts)
    fault.assert_told_by(finding)
    if finding.change:
        changed = apply_change(finding.change, profile(fault.values))
        assert findings_of(changed, fault.facts) == ()
        assert plan(changed, fault.facts).attempts
        assert finding.change.title
        assert finding.change.why


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({}, facts()),
        ({}, TWO),
        ({"recipe.precision": "bf16"}, facts()),
        ({"recipe.precision": "fp16"}, OLD),
        ({"hardware.gpus": UUIDS[1:]}, facts(gpus=(gpu(0), gpu(1, memory_total=2 * GIB)))),
        ({"hardware.device": "cpu", "hardware.gpus": ("GPU-gone",)}, facts()),
        (SCRIPT, paths(**{"t.py": "file"})),
        (CUSTOM, facts()),
        (SCRIPT | {"recipe.learning_rate": 1e-4}, facts()),
        ({"trainer.output": "/o"}, paths(o="missing")),
        ({"trainer.model": "/m"}, paths(m="folder")),
        ({"trainer.secrets": ("HF_TOKEN",)}, facts()),
        (HOSTS, peers()),
        ({"ladder.rungs": ("layers",), "ladder.consent": ("layers",)}, facts()),
        ({"ladder.rungs": (), "recipe.checkpoint_every": 61}, facts()),
        ({}, standing(shm_total=64 << 20, shm_free=60 << 20, shm_file_system="tmpfs")),
        ({}, standing(both={"peers": (0, 1)}, shm_free=1 << 20)),
        ({"communication.without": ("shm",)}, standing(shm_problem="does not exist")),
        ({"trainer.environment": {"NCCL_SHM_DISABLE": "1"}}, standing(shm_free=1 << 20)),
        ({}, replace(facts(), machine=replace(machine(), shm_problem="does not exist"))),
        (inside(container__shared_memory="40m"), boxed(gpus=(gpu(0), gpu(1)))),
        (inside(), replace(boxed(gpus=(gpu(0),)), machine=replace(machine(gpus=(gpu(0),)), max_open_files=9))),
        ({}, standing(max_open_files=1024, free_tasks=200, max_locked_bytes=8 << 20, rdma_devices=("mlx5_0",))),
        (MESHED, standing(max_locked_bytes=8 << 20)),
        (MESHED | {"communication.without": ("ib",)}, standing(rdma_devices=("mlx5_0",), max_locked_bytes=8 << 20)),
        ({}, on_nodes((False, 8, 8), (False, 8, 8))),
        ({"hardware.gpus": UUIDS[1:]}, on_nodes((True, 8, 8), (False, 8, 8))),
        ({}, on_nodes((True, 8, 8), (True, 8, 8), (False, 0, 0))),
        ({}, on_nodes((True, 8, 8), (False, 8, 8), driver_cuda="12.4")),
        ({}, on_nodes((True, 8, 8), (False, 8, 8), peers=(0, 1))),
        ({"hardware.gpus": UUIDS[:1]}, standing({"repair": "failed", "throttled_by": ("overheating",)})),
        ({}, standing({"throttled_by": ("a hardware slowdown", "heat"), "uncorrected_errors": 0, "repair": "none"})),
        ({}, standing({"power_limit": 250, "power_limit_default": 350})),
        ({}, standing({"pcie": PcieLink(1, 8, 4, 16, 8)})),
        ({}, standing({"pcie": PcieLink(1, 4, 4, 16)})),
        ({}, standing({"pcie": PcieLink(1, 4, 4, 16, 16), "nvlinks": 4})),
        (FULL, on_host(5)),
        (FULL | FSDP2, on_host(1)),
        (FULL | {"hardware.gpus": UUIDS[1:]}, on_host(1)),
        (FINE, on_host(1)),
        # The nodes of a job have interfaces of their own.
        *(
            (
                values | TORCHRUN,
                replace(TWO, machine=replace(TWO.machine, interfaces=("lo", "eth0")), scheduler="slurm"),
            )
            for values in (
                {"communication.interface": "ib0"},
                {"trainer.environment": {"NCCL_SOCKET_IFNAME": "ib0"}},
            )
        ),
        ({"hardware.gpus": UUIDS[1:]}, standing({"pcie": PcieLink(1, 4, 4, 16, 16)})),
    ],
)
def test_what_is_right_is_not_found_fault_with(values, where):
    assert found(values, where) == ()


@pytest.mark.parametrize("values", [{}, SCRIPT, FINE])
def test_a_python_without_torch_is_told_the_command_that_makes_one(values):
    (finding, *_) = found(values | {"trainer.python": "/p"}, facts(python="/p", torch=None))
    assert finding.key == "trainer.python"
    assert finding.remedy.startswith("Make one that can: tui-train env create hf. Or ")
    assert "`pip install torch " in finding.remedy


@pytest.mark.parametrize("micro", [1, 8, 100])
@pytest.mark.parametrize("total", [7, 20, 1000])
@pytest.mark.parametrize("world", [1, 3])
def test_the_named_batches_do_divide(micro, total, world):
    values = {"hardware.processes": world, "recipe.micro_batch": micro, "recipe.global_batch": total} | TORCHRUN
    findings = found(values, facts())
    assert bool(findings) == bool(total % (micro * world))
    if not findings:
        return
    remedy = findings[0].remedy
    globals_, _, micros = remedy.partition(" Or, for ")
    for number in numbers(globals_):
        assert found(values | {"recipe.global_batch": number}, facts()) == ()
    for number in numbers(micros.partition("a micro batch of ")[2]):
        assert found(values | {"recipe.micro_batch": number}, facts()) == ()
    assert numbers(globals_)


def numbers(text):
    return [int(word) for word in text.replace(".", " ").replace(",", " ").split() if word.isdigit()]


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"recipe.hidden_size": 65536, "recipe.heads": 3}, facts()),
        ({"recipe.global_batch": 16_777_216, "recipe.micro_batch": 29}, facts()),
        (ACCELERATE, configured({"num_machines": 2, "main_process_port": 99999})),
    ],
)
def test_a_fix_that_would_be_outside_the_limits_is_not_offered(values, where):
    (finding, *_) = found(values, where)
    assert finding.change is None
    assert finding.remedy


SECRETS = (
    "HF_TOKEN", "WANDB_API_KEY", "OPENAI_APIKEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "db_password",
    "GOOGLE_APPLICATION_CREDENTIALS", "CLIENT_SECRET", "PGPASSWORD", "KEY",
)  # fmt: skip
NO_SECRETS = ("TOKENIZERS_PARALLELISM", "WANDB_MODE", "MONKEY", "HF_HUB_OFFLINE", "TOKENS_PER_STEP", "KEYS")


@pytest.mark.parametrize("name", [*SECRETS, *NO_SECRETS])
def test_secrets_are_known_by_their_names(name):
    chosen = profile({"trainer.environment": {name: "value", "A": "1"}})
    findings = findings_of(chosen, facts())
    assert bool(findings) == (name in SECRETS)
    for item in findings:
        assert "value" not in item.message + item.remedy + item.change.title
        changed = apply_change(item.change, chosen)
        assert (changed.trainer.environment, changed.trainer.secrets) == ({"A": "1"}, (name,))


SWITCHED = ScriptSource(train_switch_line=9)


@pytest.mark.parametrize(
    ("words", "source", "preset"),
    [
        (("--do-train",), SWITCHED, None),
        (("--do_distill=1",), SWITCHED, None),
        (("values.yaml", "--seed=1"), SWITCHED, None),
        ((), replace(SWITCHED, parameters=(ScriptParameter(name="--do_train", default="True"),)), None),
        ((), replace(SWITCHED, parameters=(ScriptParameter(name="--do_train"),)), None),
        ((), SWITCHED, Preset(label="Mine", about="", arguments=(PresetArgument(("--do_train",)),))),
    ],
)
def test_a_script_that_may_train_without_do_train_of_the_arguments_is_started(words, source, preset):
    values = SCRIPT | {"trainer.preset": "mine" if preset else "custom", "trainer.arguments": words}
    where = replace(facts(), sources={"/t.py": source}, presets={"mine": UserPreset(path="/m.toml", preset=preset)})
    assert [each for each in found(values, where) if "--do_train" in each.message] == []


@pytest.mark.parametrize("fault", TAKEN, ids=str)
def test_what_only_keeps_it_from_starting_now_can_be_planned(fault):
    values, where, *_ = fault
    assert plan(profile(values), where).attempts
    assert not any(item.forbids_plan for item in found(values, where))


def test_a_secret_argument_is_never_said():
    values = CUSTOM | {"trainer.arguments": ("--password=correct horse", "ghp_" + "x" * 36)}
    said = found(values, facts())
    assert [item.level for item in said] == ["error", "error"]
    assert not [item for item in said if "horse" in item.message + item.remedy or "xxx" in item.message]


BATCH = "--per_device_train_batch_size"


@pytest.mark.parametrize(
    ("words", "left", "micro_batch", "global_batch"),
    [
        (("--a", BATCH, "2", "--b=1"), ("--a", "--b=1"), 2, 2),
        ((f"{BATCH}=3", "--gradient_accumulation_steps=5"), (), 3, 15),
        # argparse takes the last one, and transformers' parser dashes as well.
        ((f"{BATCH}=2", "--a", BATCH, "4"), ("--a",), 4, 4),
        (("--per-device-train-batch-size=2",), (), 2, 2),
    ],
)
def test_a_batch_of_ones_own_goes_into_the_recipe(words, left, micro_batch, global_batch):
    values = FALLS | {"trainer.arguments": words}
    (finding,) = found(values, facts())
    changed = apply_change(finding.change, profile(values))
    assert changed.trainer.arguments == left
    assert (changed.recipe.micro_batch, changed.recipe.global_batch) == (micro_batch, global_batch)
    for rungs in ((), ("expandable_segments", "activation_checkpointing")):
        assert found(values | {"ladder.rungs": rungs}, facts()) == ()
    # Where the recipe sets it as well, one of both would be lost.
    assert found(BATCH_OF_TWO | values, facts())[0].level == "error"


@pytest.mark.parametrize("words", [(f"{BATCH}=many",), (BATCH,), (f"{BATCH}=", "7", "--k"), (f"{BATCH}=999999999",)])
def test_a_batch_of_ones_own_that_is_not_plain_is_only_told(words):
    (finding,) = found(FALLS | {"trainer.arguments": words}, facts())
    assert (finding.level, finding.change) == ("warning", None)


@pytest.mark.parametrize(
    "words", [(f"{BATCH}={{micro_batch}}",), (BATCH, "{micro_batch}"), (f"{BATCH}=2", BATCH, "{micro_batch}")]
)
def test_the_recipes_own_batch_may_be_named(words):
    values = SCRIPT | BATCH_OF_TWO | {"trainer.arguments": words}
    assert not [item for item in found(values, facts()) if "in your arguments" in item.message]


def test_a_batch_before_the_recipes_does_nothing():
    values = SCRIPT | {"trainer.preset": "nanogpt", "trainer.arguments": ("--batch_size=2",), "ladder.rungs": ()}
    assert found(values, facts()) == (), "it holds where the recipe sets none"
    (finding,) = found(values | BATCH_OF_TWO, facts())
    assert (finding.level, finding.change.edits) == ("warning", (("trainer.arguments", ()),))
    assert "has no effect" in finding.message


def test_a_yaml_trainers_batch_among_the_arguments_is_found():
    values = FALLS | {"trainer.preset": "llama-factory", "trainer.script": "", "trainer.config": "/c.yaml"}
    values |= {"trainer.arguments": ("per_device_train_batch_size=2",)}
    where = read(c=YamlDocument(values={"do_train": True}))
    assert any("sets the batch" in item.message for item in found(values, where))
    assert any("overrides the batch" in item.message for item in found(values | BATCH_OF_TWO, where))


def test_an_argument_that_depends_on_the_batch_does_not_say_it():
    told = (PresetArgument(words=("--bs={micro_batch}",)), PresetArgument(words=("--no_sync",), when="accumulation!=1"))
    own = UserPreset(path="/mine.toml", preset=Preset(label="Mine", about="", arguments=told))
    where = replace(facts(), presets={"mine": own})
    values = FALLS | {"trainer.preset": "mine"}
    for word, says in ("--no_sync", False), ("--bs=3", True):
        said = found(values | {"trainer.arguments": (word,)}, where)
        assert any("in your arguments" in item.message for item in said) == says


def test_hosts_with_the_same_fault_are_named_together():
    many = tuple("abcdefgh")
    where = replace(peers(), training_hosts=dict.fromkeys(many[1:], TrainingHost(problem="\x1b[1mno")))
    (finding,) = found({"nodes.hosts": many, "recipe.global_batch": 256}, where)
    assert finding.message == "b, c, d, e and 3 more: \\x1b[1mno"
    assert finding.change.edits == (("nodes.hosts", ()),)
    some = replace(peers(), training_hosts={"h": TrainingHost(problem="no")})
    (finding, *_) = found({"nodes.hosts": many, "recipe.global_batch": 256}, some)
    assert finding.change.edits == (("nodes.hosts", many[:-1]),)


@pytest.mark.parametrize("state", [{"repair": "failed"}, {"uncorrected_errors": 2}])
def test_a_faulty_card_is_left_out_by_the_key_that_can(state):
    damaged = gpu(1, **state)
    (own,) = found({}, standing(state))
    (of_host,) = found(HOSTS, peers(gpus=(gpu(0), damaged)))
    assert of_host.message.startswith("b: GPU 1")
    assert ("(hardware.gpus)" in own.remedy, "(nodes.hosts)" in own.remedy) == (True, False)
    assert ("(hardware.gpus)" in of_host.remedy, "(nodes.hosts)" in of_host.remedy) == (False, True)


def test_a_host_that_gives_no_answer_is_asked_again_by_the_command_or_by_a_key():
    for host in (peers(problem="no"), peers(toolchain=toolchain(problem="no answer"))):
        (finding,) = found(HOSTS, host)
        assert ("run the command again" in finding.remedy, "r on Hardware" in finding.remedy) == (True, False)
        assert ("run the command again" in finding.keys, "r on Hardware" in finding.keys) == (False, True)


def changed(values, where):
    """What the only finding would change."""
    (finding,) = found(values, where)
    return dict(finding.change.edits)


def test_hosts_with_other_numbers_of_gpus_train_with_their_own():
    both, one = peers().training_hosts["b"], machine(gpus=(gpu(0),))
    fewer = HOSTS | {"nodes.hosts": ("a", "b", "c"), "recipe.global_batch": None}
    where = replace(peers(), training_hosts={"b": both, "c": replace(both, machine=one)})
    assert changed(fewer, where) == {"nodes.processes": (2, 2, 1)}
    assert found(fewer | {"nodes.processes": (2, 2, 1)}, where) == ()
    assert changed(fewer | {"trainer.launcher": "accelerate"}, where) == {"nodes.hosts": ("a", "b")}
    gone = replace(where, training_hosts={**where.training_hosts, "b": TrainingHost(problem="no")})
    edits = changed(fewer | {"nodes.processes": (2, 2, 1)}, gone)
    assert edits == {"nodes.hosts": ("a", "c"), "nodes.processes": (2, 1)}
    swapped = replace(where, training_hosts={**where.training_hosts, "c": TrainingHost(is_first=True)})
    edits = changed(fewer | {"nodes.processes": (2, 2, 1)}, swapped)
    assert edits == {"nodes.hosts": ("c", "a", "b"), "nodes.processes": (1, 2, 2)}


T400 = gpu(2, "GPU-T400", name="NVIDIA T400 4GB", compute_capability="7.5", memory_total=4 << 30, sm_count=6)
GT1030 = gpu(2, "GPU-GT1030", name="NVIDIA GeForce GT 1030", compute_capability="6.1", memory_total=2 << 30)
H100 = [gpu(at, f"GPU-h{at}", name="NVIDIA H100", compute_capability="9.0", memory_total=80 << 30) for at in (0, 1)]


@pytest.mark.parametrize(
    ("cards", "processes", "others"),
    [
        # None to be changed: as many as on the first, of its kind.
        ((gpu(0), gpu(1), T400), None, UUIDS),
        # Of another kind, with one for the display.
        ((*H100, T400), None, ("GPU-h0", "GPU-h1")),
        # One that is busy now counts all the same.
        ((H100[0], replace(H100[1], memory_free=1 << 30)), None, ("GPU-h0", "GPU-h1")),
        # Another number.
        ((gpu(0), T400), 1, UUIDS[:1]),
        ((gpu(0), gpu(1), gpu(2, "GPU-third")), 3, (*UUIDS, "GPU-third")),
    ],
)
def test_another_host_trains_on_the_cards_that_would_be_chosen_there(cards, processes, others):
    where, values = peers(gpus=cards), HOSTS | {"recipe.global_batch": None}
    if processes:
        assert changed(values, where) == {"nodes.processes": (2, processes)}
        values |= {"nodes.processes": (2, processes)}
    assert [finding for finding in found(values, where) if finding.level == "error"] == []
    made = plan(profile(values), where)
    assert (made.others, made.world_size) == ((others,), 2 + (processes or 2))
    unused = [gpu.name for gpu in cards if gpu.uuid not in others]
    told = [note for note in made.notes if note.startswith("Left out on b")]
    assert [unused[0] in note for note in told] == [True] * len(unused)


def test_why_no_card_of_another_host_can_train_is_told():
    where = peers(toolchain=toolchain(torch="2.13.0+cu130", cuda="13.0"))
    told = {finding.level: finding.message for finding in found(HOSTS, where)}
    assert "driver for CUDA 13" in told["error"]


def test_what_is_advised_of_another_number_of_cards_can_be_done():
    where, values = peers(gpus=(gpu(0),)), HOSTS | {"recipe.global_batch": None}
    for launcher, able in (("torchrun", True), ("accelerate", False)):
        (finding,) = found(values | {"trainer.launcher": launcher}, where)
        assert ("nodes.processes" in finding.remedy, "hardware.gpus" in finding.remedy) == (able, not able)


def test_equal_numbers_of_processes_are_those_of_each():
    values = MACHINES | {"nodes.address": "10.0.0.1", "hardware.device": "cpu", "recipe.global_batch": None}
    for launcher in ("torchrun", "accelerate"):
        same = values | {"nodes.processes": (4, 4), "trainer.launcher": launcher}
        assert found(same, facts()) == ()
        assert plan(profile(same), facts()).world_size == 8


def test_untrusted_text_is_shown_safely():
    evil = "\x1b[31m\u202eevil\n"
    values = {"trainer.data": (f"/{evil}",), "trainer.environment": {evil: "x"}, "hardware.gpus": (evil,)}
    where = facts(gpus=(gpu(0, name=evil, problem=evil),), paths={f"/{evil}": "missing"})
    for item in (*found(values, where), *found({"hardware.device": "cuda"}, where)):
        assert item.message.isprintable()
        assert item.remedy.isprintable()


def test_a_wrong_clock_is_named_where_a_model_is_downloaded():
    there = hub(answer=HubModel(size=GIB))
    behind = replace(there, machine=replace(there.machine, clock_behind=30 * 86400.0))
    assert [item.level for item in found(TRL, behind) if "30 days behind" in item.message] == ["note"]
    assert [item for item in found({}, behind) if "behind" in item.message] == []
    problem = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid (_ssl.c:1006)"
    for why, is_named in ((problem, True), ("no route", False)):
        (said,) = found(TRL, hub(answer=HubModel(refusal="unreachable", problem=why)))
        assert ("timedatectl" in said.remedy) == is_named


def test_all_paths_are_asked_for():
    keys = ("script", "working_directory", "model", "output", "accelerate_config")
    values = {f"trainer.{key}": f"/{key}" for key in keys} | {"trainer.data": ("/a", "/b", "/a")}
    assert sorted(profile_paths_to_check(profile(values))) == sorted(["/a", "/b", *(f"/{key}" for key in keys)])
    assert profile_paths_to_check(Profile()) == ()


def test_there_is_a_fault_for_every_check():
    """A check that finds nothing in any of these is not tested."""
    from tui_train.setup.setup import Setup

    faults = [
        Setup(profile(values), where)
        for values, where, *_, part, _, _ in (*FAULTS, *NEMO_FAULTS.values())
        if part not in {"no preset hf", "mine cannot be used: /p: label: is empty"}
    ]
    untested = [number for number, question in enumerate(CHECKS) if not any([*question(fault)] for fault in faults)]
    assert untested == [], "places in CHECKS"


def test_what_a_script_imports_is_not_missing():
    for modules, imports, more in (
        (("torch", "cv2", "yaml"), NEEDED, {}),
        # Not known: a machine that was saved, a folder of one's own where Python looks, what lies beside it elsewhere.
        ((), NEEDED, {}),
        (("torch",), NEEDED, {"trainer.environment": {"PYTHONPATH": "/own"}}),
        # A finding of its own says so.
        (("torch",), (ScriptImport("wandb", 1),), {"tracking.wandb": True}),
    ):
        said = found(SCRIPT | more, source_of(facts(modules=modules), imports=imports))
        assert not [each for each in said if "has no cv2" in each.message or "has no wandb" in each.message], modules
    elsewhere = replace(facts(modules=("torch",)), other_machine="box")
    said = [found(SCRIPT, source_of(elsewhere, imports=(ScriptImport(name, 1),))) for name in ("nobodys", "cv2")]
    assert [len(each) for each in said] == [0, 1]


def test_what_a_library_may_bring_is_not_surely_missing():
    # As jpype, whose modules are those of Java; of known libraries torch has none.
    for imported, levels in (("jpype", {"java": "warning", "cv2": "error"}), ("torch", {"java": "error"})):
        needed = [ScriptImport(name, line) for line, name in enumerate((imported, *levels), 1)]
        where = source_of(facts(modules=("torch", "jpype")), imports=needed)
        said = {
            name: each.level for each in found(SCRIPT, where) for name in levels if f"has no {name}" in each.message
        }
        assert said == levels


def test_another_python_that_has_what_a_script_imports_is_offered():
    tools = [toolchain(f"/{name}", modules=modules) for name, modules in (("a", ("torch",)), ("b", ("cv2", "yaml")))]
    without_torch = toolchain("/none", torch=None, modules=("cv2", "yaml"))
    where = replace(source_of(facts(), imports=NEEDED), toolchains=(without_torch, *tools))
    assert changed(SCRIPT | {"trainer.python": "/a"}, where) == {"trainer.python": "/b"}


@pytest.mark.parametrize("modules", [("pip",), ("torch",)])
def test_the_line_that_installs_what_a_script_imports_can_be_pasted(modules):
    where = source_of(facts(python="/a b", modules=modules), imports=NEEDED)
    (finding,) = found(SCRIPT, where)
    words = shlex.split(finding.remedy.split("`")[1])
    assert words[-2:] == ["opencv-python-headless", "PyYAML"]
    assert "/a b" in words


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3", "fsdp2"])
def test_without_gpus_sharding_is_refused_whatever_is_installed(strategy):
    chosen = profile({"trainer.strategy": strategy})
    assert "needs GPUs" in next(finding.message for finding in findings_of(chosen, facts()) if finding.forbids_plan)
    assert prepare(chosen, facts()).plan is None


def test_a_model_that_the_hub_does_not_have_is_answered_with_the_nearest_here():
    held = CachedModel(id="acme/newer", folder="/hub/newer"), CachedModel(id="other/thing", folder="/hub/thing")
    known = hub(answer=HubModel(refusal="missing", problem="none"), models=held)
    (said,) = [item for item in found(TRL, known) if "no public model" in item.message]
    assert said.remedy.startswith("Did you mean acme/newer, which is already here?")
    assert said.change
    assert said.change.edits == (("trainer.model", "acme/newer"),)


def test_of_a_missing_model_folder_only_that_is_said():
    lacking = replace(
        tuned(tokenizer="it has none", tokenizer_is_missing=True), paths={"/m": "missing", "/d.jsonl": "file"}
    )
    (said,) = [item for item in found(FINE, lacking) if item.key == "trainer.model"]
    assert "does not exist" in said.message
    assert not [item for item in found(FINE, lacking) if "tokenizer" in item.message or "tokens" in item.message]


def test_a_missing_file_is_named_once():
    problem = DataProblem("unreadable", "/d.jsonl", 0, "cannot be read: No such file or directory")
    known = tuned(rows=0, usable=0, format="", problems=(problem,), counts={"unreadable": 1})
    named = [item for item in found(FINE, known) if item.key == "trainer.data"]
    assert [item.message.count("/d.jsonl") for item in named] == [1], "what was read says so"
    missing = replace(known, paths={"/d.jsonl": "missing"})
    (said,) = [item for item in found(FINE, missing) if item.key == "trainer.data"]
    assert "does not exist" in said.message


def test_another_format_is_said_once():
    why = "other columns: text"
    problems = tuple(DataProblem("other", "/d.jsonl", line, why) for line in (21, 22))
    where = tuned(rows=22, usable=20, format="messages", problems=problems, counts={"other": 2})
    (said,) = [item for item in found(FINE, where) if "left out" in item.message]
    assert said.message == "2 of 22 rows are left out: 2 have other columns"
    assert said.details == ("line 21: text", "line 22: text")


def test_of_many_bad_rows_the_first_five_stand_on_a_line_each():
    problems = tuple(DataProblem("broken", "/d.jsonl", line, "is not JSON") for line in range(1, 10))
    known = tuned(rows=300, usable=291, format="messages", problems=problems, counts={"broken": 9})
    (said,) = [item for item in found(FINE, known) if "left out" in item.message]
    assert said.message == "9 of 300 rows are left out: 9 are broken"
    assert said.details == (*(f"line {line}: is not JSON" for line in range(1, 6)), "and 4 more")
    text = plain_text.finding_text(said).split("\n")
    assert text[1:7] == [f"  {each}" for each in said.details]
    shown = [line.plain for line in preview_lines.finding_lines((said,), 60)]
    assert shown[2:8] == [f"  {each}" for each in said.details]


def test_data_without_a_usable_row_is_one_finding():
    """Neither its rows that are left out nor its format is told besides."""
    problem = DataProblem("broken", "/d.jsonl", 1, "is not JSON at column 16: Expecting value")
    one = tuned(rows=1, usable=0, format="", problems=(problem,), counts={"broken": 1})
    (said,) = [item for item in found(FINE, one) if item.key in {"trainer.data", "finetune.method"}]
    assert (said.level, "the only row is broken" in said.message) == ("error", True)
    others = tuned(rows=3, usable=0, format="", counts={"other": 2, "empty": 1})
    (said,) = [item for item in found(FINE, others) if item.key in {"trainer.data", "finetune.method"}]
    assert said.message.startswith("none of the 3 rows can be used: 2 have other columns, 1 is empty")
    assert said.remedy.startswith("SFT needs messages, ")


ALLOWED = ("length", "learning_rate")


def test_what_is_far_beyond_the_usual_trains_by_consent_alone():
    far = FINE | {"recipe.sequence_length": 100_000, "recipe.learning_rate": 2e-2}
    where = replace(tuned(), models={"/m": ModelFolder(max_tokens=1024)})
    keys = {"recipe.sequence_length", "recipe.learning_rate"}
    refused = [each for each in found(far, where) if each.key in keys]
    assert [each.forbids_plan for each in refused] == [True, True]
    assert all(f"trainer.allow={word}." in " ".join(each.remedy for each in refused) for word in ALLOWED)
    allowed = found(far | {"trainer.allow": ALLOWED}, where)
    assert [each.level for each in allowed if each.key in keys] == ["warning", "warning"]


def test_what_forbids_a_plan_comes_first_then_what_forbids_a_start_here_and_all_is_told():
    values, where, *_ = TAKEN[0]
    wrong = BATCH_OF_TWO | {"recipe.global_batch": 20, "recipe.learning_rate": 3.0, "ladder.rungs": ("layers",)}
    findings = found(values | wrong | {"recipe.checkpoint_every": 61}, where)
    assert [item.level for item in findings] == ["error", "error", "error", "warning", "note"]
    assert [item.forbids_plan for item in findings] == [True, True, False, False, False]


@pytest.mark.parametrize("word", ["--eta={learning_rate}", "a b", "it's", "$HOME", "a!b", 'say "x"'])
def test_the_options_of_a_fix_are_read_back_by_a_shell(word):
    change = Change("", "", (("trainer.arguments", (word,)),))
    option, edit = shlex.split(plain_text.command_line_options_of_change(change))
    key, _, value = edit.partition("=")
    assert (option, key, shlex.split(value)) == ("--set", "trainer.arguments", [word])
