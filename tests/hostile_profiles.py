"""Profiles whose every text holds a value that a careless script would split, expand, run or lose."""

import itertools

from support import facts, make_stub, profile

LAUNCHERS_AND_PRESETS = [(launcher, preset) for preset in ("builtin", "hf-trainer", "total-batch", "custom")
        for launcher in ("torchrun", "python", "accelerate")]  # fmt: skip


def as_file_name(value):
    """The value as the name of a file: without what no name can hold."""
    return value.replace("/", "_").replace("\0", "_").replace("..", "__") if value.strip(".") else "empty"


def hostile_profile_and_facts(folder, launcher, preset, values):
    """A profile whose every text field holds one of `values` in turn, and the facts that it is made for."""
    turn = itertools.cycle(values)
    python = make_stub(folder / as_file_name(next(turn)) / as_file_name(next(turn)))
    data = [folder / "data" / as_file_name(next(turn)) for _ in range(3)]
    working = folder / "cwd" / as_file_name(next(turn))
    working.mkdir(parents=True, exist_ok=True)
    words = [next(turn) for _ in range(4)]
    chosen = {
        "name": next(turn).strip() or "x",
        "hardware.processes": 1 if launcher == "python" else 2,
        "trainer.kind": "builtin" if preset == "builtin" else "script",
        "trainer.launcher": launcher,
        "trainer.python": str(python),
        "trainer.preset": preset if preset != "builtin" else "hf-trainer",
        "trainer.arguments": (
            *words,
            f"--batch={{micro_batch}}x{{accumulation}} {next(turn)}",
            "--in={data}",
            "--to={output}",
        ),
        "trainer.working_directory": str(working),
        "trainer.environment": {"PLAIN": "1", **{f"HOSTILE_{number}": next(turn) for number in range(3)}},
        "trainer.data": tuple(map(str, data)),
        "recipe.micro_batch": 2,
        "recipe.global_batch": 16,
        # Each saves memory in the phase that the stub names, so that every attempt is made.
        "ladder.rungs": ("micro_batch", "activation_checkpointing"),
    }
    if preset != "builtin":
        chosen["trainer.script"] = str(folder / "script" / as_file_name(next(turn)))
        chosen["trainer.output"] = str(folder / "out" / as_file_name(next(turn)))
    else:
        chosen["trainer.model"] = str(folder / "model" / as_file_name(next(turn)))
    if any("{steps}" in word for word in chosen["trainer.arguments"]):
        chosen["recipe.steps"] = 60
    return profile(chosen), facts(python=python)
