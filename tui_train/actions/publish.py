"""Publishing a result on the Hugging Face Hub: what would be sent, what the Hub has, and the upload.

The huggingface_hub of the Python that trained sends it, with the token and the address that it finds by itself.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from tui_train.actions.merge import require_loadable_weights
from tui_train.actions.result_child import ResultChild, result_child_error, training_python
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import read_regular_file
from tui_train.base.parse import type_prepared_for_msgspec
from tui_train.base.text import visible
from tui_train.facts.models import hub
from tui_train.profile.types import Profile
from tui_train.programs import hub_cache
from tui_train.runs.remote_run import read_remote_location
from tui_train.runs.results.result import RunResult, read_result
from tui_train.runs.results.weights import ADAPTER_CONFIG_FILE, MODEL_CONFIG_FILE, Weights
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

CARD_FILE = "README.md"
# What loads a model beside its weights, of which the Hub also knows what they are.
_COMPANION_PATTERNS = (
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "sentencepiece.bpe.model",
    "tekken.json", "chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja",
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "configuration_*.py",
    "modeling_*.py", "tokenization_*.py", "processing_*.py", "image_processing_*.py",
)  # fmt: skip
_BASE_KEY_BY_FILE = {ADAPTER_CONFIG_FILE: "base_model_name_or_path", MODEL_CONFIG_FILE: "_name_or_path"}
_MAX_CONFIG_BYTES = 4 << 20
# A model in the Hub's cache, loaded by its folder.
_SNAPSHOT_PATTERN = re.compile(r"/models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})/?$")
_MAX_DATA_FILES = 20
_HASHED_BLOCK_BYTES = 1 << 20
_MAX_LOOK_SILENCE_SECONDS = 180.0
_MAX_UPLOAD_SILENCE_SECONDS = 86400.0  # a file of 50 GB takes hours; the library itself notices a cut connection


class PublishOptions(Struct, frozen=True, kw_only=True):
    """Whether all may read it, the base model's id on the Hub where the run names a folder, and another Python."""

    public: bool = False
    base: str = ""
    python: str = ""


class PublishedFile(Struct, frozen=True):
    """A file that is sent, and its bytes."""

    name: str
    size: int


class HashedDataFile(Struct, frozen=True):
    """A file of training data: its name, bytes and SHA-256, empty where it is not what was trained on, or not here."""

    name: str
    size: int = 0
    sha256: str = ""
    why_not_hashed: str = ""


class PublishChildReport(Struct, frozen=True, kw_only=True):
    """What the child found: versions, the written card, the base's licence, and what the Hub has.

    `kind` and `problem` say why the Hub cannot be used; empty where it can.
    """

    versions: dict[str, str] = {}
    license: dict[str, str] = {}
    head: dict[str, Any] = {}
    text: str = ""
    endpoint: str = ""
    user: str = ""
    exists: bool = False
    private: bool = False
    files: tuple[str, ...] = ()
    kind: str = ""
    problem: str = ""


_OWNER_REMEDY = "Give OWNER/NAME; OWNER is your account on the Hub or an organization of yours."


