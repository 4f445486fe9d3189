"""Rewards of answers that a model writes while it trains: their names, files and what TRL is passed of them."""

from pathlib import PurePosixPath

from msgspec import Struct

from tui_train.profile.types import FinetuneMethod, FinetuneSettings

TRL_REWARD_NAMES = (
    "accuracy_reward",
    "reasoning_accuracy_reward",
    "think_format_reward",
    "get_soft_overlong_punishment",
)
# In TRL 1.16; what these methods train on are answers of the model's own.
DEFAULT_COMPLETION_LENGTH = 512
DEFAULT_GENERATIONS_BY_METHOD: dict[FinetuneMethod, int] = {"grpo": 8, "rloo": 2}


class Reward(Struct, frozen=True):
    """A reward as it is chosen, its dotted path (of TRL's own its name), and its file, empty where Python finds it."""

    text: str
    dotted: str
    file: str = ""

    @property
    def folder(self) -> str:
        """The folder of its file, from which it is imported."""
        return str(PurePosixPath(self.file).parent) if self.file else ""


def generates_answers(finetune: FinetuneSettings) -> bool:
    """Return whether the model writes answers while it trains, which rewards score."""
    return finetune.method in DEFAULT_GENERATIONS_BY_METHOD


def generations_in_force(finetune: FinetuneSettings) -> int:
    """Return how many answers are written to each prompt, 1 where none are."""
    return finetune.generations or DEFAULT_GENERATIONS_BY_METHOD[finetune.method] if generates_answers(finetune) else 1


def chosen_rewards(finetune: FinetuneSettings) -> tuple[Reward, ...]:
    """Return the rewards that can be imported by their names; none where the method takes none."""
    texts = finetune.rewards if generates_answers(finetune) else ()
    return tuple(parse_reward(text) for text in texts if not reward_name_problem(text))


def reward_folders(finetune: FinetuneSettings) -> tuple[str, ...]:
    """Return the folders from which rewards are imported, each once."""
    return tuple(dict.fromkeys(reward.folder for reward in chosen_rewards(finetune) if reward.file))


def parse_reward(text: str) -> Reward:
    """Return a reward of which `reward_name_problem` says nothing."""
    path, _, name = text.rpartition(":")
    return Reward(text, f"{PurePosixPath(path).stem}.{name}", path) if path else Reward(text, text)


def reward_name_problem(text: str) -> str:
    """Return what keeps TRL from importing a reward, as words that follow it; empty where its name is valid."""
    path, _, name = text.rpartition(":")
    if not path:
        parts = text.split(".")
        if text in TRL_REWARD_NAMES or (len(parts) > 1 and all(map(str.isidentifier, parts))):
            return ""
        names_file = text.endswith(".py") or "/" in text
        return "names no function" if names_file else "is neither a reward of TRL nor FILE.py:FUNCTION"
    if not path.endswith(".py"):
        return "does not name a .py file before the colon"
    if not PurePosixPath(path).stem.isidentifier():
        return "has a file name that Python cannot import"
    return "" if name.isidentifier() else "names no function after the colon"
