"""The form: one widget that draws its rows, in which one moves, chooses, opens and types."""

from typing import Any

import pytest
from pilot import screen_text, until_true
from support import sample
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.events import Paste
from tui_train.screens.messages import ValueChosen
from tui_train.screens.themes import THEME_NAMES, register_themes
from tui_train.screens.widgets.form.form import Form
from tui_train.screens.widgets.form.form_lines import FormGroup, FormRow, draw_form_line, form_lines
from tui_train.screens.widgets.form.form_state import FormState
from tui_train.screens.widgets.path_suggester import PathSuggester

from tui_train.profile import fields
from tui_train.views.choices import UNSET_LABEL, FieldOption

LAUNCHERS = (
    FieldOption("auto", "auto", "now python"),
    FieldOption("torchrun", "torchrun", "several processes"),
    FieldOption("accelerate", "accelerate", why_disabled="this Python has none"),
)


def row(key: str, **more: Any) -> FormRow:
    return FormRow(field=fields.get_field(key), **{"hint": key, **more})


def groups(**values: Any) -> tuple[FormGroup, ...]:
    numbers = tuple(row(f"recipe.{name}", value=values.get(name)) for name in ("layers", "steps"))
    hidden = (row("recipe.seed", value=values.get("seed")),)
    return (
        FormGroup(title="Model", rows=(*numbers, row("trainer.script", value=values.get("script", "")))),
        FormGroup(
            title="Start", rows=(row("trainer.launcher", value=values.get("launcher", "auto"), options=LAUNCHERS),)
        ),
        FormGroup(title="Advanced", key="advanced", folds=True, rows=hidden, value="0 of 1 set"),
    )


class Small(App[int]):
    """A form alone, which follows what is chosen, as a step does."""

    def __init__(self) -> None:
        super().__init__()
        register_themes(self, "")
        self.values: dict[str, Any] = {}
        self.chosen: list[tuple[str, Any]] = []

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Form()

    def on_mount(self) -> None:
        self.query_one(Form).show(groups())

    def on_value_chosen(self, event: ValueChosen) -> None:
        self.chosen.append((event.key, event.value))
        self.values[event.key.rpartition(".")[2]] = event.value
        self.query_one(Form).show(groups(**self.values))

    @property
    def form(self) -> Form:
        return self.query_one(Form)


def test_what_is_typed_is_read_at_once_and_kept_where_it_cannot_be():
    state = FormState()
    state.groups = groups(layers=3)
    assert state.rebuild_lines(), "the cursor is on a row"
    assert state.row
    assert (state.cursor, state.begin_typing(state.row)) == ("recipe.layers", "3")
    assert state.read_typed_text(state.row, "x") == "lines"
    assert (state.unparsable_row_key, state.unparsable_text_fix, state.cursor_row_has_problem) == (
        "recipe.layers",
        "use 3",
        True,
    )
    assert state.read_typed_text(state.row, "3") == "lines", "it can be read again"
    assert (state.unparsable_row_key, state.read_typed_text(state.row, "3")) == ("", "same")
    assert (state.read_typed_text(state.row, "45"), state.parsed_value) == ("value", 45)
    assert not state.adopt_profile_value(row("recipe.layers", value=45)), "the answer to what was typed"
    assert state.adopt_profile_value(row("recipe.layers", value=7)), "what came from elsewhere"


def test_the_cursor_stays_near_a_row_that_goes():
    state = FormState()
    state.groups, state.unfolded = groups(), frozenset({"advanced"})
    state.rebuild_lines()
    state.cursor = "recipe.seed"
    assert (state.next_cursor_stop_key(1), state.next_cursor_stop_key(-1)) == ("", "advanced")
    state.unfolded = frozenset()
    assert (state.rebuild_lines(), state.cursor, state.is_cursor_on_fold) == (True, "advanced", True)
    assert state.folded_group_key_of_row("recipe.seed") == "advanced"


def lines(app: Small) -> list[str]:
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


@pytest.fixture
def app() -> Small:
    return Small()


async def test_down_goes_through_all_rows_and_a_folded_group_is_one(app):
    async with app.run_test(size=(80, 20)) as pilot:
        seen = [app.form.cursor]
        for _ in range(4):
            await pilot.press("down")
            seen.append(app.form.cursor)
        assert seen == ["recipe.layers", "recipe.steps", "trainer.script", "trainer.launcher", "advanced"]
        await pilot.press("space", "down")
        assert app.form.cursor == "recipe.seed"
        await pilot.press("up", "left")
        assert not any("Seed" in line for line in lines(app))


