"""Cards are named as people name them, and the plan has their whole UUIDs."""

import pytest
from fake_driver import run_cli_on_machine
from support import UUIDS, export_run, facts, findings_of, gpu, plain_environment, plan, profile, run_launch_script

from tui_train.facts.gpus.verdicts import find_gpus_by_identifier

MIG = tuple(gpu(7, f"MIG-{number}aaaa") for number in (1, 2))
CARDS = (gpu(0), gpu(1), *MIG)
WHERE = facts(gpus=CARDS[:2])


ONE = "01", UUIDS[1], "GPU-ff", "gpu-FF67", "00000000:01:00.0", "0000:01:00.0", "01:00.0"
NONE = "", "9", "-1", "GPU-", "MIG-", "GPU", "ff67", "0001:01:00.0", "02:00.0", "٣", "9" * 5000, "x"
NAMES = {
    "0": (0,),
    "MIG-2": (7,),
    "7": (7, 7),
    "07:00.0": (7, 7),
    **dict.fromkeys(ONE, (1,)),
    **dict.fromkeys(NONE, ()),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_called_by(name):
    assert tuple(card.index for card in find_gpus_by_identifier(CARDS, name)) == NAMES[name]


def test_the_plan_and_the_script_have_the_whole_uuids(tmp_path):
    for names in (("01:00.0",), ("1", UUIDS[1], "GPU-ff67")):
        chosen = profile({"hardware.gpus": names})
        assert findings_of(chosen, WHERE) == ()
        assert plan(chosen, WHERE).gpus == UUIDS[1:]
    run, made = export_run(tmp_path / "run", profile({"hardware.gpus": ("1", "0")}), WHERE)
    assert made.gpus == UUIDS
    shown = run_launch_script(run, "--dry-run", env=plain_environment()).stdout.decode()
    assert f"CUDA_VISIBLE_DEVICES={','.join(UUIDS)}" in shown.replace("\\,", ",")
    assert made.launcher == "torchrun"


def test_what_is_not_plain_is_refused_with_the_cards_to_choose_from():
    (error,) = findings_of(profile({"hardware.gpus": ("2",)}), WHERE)
    assert f"GPU 1 00000000:01:00.0 {UUIDS[1]} NVIDIA GeForce RTX 3090" in error.remedy
    (error,) = findings_of(profile({"hardware.gpus": ("7",)}), facts(gpus=CARDS))
    assert ("MIG-1aaaa" in error.remedy, UUIDS[0] in error.remedy) == (True, False)


@pytest.mark.whole
def test_facts_print_the_names_that_plan_takes():
    shown = run_cli_on_machine("facts", on="two-3090").stdout
    assert all(uuid in shown for uuid in UUIDS)
    said = run_cli_on_machine("plan", "quickstart", "--set=hardware.gpus=1", on="two-3090", code=69).stderr
    assert "GPU 1 NVIDIA GeForce RTX 3090 cannot train" in said
