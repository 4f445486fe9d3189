"""Writes the schemas of this folder again, in a Python that has the packages of README.md."""

import json
from pathlib import Path
from typing import Any

from kubeflow_trainer_api import models
from sky.utils import schemas

MODELS = {
    "jobset": models.JobsetV1alpha2JobSet,
    "trainjob": models.TrainerV1alpha1TrainJob,
    "configmap": models.IoK8sApiCoreV1ConfigMap,
}


def strict(value: Any) -> Any:
    """A schema without its texts that refuses unknown keys, which these models would let pass."""
    if isinstance(value, list):
        return [strict(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: strict(item) for key, item in value.items() if key not in {"description", "title", "default"}}
    if "actual_instance" in value.get("properties", ()):
        # A quantity or a port, which is a number or a text: the class around it is the generator's own.
        return strict(value["properties"]["actual_instance"])
    if isinstance(value.get("properties"), dict):
        made["properties"] = {key: strict(item) for key, item in value["properties"].items()}
        made["additionalProperties"] = False
    return made


def write(name: str, schema: Any) -> None:
    text = json.dumps(schema, separators=(",", ":"), sort_keys=True)
    Path(__file__).with_name(f"{name}.json").write_text(f"{text}\n")


for name, model in MODELS.items():
    write(name, strict(model.model_json_schema()))
write("skypilot-task", schemas.get_task_schema())
write("skypilot-resources", schemas.get_resources_schema())
