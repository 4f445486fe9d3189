"""Every reader gets damaged and hostile inputs: it answers or gives a reason in time, and nothing else happens.

TUI_TRAIN_TEST_FUZZ is how many inputs there are altogether, and TUI_TRAIN_TEST_SEED the seed of the first. An input
that fails is printed with the seed that makes it again.
"""

import json
import os
import random
import time
import warnings
from pathlib import Path

import pytest
from support import facts, prepare_without_errors, profile
from try_counts import count_tries

from tui_train.base import secrets
from tui_train.base.app_paths import presets_folder, profiles_folder
from tui_train.base.errors import TuiTrainError
from tui_train.facts.machine.child_process import ChildResult
from tui_train.facts.machine.inherited_settings import read_inherited_variables, starts_without_wandb_prompt
from tui_train.facts.machine.probe import ProbeAnswer
from tui_train.facts.models import model_folders
from tui_train.facts.other_machines import machine_files
from tui_train.facts.scripts.script_source import parse_script_source as read_script_source
from tui_train.facts.yaml_documents import parse_document as read_document
from tui_train.profile import store
from tui_train.profile.presets import shipped_preset_texts
from tui_train.profile.presets.user_presets import user_presets
from tui_train.runner.logs.log_head import first_logged_step
from tui_train.runner.queue.listing import list_waiting_starts
from tui_train.runner.queue.tickets import OwnTicket, QueueFolder, ticket_name
from tui_train.runner.queue.turns import ResourceRequest, Ticket
from tui_train.runner.run_folder.lock_owner import this_process_as_owner
from tui_train.runs import archive, run_folders
from tui_train.runs.conflicts import planned_resources
from tui_train.runs.follow import rank_reader_of_attempt
from tui_train.runs.logs.logfile import LogFile
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.ranks import parse_planned_ranks, parse_rank_devices
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_listed_run
from tui_train.views import plain_text

HOW_MANY = int(os.environ.get("TUI_TRAIN_TEST_FUZZ", "600"))
SEED = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))
# An input has some KiB; the slowest reader takes some milliseconds of the processor for it.
PATIENCE = 5.0

