"""Setup: what a profile means on a machine."""

from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import json
from msgspec.structs import asdict, replace

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.answer_cache import content_digest
from tui_train.facts.gpus.capability import approximate_teraflops, do_all_support_bf16
from tui_train.facts.gpus.gpu_sets import recommended_uuids
from tui_train.facts.gpus.verdicts import find_gpus_by_identifier, gpu_verdicts
from tui_train.facts.types import Facts, Gpu, GpuVerdict, ScriptSource, Toolchain, YamlDocument
from tui_train.launchers import LAUNCHERS, launchers_supporting
from tui_train.profile import fields
from tui_train.profile.presets import MODEL_SIZE_PLACEHOLDERS, Preset
from tui_train.profile.types import LauncherName, Profile
from tui_train.setup import blocked_fallbacks
from tui_train.setup.blocked_fallbacks import LadderContext
from tui_train.setup.machine import communication
from tui_train.setup.machine.toolchain import (
    choose_profile_launcher,
    pick_toolchain,
    why_python_unusable,
    why_too_old_for_fsdp2,
)
from tui_train.setup.recipe import given_arguments, launcher_config
from tui_train.setup.recipe.effective_values import (
    EffectiveValue,
    effective_values,
    is_unset_by_user,
    user_output_folder,
    with_effective_values,
)
from tui_train.setup.recipe.options import TrainerOptions, script_options
from tui_train.trainers import auto_preset, trainer_has_own_field, trainer_of
from tui_train.trainers.nemo import NemoFlavour
from tui_train.trainers.script import script_or_module_to_start
from tui_train.trainers.trainer import Trainer

# What the Python, the cards and the launcher are is not chosen again where defaults of ours are added.
_MACHINE_PARTS = (
    "toolchain", "gpu_verdicts", "gpus", "device", "launcher", "first_machine_process_count", "world_size",
    "model_copies", "communication_backend", "launcher_config",
)  # fmt: skip

_Answer = TypeVar("_Answer")