class Publication:
    """A result that is about to be sent; `close` ends what was not sent."""

    def __init__(
        self,
        run: RunFolder,
        repo: str,
        options: PublishOptions,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Find out what would be sent, and what the Hub has; TuiTrainError where it cannot be published at all.

        Once it is `cancelled`, this and `send` end with AnswerCancelled.
        """
        _require_repo_name(repo)
        self.run, self.repo, self.options, self._cancelled = run, repo, options, cancelled
        self.result: RunResult = read_result(run)
        self.weights: Weights = require_loadable_weights(self.result)
        self.base, self.revision = _base_on_hub(self.result, options.base)
        self._folder = Path(self.weights.path)
        names = _sent_file_names(self.weights)
        self._refuse_links_out_of_folder([*names, CARD_FILE])
        self._replaced = _configs_with_base_on_hub(self._folder, names, self.weights, self.base)
        self.files = tuple(PublishedFile(name, self._sent_size(name)) for name in names)
        self.left_out = tuple(sorted({path.name for path in self._folder.iterdir()} - {*names, CARD_FILE}))
        python = training_python(run, options.python, needs="huggingface_hub")
        request = self._child_request(os.environ | python.environment)
        # The variables of the training are not those of the upload: its address and token are the user's own.
        python = structs.replace(python, environment={}, device="cpu")
        self._child = ResultChild(python, "publish_child.py", request, has_stdin=True)
        try:
            self.hub = self._read_answer()
            self.refuse_unasked_public_repo()
        except BaseException:
            self.close()
            raise

    @property
    def is_private(self) -> bool:
        """True if only its owners will see it; a repository that exists stays as it is."""
        return self.hub.private if self.hub.exists else not self.options.public

    @property
    def replaced_repo_files(self) -> tuple[str, ...]:
        """Files of the repository that are replaced."""
        sent = {CARD_FILE, *(file.name for file in self.files)}
        return tuple(name for name in self.hub.files if name in sent)

    @property
    def kept_repo_files(self) -> tuple[str, ...]:
        """Files of the repository that stay beside what is sent."""
        return tuple(name for name in self.hub.files if name not in {*self.replaced_repo_files, ".gitattributes"})

    def refuse_unasked_public_repo(self) -> None:
        """Raise BadInput where what was to be private would be seen by all."""
        if self.hub.exists and not self.hub.private and not self.options.public:
            why = f"{visible(self.repo)} exists and is public: all could read what is sent there"
            raise BadInput(why, "Name another repository; or, if that is meant: --public")

    def refuse_unusable_hub(self) -> None:
        """Raise Unavailable where the Hub cannot be asked, or would refuse; BadInput for the base model's own name."""
        if self.hub.problem and self.repo.casefold() == self.base.casefold():
            why = f"{visible(self.repo)} is the base model, not a repository of yours"
            raise BadInput(why, f"{_OWNER_REMEDY} Then: hf auth login.")
        if self.hub.problem:
            raise result_child_error(self.hub.kind, self.hub.problem)

    def send(self, card: str, on_sent: Callable[[str], None] = lambda _name: None) -> tuple[str, str]:
        """Send the files with this card, and return the repository's address and the commit; TuiTrainError.

        `on_sent` is told each file of weights that has arrived.
        """
        self.refuse_unusable_hub()
        self._child.send_message({"contents": {**self._replaced, CARD_FILE: card}})
        while (message := self._child.read_message(_MAX_UPLOAD_SILENCE_SECONDS, self._cancelled))["event"] != "done":
            on_sent(visible(str(message.get("file"))))
        return visible(str(message.get("url"))), visible(str(message.get("commit")))

    def close(self) -> None:
        """End the child process."""
        self._child.close()

    def _sent_size(self, name: str) -> int:
        text = self._replaced.get(name)
        return (self._folder / name).stat().st_size if text is None else len(text.encode())

    def _child_request(self, environment: dict[str, str]) -> dict[str, object]:
        cached = hub.snapshot_folder(environment, self.base, self.revision) if self.base else ""
        return {
            "repo": self.repo,
            "folder": str(self._folder),
            "files": [file.name for file in self.files if file.name not in self._replaced],
            "weights": self.weights.file_names,
            "base": self.base,
            "base_folder": self.result.base if self.result.base.startswith("/") else cached,
            "private": not self.options.public,
        }

    def _read_answer(self) -> PublishChildReport:
        message = self._child.read_message(_MAX_LOOK_SILENCE_SECONDS, self._cancelled)
        try:
            return msgspec.convert(message, type_prepared_for_msgspec(PublishChildReport))
        except msgspec.ValidationError as error:
            raise Unavailable(f"the Hub sent an invalid answer: {visible(str(error))}", "Try again later.") from None

    def _refuse_links_out_of_folder(self, names: list[str]) -> None:
        """Raise BadInput for a file that lies elsewhere: only what is in the folder was made by the run."""
        folder = self._folder.resolve()
        for name in names:
            if not (self._folder / name).resolve().is_relative_to(folder):
                why = f"{visible(name)} in {visible(str(self._folder))} is a link to a file elsewhere"
                raise BadInput(why, "Copy that file there in place of the link, then repeat the command.")


def _require_repo_name(repo: str) -> None:
    if repo.count("/") != 1 or not hub_cache.is_valid_model_id(repo) or len(repo) > 96:
        why = f"{visible(repo)} is not a repository name"
        raise BadInput(why, f"{_OWNER_REMEDY} NAME has letters, digits, '-', '_' and '.'.")


def _base_on_hub(result: RunResult, named: str) -> tuple[str, str]:
    """Return the id on the Hub and the revision of a result's base model; none where it is known by a folder only."""
    if named:
        if named.count("/") > 1 or not hub_cache.is_valid_model_id(named):
            raise BadInput(
                f"{visible(named)} is not a model name on the Hub", "Give the base model as ORG/NAME: --base ORG/NAME"
            )
        return named, ""
    cached = _SNAPSHOT_PATTERN.search(result.base)
    if cached and hub_cache.is_valid_model_id(f"{cached[1]}/{cached[2]}"):
        return f"{cached[1]}/{cached[2]}", cached[3]
    return (result.base, result.revision) if hub_cache.is_valid_model_id(result.base) else ("", "")


def _sent_file_names(weights: Weights) -> list[str]:
    """Return the files that are sent: the weights and what belongs to them, by their names, and nothing else ever."""
    folder = Path(weights.path)
    config = ADAPTER_CONFIG_FILE if weights.kind == "adapter" else MODEL_CONFIG_FILE
    beside = (path for pattern in _COMPANION_PATTERNS for path in sorted(folder.glob(pattern)) if path.is_file())
    return [config, *weights.file_names, *weights.index_names, *(str(path.relative_to(folder)) for path in beside)]


def copy_model_files(weights: Weights, into: Path) -> None:
    """Copy what belongs to a model, and nothing else, into a new folder."""
    for name in _sent_file_names(weights):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(weights.path, name), into / name)