EVENTS = (
    b'{"time":1700000000.5,"event":"run_started","mark":"m","pid":12,"start_ticks":3,"boot_id":"b","grace":20}\n'
    b'{"time":1700000001,"event":"attempt_started","attempt":1,"position":1,"resumed":20}\n'
    b'{"time":1700000002,"event":"attempt_ended","attempt":1,"exit_code":1,"out_of_memory":true,"phase":"lines_from"}\n'
    b'{"time":1700000003,"event":"run_ended","state":"failed","exit_code":1}\n'
)
LOG = (
    b"rank 0/2 | host box | device cuda:0 NVIDIA RTX 3090 GPU-ac50e9bd-5330-6ce2-2d4b-8f95df663b60 | backend nccl\n"
    b"step 5/60 | loss 5.5 | lr 1e-3 | tokens/s 512\n\r 17%|##        | 2/12 [00:00<00:01,  5.51it/s]"
    b"\r 50%|#####     | 6/12 [00:00<00:01,  5.51it/s]\n{'loss': 2.5, 'grad_norm': 1.0, 'epoch': 0.5}\n"
    b"Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)
PIECES = (
    b"\xff", b"\x00", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1b[31m", b"\x1b]0;x\x07", b"\r", b"\n", b'"', b"\\",
    b"[" * 3000, b"{" * 3000, b'{"a":' * 2000, b"a." * 1500, b"(" * 1000, b"]", b"}", b"=", b"- " * 500, b"&a [*a]",
    b"9" * 20, b"9" * 400, b"9" * 5000, b"-1", b"1e999", b"1e-999", b"nan", b"NaN", b"Infinity", b"0x" + b"f" * 40,
    b"null", b"true", b'""', b"[]", b"{}", "\u202e\u200b中".encode(), b"../../../etc/passwd", b"/dev/zero", b"~", b"%s",
    b"!!python/object:os.system", b"x" * 10_000, b"\\ud800", b"\\u0000", b"2024-01-01T00:00:00", b"'" * 3,
)  # fmt: skip


def damaged(random_, data):
    """Return data in which some things were cut, doubled, moved or replaced."""
    found = bytearray(data)
    for _ in range(random_.choice((1, 1, 1, 2, 3, 8))):
        at = random_.randrange(len(found) + 1)
        to = min(len(found), at + random_.choice((0, 1, 1, 4, 16, 200)))
        kind = random_.randrange(7)
        if kind == 0:
            del found[at:to]
        elif kind == 1:
            found[at:at] = found[at:to] * random_.choice((1, 2, 50))
        elif kind == 2:
            found[at:to] = random_.randbytes(to - at)
        elif kind == 3 and at < len(found):
            found[at] ^= 1 << random_.randrange(8)
        elif kind == 4:
            del found[at:]
        elif kind == 5:
            # A whole value, number or text, becomes another one.
            token = random_.choice(found.split(None) or [b"x"])
            found = bytearray(bytes(found).replace(bytes(token), random_.choice(PIECES), 1))
        else:
            found[at:to] = random_.choice(PIECES)
    return bytes(found[: 1 << 16])


@pytest.fixture(scope="module")
def originals():
    """What each reader is given when all is well."""
    chosen = profile({"trainer.arguments": ("--a", "b c"), "trainer.environment": {"A": "b"}, "recipe.steps": 5})
    prepared = prepare_without_errors(profile({"hardware.device": "cpu"}), facts())
    plan = next(file.text for file in prepared.files if file.path == "launch.sh")
    machine_file = machine_files.machine_file_text(facts())
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 128, "vocab_size": 100, "num_key_value_heads": 2, "tie_word_embeddings": True}
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    return {
        "events": EVENTS,
        "plan": json.dumps(
            {
                "world_size": 2, "device": "cuda", "gpus": ["GPU-1"], "gpu_names": ["x"], "backend": "nccl", "nodes": 2,
                "output": "/o", "port": 29500, "attempts": [{"title": "as chosen", "checkpoints": {"prefix": "c-"}}],
                "log": {"expressions": ["step (?P<step>\\d+)"], "steps": 60},
            }
        ).encode(),
        "number": b"12\n",
        "profile": store.profile_to_toml(chosen).encode(),
        "preset": shipped_preset_texts()["trl"].encode(),
        "yaml": b"a: 1\nb:\n  - c: [1, 2.5, x]\n  - &x {d: null}\ne: *x\nf: 1e-4\n",
        "script": b"import os\ntrainer = Trainer(args=a)\ntrainer.train()\nparser.add_argument('--local_rank')\n",
        "machine": machine_file.encode(),
        "toolchain": b'{"torch": "2.13.0+cu126", "cuda": "12.6", "arch_list": ["sm_50", "sm_86"]}',
        "probe": b'{"prefix": "/p", "executable": "/p/bin/python", "toolchain": {"python": "/p", "torch": "2.1"}}',
        "config": json.dumps(config).encode(),
        "weights": len(header).to_bytes(8, "little") + header + bytes(24),
        "log": LOG,
        "secrets": b"https://u:p4ssword@h/x?sig=abc HF_TOKEN=hf_" + b"aB1" * 11 + b' {"password": "x"} --token a\n',
        "netrc": b"machine api.wandb.ai login user password 0123456789\nNCCL_DEBUG=INFO # x\n",
        "script of a run": plan.encode(),
        "ticket": json.dumps(
            {
                "owner": {**this_process_as_owner("m", "/runs/m")._asdict(), "namespace": 1},
                "request": ResourceRequest(("GPU-a",), 1)._asdict(),
                "waits": True, "cards": [], "cores": 0, "why": "GPU 0: a",
                "names": ["run-m"],
            }
        ).encode(),
    }  # fmt: skip