class Setup:
    """The meaning of a profile on a machine; each part is computed once, on first use.

    profile: the profile as chosen; facts: what is known of the machine
    data_values_by_key: values by their key that follow from the training data
    """

    def __init__(self, profile: Profile, facts: Facts, defaults: Mapping[str, EffectiveValue] | None = None) -> None:
        """Hold both; `defaults` replace the trainer's, by name in the recipe, or by key beyond it."""
        self.profile, self.facts = profile, facts
        self.data_values_by_key = {name: value for name, value in (defaults or {}).items() if "." in name}
        self._defaults = {name: value for name, value in (defaults or {}).items() if "." not in name}
        self._answer_by_question: dict[Callable[[Setup], Any], Any] = {}

    def with_defaults(self, defaults: Mapping[str, EffectiveValue]) -> "Setup":
        """Return the setup with defaults of ours in place of the trainer's, on the same Python, cards and launcher."""
        other = Setup(self.profile, self.facts, defaults)
        other.__dict__.update({name: getattr(self, name) for name in _MACHINE_PARTS})
        return other

    def for_attempt(self, effective_profile: Profile) -> "Setup":
        """Return the setup of another attempt by its effective profile; all else is shared."""
        # Of what the copies share, these two follow from the effective profile, which is replaced.
        _ = self.ladder_context, self.effective_profile_of_first_attempt
        other = copy(self)
        other.__dict__.pop("trainer_options", None)
        other.__dict__.update(effective_profile=effective_profile, _answer_by_question={})
        return other

    def cached_answer(self, question: "Callable[[Setup], _Answer]") -> _Answer:
        """Return the answer to a question of a layer above, asked once."""
        if question not in self._answer_by_question:
            self._answer_by_question[question] = question(self)
        answer: _Answer = self._answer_by_question[question]
        return answer

    @property
    def preset_error(self) -> BadInput | None:
        """The error that the recipe half raises, such as an unknown preset; None if there is none."""
        return self._preset if isinstance(self._preset, BadInput) else None

    # The machine half

    @cached_property
    def toolchain(self) -> Toolchain | None:
        """The Python that trains; None where none here can."""
        return pick_toolchain(self.profile, self.facts)

    @cached_property
    def pythons_and_why_unusable(self) -> tuple[tuple[Toolchain, str], ...]:
        """Each Python of the machine with why it cannot train the profile, empty where it can."""
        return tuple((tool, why_python_unusable(self.profile, tool)) for tool in self.facts.toolchains)

    @cached_property
    def gpu_verdicts(self) -> tuple[GpuVerdict, ...]:
        """The verdict on each card of the machine with this Python."""
        return gpu_verdicts(self.facts.machine.gpus, self.toolchain, self.facts.machine.driver_cuda)

    @cached_property
    def _chosen_cards(self) -> tuple[Gpu, ...]:
        """The cards that are named or recommended."""
        hardware, cards = self.profile.hardware, self.facts.machine.gpus
        if hardware.device == "cpu":
            return ()
        if not hardware.gpus:
            usable = recommended_uuids(cards, self.gpu_verdicts)
            return tuple(card for card in cards if card.uuid and card.uuid in usable)
        named = [matching[0] for name in hardware.gpus if len(matching := find_gpus_by_identifier(cards, name)) == 1]
        return tuple(card for card in cards if card.uuid and card in named)

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """The cards that train."""
        cards = self._chosen_cards
        if not cards or LAUNCHERS[self.launcher].starts_several_processes or self.profile.hardware.gpus:
            return cards
        return (max(cards, key=lambda card: approximate_teraflops(card) or 0.0),)

    @cached_property
    def device(self) -> Literal["cpu", "cuda"]:
        """The kind of device that trains."""
        return "cuda" if self._chosen_cards or self.profile.hardware.device == "cuda" else "cpu"

    @cached_property
    def launcher(self) -> LauncherName:
        """The launcher that starts the processes."""
        cards = self._chosen_cards[:1] if self.starts_one_process_by_default else self._chosen_cards
        return choose_profile_launcher(self.profile, cards, reads_ranks=bool(self.line_needing_ranks_text))

    @cached_property
    def starts_one_process_by_default(self) -> bool:
        """Whether the script surely makes no process group, and nothing is chosen that takes several processes."""
        profile, source = self.profile, self.script_source
        return (
            source is not None
            and source.no_process_group
            and not profile.hardware.gpus
            and profile.hardware.processes < 2
            and profile.nodes.machine_count == 1
            and not self.is_slurm_job
        )

    @cached_property
    def script_source(self) -> ScriptSource | None:
        """The facts of the script's source, None if it was not read."""
        if isinstance(self._preset, BadInput):
            return None
        return given_arguments.script_source(self.profile, self.facts, self._preset)

    @cached_property
    def line_needing_ranks_text(self) -> str:
        """The line of the script that fails unless a launcher sets the ranks, as text; empty for none."""
        source = self.script_source
        if source is None or not source.rank_line:
            return ""
        does = "reads" if source.rank_name.isupper() else "calls"
        return f"line {source.rank_line} of {visible(Path(self.profile.trainer.script).name)} {does} {source.rank_name}"

    @cached_property
    def first_machine_process_count(self) -> int:
        """The processes of the first machine: as chosen, else one a card, on the CPU as the machines have them."""
        if chosen := self.profile.hardware.processes:
            return chosen
        nodes = self.profile.nodes
        if self.device == "cuda":
            return max(len(self._chosen_cards), 1) if LAUNCHERS[self.launcher].starts_several_processes else 1
        return nodes.processes[0] if nodes.processes and nodes.machine_count > 1 else 1

    @cached_property
    def world_size(self) -> int:
        """The processes of all machines."""
        return self.profile.nodes.world_size(self.first_machine_process_count)

    @cached_property
    def model_copies(self) -> int:
        """The copies of the model that take samples of their own: one a process, unless NeMo splits it."""
        return self.trainer.data_parallel_copy_count(self.world_size)

    @cached_property
    def communication_backend(self) -> str:
        """The communication backend of the processes, empty for a single one."""
        if self.world_size < 2:
            return ""
        chosen = self.profile.communication.backend
        return chosen if chosen != "auto" else "nccl" if self.device == "cuda" else "gloo"

    @property
    def communication_test_key(self) -> str:
        """The key of a test of this communication; a digest, because variables may be secrets."""
        profile = self.profile
        python = self.toolchain.python if self.toolchain else ""
        return content_digest(
            json.encode(
                (
                    self.facts.other_machine,
                    self.facts.scheduler,
                    profile.container,
                    python,
                    self.toolchain.torch if self.toolchain else None,
                    self.launcher,
                    [gpu.uuid for gpu in self.gpus],
                    self.world_size,
                    profile.nodes,
                    profile.communication,
                    profile.trainer.environment,
                )
            )
        )

    @cached_property
    def launcher_config(self) -> Mapping[str, Any]:
        """The user's own config of the launcher, empty if none is read."""
        return launcher_config.usable_launcher_config(self.profile, self.facts, self.launcher, self.device)

    @property
    def is_slurm_job(self) -> bool:
        """Return whether Slurm chooses machines and cards at the start."""
        return self.facts.scheduler == "slurm"

    # The recipe half

    @cached_property
    def _profile_with_data_values(self) -> Profile:
        """The chosen profile with what follows from the data."""
        profile = self.profile
        for key, held in self.data_values_by_key.items():
            profile = fields.profile_with_value(profile, key, held.value)
        return profile

    @cached_property
    def trainer(self) -> Trainer:
        """The trainer of the chosen profile, with the values that follow from the data."""
        return trainer_of(self._profile_with_data_values, self.toolchain, self.facts)

    @cached_property
    def _preset(self) -> Preset | BadInput:
        try:
            return self.trainer.preset
        except BadInput as error:
            return error

    @cached_property
    def preset(self) -> Preset:
        """The preset that passes the recipe, with the defaults on these cards; raises `preset_error`."""
        if isinstance(self._preset, BadInput):
            raise self._preset
        cards = self.gpus if self.device == "cuda" else ()
        precision = ("bf16" if do_all_support_bf16(cards) else "fp16") if cards else "fp32"
        by_cards = {"precision": precision} if self.trainer.defaults_precision_to_gpus else {}
        ours = {name: held.value for name, held in self._defaults.items()}
        return replace(self._preset, defaults={**self._preset.defaults, **by_cards, **ours})

    @property
    def nemo_flavour(self) -> NemoFlavour | None:
        """The flavour of NeMo that trains, None for other trainers."""
        return self.trainer.nemo_flavour

    @cached_property
    def accepted_placeholders(self) -> frozenset[str]:
        """The placeholders whose values reach the trainer or its launcher."""
        accepted = self.trainer.accepted_placeholders()
        by_launcher = trainer_has_own_field(self.profile, "trainer.script") and LAUNCHERS[self.launcher].sets_precision
        return accepted | {"precision"} if by_launcher else accepted

    @property
    def config_document(self) -> YamlDocument | None:
        """The trainer's own file, None where it was not read."""
        return self.facts.documents.get(self.profile.trainer.config)

    @cached_property
    def effective_values(self) -> dict[str, EffectiveValue]:
        """The values in force by their name in the recipe."""
        profile = self._profile_with_data_values
        by_launcher = launcher_config.recipe_values_of_config(profile, self.preset, self.launcher_config)
        values = effective_values(self.trainer, self.preset, self.config_document, self.model_copies, by_launcher)
        return values | {name: held for name, held in self._defaults.items() if is_unset_by_user(values[name])}

    @cached_property
    def effective_profile(self) -> Profile:
        """The profile with the values in force, None where unknown: of the first attempt, or that of `for_attempt`."""
        return auto_preset.profile_with_shipped_preset_for_auto(
            with_effective_values(self._profile_with_data_values, self.effective_values), self.facts.sources
        )

    @cached_property
    def effective_profile_of_first_attempt(self) -> Profile:
        """The effective profile of the first attempt."""
        return self.effective_profile

    @cached_property
    def trainer_options(self) -> TrainerOptions:
        """The options of the trainer as it is started in this attempt, by the names that its library has."""
        by_trainer = trainer_of(self.effective_profile).library_options()
        return TrainerOptions({**by_trainer, **script_options(self.effective_profile, self.facts.documents)})

    @cached_property
    def user_output_folder(self) -> str:
        """The output folder that the user's arguments or file name, empty where they name none."""
        return user_output_folder(self.profile, self.preset, self.config_document)

    # The ladder

    @cached_property
    def ladder_context(self) -> LadderContext:
        """The facts that the fallbacks depend on."""
        profile, trainer = self._profile_with_data_values, self.trainer
        loads_model = bool(profile.trainer.model) and "model" in self.accepted_placeholders
        refused = self._refusal_by_fallback_rung()
        batch_not_set = "micro_batch" not in refused and self._is_batch_unset()
        if batch_not_set:
            refused["micro_batch"] = blocked_fallbacks.BATCH_NOT_SET_REASON
        return LadderContext(
            world_size=self.model_copies,
            on_cuda=self.device == "cuda",
            accepted_placeholders=self.accepted_placeholders - MODEL_SIZE_PLACEHOLDERS
            if loads_model
            else self.accepted_placeholders,
            loads_model=loads_model,
            refusal_by_rung=refused,
            why_no_fallbacks=blocked_fallbacks.why_no_fallbacks(profile, self.facts),
            eval_batch=blocked_fallbacks.eval_batch_of_file_or_preset(self.preset, self.config_document),
            evaluates=trainer.may_evaluate(),
            is_batch_unset=batch_not_set,
            min_micro_batch=trainer.min_micro_batch(),
        )

    def _refusal_by_fallback_rung(self) -> dict[str, str]:
        unsharded = self._why_sharding_refused()
        offload = unsharded or blocked_fallbacks.why_host_memory_below_gpu_memory(
            self.gpus, self.facts.machine.memory_total
        )
        refused = blocked_fallbacks.refusal_by_fallback(
            self.effective_profile, self.preset, self.toolchain, self.config_document, self.gpus
        )
        # A value set in another form, such as "offload", is the user's own choice.
        by_user = {
            name: blocked_fallbacks.you_set_reason(held.other_form_text)
            for name, held in self.effective_values.items()
            if held.other_form_text and held.value is None
        }
        recipe = self.effective_profile.recipe
        # A fallback that switches something on has the name of that field.
        on = {name: "already on" for name, value in asdict(recipe).items() if value is True}
        return {"sharding": unsharded, "offload": offload, **on, **refused, **by_user}

    def _is_batch_unset(self) -> bool:
        """Return whether the batch is unknown, or only assumed from the defaults of a library that a script may use."""
        recipe = self.effective_profile.recipe
        if recipe.micro_batch is None or recipe.global_batch is None:
            return True
        sources = {self.effective_values[name].source for name in ("micro_batch", "global_batch")}
        is_script = trainer_has_own_field(self.profile, "trainer.script")
        own_script = is_script and script_or_module_to_start(self.profile, self.preset) != self.preset.module
        return own_script and any(source.endswith("default") for source in sources)

    def _why_sharding_refused(self) -> str:
        if self.device != "cuda":
            return "only for GPUs"
        if "fsdp2" not in self.preset.strategies:
            return "only for trainers known to go through accelerate"
        if self.launcher not in (launchers := launchers_supporting("fsdp2")):
            return f"only under {' or '.join(launchers)}"
        tool = self.toolchain
        torch = tool.torch if tool else None
        if self.communication_backend == "gloo" and (
            why := communication.why_gloo_trains_wrongly(sharded=True, torch=torch)
        ):
            return why
        return f"the chosen Python {old}" if tool and (old := why_too_old_for_fsdp2(tool)) else ""
