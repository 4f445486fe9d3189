"""Prepares NeMo data from text and imports Hugging Face folders as checkpoints, in workers."""

from pathlib import Path

from textual import work

from tui_train.actions import nemo_files
from tui_train.actions.nemo_files import NemoChildProgress, NemoTextToPrepare
from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.cli.environments.nemo import preparation_progress_text
from tui_train.facts.other_machines.host_commands import text_for_host
from tui_train.facts.types import Facts
from tui_train.profile.types import Profile
from tui_train.trainers import trainer_has_own_field
from tui_train.views import choices

from ..messages import QueryRecipes, ValueChosen
from ..steps.step import StepScreen


def can_prepare_nemo_data(profile: Profile) -> bool:
    """Tell whether a NeMo pretraining names text in place of data."""
    text = any(not path.endswith(".bin") for path in profile.trainer.data)
    return trainer_has_own_field(profile, "nemo") and profile.nemo.task == "pretrain" and text


def can_import_nemo_model(profile: Profile, facts: Facts | None) -> bool:
    """Tell whether a NeMo training names a Hugging Face folder in place of a checkpoint."""
    model = profile.trainer.model
    return bool(
        facts and trainer_has_own_field(profile, "nemo") and model and facts.paths.get(f"{model}/config.json") == "file"
    )


class StepWithNemoFiles(StepScreen):
    """A step that prepares data and imports models, each in a child of NeMo's Python, and lists its recipes."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow each action only while its result does not exist yet."""
        if action == "prepare_data":
            return can_prepare_nemo_data(self.profile) and not self.wizard.other_machine_name
        if action == "import_model":
            return can_import_nemo_model(self.profile, self.facts) and not self.wizard.other_machine_name
        return super().check_action(action, parameters)

    def action_prepare_data(self) -> None:
        """Prepare the text that is named as data, and name what comes of it."""
        trainer, tokenizer = self.profile.trainer, self.profile.nemo.tokenizer
        if not tokenizer:
            raise BadInput("no tokenizer is named", "Name its Hugging Face folder first (nemo.tokenizer).")
        named = {"train": trainer.data, "validation": trainer.validation_data, "test": trainer.test_data}
        splits = {name: tuple(Path(path) for path in paths) for name, paths in named.items()}
        data = NemoTextToPrepare(splits=splits, tokenizer=Path(tokenizer), out=Path(trainer.data[0]).with_suffix(""))
        self.notify("Preparing the data …", markup=False)
        self._prepare_data(data, trainer.python)

    @work(thread=True, exclusive=True, group="make")
    def _prepare_data(self, data: NemoTextToPrepare, python: str) -> None:
        def say(told: NemoChildProgress) -> None:
            self.notify(f"{told.split}: {preparation_progress_text(told)}", timeout=2, markup=False)

        result = nemo_files.prepare_nemo_data(data, nemo_files.find_nemo_python(python), say)
        keys = {"train": "trainer.data", "validation": "trainer.validation_data", "test": "trainer.test_data"}
        for name, path in nemo_files.bin_file_by_split(data).items():
            self.post_message(ValueChosen(keys[name], (str(path),)))
        if result.tokenizer:
            self.post_message(ValueChosen("nemo.tokenizer", result.tokenizer))

    def action_import_model(self) -> None:
        """Import the Hugging Face folder that is named as model, and name the checkpoint that comes of it."""
        source = Path(self.profile.trainer.model)
        target = source.with_name(f"{source.name}-nemo")
        self.notify(visible(f"Importing into {target} …"), markup=False)
        self._import_model(source, target, self.profile.trainer.python)

    @work(thread=True, exclusive=True, group="make")
    def _import_model(self, source: Path, target: Path, python: str) -> None:
        nemo_files.convert_nemo_model("import", source, target, nemo_files.find_nemo_python(python))
        self.post_message(ValueChosen("trainer.model", str(target)))

    def action_query_recipes(self) -> None:
        """Query the recipes of the chosen Python."""
        setup = self.setup
        if setup is None or setup.toolchain is None or setup.nemo_flavour not in {"recipes", "bridge"}:
            remedy = text_for_host("Make one: tui-train env create nemo.", self.facts.host if self.facts else "")
            raise BadInput("no Python with NeMo recipes is chosen", remedy)
        self.post_message(QueryRecipes(setup.toolchain.python, setup.nemo_flavour))

    def action_choose_recipe(self) -> None:
        """Show the recipes to choose from."""
        setup = self.setup
        if setup is None or self.facts is None:
            return
        found = choices.field_options("nemo.recipe", setup)
        answers = ((option.value, visible(option.label)) for option in found)
        self.ask_choice("Which recipe?", answers, lambda name: self.post_message(ValueChosen("nemo.recipe", name)))
