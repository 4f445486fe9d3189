"""A result for llama.cpp and Ollama: the file read back, and a template that renders like the tokenizer's."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import warm
from msgspec.structs import replace
from support import run_cli
from training_results import ADAPTER_CONFIG, LOG_LINES, ended_run, run_that_left, write_adapter, write_model

from tui_train.actions.export_model import ExportModelOptions, export_model, modelfile_text
from tui_train.base.errors import AlreadyExists, BadInput, NotFound, Unavailable
from tui_train.programs import hub_cache
from tui_train.runs.remote_run import RunLocation, write_run_location
from tui_train.runs.results.resuming import FETCH_MARK_FILE
from tui_train.runs.status import read_status

LLAMA_CPP = os.environ.get("TUI_TRAIN_TEST_LLAMA_CPP", "")
with_llama_cpp = pytest.mark.skipif(
    not LLAMA_CPP or not find_spec("sentencepiece"),
    reason="NOT TESTED: GGUF, for which TUI_TRAIN_TEST_LLAMA_CPP names a folder of llama.cpp; it needs sentencepiece",
)
GO = shutil.which("go")
with_go = pytest.mark.skipif(not GO, reason="NOT TESTED: templates of Ollama, which Go renders")
SCRIPTS = Path(__file__).parents[1] / "scripts"
PROGRAMS = str(Path(hub_cache.__file__).parent / "result")

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {
    "ChatML": CHATML,
    "with words of a system by default": (
        "{% if messages[0].role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}" + CHATML
    ),
    "begins with a token": (
        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "refuses a system": (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    ),
    "has quotes and braces": (
        "{% for m in messages %}\"{{ '{{' }}{{ m.role }}\\{{ m.content }}\"\n{% endfor %}"
        "{% if add_generation_prompt %}\"{{ '{{' }}assistant\\{% endif %}"
    ),
}
NOT_FRAMES = {
    "a system's words within the first turn": (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] "
        "{% if loop.index0 == 1 and messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
        "{{ m.content }} [/INST]{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}{% endfor %}"
    ),
    "an end that the last turn lacks": (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if not loop.last %}<end>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    ),
    "turns that are numbered": "{% for m in messages %}{{ loop.index }} {{ m.role }} {{ m.content }}\n{% endfor %}",
}
SYSTEM, ASKED = {"role": "system", "content": "Be brief."}, {"role": "user", "content": 'a {{ b }}\n"c"'}
ANSWERED = {"role": "assistant", "content": "It is\nso."}
FRAMES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ollama_template import turn_frames
from result_load import RefusedError
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
templates, chats = json.loads(sys.argv[2])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>")
made = {}
for name, template in templates.items():
    tokenizer.chat_template = template
    try:
        frames = turn_frames(tokenizer)
    except RefusedError as error:
        made[name] = str(error)
        continue
    rendered = []
    for chat in chats:
        if chat[0]["role"] == "system" and "system" not in frames.by_role:
            continue
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        rendered.append([chat, text.removeprefix("<s>")])
    made[name] = [frames.go_template(), rendered]
print(json.dumps(made))
"""


