"""The lines of Preview: what will happen, memory, findings, the command, what has changed, what is tried after."""

from collections.abc import Sequence

from msgspec import Struct
from textual.content import Content

from tui_train.base.text import quantity, typeset_ascii, visible
from tui_train.checks import Finding
from tui_train.checks.finding import EnvironmentInstall
from tui_train.memory.predict import Prediction
from tui_train.plan.render.script.plain_command import PlainCommand, wrap_command
from tui_train.plan.types import Plan
from tui_train.profile.changes import Change, ValueDifference
from tui_train.runner.logs.memory_patterns import TEXT_BY_MEMORY_PHASE
from tui_train.views.overview import OverviewLine
from tui_train.views.previous_run import differing_words

from .memory_lines import memory_lines
from .text_layout import DONE_MARK, FAILED_MARK, KEY_STYLE, MUTED, WARNING_MARK, columns, fit, heading, styled

Fix = Change | EnvironmentInstall
FIX_KEYS = ("f2", "f6", "f7", "f8", "f9")
_LABEL_WIDTH, _MAX_VALUE_WIDTH = 9, 24
_MAX_CHANGES_SHOWN = 6
_MIN_FINDING_WIDTH = 40
_MIN_NOTE_WIDTH = 20  # cells below which a note is left out


class PreviewContent(Struct, frozen=True):
    """Content of Preview; `changes` are those since the run `compared_run_name` (empty: none).

    `fixes` are what F2 and the keys after it change; `unread` is what findings may still come from, in words.
    """

    lines: tuple[OverviewLine, ...] = ()
    title: str = ""
    notes: tuple[str, ...] = ()
    prediction: Prediction | None = None
    findings: tuple[Finding, ...] = ()
    fixes: tuple[Fix | None, ...] = ()
    unread: str = ""
    command: PlainCommand | None = None
    file_count: int = 0
    fallbacks: tuple[tuple[str, str], ...] = ()
    compared_run_name: str = ""
    changes: tuple[ValueDifference, ...] = ()


def plan_overview_lines(preview: PreviewContent, width: int) -> list[Content]:
    """Return the outline of the training under its heading."""
    return [heading("What will happen", visible(preview.title), width), *outline_lines(preview.lines, width)]


