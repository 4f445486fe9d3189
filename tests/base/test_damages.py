"""Each file that a command reads, with every damage: an answer or a sentence, in time and in little memory."""

import itertools
import json
import shutil

import pytest
from damaged_runs import (
    ENDED_RUN_EVENTS,
    REPLACEMENTS,
    UNEXPECTED_ERROR_PATTERN,
    UNPRIVILEGED_COMMAND,
    content_writer,
    safetensors_with_header,
    tensor_header,
)
from forked_commands import run_commands_in_forks
from msgspec import structs
from support import export_run, facts, make_executable, profile, sample

from tui_train.facts.other_machines import machine_files
from tui_train.profile import store
from tui_train.profile.presets import shipped_preset_texts
from tui_train.runs.remote_run import read_host_report

WRONG = (
    b'{"attempts": [1, {"a": null}], "status": {"state": 1}, "at": "x", "r": [], "weight_map": {"a": 1, "b": [2]}, '
    b'"host": {}, "folder": 3, "event": [], "number": [], "log": 1, "model_type": {}, "architectures": 5, "time": {}}'
)
DAMAGES = {
    "empty": content_writer(b""),
    "null": content_writer(b"null"),
    "list": content_writer(b"[]"),
    "text": content_writer(b'"x"'),
    "number": content_writer(b"1"),
    "nan": content_writer(b"NaN"),
    "bytes": content_writer(b'{"a": "\xff\xfe\x00"}'),
    "deep": content_writer(b"[" * 10_000),
    "deep inside": content_writer(b'{"attempts": ' + b"[" * 10_000),
    "many": content_writer(b'{"attempts": [' + b"[]," * 5_000_000),
    "large": content_writer(b" " * (100 << 20)),
    "wrong": content_writer(WRONG),
    "half a character": content_writer(b'{"attempts": ["\\ud800"], "name": "\\udfff", "event": "\\ud800"}'),
    "digits": content_writer(b'{"at": ' + b"9" * 5000 + b', "time": 1e999}'),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    **{name: REPLACEMENTS[name] for name in ("folder", "pipe", "endless")},
    "no rights": lambda path: path.chmod(0),
}
RUN = "20260101-000000-a"
RUNS = "state/tui-train/runs/"
OF_RUN = (
    "plan.json", "profile.toml", "events.jsonl", ".number", "note.txt", "launch.log", "attempt-1.log", "place.json",
    "heard.json", "fetched", "slurm.json", ".lock/owner", "output/adapter_config.json",
    "output/adapter_model.safetensors", "output/checkpoint-5/trainer_state.json", "output/checkpoint-5/config.json",
    "output/checkpoint-5/model.safetensors.index.json", "output/checkpoint-5/model-1.safetensors",
)  # fmt: skip
OF_PROFILE = (
    "config/tui-train/profiles/p.toml", "config/tui-train/presets/mine.toml", "config/tui-train/hosts.toml",
    "state/tui-train/last.toml", "state/tui-train/theme", "model/config.json", "model/model.safetensors",
    "model/tokenizer_config.json", "model/generation_config.json", "hub/models--org--m/snapshots/abc/config.json",
    "hub/models--org--m/snapshots/abc/model.safetensors.index.json", "hub/models--org--m/refs/main", "trainer.yaml",
    "machine.json", "toolchain.json", "t.py",
)  # fmt: skip
ON_RUN = (
    ("runs",), ("runs", "--json"), ("result", RUN), ("compare", RUN, "20260101-000000-b"), ("diagnose", RUN),
    ("report", RUN, "{}/report.zip"), ("attach", RUN), ("logs", RUN), ("stop", RUN), ("resume", "--detach", RUN),
    ("fetch", RUN), ("merge", RUN, "{}/merged"), ("try", "--prompt", "x", RUN), ("runs", "note", RUN),
    ("plan", f"{{}}/{RUNS}{RUN}/profile.toml"), ("runs", "mv", RUN, "c"),
)  # fmt: skip
MACHINE = ("--machine", "{}/machine.json")
ON_PROFILE = (
    ("plan", "p"), ("plan", "p", *MACHINE), ("estimate", "p", *MACHINE), ("export", "p", "{}/out", *MACHINE),
    ("plan", "p", "--set", "trainer.model=org/m", *MACHINE), ("plan", "p", "--set", "trainer.preset=mine", *MACHINE),
    ("plan", "p", "--set", "trainer.config={}/trainer.yaml", *MACHINE), ("plan", "p", "--on", "box"), ("profiles",),
    ("presets",), ("hosts",), ("facts", *MACHINE), ("facts", *MACHINE, "--toolchain", "{}/toolchain.json"),
)  # fmt: skip
# Of another host, or of Slurm: what a run of this machine has not.
ELSEWHERE = {
    "place.json": b'{"host": "nowhere.invalid", "folder": "/x/a"}',
    "heard.json": b'{"at": 1700000000.0, "status": ["failed", [[1, 1, 1700000000.0, 1700000001.0, 1]]]}',
    "fetched": b"1",
}
OTHERS = {
    "slurm.json": b'{"number": "12", "starts": 1, "state": ""}',
    ".lock/owner": b'{"pid": 1, "ticks": 0, "boot": "x", "mark": "m"}',
}
# A file of 100 MB, or five million lists, would take more.
MOST_MEMORY = 300 << 10


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """What the commands read: a run that failed and another one, a profile, its model, and a cache of the Hub."""
    home = tmp_path_factory.mktemp("world")
    weights = safetensors_with_header(tensor_header(), bytes(8))
    model = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model |= {"intermediate_size": 128, "vocab_size": 100, "architectures": ["LlamaForCausalLM"]}
    config, index = json.dumps(model).encode(), b'{"weight_map": {"a": "model-1.safetensors"}}'
    python = make_executable(home / "python", "#!/bin/sh\nexit 3\n")
    chosen = profile({
        "name": "p", "trainer.kind": "script", "trainer.preset": "trl", "trainer.model": f"{home}/model",
        "hardware.device": "cpu", "trainer.python": str(python),
    })  # fmt: skip
    packages = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0"}
    text, machine = store.profile_to_toml(chosen).encode(), facts(python=str(python), packages=packages)
    of_run = {
        "events.jsonl": ENDED_RUN_EVENTS.replace(b'"exit_code":0', b'"exit_code":3').replace(b"finished", b"failed"),
        "attempt-1.log": b"{'loss': 1.5}\nValueError: x\n",
        "launch.log": b"launch.sh: said\n",
        "note.txt": b"mine\n",
        ".number": b"3\n",
        "output/adapter_config.json": b'{"base_model_name_or_path": "org/m", "peft_type": "LORA", "r": 8}',
        "output/adapter_model.safetensors": weights,
        "output/checkpoint-5/trainer_state.json": b'{"global_step": 5, "log_history": [{"loss": NaN}]}',
        "output/checkpoint-5/model.safetensors.index.json": index,
        "output/checkpoint-5/model-1.safetensors": weights,
        "output/checkpoint-5/config.json": config,
    }
    files = {
        # Of the copy, not of what was copied.
        "config/tui-train/profiles/p.toml": text.replace(f"{home}/model".encode(), b"../../../model"),
        "config/tui-train/presets/mine.toml": shipped_preset_texts()["trl"].encode(),
        "config/tui-train/hosts.toml": b'box = "u@nowhere.invalid"\n',
        "state/tui-train/last.toml": text,
        "state/tui-train/theme": b"dark",
        "t.py": b"import os\n",
        "model/config.json": config,
        "model/model.safetensors": weights,
        **dict.fromkeys(("model/tokenizer_config.json", "model/generation_config.json"), b"{}"),
        "hub/models--org--m/snapshots/abc/config.json": config,
        "hub/models--org--m/snapshots/abc/model.safetensors.index.json": index,
        "hub/models--org--m/snapshots/abc/model-1.safetensors": weights,
        "hub/models--org--m/refs/main": b"abc",
        "trainer.yaml": b"a: 1\n",
        "machine.json": machine_files.machine_file_text(machine).encode(),
        "toolchain.json": b'{"torch": "2.13.0+cu126", "cuda": "12.6", "arch_list": ["sm_86"]}',
    }
    here = structs.replace(machine, paths={chosen.trainer.model: "folder"})
    for name in (RUN, "20260101-000000-b"):
        files |= {f"{RUNS}{name}/{file}": data for file, data in of_run.items()}
        export_run(home / RUNS / name, chosen, here)
    for name, data in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    return home


