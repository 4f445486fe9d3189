"""Prints the recipes for language models of this interpreter as one line of JSON, by importing them.

The word "bridge" behind it asks Megatron-Bridge, else NeMo is asked.

Runs in the training interpreter. Its text is passed on the command line, as that of probe.py is. An import that
succeeds proves nothing: NeMo swallows the errors of its own modules, and then a recipe is simply not there.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings

# These are no causal language models, whose data has another form; hyena_base only helps to write others.
PREFIXES_OF_OTHER_RECIPES = ("bert_", "e5_", "hyena_base", "llama_embedding", "llama_reranker", "t5_")
NEMO_TASKS = ("pretrain", "finetune")
BRIDGE_RECIPE_PATTERN = re.compile("^(.+)_(pretrain|sft|peft)_config$")
TASK_BY_BRIDGE_KIND = {"pretrain": "pretrain", "sft": "finetune", "peft": "lora"}
# Families of models that see, hear or paint.
MULTIMODAL_FAMILY_PATTERN = re.compile("_(vl|omni|audio)$|^(flux|wan|ministral3|stepfun)$")


def nemo_tasks_by_recipe() -> dict[str, list[str]]:
    """Return the tasks of each recipe, by its name."""
    from nemo.collections import llm

    found = {}
    for name in sorted(dir(llm)):
        module = getattr(llm, name)
        tasks = [task for task in NEMO_TASKS if callable(getattr(module, f"{task}_recipe", None))]
        if tasks and not name.startswith(PREFIXES_OF_OTHER_RECIPES):
            found[name] = tasks
    return found


def bridge_tasks_by_recipe() -> dict[str, list[str]]:
    """Return the tasks of each recipe of Megatron-Bridge, by its name."""
    from megatron.bridge import recipes as library

    found: dict[str, list[str]] = {}
    for match in filter(None, map(BRIDGE_RECIPE_PATTERN.match, sorted(dir(library)))):
        name, kind = match.groups()
        module = getattr(getattr(library, match.group()), "__module__", "")
        family = module.partition(".recipes.")[2].partition(".")[0]
        if not MULTIMODAL_FAMILY_PATTERN.search(family) and "_vl_" not in name:
            found.setdefault(name, []).append(TASK_BY_BRIDGE_KIND[kind])
    return {name: [task for task in TASK_BY_BRIDGE_KIND.values() if task in tasks] for name, tasks in found.items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    try:
        answer: dict[str, object] = {
            "tasks": bridge_tasks_by_recipe() if sys.argv[-1] == "bridge" else nemo_tasks_by_recipe()
        }
    except BaseException as error:  # noqa: BLE001 - whatever NeMo raises is the answer
        answer = {"problem": f"{type(error).__name__}: {error}".strip()[:300]}
    print("\n" + json.dumps(answer))