def outline_lines(outline: Sequence[OverviewLine], width: int) -> list[Content]:
    """Return lines of an outline in columns."""
    value = min(_MAX_VALUE_WIDTH, max((len(line.value) for line in outline), default=0)) + 2
    value = max(value, max((len(line.value) + 2 for line in outline if not line.note), default=0))
    room = width - _LABEL_WIDTH - value
    # A few letters of a note say nothing.
    cells = min(value, width // 2) if room >= _MIN_NOTE_WIDTH else width - _LABEL_WIDTH
    return [
        columns(
            width,
            ((line.label, MUTED), _LABEL_WIDTH),
            ((line.value, "b"), cells),
            ((line.note, MUTED), 0),
        )
        for line in outline
    ]


def preview_memory_lines(preview: PreviewContent, width: int) -> list[Content]:
    """Return the memory of a GPU."""
    if preview.prediction is None:
        return []
    sound = not any(finding.forbids_plan for finding in preview.findings)
    return memory_lines(preview.prediction, (), None, note="estimated", width=width, is_allowed=sound)


def finding_lines(
    findings: Sequence[Finding], width: int, fixes: Sequence[Fix | None] = (), unread: str = ""
) -> list[Content]:
    """Return the findings in full, with the key that fixes each at the right of its first line.

    `fixes` are those of the keys; without them each finding has the next one. While something is `unread`, no finding
    does not mean that nothing is wrong.
    """
    if not findings:
        return [heading("Findings", unread or styled(DONE_MARK, " nothing to fix"), width)]
    forbids = sum(finding.level == "error" for finding in findings)
    count = "" if forbids == len(findings) else f"{len(findings)}, "
    note = count + (f"{forbids} must be fixed before it starts" if forbids else unread or "the run can start")
    lines = [heading("Findings", note, width)]
    keys = [*zip(fixes or [finding.fix for finding in findings if finding.fix], FIX_KEYS, strict=False)]
    for finding in findings:
        change = finding.fix
        key = next((key for fix, key in keys if change and fix == change), "")
        lines += _finding_lines(finding, key.upper(), typeset_ascii(change.title) if change and key else "", width)
    return lines


def _finding_lines(finding: Finding, key: str, title: str, width: int) -> list[Content]:
    mark = FAILED_MARK if finding.level == "error" else WARNING_MARK if finding.level == "warning" else ("·", MUTED)
    whole_fix = styled((key, KEY_STYLE), f" {title}") if key else Content()
    # What has no room beside the finding stands below it, whole.
    fix, fix_below = (whole_fix, Content()) if whole_fix.cell_length <= width // 2 else (Content(), whole_fix)
    room = max(_MIN_FINDING_WIDTH // 2, width - 2 - (fix.cell_length + 2 if key else 0))
    words = visible(finding.message)
    first = Content(words).wrap(room)[0].rstrip()
    # Below the fix there is room again.
    below = words[len(first.plain) :].strip()
    rest = Content(below).wrap(max(4, width - 2)) if below else []
    lines = [
        styled(
            styled(mark, " ", first).pad_right(max(0, width - 2 - first.cell_length - fix.cell_length)),
            fix,
        )
    ]
    lines += [styled("  ", line) for line in rest]
    lines += [fit(styled("  ", (visible(detail), MUTED)), width) for detail in finding.details]
    lines += [styled("  ", line) for line in fix_below.wrap(max(4, width - 2))] if fix_below.plain else []
    if finding.screen_remedy and not (key and finding.level != "error"):
        lines += [styled("  ", (line.plain, MUTED)) for line in Content(visible(finding.screen_remedy)).wrap(width - 2)]
    return lines


def command_lines(preview: PreviewContent, width: int, *, with_variables: bool) -> list[Content]:
    """Return the command; its variables only where all of it is to be shown."""
    if preview.command is None:
        words = "Nothing can be run before the errors are fixed."
        return [heading("Command", "", width), *(styled((line.plain, MUTED)) for line in Content(words).wrap(width))]
    command = preview.command
    count = len(command.settings)
    without = f" and {quantity(count, 'environment variable')}" if count and not with_variables else ""
    note = f"f shows launch.sh, {quantity(preview.file_count - 1, 'file')} beside it{without}"
    shown = command if with_variables else PlainCommand(command.folder, (), command.groups, command.uses_run_dir)
    rows = wrap_command(shown, width - 2)
    lines = [heading("Command", note, width)]
    for number, row in enumerate(rows):
        text = visible(row)
        body = styled(text[:-1], ("\\", "$live")) if number < len(rows) - 1 and text.endswith("\\") else styled(text)
        lines += [
            styled(("$ ", MUTED) if number == 0 and at == 0 else "  ", part)
            for at, part in enumerate(_split_to_width(body, width - 2))
        ]
    return lines


def _split_to_width(line: Content, width: int) -> list[Content]:
    """Return a line in parts that fit: a path may be longer than the screen is wide."""
    # Less than one wide character would never come to the end.
    width = max(width, 2)
    parts = []
    while line.cell_length > width:
        head = line.truncate(width)
        parts.append(head)
        line = line[len(head.plain) :]
    return [*parts, line]


def change_lines(preview: PreviewContent, width: int) -> list[Content]:
    """Return what has changed since the run before; nothing where there was none."""
    if not preview.compared_run_name:
        return []
    if not preview.changes:
        return [heading("Changed", "", width), styled((f"nothing since {visible(preview.compared_run_name)}", MUTED))]
    label = min(20, max(len(change.label) for change in preview.changes)) + 2
    rows = [
        columns(width, ((change.label, MUTED), label), (styled(before, (" → ", MUTED), (after, "b")), 0))
        for change in preview.changes[:_MAX_CHANGES_SHOWN]
        for before, after in [differing_words(change.before, change.after)]
    ]
    more = len(preview.changes) - len(rows)
    rest = [styled((f"and {more} more: tui-train plan --diff", MUTED))] if more > 0 else []
    note = f"since {visible(preview.compared_run_name)}" + ("; d shows it" if preview.file_count else "")
    return [heading("Changed", note, width), *rows, *rest]


def fallback_lines(preview: PreviewContent, width: int) -> list[Content]:
    """Return what is tried in turn after memory has run out, by where it did."""
    if not preview.fallbacks:
        return []
    rows: list[Content] = []
    for where, tried in preview.fallbacks:
        rows.append(fit(styled((where, MUTED)), width))
        rows += [styled("  ", line.plain) for line in Content(typeset_ascii(tried)).wrap(width - 2)]
    return [heading("If memory runs out", "", width), *rows]


def note_lines(preview: PreviewContent, width: int) -> list[Content]:
    """Return the plan's notes, folded."""
    if not preview.notes:
        return []
    folded = [line for note in preview.notes for line in Content(visible(note)).wrap(width)]
    return [heading("Notes", "", width), *(styled((line.plain, MUTED)) for line in folded)]


def phases_and_fallbacks(plan: Plan | None) -> tuple[tuple[str, str], ...]:
    """Return where memory may run out, and all that is changed one after another as long as it does there."""
    if plan is None:
        return ()
    places: dict[str, list[str]] = {}
    for phase in plan.phases:
        if changes := plan.attempts[plan.fallback_attempt_numbers(phase)[-1] - 1].changes:
            places.setdefault(", ".join(changes), []).append(TEXT_BY_MEMORY_PHASE[phase])
    return tuple((" or ".join(where), tried) for tried, where in places.items())


def join_panels(*panels: Sequence[Content]) -> list[Content]:
    """Return panels below each other, an empty line between them."""
    lines: list[Content] = []
    for part in panels:
        if part:
            lines += [*([Content()] if lines else []), *part]
    return lines