CASES = [*itertools.product(OF_RUN, DAMAGES, ON_RUN), *itertools.product(OF_PROFILE, DAMAGES, ON_PROFILE)]


@pytest.mark.timeout(3600)
def test_no_command_breaks_waits_or_swells_at_a_damaged_file(world, tmp_path):
    cases = sample(CASES[::5], 67)
    asked = []
    for number, (name, damage, words) in enumerate(cases):
        home = tmp_path / str(number)
        shutil.copytree(world, home, symlinks=True)
        run = home / RUNS / RUN
        for file, data in ELSEWHERE.items() if name in ELSEWHERE else ():
            (run / file).write_bytes(data)
        path = run / name if name in OF_RUN else home / name
        if name in OTHERS:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(OTHERS[name])
        DAMAGES[damage](path)
        asked.append([str(home), *(word.replace("{}", str(home)) for word in words)])
    wrong = [
        (*case[:2], *one)
        for case, one in zip(cases, run_commands_in_forks(asked, tmp_path, UNPRIVILEGED_COMMAND), strict=True)
        if one.code < 0 or one.code in {1, 70, 99} or UNEXPECTED_ERROR_PATTERN.search(one.said)
        or one.memory > MOST_MEMORY or one.seconds > 10
    ]  # fmt: skip
    assert not wrong, "\n".join(map(str, wrong))


IMPOSSIBLE = (
    b'{"at": 1e300, "status": ["failed"]}',
    b'{"at": 1.0, "status": ["failed", [[1, 1, 1e300]]]}',
    b'{"at": 1.0, "status": ["failed", [], null, null, null, 9223372036854775807]}',
    b'{"at": 1.0, "status": ["\\u001b[31m"]}',
    b'{"at": 1.0, "status": ["failed"], "starts": -5}',
    b'{"at": 1.0, "status": ["failed"], "checkpoint": "\\ud800"}',
)


@pytest.mark.parametrize("data", IMPOSSIBLE)
def test_what_no_calendar_takes_was_not_heard(data, tmp_path):
    (tmp_path / "heard.json").write_bytes(ELSEWHERE["heard.json"])
    assert read_host_report(tmp_path)
    (tmp_path / "heard.json").write_bytes(data)
    assert read_host_report(tmp_path) is None
