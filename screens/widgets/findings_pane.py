"""Consequences of a form, beside it where there is room: findings, the command and what is tried after a failure.

On a narrower screen the same is on Preview.
"""

from textual.containers import VerticalScroll
from textual.content import Content

from tui_train.base.text import typeset_ascii, visible
from tui_train.checks import Finding
from tui_train.plan.plan import make_plan
from tui_train.plan.types import Plan
from tui_train.setup.setup import Setup

from .lines import DrawLines, Lines
from .text_layout import DONE_MARK, FAILED_MARK, KEY_STYLE, LIVE_MARK, MUTED, WARNING_MARK, fit, heading, styled

MAX_FINDINGS_SHOWN = 8
_MAX_FALLBACKS_SHOWN = 6
_PART_IDS_FROM_TOP = ("marked-row", "consequences", "plan")


class FindingsPane(VerticalScroll, can_focus=False, inherit_bindings=False):
    """Pane with findings and consequences; mounted only on a medium or wide screen."""

    def __init__(self) -> None:
        super().__init__(id="side")
        self._setup_and_findings: tuple[Setup, tuple[Finding, ...]] | None = None
        self._unread_label = ""
        self._is_looking = False
        self._draw_cursor_row_details: DrawLines | None = None
        self._draw_details_of_plan: DrawLines | None = None

    def show(self, setup: Setup, findings: tuple[Finding, ...], unread_label: str, *, is_looking: bool = False) -> None:
        """Say what follows from a setup with its findings, unless the value of a field, `unread_label`, cannot be read.

        While it `is_looking` at the machine for the first time, nothing follows yet. The command is made after the
        picture.
        """
        self._setup_and_findings, self._unread_label = (setup, findings), unread_label
        self._is_looking = is_looking
        if self.has_room:
            self.call_after_refresh(self._update_consequences)

    def show_cursor_row_details(self, draw: DrawLines | None) -> None:
        """Show above the findings what these lines say of the marked row, or nothing."""
        self._draw_cursor_row_details = draw
        if self.has_room:
            self._update_cursor_row_details()

    def show_details_of_plan(self, draw: DrawLines | None) -> None:
        """Show below the findings, after the picture, what these lines say of what is planned, or nothing."""
        self._draw_details_of_plan = draw
        if self.has_room:
            self.call_after_refresh(self._update_details_of_plan)

    @property
    def shows_all_findings(self) -> bool:
        """True where there is nothing of it out of sight."""
        return self.has_room and not self._is_looking and not self.max_scroll_y

    @property
    def has_room(self) -> bool:
        """True where there is room for it; no longer, once its screen was left."""
        return self.is_attached and (self.screen.has_class("-wide") or self.screen.has_class("-medium"))

    def on_show(self) -> None:
        """Fill it, when the terminal has become wide enough."""
        if self._setup_and_findings:
            self._update_consequences()
        self._update_cursor_row_details()
        self._update_details_of_plan()

    def _update_consequences(self) -> None:
        if self._setup_and_findings is None or not self.has_room:
            return
        unread, (setup, findings) = self._unread_label, self._setup_and_findings
        if self._is_looking:
            self._find_or_mount_lines("consequences").show(
                lambda width: [heading("Findings", "", width), styled(("looking …", MUTED))]
            )
            return
        starts = not unread and not any(finding.forbids_plan for finding in findings)
        planned = make_plan(setup, findings) if starts else None
        self._find_or_mount_lines("consequences").show(
            lambda width: (
                unparsable_field_lines(unread, width) if unread else consequence_lines(findings, planned, width)
            )
        )

    def _find_or_mount_lines(self, name: str) -> Lines:
        """Return the lines of this name, which are made in their place when they are first shown."""
        lines = next((each for each in self.query(Lines) if each.id == name), None)
        if lines is None:
            lines = Lines(id=name)
            after = _PART_IDS_FROM_TOP[_PART_IDS_FROM_TOP.index(name) + 1 :]
            self.mount(lines, before=next((each for each in self.children if each.id in after), None))
        return lines

    def _update_details_of_plan(self) -> None:
        draw = self._draw_details_of_plan
        if self.has_room and (draw or any(each.id == "plan" for each in self.query(Lines))):
            self._find_or_mount_lines("plan").show(lambda width: [Content(), *draw(width)] if draw else ())

    def _update_cursor_row_details(self) -> None:
        draw = self._draw_cursor_row_details
        if draw or any(each.id == "marked-row" for each in self.query(Lines)):
            self._find_or_mount_lines("marked-row").show(lambda width: [*draw(width), Content()] if draw else ())


