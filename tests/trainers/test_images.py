"""Fine-tuning models that see: what is found in data with images, and how TRL itself learns from it."""

import json
import os
import shutil
import subprocess
import sys

import msgspec
import pytest
import warm
from chat_data import write_rows
from fine_tuning import finetune_profile, read_rows, run_prepare_data
from image_data import as_base64, draw_pictures, row
from msgspec.structs import replace
from support import (
    SCRIPTS,
    TRL_PYTHON,
    XDG_VARIABLES,
    export_run,
    facts,
    needs_trl,
    plain_environment,
    profile,
    run_cli,
    run_launch_script,
)
from tiny_trainings import attempt_log_text
from training_results import ended_run

from tui_train.actions.chat import visible_text_with_line_breaks
from tui_train.actions.merge import MergeOptions, merge_adapter
from tui_train.base.app_paths import runs_folder
from tui_train.facts.data.data_report import DataImages, DataQuestion, DataReport, probe_data
from tui_train.facts.data.data_use import facts_key_of_question
from tui_train.facts.machine import probe
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.predict import predict_memory
from tui_train.profile.store import profile_to_toml
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

pytestmark = [needs_trl, pytest.mark.whole]
_FIND_TORCHVISION = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torchvision') is None)"
FAMILIES = ("llava", "qwen")
# Qwen2.5-VL's processor holds one of videos, which is made of torchvision.
HAS_TORCHVISION = bool(TRL_PYTHON) and not subprocess.run(
    [TRL_PYTHON, "-c", _FIND_TORCHVISION], capture_output=True, check=False
).returncode  # fmt: skip


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder with good and damaged pictures."""
    folder = tmp_path_factory.mktemp("data") / "pics"
    draw_pictures(TRL_PYTHON, folder)
    return folder


@pytest.fixture(scope="module", params=FAMILIES)
def seeing(request, tmp_path_factory):
    """A tiny model that sees."""
    if request.param == "qwen" and not HAS_TORCHVISION:
        pytest.skip("this Python has no torchvision")
    folder = tmp_path_factory.mktemp("model") / request.param
    words = [TRL_PYTHON, str(SCRIPTS / "vision_model.py"), str(folder), request.param]
    subprocess.run(words, check=True, capture_output=True)
    return folder


def forms(pictures):
    """A row in each form in which data has images."""
    png = as_base64(pictures / "red.png")
    part = {"type": "image", "image": "pics/blue.jpg"}
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + png}}
    asked = {"type": "text", "text": "What colour?"}

    def chat(*parts):
        return {"messages": [{"role": "user", "content": [*parts, asked]}, {"role": "assistant", "content": "blue"}]}

    return {
        "relative": row(["pics/red.png"]),
        "absolute": row([str(pictures / "blue.jpg")]),
        "file": row([f"file://{pictures / 'red.png'}"]),
        "base64": row([png]),
        "data URL": row(["data:image/png;base64," + png]),
        "two": row(["pics/red.png", "pics/green.gif"], "<image> and <image>"),
        "one column": {"messages": row([])["messages"], "image": "pics/red.png"},
        "no place": row(["pics/red.png"], "What colour is it?"),
        "part": chat(part),
        "image_url": chat(url),
        "place and column": {**chat({"type": "image"}), "images": ["pics/red.png"]},
        "none": row([], "And without?"),
    }


def damaged(pictures):
    """Images that cannot be learned from, each with a piece of what is said of it."""
    png = as_base64(pictures / "red.png")
    return [
        (["pics/none.png"], "No such file"),
        (["/nowhere/none.png"], "No such file"),
        ([f"file://{pictures}/none.png"], "No such file"),
        (["http://localhost/y.png"], "is a URL, which is never loaded"),
        (["https://localhost/y.png"], "is a URL, which is never loaded"),
        (["pics/cut.png"], "is damaged"),
        (["pics/cut.jpg"], "is damaged"),
        (["pics/thin.png"], "is 2 x 50: each side must have 4"),
        (["pics/huge.png"], "is 10000 x 9000, more than 89 megapixels"),
        (["pics/bomb.png"], "has more than 179 megapixels"),
        (["pics/empty.png"], "is empty"),
        (["pics/text.png"], "of no kind of image that Pillow reads"),
        (["pics/drawn.png"], "is EPS, a program that draws: save it as PNG"),
        (["pics/real.tiff"], "has 32 bits a pixel"),
        (["pics"], "is not a regular file"),
        (["/dev/zero"], "is not a regular file"),
        ([5], "is neither a path nor base64"),
        ([True], "is neither a path nor base64"),
        ([["pics/red.png"]], "is neither a path nor base64"),
        ([{"bytes": None, "path": "pics/none.png"}], "No such file"),
        ([{"bytes": None, "path": None}], "is neither a path nor base64"),
        (["data:image/png;base64,###"], "is not base64"),
        (["data:image/png,abc"], "is a data URL without base64"),
        (["data:image/png;base64,"], "is empty"),
        ([png[: len(png) // 2]], "is damaged"),
        (["data:image/png;base64," + png[:40]], "Pillow reads"),
        (["A" * 100], "Pillow reads"),
        (["a\0b.png"], "cannot be read"),
        ([""], "has no images, and 1 place"),
        (None, ""),
        (["pics/red.png", "pics/red.png"], "has 2 images, and 1 place"),
        (["pics/red.png", "pics/none.png"], "image 2 (", "<image><image>"),
        (["pics/red.png"], "has 1 image, and 2 places", "<image><image>"),
    ]


def looked_at(path, **more):
    return probe_data(TRL_PYTHON, DataQuestion(files=(str(path),), **more))


def test_each_form_is_read_and_written_as_trl_takes_it(pictures, tmp_path):
    rows = forms(pictures)
    data = write_rows(pictures.parent / "forms.jsonl", rows.values())
    seen = looked_at(data)
    assert (seen.problem, seen.usable, seen.format) == ("", len(rows), "messages")
    named = DataImages(rows=len(rows) - 1, count=len(rows), files=3, folders=(str(pictures),))
    assert seen.images == named
    shown = seen.samples[0].images[0]
    assert (shown.name, shown.width, shown.height) == (str(pictures / "red.png"), 60, 90)
    assert shown.thumbnail[0].startswith("ff0000")
    said = run_prepare_data(tmp_path / "data", data, python=TRL_PYTHON)
    assert f"{len(rows)} images" in said
    for written, name in zip(read_rows(tmp_path / "data/train.jsonl"), rows, strict=True):
        parts = written["messages"][0]["content"]
        assert (
            [part["type"] for part in parts].count("image")
            == len(written["images"])
            == {"two": 2, "none": 0}.get(name, 1)
        ), name
        assert all(source.startswith(("/", "data:image/")) for source in written["images"])


def test_each_damaged_row_is_named_with_its_reason(pictures):
    cases = [case for case in damaged(pictures) if case[0] is not None]
    assert len(cases) == 32
    data = write_rows(
        pictures.parent / "bad.jsonl", [row(["pics/red.png"]), *(row(each[0], *each[2:]) for each in cases)]
    )
    found = {}
    for start in range(0, len(cases), 16):  # twenty of a kind are named
        part = [row(["pics/red.png"]), *(row(each[0], *each[2:]) for each in cases[start : start + 16])]
        seen = looked_at(write_rows(pictures.parent / f"bad{start}.jsonl", part))
        assert seen.usable == 1
        found |= {start + problem.line - 2: problem.why for problem in seen.problems}
    for number, (_, reason, *_) in enumerate(cases):
        assert reason in found.get(number, "nothing was found"), cases[number]
    assert "0 rows" not in run_prepare_data(data.with_suffix(".made"), data, python=TRL_PYTHON)
    assert len(read_rows(data.with_suffix(".made") / "train.jsonl")) == 1


def folder_of_parquet(folder, pictures):
    """Write eight rows with images in bytes, as datasets does."""
    script = (
        "import sys; from datasets import Dataset, Image\n"
        "turns = [{'role': 'user', 'content': 'What?'}, {'role': 'assistant', 'content': 'red'}]\n"
        "image = {'bytes': open(sys.argv[1], 'rb').read(), 'path': None}\n"
        "made = Dataset.from_list([{'messages': turns, 'image': image}] * 8).cast_column('image', Image())\n"
        "made.to_parquet(sys.argv[2])"
    )
    folder.mkdir()
    words = [TRL_PYTHON, "-c", script, str(pictures / "red.png"), str(folder / "train.parquet")]
    subprocess.run(words, check=True, capture_output=True, env=plain_environment(HF_HOME=str(folder.parent)))
    return folder


def test_a_folder_of_parquet_with_images_of_datasets_is_read(pictures, tmp_path):
    folder_of_parquet(tmp_path / "set", pictures)
    run_prepare_data(tmp_path / "data", tmp_path / "set", python=TRL_PYTHON)
    first = read_rows(tmp_path / "data/train.jsonl")[0]
    assert first["images"][0].endswith(as_base64(pictures / "red.png"))


@pytest.mark.parametrize("weights", [(), ("--weights=1",)])
def test_images_of_too_many_pixels_are_made_smaller(pictures, tmp_path, weights):
    data = write_rows(pictures.parent / "large.jsonl", [row(["pics/blue.jpg"])])
    said = run_prepare_data(tmp_path / "data", "--max-pixels=2000", *weights, data, python=TRL_PYTHON)
    assert "1 images, 1 of them made smaller (data.max_pixels)" in said
    made = write_rows(tmp_path / "again.jsonl", read_rows(tmp_path / "data/train.jsonl"))
    image = looked_at(made).samples[0].images[0]
    assert (image.width, image.height) == (51, 38)


def test_sixteen_bits_become_eight(pictures, tmp_path):
    data = write_rows(pictures.parent / "deep.jsonl", [row(["pics/grey16.png"])])
    shown = looked_at(data).samples[0].images[0].thumbnail
    run_prepare_data(tmp_path / "data", data, python=TRL_PYTHON)
    again = looked_at(write_rows(tmp_path / "again.jsonl", read_rows(tmp_path / "data/train.jsonl")))
    for lines in (shown, again.samples[0].images[0].thumbnail):
        assert int(lines[0][:2], 16) < 20
        assert 100 < int(lines[len(lines) // 2][:2], 16) < 150
        assert int(lines[-1][-2:], 16) > 235


def test_large_images_end_reading_in_time(pictures, tmp_path):
    script = (
        "import sys; from PIL import Image\n"
        "for at in range(12): Image.effect_noise((3000, 2000), 90).save(f'{sys.argv[1]}/{at}.png', compress_level=1)"
    )
    subprocess.run([TRL_PYTHON, "-c", script, str(tmp_path)], check=True)
    data = write_rows(tmp_path / "large.jsonl", [row([f"{at}.png"]) for at in range(12)])
    seen = looked_at(data, seconds=0)
    assert not seen.all_read
    assert seen.rows < 12


def test_a_model_that_reads_text_only_is_refused(pictures, tmp_path):
    model = tmp_path / "text"
    subprocess.run([TRL_PYTHON, str(SCRIPTS / "chat_model.py"), str(model)], check=True, capture_output=True)
    data = write_rows(pictures.parent / "one.jsonl", [row(["pics/red.png"])])
    assert looked_at(data, model=str(model)).images.text_only
    said = run_prepare_data(tmp_path / "data", f"--model={model}", data, code=65, python=TRL_PYTHON)
    assert "the model reads text only: choose one that sees" in said


@pytest.mark.skipif(HAS_TORCHVISION, reason="this Python has torchvision")
def test_a_processor_that_needs_torchvision_is_found_without_images_too(tmp_path):
    """TRL loads it for text as well, and would end there."""
    model = tmp_path / "qwen"
    # That of Qwen cannot be saved without torchvision.
    subprocess.run([TRL_PYTHON, str(SCRIPTS / "vision_model.py"), str(model), "llava"], check=True, capture_output=True)
    (model / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    parts = {f"{kind}_processor": {f"{kind}_processor_type": name} for kind, name in
             (("image", "Qwen2VLImageProcessor"), ("video", "Qwen2VLVideoProcessor"))}  # fmt: skip
    (model / "processor_config.json").write_text(json.dumps({"processor_class": "Qwen2_5_VLProcessor", **parts}))
    data = write_rows(tmp_path / "text.jsonl", [row([], "What?")])
    assert "torchvision" in looked_at(data, model=str(model), method="sft").processor
    assert not looked_at(data, model=str(model), method="reward").processor


def test_the_memory_of_images_is_not_modelled():
    chosen = finetune_profile(trainer__model="Qwen/Qwen2.5-0.5B")
    question = DataQuestion(files=("/d.jsonl",), model="Qwen/Qwen2.5-0.5B")

    def reason(images):
        report = DataReport(rows=2, usable=2, format="messages", chat=True, images=images)
        return predict_memory(
            make_setup(chosen, replace(facts(), data={facts_key_of_question(question): report}))
        ).why_no_estimate

    assert reason(None) == ""
    assert reason(DataImages(rows=2, count=2)) == "the data has images, whose memory is not modelled"


def chosen_for(model, data, **values):
    more = {key.replace("__", "."): value for key, value in values.items()}
    return profile(
        {
            "trainer.kind": "finetune", "trainer.python": TRL_PYTHON, "trainer.model": str(model),
            "trainer.data": (str(data),), "hardware.device": "cpu", "recipe.micro_batch": 2, "recipe.global_batch": 4,
            "recipe.sequence_length": 256, "recipe.precision": "fp32", "recipe.steps": 4,
            "recipe.learning_rate": 5e-3, "recipe.checkpoint_every": 2, "trainer.allow": ("learning_rate",),
        }
        | more
    )  # fmt: skip


def trained(folder, chosen):
    """Train to the end through the exported script, and return the run."""
    run, _ = export_run(folder, chosen, replace(facts(), toolchains=(probe.probe_toolchain(TRL_PYTHON),)))
    offline = plain_environment(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=f"{folder}-cache", ACCELERATE_USE_CPU="true")
    done = run_launch_script(run, env=offline, timeout=1200)
    assert done.returncode == 0, done.stdout.decode()[-500:] + attempt_log_text(run, 1)[-4000:]
    return run


@pytest.mark.parametrize("tuning", ["full", "lora"])
@pytest.mark.parametrize("form", ["messages", "prompt_completion", "parquet"])
def test_each_tuning_learns_from_each_form(tmp_path, pictures, seeing, tuning, form):
    rows = list(forms(pictures).values())
    if form != "messages":
        rows = [{"prompt": f"<image>{at} colour?", "completion": "red", "image": "pics/red.png"} for at in range(8)]
    data = write_rows(pictures.parent / f"{form}.jsonl", rows)
    if form == "parquet":
        data = folder_of_parquet(tmp_path / "set", pictures)
    run = trained(tmp_path / "run", chosen_for(seeing, data, finetune__tuning=tuning))
    assert read_status(run).state == "finished"
    losses = [line for line in attempt_log_text(run, 1).splitlines() if "'loss'" in line]
    assert len(losses) == 4
    if tuning == "full":
        assert (run.path / "output/processor_config.json").is_file()
        return
    made = json.loads((run.path / "output/adapter_config.json").read_text())
    assert made["base_model_name_or_path"] == str(seeing)
    merged = tmp_path / "merged"
    merge_adapter(run, str(merged), MergeOptions())
    assert json.loads((merged / "config.json").read_text())["vision_config"]
    assert (merged / "processor_config.json").is_file()
    asked = [sys.executable, "-m", "tui_train", "try", f"{run.path}/", "--prompt", "Hi", "--max-tokens", "4"]
    assert not subprocess.run(asked, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode


def test_a_frozen_vision_tower_gets_no_adapter(tmp_path, pictures, seeing):
    data = write_rows(pictures.parent / "frozen.jsonl", forms(pictures).values())
    run = trained(tmp_path / "run", chosen_for(seeing, data, finetune__freeze_vision=True))
    weights = (run.path / "output/adapter_model.safetensors").read_bytes()
    head = msgspec.json.decode(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    names = [name for name in head if name != "__metadata__"]
    assert names
    assert all("language_model" in name for name in names)


def test_rows_that_are_too_long_with_their_images_are_left_out(tmp_path, pictures, seeing):
    rows = [row(["pics/red.png"]) for _ in range(3)] + [row(["pics/red.png"], "<image>" + "long " * 20)]
    data = write_rows(pictures.parent / "long.jsonl", rows)
    words = (f"--model={seeing}", "--length=80", "--method=sft", "--most-cut=0.5", data)
    said = run_prepare_data(tmp_path / "data", *words, python=TRL_PYTHON)
    assert "1 of 4 rows (25.0%) are longer than 80 tokens and are left out" in said
    assert len(read_rows(tmp_path / "data/train.jsonl")) == 3


SEEN_BY_TRANSFORMERS = """
import sys
from transformers import AutoModelForImageTextToText, AutoProcessor
model = AutoModelForImageTextToText.from_pretrained(sys.argv[1])
processor = AutoProcessor.from_pretrained(sys.argv[1])
parts = [*({"type": "image", "path": path} for path in sys.argv[2:]), {"type": "text", "text": "What colour?"}]
made = processor.apply_chat_template(
    [{"role": "user", "content": parts}], add_generation_prompt=True, tokenize=True, return_dict=True,
    return_tensors="pt",
)
out = model.generate(**made, do_sample=False, max_new_tokens=12)
text = processor.tokenizer.decode(out[0, made["input_ids"].shape[1]:], skip_special_tokens=True)
sys.stdout.buffer.write(text.encode())
"""


def test_a_picture_is_answered_as_transformers_answers_it(pictures, seeing, tmp_path):
    run = ended_run(tmp_path / "run", python=TRL_PYTHON)
    shutil.copytree(seeing, run.path / "output", dirs_exist_ok=True)

    def tried(*names, code=0, prompt="What colour?"):
        words = [word for name in names for word in ("--image", str(pictures / name))]
        asked = ("try", f"{run.path}/", "--max-tokens", "12", "--prompt", prompt, *words)
        return run_cli(*asked, env=plain_environment(HF_HUB_OFFLINE="1"), code=code)

    answers = [tried(*names).stdout for names in (["red.png"], ["noise.png"], ["red.png", "noise.png"], [])]
    assert len(set(answers)) == len(answers), "each picture changes the answer"
    for names, answer in zip((["red.png"], ["noise.png"]), answers, strict=False):
        words = [TRL_PYTHON, "-c", SEEN_BY_TRANSFORMERS, str(seeing), *(str(pictures / name) for name in names)]
        alone = subprocess.run(words, check=True, capture_output=True, env=plain_environment(HF_HUB_OFFLINE="1"))
        assert answer == f"{visible_text_with_line_breaks(alone.stdout.decode())}\n"
    assert "cannot be shown to it: it is damaged" in tried("cut.png", code=69).stderr
    assert "no such file or directory" in tried("none.png", code=65).stderr
    refused = tried("red.png", code=69, prompt="<image><|image_pad|>").stderr
    assert "cannot be shown to it: The total number of" in refused, "what the processor itself refuses"


# Python runs this at its start: the micro batch of 2 does not fit once a checkpoint was saved.
TOO_LARGE_AFTER_TWO_STEPS = """
import importlib.abc, importlib.util, sys