def frames_of(templates):
    chats = [[ASKED], [SYSTEM, ASKED], [ASKED, ANSWERED, ASKED], [SYSTEM, ASKED, ANSWERED, ASKED, ANSWERED, ASKED]]
    words = [warm.training(), "-c", FRAMES, PROGRAMS, json.dumps([templates, chats])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.whole
@with_go
def test_go_renders_the_template_as_the_tokenizer_does(tmp_path):
    subprocess.run(
        [GO, "build", "-o", tmp_path / "render", SCRIPTS / "render_template.go"],
        check=True,
        env={**os.environ, "GO111MODULE": "off"},
    )
    for name, (template, rendered) in frames_of(TEMPLATES).items():
        (tmp_path / "template").write_text(template)
        assert len(rendered) == (2 if "refuses" in name else 4), name
        for chat, wanted in rendered:
            words = [tmp_path / "render", tmp_path / "template"]
            done = subprocess.run(words, input=json.dumps(chat), capture_output=True, text=True, check=False)
            assert done.stdout == wanted, (name, done.stderr)


@pytest.mark.whole
def test_a_template_that_is_more_than_frames_is_refused():
    assert set(frames_of(NOT_FRAMES).values()) == {"it does more than put the same text around each turn"}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    subprocess.run([warm.training(), SCRIPTS / "llama_model.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture
def llama_run(tmp_path, llama):
    """A run whose output is a Llama."""
    return run_that_left(llama, tmp_path / "run", llama)


@pytest.mark.whole
def test_a_model_that_reads_images_is_told_of_vllm(tmp_path, monkeypatch):
    run = ended_run(tmp_path / "run", LOG_LINES, python=warm.training(), **{"trainer.model": "org/base"})
    write_model(run.path / "output", {"architectures": ["Qwen2_5_VL"], "vision_config": {"depth": 2}})
    (tmp_path / "convert_hf_to_gguf.py").touch()
    monkeypatch.setattr("tui_train.actions.export_model._CONVERTER_MODULES", ())
    with pytest.raises(Unavailable, match="a model that reads images cannot be one GGUF file") as refused:
        export_model(run, str(tmp_path / "out"), ExportModelOptions(llama_cpp=str(tmp_path)))
    assert "--for vllm" in refused.value.remedy
    assert not (tmp_path / "out").exists()


@pytest.fixture
def export_that_is_only_prepared(tmp_path, monkeypatch):
    """The options of an export to GGUF, and what it would merge and write, by their names."""
    (tmp_path / "convert_hf_to_gguf.py").touch()
    monkeypatch.setattr("tui_train.actions.export_model._CONVERTER_MODULES", ())
    begun = []
    monkeypatch.setattr("tui_train.actions.export_model.merge_adapter", lambda run, *_: begun.append(run.name))

    def write(_export, _program, request):
        begun.append(Path(request["file"]).name)
        Path(request["file"]).touch()
        return {"tensors": 1, "template": "", "stops": [], "compared": ""}

    monkeypatch.setattr("tui_train.actions.export_model._Export._wait_for_child", write)
    return ExportModelOptions(llama_cpp=str(tmp_path), server="ollama"), begun


def test_an_adapter_of_a_model_that_reads_images_is_refused_before_it_is_merged(tmp_path, export_that_is_only_prepared):
    options, begun = export_that_is_only_prepared
    base = write_model(tmp_path / "base", {"architectures": ["Qwen2_5_VL"], "vision_config": {"depth": 2}})
    run = ended_run(tmp_path / "run", LOG_LINES, **{"trainer.model": str(base)})
    write_adapter(run.path / "output", ADAPTER_CONFIG | {"base_model_name_or_path": str(base)})
    with pytest.raises(Unavailable, match="a model that reads images cannot be one GGUF file"):
        export_model(run, str(tmp_path / "out"), options)
    assert not begun
    (base / "config.json").write_text("{}")
    export_model(run, str(tmp_path / "out"), options)
    assert begun == ["run", "run-f16.gguf"]


def test_an_exported_checkpoint_is_named_by_its_step(tmp_path, export_that_is_only_prepared):
    options, begun = export_that_is_only_prepared
    run = ended_run(tmp_path / "run", LOG_LINES)
    for name in ("output", "output/checkpoint-10"):
        write_model(run.path / name)
        (run.path / name / "trainer_state.json").write_text('{"global_step": 10}')
    whole, step = (
        export_model(each, str(tmp_path / f"out{at}"), options)
        for at, each in enumerate((run, replace(run, checkpoint=10)))
    )
    assert begun == ["run-f16.gguf", "run-step-10-f16.gguf"]
    assert [made.command.split()[2] for made in (whole, step)] == ["run", "run-step-10"]


@pytest.mark.whole
@with_llama_cpp
def test_a_file_is_written_for_ollama_and_read_back(llama_run, tmp_path):
    words = ("export-model", f"{llama_run.path}/", str(tmp_path / "out"), "--llama-cpp", LLAMA_CPP)
    told = run_cli(*words, "--for", "ollama", "--type", "q8_0").stdout
    assert "21 tensors, checked by reading it back, chat template included" in told
    assert f"ollama create run -f {tmp_path}/out/Modelfile" in told
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Modelfile", "run-q8_0.gguf"]
    modelfile = (tmp_path / "out/Modelfile").read_text()
    assert modelfile.startswith('FROM ./run-q8_0.gguf\nTEMPLATE """{{ range .Messages }}')
    assert modelfile.endswith('PARAMETER stop "</s>"\nPARAMETER stop "<|im_end|>"\n')
    sys.path.insert(0, f"{LLAMA_CPP}/gguf-py")
    from gguf import GGUFReader

    reader = GGUFReader(tmp_path / "out/run-q8_0.gguf")
    assert reader.get_field("general.architecture").contents() == "llama"
    assert reader.get_field("tokenizer.chat_template").contents() == CHATML
    assert reader.get_field("tokenizer.ggml.add_bos_token").contents() is False, "no token begins what was learned"
    run_cli(*words, code=73)


@pytest.mark.whole
@with_llama_cpp
def test_the_token_that_begins_a_text_is_added_where_the_template_writes_it(llama, tmp_path):
    model = shutil.copytree(llama, tmp_path / "model")
    (model / "chat_template.jinja").write_text(TEMPLATES["begins with a token"])
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates/tool_use.jinja").write_text(CHATML)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "add_bos_token": False}))
    run = run_that_left(model, tmp_path / "run", llama)
    export_model(run, str(tmp_path / "out"), ExportModelOptions(llama_cpp=LLAMA_CPP, server="ollama"))
    sys.path.insert(0, f"{LLAMA_CPP}/gguf-py")
    from gguf import GGUFReader

    reader = GGUFReader(tmp_path / "out/run-f16.gguf")
    assert reader.get_field("tokenizer.ggml.add_bos_token").contents() is True
    assert reader.get_field("tokenizer.chat_template").contents() == TEMPLATES["begins with a token"]
    assert "<s>" not in (tmp_path / "out/Modelfile").read_text(), "it would be a second one"


@pytest.mark.whole
@with_llama_cpp
def test_an_answer_of_the_server_is_compared_with_that_of_the_model(llama, tmp_path):
    tools = shutil.copytree(LLAMA_CPP, tmp_path / "llama.cpp")
    # llama.cpp sets a space before a text, unless it is told not to.
    model = shutil.copytree(llama, tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())
    run = run_that_left(model, tmp_path / "run", llama)
    options = ExportModelOptions(llama_cpp=str(tools), weights_type="f32")
    if (tools / "llama-server").exists():
        told = export_model(run, str(tmp_path / "real"), options).note
        assert told == "llama-server reads a prompt as 52 tokens, the model as 49: its tokenizer is another one."
        (model / "tokenizer_config.json").write_text(json.dumps({**config, "add_prefix_space": False}))
        told = export_model(run, str(tmp_path / "same"), options).note
        assert told == "llama-server reads a prompt and answers it as the model does."
    (tools / "llama-server").unlink(missing_ok=True)
    shutil.copy(SCRIPTS / "llama_server.py", tools / "llama-server")
    (tools / "llama-server").chmod(0o755)
    told = export_model(run, str(tmp_path / "other"), options).note
    assert told == "llama-server reads a prompt as the model does, and answers otherwise after 0 of 16 tokens."
    (tools / "llama-server").write_text("#!/bin/sh\nexit 3\n")
    told = export_model(run, str(tmp_path / "broken"), options).note
    assert told == "llama-server could not be asked: it ended with exit code 3."


@pytest.mark.whole
def test_a_folder_for_vllm_has_all_that_it_reads_and_nothing_else(models, tmp_path):
    base, tuned = models
    run = ended_run(tmp_path / "run", LOG_LINES, python=warm.training(), **{"trainer.model": str(base)})
    output = run.path / "output"
    shutil.copytree(tuned, output)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (output / name).unlink(missing_ok=True)
    (output / "optimizer.pt").write_text("large")
    told = run_cli("export-model", f"{run.path}/", str(tmp_path / "out"), "--for", "vllm").stdout
    assert "weights, tokenizer, chat template; an answer ends with <|im_end|>" in told
    assert f"use it: vllm serve {tmp_path}/out" in told
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "generation_config.json"} <= names
    assert "optimizer.pt" not in names
    assert (tmp_path / "out/model.safetensors").read_bytes() == (output / "model.safetensors").read_bytes()
    ends = json.loads((tmp_path / "out/generation_config.json").read_text())["eos_token_id"]
    assert ends, "vLLM ends an answer by it"
    assert not (output / "tokenizer.json").exists(), "the result stays as it is"
    with pytest.raises(BadInput, match="own type"):
        export_model(run, str(tmp_path / "other"), ExportModelOptions(server="vllm", weights_type="q8_0"))


@pytest.mark.whole
@with_llama_cpp
def test_a_quantized_file_is_itself_read_back(llama_run, tmp_path):
    tools = tmp_path / "llama.cpp"
    shutil.copytree(LLAMA_CPP, tools)
    quantizer = tools / "llama-quantize"
    quantizer.write_text('#!/bin/sh\ncp "$1" "$2"\n')
    quantizer.chmod(0o755)
    options = ExportModelOptions(llama_cpp=str(tools), weights_type="q4_k_m")
    made = export_model(llama_run, str(tmp_path / "out"), options)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run-q4_k_m.gguf"]
    assert made.content.startswith("21 tensors")
    quantizer.write_text('#!/bin/sh\nhead -c 9000 "$1" > "$2"\n')
    with pytest.raises(Unavailable):
        export_model(llama_run, str(tmp_path / "cut"), options)
    assert not (tmp_path / "cut").exists()


@pytest.mark.whole
@with_llama_cpp
def test_what_the_converter_refuses_leaves_nothing(full_run, tmp_path):
    options = ExportModelOptions(llama_cpp=LLAMA_CPP)
    with pytest.raises(Unavailable, match="does not know this model's tokenizer"):
        export_model(full_run, str(tmp_path / "out"), options)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_what_cannot_be_exported_is_said_before_anything_is_loaded(full_run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    acts = {
        ("out", ExportModelOptions()): (NotFound, "not on PATH"),
        ("out", ExportModelOptions(llama_cpp="none")): (NotFound, "there is no"),
        ("out", ExportModelOptions(weights_type="q9")): (BadInput, "q9 is not known"),
        ("no/out", ExportModelOptions()): (NotFound, "no folder"),
        ("run", ExportModelOptions()): (AlreadyExists, "already exists"),
    }
    (tmp_path / "llama.cpp").mkdir()
    for (folder, options), (error, words) in acts.items():
        with pytest.raises(error, match=words):
            export_model(full_run, str(tmp_path / folder), options)
    (tmp_path / "llama.cpp/convert_hf_to_gguf.py").touch()
    with pytest.raises(NotFound, match="llama-quantize"):
        export_model(full_run, str(tmp_path / "out"), ExportModelOptions(weights_type="q4_k_m"))


def test_a_result_on_a_host_is_to_be_fetched_and_then_needs_a_python_here_alone(full_run, tmp_path):
    """What was fetched is not asked to be fetched again where the Python that trained is on the host alone."""
    write_run_location(full_run.path, RunLocation("box", "/there/run"))
    output = (full_run.path / "output").rename(tmp_path / "there")
    told = run_cli("result", f"{full_run.path}/").stdout
    assert "result        on box: tui-train fetch run copies it here" in told
    output.rename(full_run.path / "output")
    with pytest.raises(Unavailable, match="is on box") as refused:
        export_model(full_run, str(tmp_path / "out"), ExportModelOptions(server="vllm"))
    assert "tui-train fetch run" in refused.value.remedy
    (full_run.path / FETCH_MARK_FILE).write_text(str(len(read_status(full_run).attempts)))
    assert "full model" in run_cli("result", f"{full_run.path}/").stdout
    plan = json.loads((full_run.path / "plan.json").read_text())
    (full_run.path / "plan.json").write_text(json.dumps(plan | {"python": "/there/python"}))
    with pytest.raises(Unavailable, match="the Python that trained is not there") as refused:
        export_model(full_run, str(tmp_path / "out"), ExportModelOptions(server="vllm"))
    assert "--python" in refused.value.remedy
    with pytest.raises(NotFound, match="not on PATH"):
        export_model(full_run, str(tmp_path / "out"), ExportModelOptions(python=sys.executable))


def test_a_modelfile_holds_the_template_as_it_is():
    assert (
        modelfile_text("a.gguf", "{{ .x }}", ["<e>"])
        == 'FROM ./a.gguf\nTEMPLATE """{{ .x }}"""\nPARAMETER stop "<e>"\n'
    )
    with pytest.raises(BadInput, match="three quotes"):
        modelfile_text("a.gguf", '"""', [])