class Places:
    """The files that are read, in folders of their own."""

    def __init__(self, folder, monkeypatch):
        self.run = RunFolder(folder / "run")
        self.run.path.mkdir()
        self.run.launch_script.write_text("")
        self.model = folder / "model"
        self.model.mkdir()
        self.file = folder / "file"
        for path in (profiles_folder(), presets_folder()):
            path.mkdir(parents=True)
        monkeypatch.setenv("NETRC", str(folder / "netrc"))
        monkeypatch.setenv("NCCL_CONF_FILE", str(folder / "netrc"))
        self.netrc = folder / "netrc"

    def listed(self):
        run = read_listed_run(self.run)
        plain_text.listed_run_row(run)
        self.run.plan()
        self.run.log_reading_options()
        self.run.attempt_titles()
        planned_resources(self.run)
        rank_reader_of_attempt(self.run, 1)
        run_folders.run_number(self.run.path)

    def read(self, kind, data):
        """Give one input to all that reads such; what is no answer must be an error with a remedy."""
        of_run = {"events": self.run.events_file, "plan": self.run.plan_file, "number": self.run.path / ".number"}
        if kind in of_run:
            of_run[kind].write_bytes(data)
            self.listed()
            if kind == "plan":
                parse_planned_ranks(data)
        elif kind == "profile":
            (profiles_folder() / "p.toml").write_bytes(data)
            store.load_profile_file("p")
        elif kind == "preset":
            (presets_folder() / "p.toml").write_bytes(data)
            found = user_presets()["p"]
            assert bool(found.problem) != bool(found.preset)
        elif kind in {"machine", "toolchain"}:
            self.file.write_bytes(data)
            load = machine_files.load_facts_for_planning if kind == "machine" else machine_files.load_toolchain_file
            load(self.file)
        elif kind in {"config", "weights"}:
            (self.model / {"config": "config.json", "weights": "model.safetensors"}[kind]).write_bytes(data)
            model_folders.read_model_folder(str(self.model))
        elif kind in {"log", "secrets", "script of a run"}:
            self.of_log(data)
        elif kind == "ticket":
            self.of_ticket(data)
        elif kind == "netrc":
            self.netrc.write_bytes(data)
            starts_without_wandb_prompt()
            read_inherited_variables()
        else:
            readers = {"yaml": read_document, "script": read_script_source}
            readers["probe"] = lambda answer: ChildResult(answer).last_answer(ProbeAnswer)
            readers[kind](data)

    def of_ticket(self, data):
        owner = this_process_as_owner("m", "/runs/m")
        own = OwnTicket(QueueFolder(make=True), Ticket(ticket_name("m"), os.geteuid(), owner, ResourceRequest()))
        Path(own.path).write_bytes(data)
        Path(own.path).with_name(f"order-{os.geteuid()}").write_bytes(data)
        list_waiting_starts()
        own.release()

    def of_log(self, data):
        log = self.run.attempt_log(1)
        log.write_bytes(data)
        shown = [*LogTail(log).remaining_lines(), *LogTail(log, last_bytes=100).remaining_lines()]
        assert not [line for line in shown if {"\x1b", "\x00", "\n"} & set(line)]
        file = LogFile(log)
        there = [line.start for line in file.lines_from(0)]
        assert there == [line.start for line in file.lines_before(file.size())][::-1]
        parse_rank_devices(shown)
        first_logged_step(str(log), self.run.log_reading_options())
        rank_reader_of_attempt(self.run, 1)
        text = data.decode("utf-8", "replace")
        masked, _ = secrets.mask_secrets(text)
        assert "hf_aB1aB1aB1aB1" not in masked
        archive.masked_archive_entries(self.run, "{}")


KINDS = (
    "events", "plan", "number", "profile", "preset", "yaml", "script", "machine", "toolchain", "probe", "config",
    "weights", "log", "secrets", "netrc", "script of a run", "ticket",
)  # fmt: skip


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_file_holds_its_reader_answers_or_gives_a_reason(
    kind, originals, tmp_path, monkeypatch, record_property
):
    places = Places(tmp_path, monkeypatch)
    # As it is, it is read.
    places.read(kind, originals[kind])
    with count_tries(record_property, "damaged input of every reader") as made:
        for number in range(max(1, -(-HOW_MANY // len(KINDS)))):
            seed = f"{SEED}-{kind}-{number}"
            data = damaged(random.Random(seed), originals[kind])
            with made.one(f"seed {seed}: {data[:2000]!r}"):
                read_in_time(places, kind, data)


def read_in_time(places, kind, data):
    begun = time.process_time()
    problem = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            places.read(kind, data)
    except TuiTrainError as error:
        problem = f"{error.message}\n{error.remedy}"
    assert not {"\x1b", "\x00", "\u202e"} & set(problem), problem
    took = time.process_time() - begun
    assert took < PATIENCE, took
