"""Checks: each finds its fault and only that, says what to do, and what it offers to change fixes it."""

import msgspec
import pytest
from support import UUIDS, boxed, facts, gpu, inside, machine, plan, profile, toolchain
from test_nemo import FAULTS as NEMO_FAULTS

from tui_train.checks import CHECKS, check
from tui_train.facts.cluster import Cluster, Nodes, Partition
from tui_train.facts.data import Answers, DataLook, DataProblem, Question, Tokens
from tui_train.facts.data_use import key as data_key
from tui_train.facts.hub import CachedModel, HubCache, HubModel
from tui_train.facts.models import ModelFolder
from tui_train.facts.types import (
    ContainerImage,
    Document,
    Facts,
    Flag,
    Gap,
    GpuProcess,
    Logout,
    Parameter,
    Peer,
    ScriptHelp,
    Source,
    Taken,
)
from tui_train.presets import Argument, Preset, UserPreset
from tui_train.profile.changes import apply
from tui_train.profile.types import SCHEMA, Profile
from tui_train.render.prepare import prepare
from tui_train.trainers import paths_of
from tui_train.trainers.finetune import Finetune

GIB = 2**30
# What finds no fault with them, so that one value can be wrong at a time.
AT_HOME = {"trainer.kind": "script", "trainer.script": "/home/a/t.py", "ladder.rungs": ()}
TWO = facts(gpus=(gpu(0), gpu(1)))
OLD = facts(gpus=(gpu(0, name="NVIDIA GeForce GTX 1080", compute_capability="7.5"),))
# Without a fallback to a smaller batch, for which it must be known.
SCRIPT = {"trainer.kind": "script", "trainer.script": "/t.py", "ladder.rungs": ()}
FALLS = SCRIPT | {"ladder.rungs": ("micro_batch",)}
TORCHRUN = {"trainer.launcher": "torchrun"}
FSDP2 = {"trainer.strategy": "fsdp2"}
ACCELERATE = SCRIPT | {"trainer.preset": "custom", "trainer.launcher": "accelerate"}
MACHINES = {"nodes.count": 2}
HOSTS = {"nodes.hosts": ("a", "b"), "recipe.global_batch": 32}
UNEVEN = MACHINES | {"nodes.address": "10.0.0.1", "nodes.processes": (2, 1), "recipe.global_batch": 24}
COUNTS = "nodes.processes"
NEWER = msgspec.structs.replace(machine(gpus=(gpu(0), gpu(1))), driver_cuda="13.0")


def peers(gpus=None, **more):
    """Two hosts with two cards; what the other one has, besides the same."""
    paths = {name: more.pop(name) for name in [*more] if name.startswith("/")}
    own = {"machine": machine(gpus=gpus or (gpu(0), gpu(1))), "toolchain": toolchain(), "paths": paths} | more
    first = facts(gpus=(gpu(0), gpu(1)), paths=dict.fromkeys(paths, "file"))
    return msgspec.structs.replace(first, peers={"b": Peer(**own)})


def configured(config):
    """Two cards, a script that uses accelerate, and what `accelerate config` wrote."""
    return msgspec.structs.replace(
        facts(gpus=(gpu(0), gpu(1))),
        accelerate_config="/c.yaml",
        documents={"/c.yaml": Document(values=config)},
        sources={SCRIPT["trainer.script"]: Source(accelerates=True, names_checkpoint=True)},
    )


def made_of(values):
    """A profile of these values, `schema` among them, which no field is."""
    rest = {key: value for key, value in values.items() if key != "schema"}
    return msgspec.structs.replace(profile(rest), schema=values.get("schema", SCHEMA))


def found(values, where):
    return check(made_of(values), where)


def paths(**states):
    return facts(paths={f"/{name}": state for name, state in states.items()})


def read(**documents):
    """Facts in which these YAML files hold that."""
    more = {f"/{name}.yaml": found for name, found in documents.items()}
    return msgspec.structs.replace(facts(), documents=more)


def beside(*taken):
    """Two cards, and what live runs have."""
    return msgspec.structs.replace(TWO, taken=taken)


def at_logout(**what):
    return msgspec.structs.replace(TWO, machine=msgspec.structs.replace(TWO.machine, logout=Logout(**what)))


def hub(model="", answer=None, **cache):
    """Facts with a cache of Hugging Face that has a model, and what the Hub says of acme/new."""
    held = (
        (CachedModel(id="acme/new", folder="/hub/new", architecture=model, causal=model.endswith("CausalLM")),)
        if model
        else ()
    )
    of_hub = HubCache(folder="/hub", **{"free": 9 * GIB, "models": held, **cache})
    return msgspec.structs.replace(facts(), hub=of_hub, hub_models={"acme/new": answer} if answer else {})


TRL = {"trainer.kind": "script", "trainer.preset": "trl", "trainer.model": "acme/new", "ladder.rungs": ()}
PART = CachedModel(id="acme/new", folder="/hub/new", size=GIB, missing=("model-2.safetensors", "tokenizer"))
PINNED = CachedModel(id="acme/kept", folder="/hub/kept", names=("1" * 40, "v1"))
YAML = {"trainer.preset": "total-batch-yaml", "trainer.config": "/c.yaml", "ladder.rungs": ()} | SCRIPT
BATCH_OF_TWO = {"recipe.micro_batch": 8, "recipe.global_batch": 16}

FINE = {"trainer.kind": "finetune", "trainer.model": "/m", "trainer.data": ("/d.jsonl",)}
TOKENS = Tokens(counted=2, total=9, learned=9, epoch=9, shortest=4, median=4, p95=5, longest=5)
LOOKED_AT = Question(files=("/d.jsonl",), model="/m")
TUNED = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0", "bitsandbytes": "0.49.0"}


# What the plan of FINE sets of TRL, but for packing.
TRL_NAMES = (
    "model_name_or_path learning_rate lr_scheduler_type weight_decay num_train_epochs max_steps logging_steps"
    " save_strategy save_steps save_total_limit seed warmup_steps use_peft lora_r lora_alpha lora_dropout"
    " lora_target_modules"
)


def tuned(options=None, **more):
    """A machine that can fine-tune, and has read the data."""
    look = DataLook(**{"rows": 2, "usable": 2, "format": "text"} | more)
    with_data = facts(gpus=(gpu(0), gpu(1)), packages=TUNED, trl_options=options or {})
    return msgspec.structs.replace(with_data, data={data_key(LOOKED_AT): look})


