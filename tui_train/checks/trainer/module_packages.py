"""The package that has a module which trainings import; a name that only a log tells is never one to install."""

import re

from tui_train.base.text import visible
from tui_train.facts.types import ScriptSource
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.trainers import trainer_has_own_field

_PYTHONPATH_VARIABLE = "PYTHONPATH"

# An error names the module or the package: those of one name, and the others by either name.
_MODULES_NAMED_AS_PACKAGE = (
    "accelerate", "aiohttp", "albumentations", "apache-beam", "auto-round", "av", "axolotl", "bitsandbytes",
    "boto3", "clearml", "click", "codecarbon", "comet-ml", "compressed-tensors", "datasets", "decord", "deepspeed",
    "diffusers", "dvclive", "einops", "evaluate", "fairscale", "faiss-cpu", "fire", "fsspec", "gptqmodel",
    "gradio", "h5py", "hf-xet", "hqq", "huggingface-hub", "hydra-core", "jinja2", "jsonlines", "kernels",
    "lerobot", "librosa", "lightning", "litgpt", "llamafactory", "lm-eval", "loguru", "lz4", "math-verify",
    "matplotlib", "mlflow", "mmcv", "mmengine", "monai", "msgpack", "nemo-run", "neptune", "ninja", "nltk",
    "numpy", "omegaconf", "optimum", "optuna", "packaging", "pandas", "peft", "polars", "protobuf", "psutil",
    "py7zr", "pyarrow", "pydantic", "pytorch-lightning", "rarfile", "ray", "regex", "requests", "rich",
    "rouge-score", "sacrebleu", "safetensors", "schedulefree", "scikit-learn", "scipy", "seaborn",
    "sentence-transformers", "sentencepiece", "setfit", "setuptools", "soundfile", "spacy", "swanlab",
    "tensorboard", "tensorboardx", "tiktoken", "timm", "tokenizers", "torch", "torchao", "torchaudio",
    "torchcodec", "torchdata", "torchmetrics", "torchtune", "torchvision", "tqdm", "trackio", "transformers",
    "triton", "trl", "typer", "ultralytics", "unsloth", "unsloth-zoo", "verl", "vllm", "wandb", "webdataset",
    "xformers", "zstandard",
)  # fmt: skip
_DIFFERENT_PACKAGE_BY_MODULE = {
    "attr": "attrs", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "dateutil": "python-dateutil",
    "distutils": "setuptools", "dotenv": "python-dotenv", "faiss": "faiss-cpu",
    "flash-attn": "flash-attn --no-build-isolation", "git": "GitPython", "google.protobuf": "protobuf",
    "hydra": "hydra-core", "liger-kernel": "liger-kernel",
    "mamba-ssm": "mamba-ssm --no-build-isolation", "nemo": "nemo_toolkit[nlp]", "nvitop": "nvitop", "pil": "Pillow",
    "pillow": "Pillow", "pkg-resources": "setuptools", "pynvml": "nvidia-ml-py", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "transformer-engine": "transformer-engine[pytorch] --no-build-isolation",
    "pytorch": "torch", "te": "transformer-engine[pytorch] --no-build-isolation",
    "transformerengine": "transformer-engine[pytorch] --no-build-isolation", "yaml": "PyYAML",
    "pyyaml": "PyYAML", "zmq": "pyzmq",
}  # fmt: skip
PIP_PACKAGE_BY_MODULE: dict[str, str] = {
    **{name: name for name in _MODULES_NAMED_AS_PACKAGE},
    **_DIFFERENT_PACKAGE_BY_MODULE,
}


def project_folder_of_module(module: str, source: ScriptSource | None) -> str:
    """Return the folder above a script that holds a module of its project; empty for none.

    A file of a library's name, as evaluate.py, is not what the script imports.
    """
    return "" if source is None or pip_package(module) else source.parent_packages.get(module, "")


def missing_module_remedy(module: str, limit: str = "", folder: str = "") -> str:
    """Return what to do about a missing module; what an error calls it is never repeated as a package to install.

    `limit` is the version that is needed (>=1.1.0); `folder` that of the script's project which holds it.
    """
    if folder:
        return f"It lies in {visible(folder)}: put that folder on PYTHONPATH (trainer.environment)."
    if package := pip_package(module):
        wanted = f"'{package}{limit}'" if limit and " " not in package else package
        return f"Install it there: `PYTHON -m pip install {wanted}`, or choose the environment that has it."
    return (
        "If it is your own, put the folder that holds it on PYTHONPATH (trainer.environment); else choose the "
        "environment that has it, or see in the script's documentation which package that is: a package of the same "
        "name may be somebody else's."
    )


def pip_package(module: str) -> str:
    """Return the package that has a module, empty where it is not surely known."""
    return PIP_PACKAGE_BY_MODULE.get(re.sub(r"[-_]+", "-", module).lower(), "")


def add_to_pythonpath_change(profile: Profile, module: str, folder: str) -> Change | None:
    """Return the change that has Python look for a module in this folder of the script's project; None if it cannot."""
    earlier = profile.trainer.environment.get(_PYTHONPATH_VARIABLE, "")
    # A colon would end the name of the folder there.
    can_be_put = folder and ":" not in folder and folder not in earlier.split(":")
    if not can_be_put or not trainer_has_own_field(profile, "trainer.script"):
        return None
    variables = {**profile.trainer.environment, _PYTHONPATH_VARIABLE: ":".join(filter(None, (folder, earlier)))}
    why = f"{module} lies in it, above the script"
    return Change(f"put {visible(folder)} on {_PYTHONPATH_VARIABLE}", why, (("trainer.environment", variables),))
