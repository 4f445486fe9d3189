"""Backend: what trains, what starts it, and with which Python."""

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace
from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content

from tui_train.base.text import quantity, visible
from tui_train.facts.types import Facts
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS, why_workaround_ignored
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field, trainer_of
from tui_train.views import choices, finetune_notes

from ..messages import ValueChosen
from ..steps.step import ADVANCED_GROUP_KEY
from ..steps.step_rows import Section
from ..widgets.dialogs import HelpScreen
from ..widgets.form.form_lines import FormGroup, FormRow
from ..widgets.multi_select import MultiSelect, SelectRow
from ..widgets.text_layout import MUTED, StyledPiece
from .nemo_files_screen import StepWithNemoFiles
from .script_help_screen import StepWithScriptHelp

_MAX_LAUNCH_TEXT_CELLS = 22
_NCCL_GROUP_KEY, _LAUNCH_GROUP_KEY = "cures", "start"
_TRAINING_SECTION = Section(
    title="Training",
    keys=(
        "trainer.kind",
        "trainer.script",
        "trainer.preset",
        "trainer.config",
        "nemo.recipe",
        "nemo.task",
        "nemo.peft",
        "nemo.mock_data",
        "nemo.tokenizer",
        "nemo.set",
        "nemo.tensor_parallel",
        "nemo.pipeline_parallel",
        "nemo.context_parallel",
        "trainer.model",
        "trainer.revision",
        "trainer.data",
        "finetune.method",
        "finetune.rewards",
        "finetune.tuning",
        "data.weights",
        "data.evaluation",
        "data.cut",
        "trainer.validation_data",
        "trainer.test_data",
    ),
)
_LAUNCH_SECTION = Section(
    title="Python, launcher",
    key=_LAUNCH_GROUP_KEY,
    folds=True,
    hint="Launcher, Python, sharding, container and machines of the training. Space opens this.",
    keys=(
        "trainer.launcher",
        "trainer.strategy",
        "trainer.offload",
        "trainer.accelerate_config",
        "trainer.python",
        "container.engine",
        "container.image",
        "container.mounts",
        "container.shared_memory",
        "nodes.count",
        "nodes.hosts",
        "nodes.processes",
        "nodes.address",
        "nodes.port",
    ),
)
_ADVANCED_SECTION = Section(
    title="Advanced",
    key=ADVANCED_GROUP_KEY,
    folds=True,
    keys=(
        "trainer.arguments",
        "trainer.working_directory",
        "trainer.output",
        "trainer.environment",
        "trainer.secrets",
        "trainer.allow",
        "trainer.progress",
        "tracking.tensorboard",
        "tracking.wandb",
        "tracking.trackio",
        "tracking.project",
        "communication.backend",
        "communication.interface",
        "communication.debug",
        "notify.command",
        "notify.webhook",
    ),
)
_NCCL_FEATURES_SECTION = Section(title="NCCL features", key=_NCCL_GROUP_KEY, folds=True)