# Values, facts, then what is found: level, key, a part of the words, and whether it is the machine that lacks it.
CLUSTERED = msgspec.structs.replace(
    facts(),
    scheduler="slurm",
    cluster=Cluster(
        partitions=(Partition(name="gpu", default=True, limit=3600, nodes=(Nodes(count=2),)),), accounts=("lab",)
    ),
)
FAULTS = {
    "a fine-tuning without data": (
        FINE | {"trainer.data": ()},
        tuned(),
        "error",
        "trainer.data",
        "no data is chosen",
        False,
    ),
    "a fine-tuning without a model": (
        FINE | {"trainer.model": ""},
        tuned(),
        "error",
        "trainer.model",
        "no model is chosen",
        False,
    ),
    "a model folder without weights": (
        FINE,
        msgspec.structs.replace(tuned(), paths=dict.fromkeys(Finetune().paths(made_of(FINE)), "missing")),
        "error",
        "trainer.model",
        "/m has no weights",
        False,
    ),
    "data with an empty row": (
        FINE,
        tuned(usable=1, counts={"empty": 1}),
        "warning",
        "trainer.data",
        "1 row is empty",
        False,
    ),
    "qlora on the cpu": (
        FINE | {"finetune.tuning": "qlora", "hardware.device": "cpu"},
        tuned(),
        "error",
        "finetune.tuning",
        "needs a GPU",
        False,
    ),
    "longer samples than the model takes": (
        FINE,
        tuned(limit=512),
        "warning",
        "recipe.sequence_length",
        "limit is 512",
        False,
    ),
    "a rate that is not for an adapter": (
        FINE | {"recipe.learning_rate": 3e-3},
        tuned(),
        "warning",
        "recipe.learning_rate",
        "is high",
        False,
    ),
    "a length that the model does not take": (
        FINE | {"recipe.sequence_length": 100_000},
        msgspec.structs.replace(tuned(), models={"/m": ModelFolder(limit=1024)}),
        "error",
        "recipe.sequence_length",
        "024 tokens, and samples may have",
        False,
    ),
    "a length that the model of a script does not take": (
        TRL | {"trainer.model": "/m", "recipe.sequence_length": 100_000},
        msgspec.structs.replace(facts(packages=TUNED), models={"/m": ModelFolder(limit=1024)}),
        "error",
        "recipe.sequence_length",
        "024 tokens, and samples may have",
        False,
    ),
    "a rate that trains nothing": (
        FINE | {"recipe.learning_rate": 2e-2},
        tuned(),
        "error",
        "recipe.learning_rate",
        "(100 x that)",
        False,
    ),
    "a rate that trains nothing, by the built-in trainer": (
        {"recipe.learning_rate": 3.0},
        facts(),
        "error",
        "recipe.learning_rate",
        "000 x that)",
        False,
    ),
    "no checkpoint before the end of the epochs": (
        FINE | {"recipe.checkpoint_every": 60},
        tuned(usable=320, rows=320),
        "note",
        "recipe.checkpoint_every",
        "no checkpoint is saved before the end, at step 60",
        False,
    ),
    "a script that reads its rank": (
        SCRIPT | {"trainer.launcher": "python", "trainer.preset": "custom"},
        msgspec.structs.replace(facts(), sources={"/t.py": Source(rank_line=3, rank="LOCAL_RANK")}),
        "error",
        "trainer.launcher",
        "line 3 of the script reads LOCAL_RANK",
        False,
    ),
    "a notebook as a script": (
        SCRIPT | {"trainer.preset": "custom"},
        msgspec.structs.replace(facts(), sources={"/t.py": Source(problem="it is not Python", other="a notebook")}),
        "error",
        "trainer.script",
        "/t.py is a notebook",
        False,
    ),
    "epochs and steps": (
        FINE | {"recipe.steps": 200, "recipe.epochs": 2.0},
        tuned(),
        "warning",
        "recipe.epochs",
        "200 steps end",
        False,
    ),
    "a fallback with a rate of its own": (
        FINE | {"finetune.tuning": "full", "ladder.rungs": ("lora",), "ladder.consent": ("lora",)},
        tuned(),
        "note",
        "recipe.learning_rate",
        "learning rate of 0.0002",
        False,
    ),
    "a micro batch of one for kto": (
        FINE | {"finetune.method": "kto", "recipe.micro_batch": 1},
        tuned(),
        "error",
        "recipe.micro_batch",
        "needs a micro batch of 2",
        False,
    ),
    "an argument that undoes the plan": (
        FINE | {"trainer.arguments": ("--use_peft=False",)},
        tuned(),
        "error",
        "trainer.arguments",
        "--use_peft=False would take the place",
        False,
    ),
    "an option of a TRL that cannot be read": (
        FINE | {"trainer.arguments": ("--nonsense=1",)},
        tuned(),
        "note",
        "trainer.arguments",
        "whether this TRL takes --nonsense=1",
        False,
    ),
    "a value that this TRL does not have": (
        FINE,
        tuned(options={"": tuple(TRL_NAMES.split()), "sft": ()}),
        "warning",
        "trainer.python",
        "ignores 1 value of the plan: packing",
        False,
    ),
    "chats in which no answers are marked": (
        FINE,
        tuned(format="messages", chat=True, answers=Answers(why="the template does not mark answers"), tokens=TOKENS),
        "note",
        "finetune.answers_only",
        "what users say is learned too: the template does not",
        False,
    ),
    "a checkpoint that is not evaluated": (
        FINE | {"data.evaluation": 0.1, "recipe.evaluate_every": 30, "recipe.checkpoint_every": 100},
        tuned(),
        "warning",
        "recipe.checkpoint_every",
        "the best checkpoint is not kept",
        False,
    ),
    "answers alone of data that is read in a container": (
        FINE | inside() | {"finetune.answers_only": True, "hardware.device": "cpu"},
        boxed(packages=TUNED),
        "note",
        "finetune.answers_only",
        "not read before the run",
        False,
    ),
    "weights of fewer files than there are": (
        FINE | {"data.weights": (1, 2)},
        tuned(),
        "error",
        "data.weights",
        "2 weights for 1 file",
        False,
    ),
    "evaluations of nothing": (
        FINE | {"recipe.evaluate_every": 5},
        tuned(),
        "warning",
        "recipe.evaluate_every",
        "nothing is evaluated",
        False,
    ),
    "an id where a folder is needed": (
        {"trainer.model": "acme/new"},
        hub("LlamaForCausalLM"),
        "error",
        "trainer.model",
        "loads a folder",
        False,
    ),
    "a revision that has no such name": (
        TRL | {"trainer.revision": "a b"},
        hub("LlamaForCausalLM"),
        "error",
        "trainer.revision",
        "cannot be the name of a revision",
        False,
    ),
    "a TRL that takes the tokenizer of main": (
        TRL | {"trainer.revision": "v1", "trainer.model": "acme/kept"},
        msgspec.structs.replace(facts(packages={"trl": "1.12.0"}), hub=HubCache(folder="/hub", models=(PINNED,))),
        "warning",
        "trainer.revision",
        "TRL 1.12.0 takes the tokenizer of acme/kept from main",
        False,
    ),
    "a model of another kind": (
        TRL,
        hub("BertForMaskedLM"),
        "warning",
        "trainer.model",
        "is a BertForMaskedLM",
        False,
    ),
    "a model that is downloaded": (
        TRL,
        hub(answer=HubModel(size=3 * GIB)),
        "note",
        "trainer.model",
        "training: 3.0 GiB",
        False,
    ),
    "the rest of a model that is downloaded": (
        TRL,
        hub(answer=HubModel(size=3 * GIB), models=(PART,)),
        "note",
        "trainer.model",
        "training: 2.0 GiB",
        False,
    ),
    "a cache that is not known": (TRL, facts(), "note", "trainer.model", "it is not known whether", False),
    "a model without room": (
        TRL,
        hub(answer=HubModel(size=10 * GIB)),
        "error",
        "trainer.model",
        "needs 10.0 GiB",
        False,
    ),
    "a model and no network": (
        TRL,
        hub(offline=True, models=(PART,)),
        "error",
        "trainer.model",
        "lacks model-2.",
        False,
    ),
    "a model that the hub has not": (
        TRL,
        hub(answer=HubModel(refusal="missing", problem="none")),
        "error",
        "trainer.model",
        "no public model acme/new",
        False,
    ),
    "a hub that cannot be asked": (
        TRL,
        hub(answer=HubModel(refusal="unreachable", problem="no route")),
        "warning",
        "trainer.model",
        "cannot be asked: no route",
        False,
    ),
    "a python that cannot download": (
        TRL,
        msgspec.structs.replace(hub(), toolchains=(toolchain("/p", transformers=None),)),
        "error",
        "trainer.model",
        "no huggingface_hub",
        False,
    ),
    "python named but not found": (
        {"trainer.python": "/gone"},
        facts(),
        "error",
        "trainer.python",
        "/gone was not",
        True,
    ),
    "python named without torch": (
        {"trainer.python": "/p"},
        facts(python="/p", torch=None),
        "error",
        "trainer.python",
        "has no torch",
        True,
    ),
    "a GPU that NCCL cannot open": (
        {"trainer.launcher": "torchrun"},
        facts(gpus=(gpu(0), gpu(1), gpu(2, "GPU-2", problem="it is lost"))),
        "warning",
        "hardware.gpus",
        "GPU 2 cannot be opened: it is lost",
        False,
    ),
    "more GPUs than NCCL opens": (
        {"hardware.gpus": UUIDS},
        facts(gpus=(gpu(0), gpu(1), *(gpu(n, f"GPU-{n}") for n in range(2, 33)))),
        "warning",
        "hardware.gpus",
        "more than 32 GPUs",
        False,
    ),
    "nccl on the cpu": (
        {"communication.backend": "nccl", "hardware.processes": 2},
        facts(),
        "error",
        "communication.backend",
        "NCCL works on GPUs only",
        False,
    ),
    "gloo on gpus": (
        {"communication.backend": "gloo"},
        TWO,
        "warning",
        "communication.backend",
        "through the host",
        False,
    ),
    "a cure that nobody knows": (
        {"communication.without": ("p3p",)},
        TWO,
        "error",
        "communication.without",
        "no option named p3p",
        False,
    ),
    "an interface that is not there": (
        {"communication.interface": "eth9"},
        msgspec.structs.replace(TWO, machine=msgspec.structs.replace(TWO.machine, interfaces=("lo", "eth0"))),
        "error",
        "communication.interface",
        "no network interface eth9",
        True,
    ),
    "a variable that does nothing": (
        {"trainer.environment": {"ACCELERATE_USE_GLOO": "1"}},
        facts(),
        "warning",
        "trainer.environment",
        "no version of accelerate reads it",
        False,
    ),
    "a module that is not installed": (
        {"trainer.kind": "script", "trainer.preset": "axolotl", "trainer.config": "/c.yaml"},
        msgspec.structs.replace(facts(packages={}), documents={"/c.yaml": Document()}),
        "error",
        "trainer.python",
        "has no axolotl",
        True,
    ),
    "machines at localhost": (
        MACHINES | {"nodes.address": "localhost"},
        facts(),
        "warning",
        "nodes.address",
        "takes localhost for itself",
        False,
    ),
    "python that cannot be asked": (
        {"trainer.python": "/p"},
        facts(python="/p", problem="it crashed"),
        "error",
        "trainer.python",
        "it crashed",
        True,
    ),
    "no configuration": (
        {"trainer.preset": "axolotl", "trainer.kind": "script"},
        facts(),
        "error",
        "trainer.config",
        "no config file is set",
        False,
    ),
    "a configuration for a preset that takes none": (
        {"trainer.config": "/c.yaml"} | SCRIPT,
        facts(),
        "error",
        "trainer.config",
        "(trainer.config) is set and not used: “Hugging Face Trainer” does not take it",
        False,
    ),
    "a configuration that is not there": (
        YAML,
        facts(paths={"/c.yaml": "missing"}),
        "error",
        "trainer.config",
        "/c.yaml does not exist",
        False,
    ),
    "a configuration that is not read yet": (YAML, facts(), "error", "trainer.config", "not read yet", False),
    "a configuration that is no YAML": (
        YAML,
        read(c=Document(problem="it is not YAML: line 3")),
        "error",
        "trainer.config",
        "/c.yaml cannot be used: it is not YAML: line 3",
        False,
    ),
    "a value where the preset needs a table": (
        YAML,
        read(c=Document(values={"training": 5})),
        "error",
        "trainer.config",
        "training in /c.yaml is a single value",
        False,
    ),
    "a preset of one's own under a shipped name": (
        SCRIPT,
        msgspec.structs.replace(facts(), presets={"hf-trainer": UserPreset(path="/p", problem="it is a shipped one")}),
        "warning",
        "trainer.preset",
        "it is a shipped one",
        False,
    ),
    "a broken preset of one's own": (
        {"trainer.preset": "mine"} | SCRIPT,
        msgspec.structs.replace(facts(), presets={"mine": UserPreset(path="/p", problem="/p: label: is empty")}),
        "error",
        "trainer.preset",
        "mine cannot be used: /p: label: is empty",
        False,
    ),
    "arguments that the script does not list": (
        {"trainer.preset": "hf-trainer", "ladder.rungs": ()} | SCRIPT,
        msgspec.structs.replace(facts(), help={"/t.py": ScriptHelp(flags=(Flag("--batch_size"), Flag("--bs")))}),
        "warning",
        "trainer.preset",
        "the script does not take --output_dir, --logging_steps, ",
        False,
    ),
    "a script that loads no checkpoint": (
        {"trainer.preset": "hf-trainer"} | SCRIPT,
        msgspec.structs.replace(facts(), sources={"/t.py": Source(bare_train=7, train_words="trainer.train(last)")}),
        "warning",
        "trainer.script",
        "line 7 of the script passes no checkpoint on",
        False,
    ),
    "a script that waits for --local_rank": (
        {"trainer.preset": "custom", "trainer.launcher": "torchrun"} | SCRIPT,
        msgspec.structs.replace(facts(), sources={"/t.py": Source(local_rank=3)}),
        "warning",
        "trainer.script",
        "line 3 of the script takes --local_rank",
        False,
    ),
    "an expression for the log that is none": (
        {"trainer.preset": "custom", "trainer.progress": "step ("} | SCRIPT,
        facts(),
        "error",
        "trainer.progress",
        "the expression is not a regular expression",
        False,
    ),
    "an expression for the log that may never end": (
        {"trainer.preset": "custom", "trainer.progress": r"(?P<step>(\d+)+)x"} | SCRIPT,
        facts(),
        "error",
        "trainer.progress",
        "takes hours",
        False,
    ),
    "no key for wandb": (
        {"trainer.preset": "hf-trainer", "trainer.arguments": ("--report_to=wandb",)} | SCRIPT,
        msgspec.structs.replace(facts(packages={"wandb": "0.31.0"}), wandb_key=False),
        "warning",
        "trainer.secrets",
        "no key for W&B was found",
        False,
    ),
    "a logger that is not installed": (
        {"tracking.tensorboard": True},
        facts(),
        "error",
        "tracking.tensorboard",
        "has no package tensorboard",
        False,
    ),
    "a logger that the preset does not pass": (
        {"trainer.preset": "custom", "tracking.wandb": True} | SCRIPT,
        facts(packages={"wandb": "0.31.0"}),
        "error",
        "tracking.wandb",
        "has no argument for it",
        False,
    ),
    "no key for a chosen logger": (
        {"tracking.wandb": True},
        msgspec.structs.replace(facts(packages={"wandb": "0.31.0"}), wandb_key=False),
        "warning",
        "trainer.secrets",
        "tracking.wandb is chosen",
        False,
    ),
    "no python at all": ({}, Facts(machine=facts().machine), "error", "trainer.python", "none was found", True),
    "no python that can": (
        {},
        facts(label="here", accelerate=None, transformers=None),
        "error",
        "trainer.python",
        "here has no accelerate",
        True,
    ),
    "GPU that is not there": (
        {"hardware.gpus": ("GPU-x",)},
        facts(gpus=(gpu(0),)),
        "error",
        "hardware.gpus",
        "GPU-x is not in",
        True,
    ),
    "GPU that is blocked": (
        {"hardware.gpus": UUIDS[:1]},
        facts(gpus=(gpu(0, problem="lost"), gpu(1))),
        "error",
        "hardware.gpus",
        "lost",
        True,
    ),
    "GPU that limits the others": (
        {"hardware.gpus": UUIDS} | TORCHRUN,
        facts(gpus=(gpu(0), gpu(1, memory_total=2 * GIB))),
        "warning",
        "hardware.gpus",
        "limits the others",
        False,
    ),
    "cuda without a GPU": ({"hardware.device": "cuda"}, facts(), "error", "hardware.device", "none was found", True),
    "cuda without a usable GPU": (
        {"hardware.device": "cuda"},
        facts(gpus=(gpu(0, problem="it is lost"),)),
        "error",
        "hardware.device",
        "it is lost",
        True,
    ),
    "the cpu beside a GPU": (
        {},
        facts(gpus=(gpu(0),), cuda=None),
        "error",
        "hardware.device",
        "1 RTX 3090 is idle: this Python's torch cannot use GPUs",
        True,
    ),
    "one GPU beside a better one": (
        {},
        facts(
            gpus=(gpu(0, sm_clock_max=1500), gpu(1, compute_capability="12.0", sm_clock_max=1900)), arch_list=("sm_86",)
        ),
        "error",
        "hardware.gpus",
        "would train; 1 RTX 3090 is idle: this Python's torch",
        True,
    ),
    "one of two GPUs by python": (
        {"trainer.launcher": "python"},
        TWO,
        "error",
        "trainer.launcher",
        "2 are here to train on",
        False,
    ),
    "python for two GPUs": (
        {"hardware.gpus": UUIDS, "trainer.launcher": "python"},
        TWO,
        "error",
        "trainer.launcher",
        "2 are wanted",
        False,
    ),
    "python for two processes": (
        {"hardware.processes": 2, "trainer.launcher": "python"},
        facts(),
        "error",
        "trainer.launcher",
        "2 are wanted",
        False,
    ),
    "more processes than GPUs": (
        {"hardware.processes": 4, "recipe.global_batch": 32} | TORCHRUN,
        TWO,
        "error",
        "hardware.processes",
        "4 processes on 2 GPUs",
        False,
    ),
    "fewer processes than GPUs": (
        {"hardware.processes": 1} | TORCHRUN,
        TWO,
        "error",
        "hardware.processes",
        "1 process on 2 GPUs",
        False,
    ),
    "batch that does not divide": (
        {"recipe.micro_batch": 8, "recipe.global_batch": 20},
        facts(),
        "error",
        "recipe.global_batch",
        "20 is not a multiple of micro batch 8 x 1",
        False,
    ),
    "batch that is too small": (
        {"recipe.micro_batch": 8, "recipe.global_batch": 4},
        facts(),
        "error",
        "recipe.global_batch",
        "4 is not",
        False,
    ),
    "heads that do not divide": (
        {"recipe.hidden_size": 100},
        facts(),
        "error",
        "recipe.hidden_size",
        "2 × 4 heads",
        False,
    ),
    "hidden size below the heads": (
        {"recipe.hidden_size": 8, "recipe.heads": 64},
        facts(),
        "error",
        "recipe.hidden_size",
        "2 × 64 heads",
        False,
    ),
    "fp16 on the cpu": ({"recipe.precision": "fp16"}, facts(), "error", "recipe.precision", "on the CPU", False),
    "bf16 on an old GPU": ({"recipe.precision": "bf16"}, OLD, "error", "recipe.precision", "8.0", False),
    "no script": (SCRIPT | {"trainer.script": ""}, facts(), "error", "trainer.script", "no script is named", False),
    "script that is missing": (
        SCRIPT,
        paths(**{"t.py": "missing"}),
        "error",
        "trainer.script",
        "/t.py does not",
        False,
    ),
    "script that is a folder": (SCRIPT, paths(**{"t.py": "folder"}), "error", "trainer.script", "is not a file", False),
    "data that is missing": (
        {"trainer.data": ("/a", "/b")},
        paths(a="file", b="missing"),
        "error",
        "trainer.data",
        "/b",
        False,
    ),
    "data that cannot be read": (
        {"trainer.data": ("/a",)},
        paths(a="unreadable"),
        "error",
        "trainer.data",
        "cannot be",
        False,
    ),
    "model that is a file": (
        {"trainer.model": "/m"},
        paths(m="file"),
        "error",
        "trainer.model",
        "is not a folder",
        False,
    ),
    "working directory missing": (
        {"trainer.working_directory": "/w"},
        paths(w="missing"),
        "error",
        "trainer.working_directory",
        "does not",
        False,
    ),
    "output that is a file": ({"trainer.output": "/o"}, paths(o="file"), "error", "trainer.output", "is a file", False),
    "output where nothing may be written": (
        {"trainer.output": "/o"},
        msgspec.structs.replace(facts(), closed={"/o": "you may not write in /"}),
        "error",
        "trainer.output",
        "/o cannot be used: you may not write in /",
        False,
    ),
    "a disk without room for a checkpoint": (
        {},
        msgspec.structs.replace(facts(), free={"": 5 << 20}),
        "error",
        "trainer.output",
        "a checkpoint takes 10 MiB (weights 3 MiB, optimizer 6 MiB), and there are 5 MiB free where runs are kept",
        False,
    ),
    "a disk without room for all checkpoints": (
        {"trainer.output": "/o"},
        msgspec.structs.replace(facts(), free={"": GIB, "/o": 25 << 20}),
        "warning",
        "trainer.output",
        "up to 29 MiB are needed for 3 checkpoints of 10 MiB at a time, and there are 25 MiB free in /o",
        False,
    ),
    "an argument that is no number": (
        SCRIPT | {"trainer.preset": "custom", "trainer.arguments": ("--size=a",)},
        msgspec.structs.replace(
            facts(),
            sources={"/t.py": Source(kind="argparse", parameters=(Parameter(name="--size", type="int", line=9),))},
        ),
        "error",
        "trainer.arguments",
        "--size is 'a', which is not a whole number (line 9 of the script)",
        False,
    ),
    "an argument that may be the rate": (
        SCRIPT | {"trainer.preset": "custom"},
        msgspec.structs.replace(
            facts(), sources={"/t.py": Source(parameters=(Parameter(name="--eta", type="float", default="0.1"),))}
        ),
        "note",
        "trainer.arguments",
        "--eta may be the learning rate",
        False,
    ),
    "an argument that the script requires": (
        SCRIPT | {"trainer.preset": "custom"},
        msgspec.structs.replace(
            facts(),
            sources={
                "/t.py": Source(
                    kind="argparse", parameters=(Parameter(name="--eta", required=True, type="float", line=9),)
                )
            },
        ),
        "error",
        "trainer.arguments",
        "the script requires --eta (line 9), and nothing passes it",
        False,
    ),
    "output that is there": (
        {"trainer.output": "/o"},
        paths(o="folder"),
        "warning",
        "trainer.output",
        "already",
        False,
    ),
    "variable that is ours": (
        {"trainer.environment": {"CUDA_VISIBLE_DEVICES": "1"}},
        facts(),
        "error",
        "trainer.environment",
        "CUDA_VISIBLE_DEVICES is set by the plan",
        False,
    ),
    "variable that is a secret": (
        {"trainer.environment": {"HF_TOKEN": "x"}},
        facts(),
        "error",
        "trainer.environment",
        "looks like a secret",
        False,
    ),
    "variable that is no name": (
        {"trainer.environment": {"a b": "x"}},
        facts(),
        "error",
        "trainer.environment",
        "'a b' is not a variable name",
        False,
    ),
    "secret that is no name": (
        {"trainer.secrets": ("HF_TOKEN=hf_x",)},
        facts(),
        "error",
        "trainer.secrets",
        "is not a variable name",
        False,
    ),
    "unknown rung": ({"ladder.rungs": ("micro",)}, facts(), "error", "ladder.rungs", "no fallback micro", False),
    "rung twice": ({"ladder.rungs": ("micro_batch",) * 2}, facts(), "error", "ladder.rungs", "twice", False),
    "rung without consent": (
        {"ladder.rungs": ("layers",)},
        facts(),
        "warning",
        "ladder.consent",
        "needs your consent",
        False,
    ),
    "no checkpoint before the end": (
        {"recipe.checkpoint_every": 61},
        facts(),
        "note",
        "recipe.checkpoint_every",
        "no checkpoint is saved",
        False,
    ),
    "busy GPU": (
        {"hardware.gpus": UUIDS[:1]},
        facts(gpus=(gpu(0, processes=(GpuProcess(7, "python", "ada", 20 * GIB),)),)),
        "warning",
        "hardware.gpus",
        "is busy: ",
        False,
    ),
    "unknown placeholder": (
        {"trainer.arguments": ("--x={microbatch}", '--json={"a":{}}')},
        facts(),
        "warning",
        "trainer.arguments",
        "no {microbatch} to fill in",
        False,
    ),
    "offload without sharding": ({"trainer.offload": True}, TWO, "warning", "trainer.offload", "ddp shards", False),
    "sharding on the cpu": (FSDP2, facts(), "error", "trainer.strategy", "shards none on the CPU", False),
    "sharding by torchrun": (FSDP2 | TORCHRUN, TWO, "error", "trainer.strategy", "needs the launcher acc", False),
    "sharding over one process": (
        FSDP2,
        facts(gpus=(gpu(0),)),
        "error",
        "trainer.strategy",
        "there is only one",
        False,
    ),
    "evaluations of a pretraining without data": (
        {"recipe.evaluate_every": 5},
        facts(),
        "warning",
        "recipe.evaluate_every",
        "there is no data for it",
        False,
    ),
    "sharding of a script that may not use accelerate": (
        FSDP2 | SCRIPT | BATCH_OF_TWO | {"trainer.preset": "total-batch"},
        TWO,
        "warning",
        "trainer.strategy",
        "not known",
        False,
    ),
    "deepspeed that is not installed": (
        {"trainer.strategy": "zero3", "trainer.python": "/p"} | SCRIPT,
        facts(python="/p", gpus=(gpu(0), gpu(1))),
        "error",
        "trainer.python",
        "has no deepspeed",
        True,
    ),
    "accelerate that is too old for fsdp2": (
        FSDP2 | {"trainer.python": "/p"},
        facts(python="/p", gpus=(gpu(0), gpu(1)), accelerate="1.4.0"),
        "error",
        "trainer.python",
        "accelerate 1.4.0, and fsdp2 needs 1.6",
        True,
    ),
    "epochs that are not whole": (
        SCRIPT | {"trainer.preset": "accelerate", "recipe.epochs": 1.5},
        facts(),
        "error",
        "recipe.epochs",
        "takes whole epochs, and 1.5 are set",
        False,
    ),
    "a variable that overrides a key": (
        {"communication.without": ("p2p",), "trainer.environment": {"NCCL_P2P_DISABLE": "0"}} | TORCHRUN,
        TWO,
        "error",
        "trainer.environment",
        "NCCL_P2P_DISABLE=0 in your environment overrides communication.without",
        False,
    ),
    "an accelerate config that is none": (
        ACCELERATE,
        configured({"distributed_type": "MEGATRON_LM"}),
        "warning",
        "trainer.accelerate_config",
        "is for MEGATRON_LM",
        False,
    ),
    "an accelerate config with what no key says": (
        ACCELERATE,
        configured({"distributed_type": "NO", "parallelism_config": {"parallelism_config_tp_size": 2}}),
        "error",
        "trainer.accelerate_config",
        "parallelism_config in",
        False,
    ),
    "an accelerate config with a key that is none": (
        ACCELERATE,
        configured({"distributed_type": "NO", "backend": "gloo"}),
        "warning",
        "trainer.accelerate_config",
        "backend in your accelerate config",
        False,
    ),
    "an accelerate config for gpus on the cpu": (
        ACCELERATE | {"hardware.device": "cpu"},
        configured({"distributed_type": "NO", "mixed_precision": "fp16"}),
        "note",
        "recipe.precision",
        "sets fp16 for GPUs",
        False,
    ),
    "an accelerate config that binds to CPUs": (
        ACCELERATE,
        configured({"distributed_type": "MULTI_GPU", "enable_cpu_affinity": True}),
        "note",
        "trainer.environment",
        "has no effect",
        False,
    ),
    "an accelerate config that shards": (
        ACCELERATE | {"trainer.preset": "hf-trainer"},
        configured({"distributed_type": "FSDP", "num_processes": 2}),
        "warning",
        "trainer.strategy",
        "shards the model (FSDP)",
        False,
    ),
    "an accelerate config of another number of processes": (
        ACCELERATE,
        configured({"distributed_type": "MULTI_GPU", "num_processes": 4}),
        "note",
        "hardware.processes",
        "starts 4 processes, and this plan 2",
        False,
    ),
    "an accelerate config that would not be read": (
        SCRIPT | {"trainer.preset": "custom"},
        configured({"distributed_type": "NO", "mixed_precision": "bf16"}),
        "warning",
        "trainer.launcher",
        "only `accelerate launch` reads",
        False,
    ),
    "a partition that Slurm cannot have": (
        {"slurm.partition": "a b", "hardware.device": "cpu"},
        msgspec.structs.replace(facts(), scheduler="slurm"),
        "error",
        "slurm.partition",
        "cannot be an option",
        False,
    ),
    "a partition that there is not": (
        {"slurm.partition": "gpux", "hardware.device": "cpu"},
        CLUSTERED,
        "error",
        "slurm.partition",
        "no partition gpux",
        True,
    ),
    "an account that there is not": (
        {"slurm.account": "other", "hardware.device": "cpu"},
        CLUSTERED,
        "error",
        "slurm.account",
        "no account other",
        True,
    ),
    "a time above the limit of the partition": (
        {"slurm.time": "2:00:00", "hardware.device": "cpu"},
        CLUSTERED,
        "error",
        "slurm.time",
        "above that of gpu",
        True,
    ),
    "more nodes than there are": (
        {"nodes.count": 3, "hardware.device": "cpu", "recipe.global_batch": 24},
        CLUSTERED,
        "error",
        "nodes.count",
        "gpu has 2",
        True,
    ),
    "hosts for Slurm": (
        HOSTS | {"hardware.device": "cpu"},
        msgspec.structs.replace(facts(), scheduler="slurm"),
        "error",
        "nodes.hosts",
        "Slurm chooses",
        False,
    ),
    "one host": ({"nodes.hosts": ("a",)}, facts(), "error", "nodes.hosts", "only host", False),
    "a host twice": ({"nodes.hosts": ("a", "a")}, facts(), "error", "nodes.hosts", "twice", False),
    "an option as a host": ({"nodes.hosts": ("a", "-oX=y")}, facts(), "error", "nodes.hosts", "not a host", False),
    "another number of hosts": (HOSTS | {"nodes.count": 3}, facts(), "error", "nodes.count", "2 hosts", False),
    "hosts in containers": (inside() | HOSTS, boxed(), "error", "container.engine", "on other hosts", False),
    "a host that does not answer": (HOSTS, peers(problem="Permission denied"), "error", "nodes.hosts", "b: Perm", True),
    "one host by two names": (
        HOSTS,
        msgspec.structs.replace(peers(), peers=dict.fromkeys("ab", Peer(is_first=True))),
        "error",
        "nodes.hosts",
        "a and b are the same machine",
        True,
    ),
    "a host whose GPUs are not known": (HOSTS, peers(machine=None), "warning", "nodes.hosts", "not known", True),
    "hosts in another order": (HOSTS, peers(is_first=True), "error", "nodes.hosts", "start on b, and a is", True),
    "a host without the Python": (HOSTS, peers(toolchain=None), "error", "nodes.hosts", "does not run there", True),
    "a host with another torch": (
        HOSTS,
        peers(toolchain=toolchain(torch="2.6.0+cu124")),
        "error",
        "nodes.hosts",
        "b: torch 2.6.0+cu124",
        True,
    ),
    "a host with torch for another CUDA": (
        HOSTS,
        peers(machine=NEWER, toolchain=toolchain(torch="2.13.0+cu130", cuda="13.0")),
        "warning",
        "nodes.hosts",
        "for CUDA 13.0, a has it for 12.8",
        True,
    ),
    "a host with other versions": (
        HOSTS,
        peers(toolchain=toolchain(version="3.12.1", accelerate="1.0.0")),
        "warning",
        "nodes.hosts",
        "b: Python 3.12, accelerate 1.0.0; a has 3.11, 1.15.0",
        True,
    ),
    "a host with fewer GPUs": (
        HOSTS | {"recipe.global_batch": None},
        peers(gpus=(gpu(0),)),
        "error",
        "nodes.hosts",
        "1 GPU, and a trains on 2",
        True,
    ),
    "a host with other GPUs": (
        HOSTS,
        peers(gpus=(gpu(0), gpu(1, name="NVIDIA H100"))),
        "warning",
        "nodes.hosts",
        "b: 1 × NVIDIA H100",
        True,
    ),
    "a host without the script": (
        HOSTS | SCRIPT,
        peers(**{"/t.py": "missing"}),
        "error",
        "nodes.hosts",
        "there is no /t.py",
        True,
    ),
    "a host with another time": (HOSTS, peers(ahead=-240.0), "warning", "nodes.hosts", "4 minutes behind", True),
    "more counts than machines": (
        UNEVEN | {"nodes.processes": (2, 1, 1)},
        facts(),
        "error",
        COUNTS,
        "3 numbers",
        False,
    ),
    "another count than is chosen": (
        UNEVEN | {"nodes.processes": (3, 1)},
        facts(gpus=(gpu(0), gpu(1))),
        "error",
        COUNTS,
        "begins with 3, and the first machine trains on 2 GPUs",
        False,
    ),
    "other counts under accelerate": (
        UNEVEN | {"trainer.launcher": "accelerate"},
        facts(),
        "error",
        COUNTS,
        "accelerate starts as many",
        False,
    ),
    "other counts for Slurm": (
        {"nodes.count": 2, "nodes.processes": (2, 1), "hardware.device": "cpu", "recipe.global_batch": 24},
        CLUSTERED,
        "error",
        COUNTS,
        "Slurm gives each",
        False,
    ),
    "machines without an address": (MACHINES, facts(), "error", "nodes.address", "2 machines train", False),
    "machines with a wrong address": (
        MACHINES | {"nodes.address": "10.0.0.1 10.0.0.2"},
        facts(),
        "error",
        "nodes.address",
        "is not an address",
        False,
    ),
    "machines at a port of root": (
        MACHINES | {"nodes.address": "10.0.0.1", "nodes.port": 80},
        facts(),
        "warning",
        "nodes.port",
        "opened by root",
        False,
    ),
    "python for two machines": (
        MACHINES | {"nodes.address": "10.0.0.1", "trainer.launcher": "python"},
        facts(),
        "error",
        "trainer.launcher",
        "2 are wanted",
        False,
    ),
    "engine that is not there": (
        inside("podman"),
        msgspec.structs.replace(boxed(), images=boxed("podman").images, toolchains=facts().toolchains),
        "error",
        "container.engine",
        "podman cannot be used: it is not installed",
        True,
    ),
    "engine that may not be used": (
        inside(),
        msgspec.structs.replace(boxed(about={"problem": "you may not use it"}), toolchains=facts().toolchains),
        "error",
        "container.engine",
        "docker cannot be used: you may not",
        True,
    ),
    "engine that shows no GPUs": (
        inside(),
        boxed(gpus=(gpu(0),), about={"gpus": False}),
        "error",
        "container.engine",
        "NVIDIA's Container Toolkit is not set up",
        True,
    ),
    "image without an engine": (
        inside("none"),
        facts(),
        "warning",
        "container.image",
        "(container.image) is set and not used: no container is chosen",
        False,
    ),
    "python beside a container": (
        inside() | {"trainer.python": "/p"},
        boxed(),
        "warning",
        "trainer.python",
        "the image has its own Python",
        False,
    ),
    "no image": (inside(image=""), boxed(), "error", "container.image", "no image is named", False),
    "image that is an option": (
        inside(image="--privileged"),
        boxed(),
        "error",
        "container.image",
        "not a valid image name",
        False,
    ),
    "image that is a relative file": (
        inside("apptainer", "x.sif"),
        boxed("apptainer", "x.sif"),
        "error",
        "container.image",
        "not an absolute path",
        False,
    ),
    "image that is not here": (
        inside(image="nemo:99"),
        boxed(),
        "error",
        "container.image",
        "nemo:99 is not on this machine",
        True,
    ),
    "image that could not be asked": (
        inside(),
        msgspec.structs.replace(
            boxed(), images=(ContainerImage(engine="docker", name="nemo:25.04", problem="no `python`"),)
        ),
        "error",
        "container.image",
        "cannot train this: no `python`",
        True,
    ),
    "image without torch": (inside(), boxed(torch=None), "error", "container.image", "has no torch", True),
    "shared memory that is none": (
        inside(container__shared_memory="lots"),
        boxed(),
        "error",
        "container.shared_memory",
        "'lots' is not a memory",
        False,
    ),
    "shared memory of apptainer": (
        inside("apptainer", "/x.sif", container__shared_memory="1g"),
        boxed("apptainer", "/x.sif"),
        "note",
        "container.shared_memory",
        "always shares",
        False,
    ),
    "mount that is none": (
        inside(container__mounts=("/data",)),
        boxed(),
        "error",
        "container.mounts",
        "/data is not a mount",
        False,
    ),
    "mount of what is not there": (
        inside(container__mounts=("/data:/d",)),
        boxed(paths={"/data": "missing"}),
        "error",
        "container.mounts",
        "/data does not exist",
        False,
    ),
    "mount that hides the image": (
        inside(container__mounts=("/data:/usr",)),
        boxed(),
        "error",
        "container.mounts",
        "hide the image",
        False,
    ),
    "script in a folder that hides the image": (
        inside() | {"trainer.kind": "script", "trainer.script": "/opt/t.py", "ladder.rungs": ()},
        boxed(),
        "error",
        "trainer.script",
        "/opt would hide",
        False,
    ),
    "cache that a container would lose": (
        inside() | {"trainer.environment": {"HF_HOME": "/big/hf"}},
        boxed(),
        "warning",
        "trainer.environment",
        "HF_HOME=/big/hf is not mounted",
        False,
    ),
    "argument that the container does not see": (
        inside(container__mounts=("/data:/mnt:ro",))
        | AT_HOME
        | {"trainer.arguments": ("--model=/models/x", "/home/a/c.yaml", "/mnt/d", "--lr=1/2")},
        boxed(),
        "warning",
        "container.mounts",
        "/models/x is not visible in the",
        False,
    ),
    "path that podman cannot mount": (
        inside("podman") | AT_HOME | {"trainer.output": "/a:b,c"},
        boxed("podman"),
        "error",
        "trainer.output",
        "cannot mount /a:b,c",
        False,
    ),
    "GPUs of a live run": (
        {"hardware.gpus": UUIDS[:1]},
        beside(Taken(run="a", gpus=UUIDS[:1])),
        "error",
        "hardware.gpus",
        "the run a is already training on 1 GPU of these",
        True,
    ),
    "all GPUs taken by a live run": (
        {},
        beside(Taken(run="a", gpus=UUIDS)),
        "error",
        "hardware.gpus",
        "the run a is already training on 2 GPUs",
        True,
    ),
    "output folder of a live run": (
        {"trainer.output": "/data//out/"},
        beside(Taken(run="a", outputs=("/data/out",))),
        "error",
        "trainer.output",
        "the run a is already writing to /data/out",
        True,
    ),
    "port that another program has": (
        MACHINES | {"nodes.address": "10.0.0.1", "trainer.launcher": "torchrun", "recipe.global_batch": 32},
        beside(Taken(port=29500)),
        "error",
        "nodes.port",
        "another program uses port 29500",
        True,
    ),
    "processes that end at logout": (
        {},
        at_logout(kills=True),
        "warning",
        "hardware.device",
        "ends all your processes when you log out",
        False,
    ),
    "shared memory that goes at logout": (
        {},
        at_logout(removes_shared_memory=True),
        "note",
        "hardware.device",
        "RemoveIPC=yes",
        False,
    ),
    "logind that does not answer": (
        {},
        at_logout(unknown="no answer in time"),
        "note",
        "hardware.device",
        "no answer in time",
        False,
    ),
    "token among the arguments": (
        SCRIPT | {"trainer.preset": "custom", "trainer.arguments": ("--hub", "hf_" + "a" * 30)},
        facts(),
        "error",
        "trainer.arguments",
        "--hub looks like a secret",
        False,
    ),
    "password in a URL among the arguments": (
        SCRIPT | {"trainer.preset": "custom", "trainer.arguments": ("--data=https://u:pass1234@h/x",)},
        facts(),
        "error",
        "trainer.arguments",
        "--data looks like a secret",
        False,
    ),
    "variable whose value is a secret": (
        {"trainer.environment": {"DATA_URL": "https://h/x?sig=abcdef"}},
        facts(),
        "error",
        "trainer.environment",
        "DATA_URL looks like a secret",
        False,
    ),
    "a token where a name of a variable belongs": (
        {"trainer.secrets": ("gsk_" + "a1B2" * 13,)},
        facts(),
        "error",
        "trainer.secrets",
        "trainer.secrets looks like a secret",
        False,
    ),
    "what may be a password among the arguments": (
        SCRIPT | {"trainer.preset": "custom", "trainer.arguments": ("-p", "hunter22")},
        facts(),
        "warning",
        "trainer.arguments",
        "-p looks like a secret",
        False,
    ),
    "a password in the command at the end": (
        {"notify.command": ("curl", "-u", "me:hunter22", "https://files.example.org/x")},
        facts(),
        "error",
        "notify.command",
        "notify.command looks like a secret",
        False,
    ),
    "a webhook's file that the host does not have": (
        {"hardware.host": "gpu-box", "notify.webhook": "https://hooks.example.org/x"},
        facts(),
        "error",
        "notify.webhook",
        "the webhook's address is kept on this machine, and gpu-box supervises the run",
        False,
    ),
    "what may be a secret among the arguments": (
        SCRIPT | {"trainer.preset": "custom", "trainer.arguments": ("--wandb_api_key=correct horse",)},
        facts(),
        "warning",
        "trainer.arguments",
        "--wandb_api_key looks like a secret",
        False,
    ),
    "a micro batch of one's own": (
        FALLS | {"trainer.arguments": ("--a", "--per_device_train_batch_size", "2", "--b=1")},
        facts(),
        "warning",
        "trainer.arguments",
        "--per_device_train_batch_size 2 in your arguments sets the batch",
        False,
    ),
    "a batch of one's own": (
        FALLS
        | BATCH_OF_TWO
        | {"trainer.arguments": ("--per_device_train_batch_size=3", "--gradient_accumulation_steps=5")},
        facts(),
        "error",
        "trainer.arguments",
        "--per_device_train_batch_size=3 --gradient_accumulation_steps=5 in your arguments overrides",
        False,
    ),
    "a learning rate of one's own": (
        SCRIPT | {"trainer.arguments": ("--learning_rate=1", "--x"), "recipe.learning_rate": 1e-4},
        facts(),
        "error",
        "trainer.arguments",
        "--learning_rate=1 in your arguments overrides",
        False,
    ),
    "a value that the preset does not pass": (
        SCRIPT | {"recipe.layers": 12},
        facts(),
        "error",
        "recipe.layers",
        "Layers (recipe.layers) is set and not used: this preset does not pass it",
        False,
    ),
    "data that the preset does not pass": (
        SCRIPT | {"trainer.data": ("/a.jsonl",)},
        paths(**{"a.jsonl": "file"}),
        "error",
        "trainer.data",
        "is set and not used",
        False,
    ),
    "a size beside a model folder": (
        {"trainer.model": "/m", "recipe.hidden_size": 256},
        paths(m="folder"),
        "error",
        "recipe.hidden_size",
        "the model folder decides",
        False,
    ),
    "a value of another trainer": (
        {"nemo.recipe": "qwen25_500m"},
        facts(),
        "warning",
        "nemo.recipe",
        "only a NeMo recipe takes it",
        False,
    ),
    "an address for one machine": (
        {"nodes.address": "10.0.0.1"},
        facts(),
        "warning",
        "nodes.address",
        "only for several machines",
        False,
    ),
    "a placeholder without a value": (
        SCRIPT | {"trainer.preset": "custom", "trainer.arguments": ("--bs={micro_batch}",), "ladder.rungs": ()},
        facts(),
        "error",
        "recipe.micro_batch",
        "{micro_batch} in your arguments has no value",
        False,
    ),
    "a batch that is not known": (
        FALLS | {"trainer.preset": "total-batch"},
        facts(),
        "note",
        "recipe.micro_batch",
        "cannot be lowered",
        False,
    ),
    "a global batch without a micro batch": (
        SCRIPT | {"trainer.preset": "total-batch", "recipe.global_batch": 16},
        facts(),
        "error",
        "recipe.micro_batch",
        "a global batch of 16 needs a micro batch",
        False,
    ),
    "a learning rate that cannot be scaled": (
        SCRIPT | BATCH_OF_TWO | {"trainer.preset": "total-batch", "recipe.lr_scaling": "linear"},
        facts(),
        "error",
        "recipe.lr_scaling",
        "the trainer's learning rate is not known",
        False,
    ),
    "a reference batch without scaling": (
        {"recipe.lr_base_batch": 8},
        facts(),
        "warning",
        "recipe.lr_base_batch",
        "has no effect",
        False,
    ),
    "a file that trains nothing": (
        {"trainer.kind": "script", "trainer.preset": "llama-factory", "trainer.config": "/c.yaml"},
        read(c=Document(values={"do_train": False})),
        "error",
        "trainer.config",
        "/c.yaml does not set do_train: true",
        False,
    ),
    "data of no known form": (
        {"trainer.kind": "script", "trainer.preset": "trl", "trainer.data": ("/a.xml",)},
        paths(**{"a.xml": "file"}),
        "error",
        "trainer.data",
        "the format of the data is not known",
        False,
    ),
    "a profile of an older version": (
        {"schema": 1},
        facts(),
        "note",
        "name",
        "all of them count as chosen",
        False,
    ),
    "a batch that is lowered by itself": (
        SCRIPT | {"trainer.arguments": ("--auto_find_batch_size",)},
        facts(),
        "warning",
        "trainer.arguments",
        "auto_find_batch_size lowers the batch",
        False,
    ),
    "more memory than the GPU has": (
        {"recipe.hidden_size": 2048, "recipe.heads": 16, "recipe.layers": 16, "recipe.sequence_length": 2048},
        facts(gpus=(gpu(0),)),
        "warning",
        "recipe.micro_batch",
        " allocated), but GPU 0",
        False,
    ),
    "unknown preset": (SCRIPT | {"trainer.preset": "hf"}, facts(), "error", "trainer.preset", "no preset hf", False),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_only_that(name):
    values, where, level, key, part, machine = FAULTS[name]
    findings = found(values, where)
    assert [(item.level, item.key, item.machine) for item in findings] == [(level, key, machine)]
    assert part in findings[0].message
    assert findings[0].message.isprintable()
    assert findings[0].remedy.endswith((".", "?"))


MENDED = {
    "a disk without room for all checkpoints",
    "an argument that is no number", "an argument that may be the rate",
    "epochs that are not whole", "output that is a file", "output where nothing may be written",
    "a checkpoint that is not evaluated",
    "a length that the model does not take", "a length that the model of a script does not take",
    "a rate that trains nothing", "a rate that trains nothing, by the built-in trainer",
    "no checkpoint before the end", "no checkpoint before the end of the epochs", "a script that reads its rank",
    "a variable that overrides a key",
    "an accelerate config that shards", "an accelerate config that would not be read",
    "an accelerate config that binds to CPUs",
    "a time above the limit of the partition",
    "an account that there is not",
    "longer samples than the model takes",
    "qlora on the cpu", "a rate that is not for an adapter", "epochs and steps", "evaluations of nothing",
    "an argument that undoes the plan", "weights of fewer files than there are",
    "an id where a folder is needed", "a revision that has no such name",
    "a broken preset of one's own",
    "arguments that the script does not list", "no key for wandb",
    "a logger that is not installed", "a logger that the preset does not pass", "no key for a chosen logger",
    "cuda without a GPU", "cuda without a usable GPU", "python for two GPUs", "python for two processes",
    "more processes than GPUs", "fewer processes than GPUs", "batch that does not divide", "batch that is too small",
    "heads that do not divide", "hidden size below the heads", "fp16 on the cpu", "bf16 on an old GPU",
    "variable that is a secret", "variable whose value is a secret", "nccl on the cpu", "gloo on gpus",
    "a variable that does nothing", "rung twice", "rung without consent", "unknown preset",
    "more memory than the GPU has", "a micro batch of one's own", "a batch of one's own",
    "offload without sharding", "sharding on the cpu", "sharding by torchrun", "sharding over one process",
    "machines at a port of root", "python for two machines",
    "more counts than machines", "another count than is chosen", "other counts under accelerate",
    "other counts for Slurm",
    "a host that does not answer", "a host without the Python", "a host with another torch", "a host with fewer GPUs",
    "hosts in another order", "one host by two names",
    "a host without the script",
    "hosts for Slurm", "one host", "another number of hosts", "hosts in containers",
    "a partition that there is not", "more nodes than there are",
    "engine that is not there", "engine that may not be used",
    "GPUs of a live run", "the cpu beside a GPU", "one GPU beside a better one", "one of two GPUs by python",
    "a configuration for a preset that takes none", "image without an engine", "python beside a container",
    "a learning rate of one's own", "a value that the preset does not pass", "data that the preset does not pass",
    "a size beside a model folder", "a value of another trainer", "an address for one machine",
    "a learning rate that cannot be scaled", "a reference batch without scaling",
    "shared memory that is none", "shared memory of apptainer", "argument that the container does not see",
    "cache that a container would lose", "evaluations of a pretraining without data",
    "an expression for the log that is none", "an expression for the log that may never end",
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_finding_offers_mends_it(name):
    values, where, *_ = FAULTS[name]
    change = found(values, where)[0].change
    assert (change is not None) == (name in MENDED)
    if change:
        changed = apply(change, made_of(values))
        assert check(changed, where) == ()
        assert plan(changed, where).attempts
        assert change.title
        assert change.why


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({}, facts()),
        ({}, facts(gpus=(gpu(0),))),
        ({}, facts(gpus=(gpu(0), gpu(1)))),
        ({"recipe.precision": "bf16"}, facts()),
        ({"recipe.precision": "fp16"}, OLD),
        ({"hardware.gpus": UUIDS[1:]}, facts(gpus=(gpu(0), gpu(1, memory_total=2 * GIB)))),
        ({"hardware.device": "cpu", "hardware.gpus": ("GPU-gone",)}, facts()),
        (SCRIPT, paths(**{"t.py": "file"})),
        (SCRIPT | {"trainer.preset": "custom"}, facts()),
        (SCRIPT | {"recipe.learning_rate": 1e-4}, facts()),
        ({"trainer.output": "/o"}, paths(o="missing")),
        ({"trainer.model": "/m"}, paths(m="folder")),
        ({"trainer.secrets": ("HF_TOKEN",)}, facts()),
        (HOSTS, peers()),
        ({"ladder.rungs": ("layers",), "ladder.consent": ("layers",)}, facts()),
        ({"ladder.rungs": (), "recipe.checkpoint_every": 61}, facts()),
    ],
)
def test_what_is_right_is_not_found_fault_with(values, where):
    assert found(values, where) == ()


