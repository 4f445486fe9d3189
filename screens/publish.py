"""Publish: what would be sent to the Hugging Face Hub and its card, and the upload once that is confirmed."""

from collections.abc import Mapping
from threading import Event
from typing import ClassVar

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.worker import get_current_worker

from tui_train.actions.publish import Publication, PublishOptions
from tui_train.actions.result_child import AnswerCancelled
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import capitalised, visible
from tui_train.runs.run_folders import RunFolder
from tui_train.views.publication import make_model_card, publication_lines

from .base import WizardScreen
from .screen_words import with_words_for_options
from .widgets.file_viewer import ScrollingPage
from .widgets.hint import Hint
from .widgets.key_bar import KeyBar
from .widgets.lines import Lines
from .widgets.step_bar import StepBar
from .widgets.text_layout import DONE_MARK, FAILED_MARK, LIVE_MARK, MUTED, heading, styled

_POLL_SECONDS = 0.1
_REPO_QUESTION = """To which repository of the Hugging Face Hub? OWNER/NAME

OWNER is your account or an organization of yours; a new repository is made."""
# Words of remedies for the command line, by the keys that do the same here.
_WORDS_BY_OPTION = {
    "--base ORG/NAME": "press b",
    "or, if that is meant: --public": "or, if that is meant, press p",
    "repeat the command": "press r",
    "Repeat the command": "Press r",
}