def finding_line(finding: Finding, width: int, key: str = "") -> Content:
    """Return a finding in a line, with what its key would do at the right."""
    mark = FAILED_MARK if finding.forbids_plan else WARNING_MARK
    change = finding.fix
    fix = styled((key, KEY_STYLE), f" {typeset_ascii(change.title)}") if change and key else Content()
    fix = fit(fix, width // 2)
    words = fit(styled(mark, f" {visible(finding.message)}"), max(4, width - fix.cell_length - 3))
    return styled(words, " " * max(1, width - words.cell_length - fix.cell_length), fix)


def _fallback_lines(plan: Plan, width: int) -> list[Content]:
    """Return the first fallbacks, each below its number, and how many more there are."""
    lines = []
    for number, attempt in enumerate(plan.attempts[1 : _MAX_FALLBACKS_SHOWN + 1], start=1):
        title = Content(typeset_ascii(attempt.title)).wrap(max(4, width - 3))
        lines += [styled((f"{number}" if index == 0 else " ", "b"), "  ", line) for index, line in enumerate(title)]
    more = len(plan.attempts) - 1 - _MAX_FALLBACKS_SHOWN
    return [*lines, *([styled((f"   and {more} more", MUTED))] if more > 0 else [])]


def _finding_lines(finding: Finding, width: int, key: str) -> list[Content]:
    """Return a finding with all its words, and below it what its key would do, or what the user can."""
    mark = LIVE_MARK if finding.is_being_fixed else FAILED_MARK if finding.forbids_plan else WARNING_MARK
    words = Content(visible(finding.message)).wrap(max(4, width - 2))
    lines = [styled(mark if number == 0 else " ", " ", line) for number, line in enumerate(words)]
    lines += [fit(styled("  ", (visible(detail), MUTED)), width) for detail in finding.details]
    if finding.fix and key:
        remedy = styled((key, KEY_STYLE), f" {typeset_ascii(finding.fix.title)}")
    else:
        remedy = styled((visible(finding.screen_remedy), MUTED))
    return [*lines, *(styled("  ", line) for line in remedy.wrap(max(4, width - 2)))]


def unparsable_field_lines(label: str, width: int) -> list[Content]:
    """Return the lines while the value of a field cannot be read."""
    words = styled(FAILED_MARK, f" {visible(label)} cannot be read: nothing follows from it.")
    return [heading("Findings", "", width), *words.wrap(width)]


def consequence_lines(findings: tuple[Finding, ...], plan: Plan | None, width: int) -> list[Content]:
    """Return the lines for what a profile leads to."""
    forbids = sum(finding.forbids_plan for finding in findings)
    count = f"{len(findings)}" if findings else ""
    note = f"{forbids} of {count} must be fixed" if 0 < forbids < len(findings) else count
    note = "must be fixed" if forbids == len(findings) > 0 else note
    lines = [heading("Findings", note, width)]
    if not findings:
        lines.append(styled(DONE_MARK, " nothing is wrong"))
    for number, finding in enumerate(findings[:MAX_FINDINGS_SHOWN]):
        lines += _finding_lines(finding, width, "F2" if number == 0 else "")
    if len(findings) > MAX_FINDINGS_SHOWN:
        lines.append(styled((f"  and {len(findings) - MAX_FINDINGS_SHOWN} more", MUTED)))
    if plan is None:
        return lines
    lines += [Content(), heading("What starts", "", width)]
    lines += [styled(words) for words in (visible(plan.title), typeset_ascii(plan.attempts[0].batch)) if words]
    lines += [styled((visible(words), MUTED)) for words in plan.numbers]
    if len(plan.attempts) > 1:
        lines += [Content(), heading("If memory runs out", "", width)]
        lines += _fallback_lines(plan, width)
    return [part for line in lines for part in (line.wrap(width) if line.plain else [line])]