async def test_a_picture_of_a_new_width_has_the_rows_before_the_form_is_told_of_it(app, monkeypatch):
    pictures = []
    monkeypatch.setattr(Form, "on_resize", lambda form: pictures.append([line.plain for line in form._drawn]))
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.pause()
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
    assert [max(map(len, drawn)) - width for drawn, width in zip(pictures, (80, 60), strict=True)] == [1, 1]


async def test_typing_replaces_a_number_and_adds_at_its_end_and_to_a_value_from_elsewhere(app):
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.press("1", "2", "down", "up", "7")
        assert app.values["layers"] == 7
        await pilot.press("down", "up", "end", "5")
        assert app.values["layers"] == 75
        await pilot.press("down", "down")
        app.form.show(groups(script="--bs="))
        await pilot.press("4")
        assert app.values["script"].endswith("--bs=4")


async def test_a_letter_takes_no_number_away(app):
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.press("1", "2", "down", "up", "q")
        assert (app.values["layers"], app.form.entry.value) == (12, "12")
        assert app.form.state.hint.endswith("takes a number.")
        await pilot.press("7")
        assert (app.values["layers"], app.form.state.has_refused_typing) == (7, False)


async def test_page_keys_reach_the_ends_of_the_form_and_stay_in_it(app):
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.press("pagedown", "pagedown")
        assert app.form.cursor == "advanced"
        await pilot.press("pageup", "pageup")
        assert app.form.cursor == "recipe.layers"


async def test_typing_and_pasting_replace_a_text_which_an_arrow_key_keeps(app):
    async with app.run_test(size=(80, 20)) as pilot:
        app.form.show(groups(script="/old.py"))
        await pilot.press("down", "down", "/", "n")
        assert app.values["script"] == "/n"
        await pilot.press("up", "down", "right", "x")
        assert app.values["script"] == "/nx"
        await pilot.press("up", "down")
        app.form.entry.post_message(Paste("/pasted.py"))
        await pilot.pause()
        assert app.values["script"] == "/pasted.py"


async def test_a_choice_is_cycled_past_what_cannot_work(app):
    async with app.run_test(size=(80, 20)) as pilot:
        app.form.go_to_row("trainer.launcher")
        await pilot.press("right", "right", "left")
        assert [value for _, value in app.chosen] == ["torchrun", "auto", "torchrun"]


async def test_space_shows_all_values_and_what_cannot_work_is_not_taken(app):
    async with app.run_test(size=(80, 20)) as pilot:
        app.form.go_to_row("trainer.launcher")
        await pilot.press("space", "down")
        assert any(line.startswith("▌") and "torchrun" in line for line in lines(app))
        await pilot.press("down")
        assert "this Python has none" in app.form.state.hint
        await pilot.press("enter")
        assert (app.chosen, app.form.state.has_open_options) == ([], True)
        await pilot.press("up", "enter")
        assert (app.chosen, app.form.state.has_open_options) == ([("trainer.launcher", "torchrun")], False)
        await pilot.press("space", "down", "escape")
        assert len(app.chosen) == 1


async def test_a_click_goes_to_a_row_opens_it_and_chooses(app):
    async with app.run_test(size=(80, 20)) as pilot:
        for wanted in ("Launcher", "Launcher", "torchrun"):
            await pilot.click(Form, offset=(24, next(at for at, line in enumerate(lines(app)) if wanted in line)))
        assert app.chosen == [("trainer.launcher", "torchrun")]
        await pilot.click(Form, offset=(5, next(at for at, line in enumerate(lines(app)) if "Advanced" in line)))
        assert any("Seed" in line for line in lines(app))