class BackendScreen(StepWithScriptHelp, StepWithNemoFiles):
    """The second step."""

    HELP = """Backend

What trains, on which model and data, and what starts it. What cannot work here is shown with the reason.

F5      what the data holds, and its first samples as the model gets them
m       the models that Hugging Face has downloaded to this machine (in an
        empty Model: Space). Type the id of another one: it is downloaded
        before the training
F4 o    name the Python that trains, where it is not in the list of Python
h       run your script with --help, and choose from the arguments that it
        lists. Before the training your script is run only with --help: by
        this key, or where its source does not say what it takes, by Recipe
        and Preview
t       test whether several processes can communicate, and find what helps
        where they cannot
v       look into the container's image, and whether it sees the chosen GPUs
r n     NeMo: choose a recipe; ask the chosen Python for those that it has
p i     NeMo: convert the text named as data; the model folder of Hugging
        Face named as Model

In a row where a value is typed, letters are typed: there only the keys F1 to F5 work."""
    TITLE_OF_STEP = "Backend"
    SECTIONS = (_TRAINING_SECTION, _LAUNCH_SECTION, _ADVANCED_SECTION, _NCCL_FEATURES_SECTION)
    KEYS_OUTSIDE_FORM = ("communication.without",)
    GROUPS_OPEN_WHERE_TALL = frozenset({ADVANCED_GROUP_KEY, _LAUNCH_GROUP_KEY})
    IS_LIST_ORDERED_BY_GROUP_KEY: ClassVar[Mapping[str, bool]] = {_NCCL_GROUP_KEY: False}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f4,o", "ask_other_python", "Other Python"),
        Binding("m", "choose_model", "Models"),
        Binding("h", "query_script_help", "Script's help"),
        Binding("v", "validate_image", "Validate image"),
        Binding("t", "test_communication", "Test"),
        Binding("r", "choose_recipe", "Recipes"),
        Binding("n", "query_recipes", "Ask NeMo"),
        Binding("p", "prepare_data", "Prepare data"),
        Binding("i", "import_model", "Import model"),
    ]

    def make_group(self, section: Section, rows: tuple[FormRow, ...], setup: Setup | None) -> FormGroup:
        """Return a section; that of NCCL's features is there with NCCL, and is opened to a list."""
        group = super().make_group(section, rows, setup)
        if section.key == _LAUNCH_GROUP_KEY:
            return replace(group, value=_launch_text(setup), note=_launch_note(setup)) if setup else group
        if section.key != _NCCL_GROUP_KEY:
            return group
        without = self.profile.communication.without
        value = f"{len(without)} off" if without else "all on"
        hint = "Only if the GPUs fail to communicate: turn off what fails. It costs speed."
        hint = f"{hint} {self.list_key_text(section.key)}"
        folds = setup is not None and setup.communication_backend == "nccl"
        return replace(
            group, value=value, note=", ".join(NCCL_WORKAROUNDS[name].label for name in without), hint=hint, folds=folds
        )

    def fill_first_time(self) -> None:
        """Put the cursor on what is still to be chosen, and open what starts the processes where it was changed."""
        self.form.state.cursor = _first_missing_key(self.profile)
        if any(fields.is_chosen(self.profile, key) for key in _LAUNCH_SECTION.keys):
            self.form.state.unfolded |= {_LAUNCH_GROUP_KEY}
        super().fill_first_time()

    def notes_by_key(self, setup: Setup) -> Mapping[str, str]:
        """Return which recipes can be listed, and what a fine-tuning makes of its values."""
        if self.facts is None:
            return {}
        hosts = _host_note_by_key(self.facts, self.profile, is_asking="training_hosts" in self.awaited_parts)
        if trainer_has_own_field(self.profile, "finetune"):
            return {**hosts, **finetune_notes.backend_screen_notes(setup)}
        if not trainer_has_own_field(self.profile, "nemo"):
            return hosts
        options = choices.field_options("nemo.recipe", setup)
        asked = bool(options and options[0].note)
        note = f"r lists {quantity(len(options), 'recipe')}" + (" of this Python" if asked else "; n asks this Python")
        return {**hosts, "nemo.recipe": "asking NeMo …" if "recipes" in self.awaited_parts else note}

    @property
    def keys_named_in_texts(self) -> tuple[str, ...]:
        """Keys of the note beside NeMo's recipe."""
        return ("r", "n") if trainer_has_own_field(self.profile, "nemo") else ()

    def lines_below_by_key(self, setup: Setup) -> Mapping[str, str]:
        """Return what the data holds, or that it is being read."""
        if self.facts is None or not trainer_has_own_field(self.profile, "finetune"):
            return {}
        return {"trainer.data": finetune_notes.data_field_note(setup, is_being_read="data" in self.awaited_parts)}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what there is: a script's help, an image to look into, a Python to name; nothing of another machine."""
        container, recipes = self.profile.container, trainer_has_own_field(self.profile, "nemo")
        bare, is_here = container.engine == "none", not self.wizard.other_machine_name
        match action:
            case "query_script_help":
                offered = bare and trainer_has_own_field(self.profile, "trainer.script") and is_here
            case "test_communication":
                offered = self.setup is not None and self.setup.world_size > 1 and self.wizard.can_start
            case "validate_image":
                offered = not bare and bool(container.image) and self.wizard.can_start
            case "ask_other_python":
                offered = bare
            case "choose_recipe":
                offered = recipes
            case "choose_model":
                offered = bool(self._cached_model_options())
            case "query_recipes":
                # V asks an image: its Python is none of this machine.
                offered = bare and recipes and is_here
            case _:
                return super().check_action(action, parameters)
        return offered

    def update_outside_form(self, setup: Setup) -> None:
        """Show what NCCL can do without, and what the script lists once it has answered."""
        for cures in self.query("#cures").results(MultiSelect):
            cures.display = setup.communication_backend == "nccl"
            picks = (_workaround_row(name, setup) for name in NCCL_WORKAROUNDS)
            cures.show_select_rows(picks, self.profile.communication.without)
        if not trainer_has_own_field(self.profile, "nemo"):
            self.offer_arguments_if_asked()

    @on(MultiSelect.Picked)
    def _post_picked_workarounds(self, event: MultiSelect.Picked) -> None:
        event.stop()
        self.post_message(ValueChosen("communication.without", event.values))

    def action_validate_image(self) -> None:
        """Look into the image, and whether it sees the chosen GPUs."""
        self.notify(visible(f"Looking into {self.profile.container.image} …"), markup=False)
        setup = self.setup
        gpus = tuple(gpu.uuid for gpu in setup.gpus) if setup and setup.device == "cuda" else ()
        self._validate_image(self.profile, gpus)

    @work(thread=True, exclusive=True, group="validate")
    def _validate_image(self, profile: Profile, gpus: tuple[str, ...]) -> None:
        from tui_train.actions.image_check import check_image, image_check_text

        chosen, place = profile.container, self.wizard.other_place
        host = place.host if place else ""
        recipe = profile.nemo.recipe if trainer_has_own_field(profile, "nemo") else ""
        text = image_check_text(check_image(chosen.engine, chosen.image, gpus, recipe, host))

        def lines(width: int) -> list[Content]:
            return [part for line in text.split("\n") for part in Content(line).wrap(width)]

        self.app.call_from_thread(self.app.push_screen, HelpScreen(lines))

    def action_test_communication(self) -> None:
        """Test whether the processes reach each other."""
        from ..communication import CommunicationScreen

        if self.setup is not None:
            self.app.push_screen(CommunicationScreen(self.setup))

    def _cached_model_options(self) -> tuple[choices.FieldOption, ...]:
        """Return the models of the cache that can be chosen."""
        setup = self.setup
        if setup is None or self.facts is None or not choices.is_field_shown("trainer.model", setup):
            return ()
        found = choices.field_options("trainer.model", setup)
        return tuple(option for option in found if not option.why_disabled)

    def action_choose_model(self) -> None:
        """Show the models in the cache of Hugging Face to choose from."""
        answers = ((option.value, f"{option.label}  {option.note}") for option in self._cached_model_options())
        self.ask_choice("Which model?", answers, lambda name: self.post_message(ValueChosen("trainer.model", name)))

    def action_ask_other_python(self) -> None:
        """Ask for the path of a Python."""
        question = "Path of the Python that trains (an environment's bin/python):"
        unchosen = [tool.python for tool in self.facts.toolchains if tool.unchosen] if self.facts else []
        offered = self.profile.trainer.python or next(iter(unchosen), "")
        self.ask_text(question, offered, self._post_typed_python, list_folder_names=self.wizard.list_folder_names)

    def _post_typed_python(self, path: str) -> None:
        if path:
            value = fields.parse_value(fields.get_field("trainer.python"), path)
            self.post_message(ValueChosen("trainer.python", value))


