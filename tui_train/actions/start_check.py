"""A profile that is to start at once: the look at where it trains, and what forbids the start."""

from tui_train.actions.machine_facts import FactsSource, source_for_profile
from tui_train.actions.training_hosts import probe_facts_for_start
from tui_train.checks import Finding
from tui_train.memory.data_defaults import set_up
from tui_train.places.place import Place
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.profile.store import store_webhook_of_profile
from tui_train.profile.types import Profile


def prepare_plan_and_place(profile: Profile) -> tuple[PreparedPlan, Place]:
    """Return what starting a profile takes and what was found, and where it starts; takes up to some seconds."""
    kept = store_webhook_of_profile(profile)
    return prepare_plan(set_up(kept, probe_facts_for_start(kept, FactsSource()))), source_for_profile(
        kept, FactsSource()
    ).place


def findings_forbidding_start(prepared: PreparedPlan) -> tuple[Finding, ...]:
    """Return the findings that forbid a start: a plan may be exported with errors that would stop it here."""
    return tuple(finding for finding in prepared.findings if finding.level == "error")