async def test_tab_completes_a_path_and_else_goes_on(app, tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").touch()
    async with app.run_test(size=(80, 20)) as pilot:
        app.form.go_to_row("trainer.script")
        await pilot.pause()
        entry = app.form.entry
        entry.value = f"{tmp_path}/sc"
        await pilot.press("end", "r")
        for completed in ("scripts/", "scripts/train.py"):
            await until_true(pilot, lambda wanted=f"{tmp_path}/{completed}": entry._suggestion == wanted)
            await pilot.press("tab")
        await pilot.press("tab")
        assert app.values["script"] == str(tmp_path / "scripts" / "train.py")
        assert app.form.cursor == "trainer.launcher"


async def test_space_lists_the_models_that_are_here_and_blanks_name_nothing(app):
    models = tuple(FieldOption(name, name) for name in ("acme/base", "acme/large"))
    async with app.run_test(size=(80, 20)) as pilot:
        app.form.show((FormGroup(title="Model", rows=(row("trainer.model", value="", options=models),)),))
        app.form.go_to_row("trainer.model")
        await pilot.pause()
        await pilot.press("space")
        await until_true(pilot, lambda: "acme/large" in screen_text(pilot))
        await pilot.press("down", "enter")
        await until_true(pilot, lambda: app.values.get("model") == "acme/large")
    assert fields.parse_value(fields.get_field("trainer.model"), "  ") == ""
    assert fields.parse_value(fields.get_field("trainer.script"), " ") == ""
    assert fields.parse_value(fields.get_field("trainer.script"), " /a b") == "/a b"


async def test_a_path_that_is_begun_and_offered_is_not_yet_wrong(app, tmp_path):
    (tmp_path / "models").mkdir()
    async with app.run_test(size=(80, 20)) as pilot:
        app.form.go_to_row("trainer.script")
        await pilot.pause()
        entry = app.form.entry
        for typed, is_begun in (("mo", True), ("models", False), ("x", False)):
            entry.value = f"{tmp_path}/{typed[:-1]}"
            await pilot.press("end", typed[-1])
            await until_true(pilot, lambda wanted=is_begun: entry.is_begun_name is wanted)
            app.form._take_path_unless_begun()
            assert bool(app.form.state.half_typed_key) is is_begun


async def test_tab_lists_the_names_that_a_path_may_mean(app, tmp_path):
    for name in ("data-1.jsonl", "data-2.jsonl", "other"):
        (tmp_path / name).touch()
    async with app.run_test(size=(80, 20)) as pilot:
        app.form.go_to_row("trainer.script")
        await pilot.pause()
        entry = app.form.entry
        entry.value = f"{tmp_path}/data"
        await pilot.press("end", "-")
        await until_true(pilot, lambda: entry.suggester.candidates(f"{tmp_path}/data-"))
        await pilot.press("tab")
        await until_true(pilot, lambda: "data-2.jsonl" in screen_text(pilot))
        assert "other" not in screen_text(pilot)
        await pilot.press("down", "enter")
        await until_true(pilot, lambda: app.values["script"] == f"{tmp_path}/data-2.jsonl")
        await until_true(pilot, lambda: entry.suggester.candidates(entry.value))
        await pilot.press("tab")
        assert app.form.cursor == "trainer.launcher", "a whole name is completed"
        await pilot.press("up", "end", *["backspace"] * len("data-2.jsonl"))
        await until_true(pilot, lambda: len(entry.suggester.candidates(f"{tmp_path}/")) == 3)
        await pilot.press("f3")
        await until_true(pilot, lambda: "other" in screen_text(pilot))


@pytest.mark.parametrize(
    ("typed", "rest"), [("da", "ta-"), ("data-1", ".jsonl"), ("sub", "/"), ("nothing", ""), ("", ""), ("e", "")]
)
async def test_a_path_is_completed_by_what_its_names_have_in_common(tmp_path, typed, rest):
    for name in ("data-1.jsonl", "data-2.jsonl", "e\x1b[31m.txt"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    path = f"{tmp_path}/{typed}" if typed else ""
    assert await PathSuggester().get_suggestion(path) == (f"{path}{rest}" if rest else None)


@pytest.mark.parametrize("theme", THEME_NAMES)
@pytest.mark.parametrize("width", sample([40, 60, 80, 120], 3))
async def test_every_line_fills_its_width_in_every_theme(app, theme, width):
    async with app.run_test(size=(width, 20)) as pilot:
        app.theme = theme
        app.form.go_to_row("trainer.launcher")
        await pilot.press("space")
        text = lines(app)
        assert all(len(line) <= width for line in text)
        assert sum(line.startswith("▌") for line in text) == 1, "the cursor shows without colour"
        assert app.current_theme.name == theme


def drawn(row_of: FormRow, *, here: bool) -> str:
    """Draw one row alone."""
    (line,) = (
        line for line in form_lines((FormGroup(title="", rows=(row_of,)),), frozenset(), "") if line.kind == "row"
    )
    return draw_form_line(line, 80, has_cursor=here).plain


@pytest.mark.parametrize("value", ["", "x.jsonl"])
def test_what_an_empty_field_says_is_not_red_and_dim(value):
    wrong = row("trainer.data", value=value, error="no training data is chosen")
    (line,) = (
        line for line in form_lines((FormGroup(title="", rows=(wrong,)),), frozenset(), "") if line.kind == "row"
    )
    shown = draw_form_line(line, 80, has_cursor=False)
    coloured = [shown.plain[span.start : span.end] for span in shown.spans if span.style == "$error $field"]
    assert bool(coloured) == bool(value)


def test_a_value_that_is_not_set_shows_what_holds():
    held = row(
        "recipe.precision", options=(FieldOption("", UNSET_LABEL, "fp32"), FieldOption("bf16", "bf16")), value=None
    )
    assert ("fp32" in drawn(held, here=False), UNSET_LABEL in drawn(held, here=False)) == (True, False)


def test_a_note_that_is_cut_stands_whole_in_the_hint():
    state = FormState()
    for note in ("a short one", "no value of it is read before the file is found, which takes a while"):
        state.groups = (FormGroup(title="", rows=(row("trainer.data", note=note),)),)
        state.rebuild_lines()
        assert (f"{note[1:]}. trainer.data" in state.hint) == (note not in drawn(state.rows[0], here=False))


def test_the_default_of_a_script_stands_whole_beside_a_long_note():
    held = "the script's default (corpus.txt)"
    text = row("trainer.data", default_text=held, has_long_default=True, note="a note that would have all the room")
    assert held in drawn(text, here=False)


def test_an_error_stands_beside_its_value_with_what_fixes_it_and_no_key_without_its_words():
    text = drawn(row("recipe.global_batch", value=30, error="not a multiple of 8", fix="use 32"), here=True)
    assert text.index("30") < text.index("✗ not a multiple of 8") < text.index("F2 use 32")
    assert len(text) == 80
    text = drawn(row("recipe.global_batch", value=30, error="not a multiple of 8", fix="use 32 " * 9), here=True)
    assert text.index("30") < text.index("✗ not a multiple of 8")
    assert "F2" not in text


async def test_keys_that_come_together_keep_their_order(app):
    """A slow line brings several at once: a letter is not typed before what was pressed before it."""
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.press("1", "2", "3")
        for key in ("backspace", "9", "down", "7"):
            app.simulate_key(key)
        await pilot.pause()
        await pilot.pause()
        assert app.values == {"layers": 129, "steps": 7}


@pytest.mark.parametrize(
    ("is_set_elsewhere", "said"),
    [
        (True, "Steps: the value of Seed (8), and changes with it. recipe.steps"),
        (False, "Steps is not used here: the value of Seed (8). recipe.steps"),
    ],
)
def test_a_row_that_another_one_sets_is_not_called_unused(is_set_elsewhere, said):
    state = FormState()
    why = "the value of Seed (8)"
    shown = row("recipe.steps", why_disabled=why, is_set_elsewhere=is_set_elsewhere)
    state.groups = (FormGroup(title="", rows=(shown,)),)
    state.rebuild_lines()
    assert state.hint == said


@pytest.mark.parametrize(("height", "air"), [(8, 1), (7, 0)])
def test_a_blank_line_stands_before_an_open_group_where_all_lines_fit(height, air):
    """None before the closed one; titles and rows begin in the same column."""
    shown = (
        FormGroup(title="Model", rows=(row("recipe.layers"), row("recipe.heads"))),
        FormGroup(title="Seldom", key="seldom", folds=True, rows=(row("recipe.seed"), row("recipe.warmup"))),
        FormGroup(title="Other", key="other", folds=True, rows=(row("recipe.steps"),)),
    )
    lines = form_lines(shown, frozenset({"seldom"}), "", height)
    assert [line.kind for line in lines] == ["title", "row", "row", *["air"] * air, "fold", "row", "row", "fold"]
    drawn_lines = [draw_form_line(line, 80, has_cursor=False, unfolded=line.key == "seldom").plain for line in lines]
    assert [text[:9] for text in drawn_lines[-4:]] == [" Seldom ▾", " Seed    ", " Warmup  ", " Other ▸ "]


@pytest.mark.parametrize(("height", "air"), [(20, 2), (10, 2), (9, 1)])
async def test_a_form_has_the_blank_lines_for_which_there_is_room(app, height, air):
    async with app.run_test(size=(80, height)) as pilot:
        app.form.styles.height = "auto"
        app.form.go_to_row("recipe.seed")
        await pilot.pause()
        assert [line.kind for line in app.form.state.lines].count("air") == air
        (seed,) = (number for number, line in enumerate(screen_text(pilot).splitlines()) if "Seed" in line)
        assert app.form.entry.region.y == seed
