"""`nemo prepare` with the real IndexedDatasetBuilder, of which NeMo's other libraries are no part.

test_nemo_real.py trains on what it makes.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
import warm
from support import make_executable, package_folder

from tui_train.actions import environments

TARGET = Path(environments.__file__).parents[2] / "programs" / "nemo"
VERSION = "0.15.3"
POEM = "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。"  # noqa: RUF001

DRIVER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import nemo_prepare
nemo_prepare.MIN_PART_BYTES, nemo_prepare.DOCUMENT_BATCH_BYTES = 500, 100
made, begun = nemo_prepare.DataPreparation.make_part, []
def part(self, *words):
    begun.append(words)
    if len(begun) > int(sys.argv[3]):
        os._exit(9)
    return made(self, *words)
nemo_prepare.DataPreparation.make_part = part
nemo_prepare.main(Path(sys.argv[2]))
print("PARTS", len(begun))
"""

READ = """
import json, sys
from megatron.core.datasets.indexed_dataset import IndexedDataset
from transformers import AutoTokenizer
tokenizer, data = AutoTokenizer.from_pretrained(sys.argv[1]), IndexedDataset(sys.argv[2])
print(json.dumps([tokenizer.decode(data[number]) for number in range(len(data))]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with Megatron's core and none of what it can do without, which says that it has NeMo as well."""
    beside = package_folder(f"megatron-core=={VERSION}", "nemo prepare", tmp_path_factory.mktemp("pip"))
    made = tmp_path_factory.mktemp("bin") / "python"
    for name, version in (("nemo_toolkit", "2.7.3"), ("nemo_run", "0.11.1")):
        named = made.with_name(f"{name}-{version}.dist-info")
        named.mkdir()
        (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(make_executable(made, f'#!/bin/sh\nPYTHONPATH="{beside}:{made.parent}" exec "{warm.training()}" "$@"\n'))


def documents(python, tokenizer, data):
    """The texts of the documents in Megatron's files, each of which has its end."""
    done = subprocess.run([python, "-c", READ, tokenizer, data], capture_output=True, text=True, check=True)
    texts = json.loads(done.stdout.splitlines()[-1])
    assert all(text.endswith("</s>") for text in texts)
    return [text.removesuffix("</s>") for text in texts]


def test_the_version_is_that_of_the_environment_that_the_program_makes():
    lock = environments.PACKAGE_SETS["nemo"].requirements_file.read_text(encoding="utf-8")
    assert re.search(rf"^megatron-core=={re.escape(VERSION)}\b", lock, re.MULTILINE)


@pytest.mark.whole
def test_chinese_text_and_jsonl_become_data_that_reads_back(python, tokenizer, tmp_path):
    tokenizer = tokenizer()
    texts = [f"{number} {POEM}" for number in range(60)]
    (tmp_path / "诗.txt").write_text("\n\n".join(texts), encoding="utf-8")
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts[:8]]
    (tmp_path / "held.jsonl").write_text("\n".join(lines), encoding="utf-8")
    asked = [tmp_path / "诗.txt", "--out", tmp_path / "poems", "--tokenizer", tokenizer, "--python", python]
    words = warm.cli_command("nemo", "prepare", *asked, "--validation", tmp_path / "held.jsonl")
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.findall(r"poems_(\w+)\.bin: (\d+) documents", done.stdout) == [("train", "60"), ("validation", "8")]
    assert not (tmp_path / "poems.preparing").exists()
    for name, expected in (("train", texts), ("validation", texts[:8])):
        assert documents(python, tokenizer, tmp_path / f"poems_{name}") == expected


@pytest.mark.whole
def test_prepared_data_goes_on_where_it_was_interrupted(python, tokenizer, tmp_path):
    tokenizer = tokenizer()
    text = tmp_path / "text.txt"
    texts = [f"{number} the quick brown fox" for number in range(300)]
    text.write_text("\n\n".join(texts), encoding="utf-8")

    def prepared(name, most):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        asked = {
            "tokenizer": tokenizer,
            "splits": {"train": [str(text)]},
            "out": {"train": str(tmp_path / f"{name}-d")},
            "rewritten": str(tmp_path / f"{name}-tokenizer"),
        }
        (folder / "question.json").write_text(json.dumps(asked))
        line = [python, "-B", "-c", DRIVER, TARGET, folder / "question.json", str(most)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    code, printed, said = prepared("whole", 99)
    assert code == 0, said
    parts = int(printed.rpartition("PARTS ")[2])
    assert parts > 4
    assert prepared("begun", 3)[0] == 9
    assert not list(tmp_path.glob("begun-d.*")), "nothing is there before all is"
    code, printed, said = prepared("begun", 99)
    assert (code, int(printed.rpartition("PARTS ")[2])) == (0, parts - 3), said
    for ending in ("bin", "idx"):
        assert (tmp_path / f"begun-d.{ending}").read_bytes() == (tmp_path / f"whole-d.{ending}").read_bytes()
    assert documents(python, tokenizer, tmp_path / "begun-d") == texts
