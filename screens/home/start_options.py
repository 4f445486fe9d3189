"""The options to start a new training: a page on a Home without runs and profiles, else rows."""

from typing import NamedTuple

from textual.content import Content

from tui_train.base.text import visible

from ..widgets.cursor_list import ListRow
from ..widgets.text_layout import KEY_STYLE, MUTED, columns, fit, heading, styled

_FOOT_TITLE_WIDTH = 22
_START_SECTION = "start"


class StartOption(NamedTuple):
    """A way to begin: its title, what it needs and how long it takes, more in the hint of its row, and all beside it.

    `details` are labels and texts.
    """

    key: str
    title: str
    note: str
    hint: str
    details: tuple[tuple[str, str], ...]


START_OPTIONS = (
    StartOption(
        "finetune",
        "Fine-tune a model on my data",
        "a model and JSONL, CSV, Parquet or text; minutes to hours",
        "Model: Hub or folder. Data: chats, prompts with answers, text, preferences.",
        (
            ("Model", "a folder with weights, or a name on the Hub such as Qwen/Qwen3-0.6B"),
            ("Data", "chats (messages, ShareGPT), Alpaca, prompt + completion, preference pairs, or plain text"),
            ("Method", "SFT with LoRA, unless you choose another: DPO, KTO, a reward model; QLoRA, all weights"),
            ("Checked", "unusable rows, their lengths, GPU memory and disk, before anything starts"),
            ("Leaves", "an adapter that you can chat with, merge or go on with"),
            ("Shell", "tui-train new chat --set trainer.kind=finetune"),
        ),
    ),
    StartOption(
        "script",
        "Train with my own script",
        "a .py file and a Python with its packages; as long as it takes",
        "Your train.py and its arguments, on one GPU or several.",
        (
            ("Script", "any .py that trains with PyTorch; it stays as it is"),
            ("Python", "the one that has what the script imports"),
            ("Passed", "what its own arguments take: each is a row, with its default and help"),
            ("GPUs", "one process each where the script shares its work, otherwise one"),
            ("Checked", "missing arguments, files and packages, before anything starts"),
            ("Shell", "tui-train new own --set trainer.kind=script --set trainer.script=train.py"),
        ),
    ),
    StartOption(
        "quickstart",
        "See it work",
        "a small model on sample text, nothing downloaded; about a minute",
        "Opens the preview of a small training with defaults; Enter there starts it.",
        (
            ("Trains", "a new language model of 0.8 M parameters, 60 steps"),
            ("Data", "a sample text that comes with it; nothing is downloaded"),
            ("On", "the GPUs that can train, otherwise the CPU"),
            ("Shows", "the plan, losses and log, checkpoints, and what a run leaves"),
            ("Shell", "tui-train quickstart"),
        ),
    ),
    StartOption(
        "open",
        "Open a path or a model",
        "data, a script, a model or its Hub name; paste it, or a command",
        "Data and models open a fine-tune, .py your script, .toml saved settings.",
        (
            ("Data", ".jsonl, .json, .csv, .parquet, .txt: a fine-tune on it"),
            ("Script", ".py: your own script"),
            ("Model", "a folder with config.json, or ORG/NAME: a fine-tune of it"),
            ("Profile", ".toml: settings that were saved before"),
        ),
    ),
)


def title_row(title: str) -> ListRow:
    """Return the title of a panel."""
    return ListRow("", (title,), lambda title, width: (heading(title, "", width),))


def blank_row() -> ListRow:
    """Return an empty line between rows."""
    return ListRow("", (), lambda _width: (Content(),))


def _start_option_page_row(key: str, title: str, note: str) -> ListRow:
    return ListRow(key, (title, note), _page_option_lines, height=2, section=_START_SECTION)


def _page_option_lines(title: str, note: str, width: int) -> tuple[Content, ...]:
    """Return a way to begin as it stands on the page: its title, and below it what it needs."""
    return fit((title, "b"), width), fit((visible(note), MUTED), width)


def _foot_option_lines(title: str, pressed: str, note: str, width: int) -> tuple[Content, ...]:
    """Return a way to begin as a line below runs and profiles, with the key that does the same."""
    name = styled(("+ ", "$primary"), (title, "b"))
    about = styled((f"{pressed}   " if pressed else "", KEY_STYLE), (visible(note), MUTED))
    return (columns(width, (name, _FOOT_TITLE_WIDTH), (about, 0)),)


def start_page_rows(draft_note: str | None = None) -> tuple[ListRow, ...]:
    """Return the page of all ways to begin, and below them the draft where there is one."""
    rows = [_start_option_page_row(each.key, each.title, each.note) for each in START_OPTIONS]
    if draft_note is not None:
        rows.append(_start_option_page_row("draft", "Continue the draft", draft_note))
    first, *others = rows
    return title_row("Start"), first, *(part for row in others for part in (blank_row(), row))


def new_training_rows(draft_note: str | None = None) -> tuple[ListRow, ...]:
    """Return what begins a training below runs and profiles."""
    note = "fine-tune, own script; paste a path or a command"
    new = ListRow("new", ("New training", "n", note), _foot_option_lines, section=_START_SECTION)
    if draft_note is None:
        return (new,)
    return ListRow("draft", ("Continue the draft", "", draft_note), _foot_option_lines, section=_START_SECTION), new


START_ROWS = start_page_rows()
