"""How each failure shows in a log: the signatures of signatures.toml, and the table of what tells a full card."""

import functools
import re
from pathlib import Path

import msgspec

from tui_train.base.parse import type_prepared_for_msgspec
from tui_train.diagnose.types import Signature
from tui_train.runner.logs.memory_patterns import OUT_OF_MEMORY_PATTERNS

# A line that only tells: a log record below ERROR, what wandb says beside errors, a Python warning, a choice that
# inductor's autotuning leaves out, a line of a traceback's source (│: boxed), and one that says what is done instead.
HARMLESS_LINE_PATTERN = re.compile(
    r"^\W{0,3}(?:\S{1,60} ){0,5}?\W?(?:INFO|WARNING|(?<!NCCL )WARN|DEBUG|warning)\b"
    r"|(?:User|Future|Deprecation|Runtime|Import)?Warning:"
    r"|^wandb: (?!ERROR)"
    r"|^\S+ \S+: W tensorflow/|^(?:\[rank\d+\]:)?\[?E\d{4}\b.{1,80}select_algorithm\.py:"
    r"|^\s*[│╭╰]|^\[W\d|^W\d{4} |^\[NeMo [WI] |^\s+(?:#|raise |print\(|if |return )|NCCL INFO|^\s*File \""
    r"|^(?!\S*(?:Error|Exception)\b).*\b(?:[Ff]all(?:ing|s)? ?back to|[Ww]ill (?:use|default to|attempt to) "
    r"|[Dd]efaulting to |Ignoring\b|ignoring this\b|Skipping\b|will be (?:ignored|disabled)|Using cached|Casting to"
    r"|using (?:a|the) (?:default )?generation|(?:[Ss]tart|Initializing) from scratch)"
)


class _SignaturesFile(msgspec.Struct, frozen=True):
    signature: tuple[Signature, ...]


@functools.cache
def load_signatures() -> tuple[tuple[Signature, tuple[re.Pattern[str], ...]], ...]:
    """Return each signature with its compiled expressions."""
    data = (Path(__file__).parent / "signatures.toml").read_bytes()
    entries = msgspec.toml.decode(data, type=type_prepared_for_msgspec(_SignaturesFile)).signature
    return tuple(
        (entry, tuple(re.compile(text, re.MULTILINE) for text in _expressions_of_signature(entry))) for entry in entries
    )


def _expressions_of_signature(entry: Signature) -> tuple[str, ...]:
    return (*entry.when, *(text for failure, text in OUT_OF_MEMORY_PATTERNS if failure == entry.failure))
