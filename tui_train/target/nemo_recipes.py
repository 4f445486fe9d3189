"""Say in one line of JSON which recipes for language models the NeMo of this interpreter has, by importing it.

Runs in the training interpreter. Its text is passed on the command line, as that of probe.py is. An import that
succeeds proves nothing: NeMo swallows the errors of its own modules, and then a recipe is simply not there.
"""

from __future__ import annotations

import json
import os
import warnings

# These are no causal language models, whose data has another form; hyena_base only helps to write others.
OTHERS = ("bert_", "e5_", "hyena_base", "llama_embedding", "llama_reranker", "t5_")
TASKS = ("pretrain", "finetune")


def recipes() -> dict[str, list[str]]:
    """Return the tasks of each recipe, by its name."""
    from nemo.collections import llm

    found = {}
    for name in sorted(dir(llm)):
        module = getattr(llm, name)
        tasks = [task for task in TASKS if callable(getattr(module, f"{task}_recipe", None))]
        if tasks and not name.startswith(OTHERS):
            found[name] = tasks
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    try:
        told: dict[str, object] = {"recipes": recipes()}
    except BaseException as error:  # noqa: BLE001 - whatever NeMo raises is the answer
        told = {"problem": f"{type(error).__name__}: {error}".strip()[:300]}
    print("\n" + json.dumps(told))
