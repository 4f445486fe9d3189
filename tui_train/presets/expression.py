"""The regular expressions by which a preset or a profile reads the lines of a training's log."""

import re

GROUPS = ("step", "steps", "loss", "eval_loss", "lr", "grad_norm", "tokens_per_second")
_LONGEST = 500
# Escapes and classes are one part each, so that no bracket in them counts.
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[*+]|\{\d*,\d*\}|[()|]|.", re.DOTALL)
_REPEATS = re.compile(r"[*+]|\{\d*,\d*\}")


def unusable(expression: str) -> str:
    """Return why an expression cannot read lines, as what follows its name; empty where it can."""
    if len(expression) > _LONGEST:
        return f"has more than {_LONGEST} characters"
    try:
        groups = {*re.compile(expression).groupindex}
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    if not groups or groups - {*GROUPS}:
        return f"must have groups, and only some of these: {', '.join(GROUPS)}"
    if _explodes(expression):
        return "repeats a group that itself repeats or offers a choice: on some lines that takes hours"
    return ""


def _explodes(expression: str) -> bool:
    """Tell whether a repeated group holds a repetition or a choice: the time for a line may double with each letter."""
    varies, closed = [False], False
    for part in _PART.findall(expression):
        if _REPEATS.fullmatch(part):
            if closed:
                return True
            varies[-1] = True
        elif part == "|":
            varies[-1] = True
        elif part == "(":
            varies.append(False)
        closed = part == ")" and len(varies) > 1 and varies.pop()
        if closed:
            varies[-1] = True
    return False