def _configs_with_base_on_hub(folder: Path, names: list[str], weights: Weights, base: str) -> dict[str, str]:
    """Return the configurations that name the base by a path of this machine, with its id on the Hub instead.

    BadInput for an adapter whose base has none: nobody could load it.
    """
    texts = {}
    for name, key in _BASE_KEY_BY_FILE.items():
        if name not in names:
            continue
        config = msgspec.json.decode(read_regular_file(folder / name, _MAX_CONFIG_BYTES))
        written = config.get(key)
        if not written or not isinstance(written, str) or written == base:
            continue
        if weights.kind == "adapter" and not base:
            why = f"the adapter names its base model by a folder, which others do not have: {visible(written)}"
            raise BadInput(why, "Name the same model on the Hub: --base ORG/NAME")
        if weights.kind == "adapter" or not hub_cache.is_valid_model_id(written):
            texts[name] = msgspec.json.format(msgspec.json.encode(config | {key: base}), indent=2).decode() + "\n"
    return texts


def hash_data_files(run: RunFolder, profile: Profile, on_step: Callable[[str], None]) -> tuple[HashedDataFile, ...]:
    """Return the training data of a run with their hashes; of a run elsewhere, or changed since, without.

    `on_step` is told the name of each before it is read.
    """
    attempts = read_status(run).attempts
    began, is_elsewhere = attempts[0].started if attempts else 0.0, read_remote_location(run.path) is not None
    files = []
    for path in _data_file_paths(profile, follows=not is_elsewhere):
        if is_elsewhere or not path.is_file():
            files.append(HashedDataFile(path.name, why_not_hashed="not on the machine that published it"))
            continue
        on_step(visible(path.name))
        try:
            files.append(_hash_data_file(path, began))
        except OSError as error:
            raise Unavailable(f"cannot read {visible(str(path))}: {error.strerror}", "Make it readable.") from error
    return tuple(files)


def _data_file_paths(profile: Profile, *, follows: bool) -> Iterator[Path]:
    """Yield the files of a profile's training data, at most so many of a folder."""
    for path in map(Path, profile.trainer.data):
        if follows and path.is_dir():
            yield from sorted(file for file in path.glob("*") if file.is_file())[:_MAX_DATA_FILES]
        else:
            yield path


def _hash_data_file(path: Path, began: float) -> HashedDataFile:
    status = path.stat()
    if status.st_mtime > began:
        return HashedDataFile(path.name, status.st_size, why_not_hashed="changed since the training began")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASHED_BLOCK_BYTES):
            digest.update(block)
    return HashedDataFile(path.name, status.st_size, digest.hexdigest())