class PublishScreen(WizardScreen):
    """A publication: shown first, sent by a key."""

    HELP = """Publish

What would be sent to the Hugging Face Hub is shown first, with the card that says how it was trained. Nothing is sent
before Enter. A new repository is private. The huggingface_hub of the Python that trained sends it, with the token of
hf auth login or HF_TOKEN.

  Enter   send it
  r       another repository, or ask the Hub again
  b       name the base model on the Hub, where the run names it by a folder
  p       make a new repository public, for all to see, or keep it private
  Esc     stop and go back; files that were sent already are not sent again

On the command line: tui-train publish."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send it", key_display="Enter"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("r", "choose_repo", "Repository"),
        Binding("p", "toggle_public", "Make public"),
        Binding("b", "choose_base", "Base model"),
    ]

    def __init__(self, run: RunFolder) -> None:
        super().__init__()
        self.run = run
        self._repo = ""
        self._options = PublishOptions()
        self._plan: tuple[str, ...] = ()
        self._card = ""
        self._failure = Content()
        self._confirmed = Event()
        self._can_send = self._is_sending = False

    def compose(self) -> ComposeResult:
        """One page, a hint, keys."""
        yield StepBar(title="Result › Publish")
        with ScrollingPage(id="page"):
            yield Lines(id="result")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Ask where it is to go."""
        self.query_one(StepBar).show_at_right(styled((visible(self.run.name), MUTED)))
        self.query_one(ScrollingPage).focus()
        self._show_state(Content("Nothing is sent before you have seen what."))
        self.action_choose_repo()

    def _prepare_publication(self) -> None:
        self._plan, self._card, self._failure = (), "", Content()
        self._confirmed, self._is_sending = Event(), False
        self._show_state(styled(LIVE_MARK, " reading the result, and asking the Hub …"))
        self._publish(self._repo, self._options, self._confirmed)

    @work(thread=True, exclusive=True, group="publish")
    def _publish(self, repo: str, options: PublishOptions, confirmed: Event) -> None:
        """Find out what would be sent, wait until that is confirmed, and send it."""
        worker, show = get_current_worker(), self.call_unless_cancelled
        publication = None
        try:
            publication = Publication(self.run, repo, options, lambda: worker.is_cancelled)
            card = make_model_card(
                publication, lambda name: show(self._show_state, styled(LIVE_MARK, f" hashing {name} …"))
            )
            show(self._show_plan, tuple(publication_lines(publication, card)), card)
            publication.refuse_unusable_hub()
            seen = "private" if publication.is_private else "public, for all to see"
            show(self._show_question, f"Enter sends it to {visible(repo)}, {seen}. Nothing was sent yet.")
            while not confirmed.wait(_POLL_SECONDS):
                if worker.is_cancelled:
                    return
            url, _ = publication.send(card, lambda name: show(self._show_state, styled(LIVE_MARK, f" sent {name} …")))
            show(self._show_end, styled(DONE_MARK, " published: ", (url, "b"), f" ({seen})"))
        except AnswerCancelled:
            pass
        except TuiTrainError as error:
            show(self._show_failure, error)
        finally:
            if publication:
                publication.close()

    def _show_plan(self, plan: tuple[str, ...], card: str) -> None:
        self._plan, self._card = plan, card
        self._draw()

    def _show_question(self, words: str) -> None:
        self._show_state(Content(words), can_send=True)

    def _show_failure(self, error: TuiTrainError) -> None:
        remedy = with_words_for_options(error.remedy, _WORDS_BY_OPTION)
        self._failure = styled(FAILED_MARK, f" {visible(capitalised(error.message))}. {visible(remedy)}")
        self._show_end(Content("r names another repository, or asks the Hub again; b names the base model."))

    def _show_end(self, words: Content) -> None:
        self._is_sending = False
        self._show_state(words)

    def _show_state(self, words: Content, *, can_send: bool = False) -> None:
        """Show how far it is."""
        self._can_send = can_send
        self.query_one(Hint).show_text(words)
        self.query_one(ScrollingPage).scroll_home(animate=False)
        self._draw()
        self.refresh_bindings()

    def _draw(self) -> None:
        repo, plan, card, failure = visible(self._repo), self._plan, self._card, self._failure

        def lines(width: int) -> list[Content]:
            shown = [heading("Publish", repo or "no repository yet: press r", width)]
            shown += [*failure.wrap(max(1, width)), Content()] if failure.plain else []
            shown += [row for line in plan for row in Content(line).wrap(max(1, width))]
            if card:
                shown += [Content(), heading("Card", "the repository's README.md", width)]
                shown += [row for line in card.splitlines() for row in Content(visible(line)).wrap(max(1, width))]
            return shown

        self.query_one("#result", Lines).show(lines)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What was shown can be sent, once; what is being sent can only be left."""
        if action == "send":
            return self._can_send
        if action == "choose_repo":
            return not self._is_sending
        return action not in {"choose_base", "toggle_public"} or (bool(self._repo) and not self._is_sending)

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Say what p changes."""
        return {**super().footer_text_by_key, **({"p": "Keep private"} if self._options.public else {})}

    def action_send(self) -> None:
        """Send what was shown."""
        self._is_sending = True
        self._show_state(styled(LIVE_MARK, f" sending to {visible(self._repo)} … Esc ends it and goes back."))
        self._confirmed.set()

    def action_choose_repo(self) -> None:
        """Ask for the repository, then show what it would be sent."""

        def answered(repo: str) -> None:
            if repo := repo.strip():
                # That one may be seen by all says nothing of another.
                self._options = replace(self._options, public=self._options.public and repo == self._repo)
                self._repo = repo
                self._prepare_publication()

        self.ask_text(_REPO_QUESTION, self._repo, answered)

    def action_choose_base(self) -> None:
        """Ask for the base model's name."""

        def answered(base: str) -> None:
            self._options = replace(self._options, base=base.strip())
            self._prepare_publication()

        question = "Which model of the Hugging Face Hub is the base? ORG/NAME (empty: as the run names it)"
        self.ask_text(question, self._options.base, answered)

    def action_toggle_public(self) -> None:
        """Make a new repository public, or private again."""
        self._options = replace(self._options, public=not self._options.public)
        self._prepare_publication()

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Say that it ended."""
        if worker_group == "publish":
            self._show_end(styled(FAILED_MARK, " It has ended; r begins again."))