@pytest.mark.parametrize("micro", [1, 3, 8, 100])
@pytest.mark.parametrize("total", [1, 7, 20, 997, 1000])
@pytest.mark.parametrize("world", [1, 2, 3])
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
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("WANDB_API_KEY", True),
        ("OPENAI_APIKEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("AWS_SESSION_TOKEN", True),
        ("db_password", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("CLIENT_SECRET", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("WANDB_MODE", False),
        ("MONKEY", False),
        ("HF_HUB_OFFLINE", False),
        ("TOKENS_PER_STEP", False),
    ],
)
def test_secrets_are_known_by_their_names(name, secret):
    chosen = profile({"trainer.environment": {name: "value", "A": "1"}})
    findings = check(chosen, facts())
    assert bool(findings) == secret
    for item in findings:
        assert "value" not in item.message + item.remedy + item.change.title
        changed = apply(item.change, chosen)
        assert changed.trainer.environment == {"A": "1"}
        assert changed.trainer.secrets == (name,)


@pytest.mark.parametrize("name", [name for name in FAULTS if "live run" in name or name.startswith("port that")])
def test_what_only_keeps_it_from_starting_now_can_be_planned(name):
    values, where, *_ = FAULTS[name]
    assert plan(profile(values), where).attempts
    assert not any(item.forbids for item in found(values, where))


@pytest.mark.parametrize(
    "words",
    [
        ("--pad_token=<pad>",), ("--eos-token", "</s>"), ("--max_tokens=512",), ("--num_key_value_heads=8",),
        ("--tokenizer=/t",),
        ("--sort_key=length",), ("--token={model}",), ("--use_auth_token=True",), ("--token", "--next"), ("key=value",),
        ("--image_token", "IMG"), ("--token=$HF_TOKEN",), ("sk-learn",), ("--keyboard=us",), ("--token=",),
    ],
)  # fmt: skip
def test_arguments_that_are_no_secrets(words):
    values = SCRIPT | {"trainer.preset": "custom", "trainer.arguments": words}
    assert not [item for item in found(values, facts()) if "secret" in item.message]


def test_a_secret_argument_is_never_said():
    values = SCRIPT | {"trainer.preset": "custom", "trainer.arguments": ("--password=correct horse", "ghp_" + "x" * 36)}
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
    changed = apply(finding.change, profile(values))
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
    where = read(c=Document(values={"do_train": True}))
    assert any("sets the batch" in item.message for item in found(values, where))
    assert any("overrides the batch" in item.message for item in found(values | BATCH_OF_TWO, where))


def test_an_argument_that_depends_on_the_batch_does_not_say_it():
    told = (Argument(words=("--bs={micro_batch}",)), Argument(words=("--no_sync",), when="accumulation!=1"))
    own = UserPreset(path="/mine.toml", preset=Preset(label="Mine", about="", arguments=told))
    where = msgspec.structs.replace(facts(), presets={"mine": own})
    values = FALLS | {"trainer.preset": "mine"}
    assert not [
        item
        for item in found(values | {"trainer.arguments": ("--no_sync",)}, where)
        if "in your arguments" in item.message
    ]
    assert [
        item
        for item in found(values | {"trainer.arguments": ("--bs=3",)}, where)
        if "in your arguments" in item.message
    ]


def test_errors_come_first_and_all_are_told():
    values = {
        "recipe.micro_batch": 8,
        "recipe.global_batch": 20,
        "recipe.checkpoint_every": 61,
        "ladder.rungs": ("layers",),
        "trainer.data": ("/d",),
    }
    findings = found(values, paths(d="missing"))
    assert [item.level for item in findings] == ["error", "error", "warning", "note"]


def test_every_card_that_is_lost_is_told():
    lost = facts(gpus=(gpu(0, uuid=" ", problem="lost one"), gpu(1, uuid=" ", problem="lost two")))
    message = found({"hardware.device": "cuda"}, lost)[0].message
    assert "lost one" in message
    assert "lost two" in message


def test_why_there_is_no_card_is_told():
    gap = Gap("The GPUs cannot be read", "the driver hangs", "Reboot.")
    machine = facts().machine
    where = Facts(machine=type(machine)(hostname="box", gaps=(gap,)), toolchains=(toolchain("/p"),))
    assert "the driver hangs" in found({"hardware.device": "cuda"}, where)[0].message


def test_a_pytorch_too_new_for_the_driver_is_told():
    where = facts(gpus=(gpu(0),), cuda="13.0")
    assert (
        "torch needs CUDA 13, and the driver supports CUDA 12.8" in found({"hardware.device": "cuda"}, where)[0].message
    )


def test_hosts_with_the_same_fault_are_named_together():
    many = tuple("abcdefgh")
    where = msgspec.structs.replace(peers(), peers=dict.fromkeys(many[1:], Peer(problem="\x1b[1mno")))
    (finding,) = found({"nodes.hosts": many, "recipe.global_batch": 256}, where)
    assert finding.message == "b, c, d, e and 3 others: \\x1b[1mno"
    assert finding.change.edits == (("nodes.hosts", ()),)
    some = msgspec.structs.replace(peers(), peers={"h": Peer(problem="no")})
    assert found({"nodes.hosts": many, "recipe.global_batch": 256}, some)[0].change.edits == (
        ("nodes.hosts", many[:-1]),
    )


def changed(values, where):
    """What the only finding would change."""
    (finding,) = found(values, where)
    return dict(finding.change.edits)


def test_hosts_with_other_numbers_of_gpus_train_with_their_own():
    both, one = peers().peers["b"], machine(gpus=(gpu(0),))
    fewer = HOSTS | {"nodes.hosts": ("a", "b", "c"), "recipe.global_batch": None}
    where = msgspec.structs.replace(peers(), peers={"b": both, "c": msgspec.structs.replace(both, machine=one)})
    assert changed(fewer, where) == {"nodes.processes": (2, 2, 1)}
    assert found(fewer | {"nodes.processes": (2, 2, 1)}, where) == ()
    assert changed(fewer | {"trainer.launcher": "accelerate"}, where) == {"nodes.hosts": ("a", "b")}
    gone = msgspec.structs.replace(where, peers={**where.peers, "b": Peer(problem="no")})
    edits = changed(fewer | {"nodes.processes": (2, 2, 1)}, gone)
    assert edits == {"nodes.hosts": ("a", "c"), "nodes.processes": (2, 1)}
    swapped = msgspec.structs.replace(where, peers={**where.peers, "c": Peer(is_first=True)})
    edits = changed(fewer | {"nodes.processes": (2, 2, 1)}, swapped)
    assert edits == {"nodes.hosts": ("c", "a", "b"), "nodes.processes": (1, 2, 2)}


def test_a_wrong_number_of_processes_is_not_found_for_other_hosts_again():
    (finding,) = found(HOSTS | {"hardware.processes": 4, "recipe.global_batch": None}, peers())
    assert finding.key == "hardware.processes"


T400 = gpu(2, "GPU-T400", name="NVIDIA T400 4GB", compute_capability="7.5", memory_total=4 << 30, sm_count=6)
GT1030 = gpu(2, "GPU-GT1030", name="NVIDIA GeForce GT 1030", compute_capability="6.1", memory_total=2 << 30)
H100 = [
    gpu(place, f"GPU-h{place}", name="NVIDIA H100", compute_capability="9.0", memory_total=80 << 30)
    for place in range(2)
]


@pytest.mark.parametrize(
    ("cards", "processes", "others"),
    [
        # None to be changed: as many as on the first, of its kind.
        ((gpu(0), gpu(1), GT1030), None, UUIDS),
        ((gpu(0), gpu(1), T400), None, UUIDS),
        # Of another kind, with one for the display.
        ((*H100, GT1030), None, ("GPU-h0", "GPU-h1")),
        ((*H100, T400), None, ("GPU-h0", "GPU-h1")),
        # One that is busy now counts all the same.
        ((H100[0], msgspec.structs.replace(H100[1], memory_free=1 << 30)), None, ("GPU-h0", "GPU-h1")),
        # Another number.
        ((gpu(0), GT1030), 1, UUIDS[:1]),
        ((gpu(0), T400), 1, UUIDS[:1]),
        ((H100[0], GT1030), 1, ("GPU-h0",)),
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


def test_all_paths_are_asked_for():
    values = {
        "trainer.script": "/s",
        "trainer.working_directory": "/w",
        "trainer.model": "/m",
        "trainer.output": "/o",
        "trainer.accelerate_config": "/c",
        "trainer.data": ("/a", "/b", "/a"),
    }
    assert sorted(paths_of(profile(values))) == ["/a", "/b", "/c", "/m", "/o", "/s", "/w"]
    assert paths_of(Profile()) == ()


def test_there_is_a_fault_for_every_check():
    """A check that finds nothing in any of these is not tested."""
    from tui_train.resolve.resolve import resolve

    faults = [
        (made_of(values), where, resolve(made_of(values), where))
        for name, (values, where, *_) in (FAULTS | NEMO_FAULTS).items()
        if name not in {"unknown preset", "a broken preset of one's own"}
    ]
    for question in CHECKS:
        assert any([*question(*fault)] for fault in faults), question.__name__


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3", "fsdp2"])
def test_without_gpus_sharding_is_refused_whatever_is_installed(strategy):
    chosen = profile({"trainer.strategy": strategy})
    assert "needs GPUs" in next(finding.message for finding in check(chosen, facts()) if finding.forbids)
    assert prepare(chosen, facts()).plan is None


def test_a_missing_file_is_named_once():
    problem = DataProblem("unreadable", "/d.jsonl", 0, "cannot be read: No such file or directory")
    known = tuned(rows=0, usable=0, format="", problems=(problem,), counts={"unreadable": 1})
    named = [item for item in found(FINE, known) if item.key == "trainer.data"]
    assert [item.message.count("/d.jsonl") for item in named] == [1], "what was read says so"
    missing = msgspec.structs.replace(known, paths={"/d.jsonl": "missing"})
    (said,) = [item for item in found(FINE, missing) if item.key == "trainer.data"]
    assert "does not exist" in said.message


def test_another_format_is_said_once():
    why = "has another format: its columns are text"
    problems = tuple(DataProblem("other", "/d.jsonl", line, why) for line in (21, 22))
    where = tuned(rows=22, usable=20, format="messages", problems=problems, counts={"other": 2})
    (said,) = [item.message for item in found(FINE, where) if "another format" in item.message]
    assert said.count("another format") == 1
    assert "line 22: its columns" in said


def test_a_python_that_cannot_fine_tune_names_the_key_for_another():
    for python in ("", "/usr/bin/other"):
        (said,) = [
            item
            for item in found(FINE | {"trainer.python": python}, facts(gpus=(gpu(0),), packages={}))
            if item.key == "trainer.python"
        ]
        assert "(trainer.python)" in said.remedy


def test_what_is_far_beyond_the_usual_trains_by_consent_alone():
    far = FINE | {"recipe.sequence_length": 100_000, "recipe.learning_rate": 2e-2}
    where = msgspec.structs.replace(tuned(), models={"/m": ModelFolder(limit=1024)})
    keys = {"recipe.sequence_length", "recipe.learning_rate"}
    refused = [each for each in found(far, where) if each.key in keys]
    assert [each.forbids for each in refused] == [True, True]
    assert {each.remedy.rpartition(". ")[2] for each in refused} == {
        "trainer.allow=length allows it.", "trainer.allow=learning_rate allows it.",
    }  # fmt: skip
    allowed = found(far | {"trainer.allow": ("length", "learning_rate")}, where)
    assert [each.level for each in allowed if each.key in keys] == ["warning", "warning"]


def test_what_forbids_a_plan_stands_before_what_forbids_a_start_here():
    values, where, *_ = FAULTS["GPUs of a live run"]
    first, second, *_ = found(values | {"recipe.learning_rate": 3.0}, where)
    assert (first.key, first.forbids) == ("recipe.learning_rate", True)
    assert (second.level, second.forbids) == ("error", False)