class Patch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "trl.trainer.sft_trainer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            step = module.SFTTrainer.training_step

            def training_step(trainer, *given, **named):
                import torch
                if trainer.args.per_device_train_batch_size == 2 and trainer.state.global_step == 2:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
                return step(trainer, *given, **named)

            module.SFTTrainer.training_step = training_step

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Patch())
"""


def test_a_run_goes_on_after_out_of_memory_and_what_it_made_sees(tmp_path, pictures, seeing):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text(TOO_LARGE_AFTER_TWO_STEPS)
    data = write_rows(pictures.parent / "again.jsonl", forms(pictures).values())
    variables = {"PYTHONPATH": str(tmp_path / "own")}
    chosen = chosen_for(seeing, data, trainer__environment=variables, ladder__rungs=("micro_batch",))
    (tmp_path / "mine.toml").write_text(profile_to_toml(chosen))
    own = {name: os.environ[name] for name in XDG_VARIABLES}
    offline = plain_environment(**own, HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=str(tmp_path / "cache"))
    # What it streams has the traceback of the training that had too little memory.
    words = warm.cli_command("run", str(tmp_path / "mine.toml"))
    begun = subprocess.run(
        words, env=offline, capture_output=True, text=True, timeout=1200, check=False, stdin=subprocess.DEVNULL
    )
    (folder,) = {path.parent for path in runs_folder().glob("*/plan.json")}
    run = RunFolder(folder)
    assert read_status(run).state == "finished", begun.stderr
    attempts = read_status(run).attempts
    assert [(attempt.out_of_memory, attempt.resumed) for attempt in attempts] == [(True, 0), (False, 2)]
    assert len([line for line in attempt_log_text(run, 2).splitlines() if "'loss'" in line]) == 2
    run_cli("merge", f"{folder}/", str(tmp_path / "merged"), env=offline, timeout=1200)
    asked = ("try", f"{folder}/", "--prompt", "What colour?", "--max-tokens", "12", "--image")
    answers = [
        run_cli(*asked, str(pictures / name), env=offline, timeout=1200).stdout for name in ("red.png", "noise.png")
    ]
    assert answers[0] != answers[1]