def _first_missing_key(profile: Profile) -> str:
    """Return the first row without the value that a training needs; empty where each has one."""
    keys: tuple[str, ...] = ("trainer.script",) if trainer_has_own_field(profile, "trainer.script") else ()
    keys = ("trainer.model", "trainer.data") if trainer_of(profile).requires_user_data else keys
    return next((key for key in keys if not fields.get_value(profile, key)), "")


def _launch_text(setup: Setup) -> str:
    """Return what starts how many processes."""
    words = f"{setup.launcher}, {quantity(setup.first_machine_process_count, 'process', 'processes')}"
    return (
        words
        if len(words) <= _MAX_LAUNCH_TEXT_CELLS
        else f"{setup.launcher}, {setup.first_machine_process_count} proc."
    )


def _launch_note(setup: Setup) -> str:
    """Return in how few words where they run: the machines, the container or the Python, and how a model is divided."""
    profile, toolchain = setup.profile, setup.toolchain
    machines = profile.nodes.machine_count
    inside = f"in {profile.container.image or profile.container.engine}" if profile.container.engine != "none" else ""
    parts = (
        quantity(machines, "machine") if machines > 1 else "",
        inside or (f"torch {toolchain.torch}" if toolchain and toolchain.torch else ""),
        profile.trainer.strategy if setup.world_size > 1 else "",
    )
    return visible(", ".join(filter(None, parts)))


def _workaround_row(name: str, setup: Setup) -> SelectRow:
    cure = NCCL_WORKAROUNDS[name]
    why = why_workaround_ignored(cure, setup.toolchain)
    beside: StyledPiece = why or (f"{cure.symptom}; {cure.cost}", MUTED)
    hint = f"{cure.label}: {why or f'cures {cure.symptom}; {cure.cost}'}."
    return SelectRow(name, ((cure.label, 29), (beside, 0)), why, hint)


def _host_note_by_key(facts: Facts, profile: Profile, *, is_asking: bool) -> dict[str, str]:
    """Return whether the other hosts answer."""
    others = profile.nodes.hosts[1:]
    known = [facts.training_hosts[host] for host in others if host in facts.training_hosts]
    if not others:
        return {}
    count = {"nodes.count": f"{len(profile.nodes.hosts)}: the hosts"}
    if is_asking:
        return {**count, "nodes.hosts": f"asking {quantity(len(others), 'host')} …"}
    answered = sum(not peer.problem for peer in known)
    return {**count, "nodes.hosts": f"{answered} of {len(others)} answer"} if known else count


SCREEN = BackendScreen
