"""What `cluster.*` means in a pod: resources, nodes, rights; BadInput for what Kubernetes refuses."""

import re
from collections.abc import Iterator
from typing import Any

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.plan.render.manifests.cluster import ClusterPlan

GPU_RESOURCE_NAME = "nvidia.com/gpu"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_TOLERATION_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_QUANTITY_PATTERN = re.compile(r"[1-9]\d{0,15}([KMGTPE]i|[kMGTPE])?", re.ASCII)
_COUNT_PATTERN = re.compile(r"[1-9]\d{0,5}", re.ASCII)
_DNS_NAME_PATTERN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)
_LABEL_VALUE_PATTERN = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_LABEL_KEY_PATTERN = re.compile(
    r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?", re.ASCII
)
_USER_PATTERN = re.compile(r"(\d{1,9})(?::(\d{1,9}))?", re.ASCII)


def pod_resources(cluster: ClusterPlan) -> dict[str, Any]:
    """Return the resources of a container, requested and as limits alike: so a pod is the last to be evicted."""
    options = cluster.options
    amounts = {"cpu": str(options.cpus)} if options.cpus else {}
    for key, resource, amount in (
        ("cluster.memory", "memory", options.memory),
        ("cluster.disk", "ephemeral-storage", options.disk),
    ):
        if amount and not _QUANTITY_PATTERN.fullmatch(amount):
            raise BadInput(f"{key}: {visible(amount)} is no quantity of Kubernetes", "Write it as 64Gi or 500Mi.")
        amounts |= {resource: amount} if amount else {}
    if cluster.gpus:
        amounts[GPU_RESOURCE_NAME] = str(cluster.gpus)
    for word in options.resources:
        name, count = _parse_label_key_and_value("cluster.resources", word, "rdma/hca=1")
        if "/" not in name or not _COUNT_PATTERN.fullmatch(count) or name in amounts:
            remedy = "Name each once, as rdma/hca=1; the number of GPUs, cluster.cpus and cluster.memory are apart."
            raise BadInput(f"cluster.resources: {visible(word)} is no extended resource", remedy)
        amounts[name] = count
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}


def pod_placement_and_pull_secrets(cluster: ClusterPlan) -> dict[str, Any]:
    """Return the fields of a pod that say on which nodes it may run, and how its image is pulled."""
    options = cluster.options
    for secret in options.pull_secrets:
        _require_dns_name("cluster.pull_secrets", secret, "the name of a Secret", "`kubectl get secrets`")
    labels = dict(_parse_label_key_and_value("cluster.node_labels", word, "gpu=a100") for word in options.node_labels)
    tolerations = [_toleration(word) for word in options.tolerations]
    secrets = [{"name": name} for name in options.pull_secrets]
    fields = {"nodeSelector": labels, "tolerations": tolerations, "imagePullSecrets": secrets}
    return {name: value for name, value in fields.items() if value}


def _toleration(word: str) -> dict[str, str]:
    """Return what accepts a taint, which is written as `kubectl taint` does."""
    taint, colon, effect = word.partition(":")
    key, equals, value = taint.partition("=")
    valid = _LABEL_KEY_PATTERN.fullmatch(key) and _LABEL_VALUE_PATTERN.fullmatch(value)
    if not valid or (colon and effect not in _TOLERATION_EFFECTS):
        remedy = f"Write KEY, KEY=VALUE or KEY=VALUE:EFFECT; effects are {', '.join(_TOLERATION_EFFECTS)}."
        raise BadInput(f"cluster.tolerations: {visible(word)} names no taint", remedy)
    matched = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {"key": key, **matched, **({"effect": effect} if effect else {})}


def _parse_label_key_and_value(key: str, word: str, example: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not _LABEL_KEY_PATTERN.fullmatch(name) or not _LABEL_VALUE_PATTERN.fullmatch(value):
        raise BadInput(f"{key}: {visible(word)} is not KEY=VALUE as Kubernetes takes it", f"Write it as {example}.")
    return name, value


def _require_dns_name(key: str, text: str, meaning: str, where: str) -> None:
    if not _DNS_NAME_PATTERN.fullmatch(text):
        raise BadInput(f"{key}: {visible(text)} is not {meaning}", f"See {where}.")


def job_labels(cluster: ClusterPlan) -> dict[str, Any]:
    """Return the metadata by which Kueue has the job wait in a queue; nothing without one."""
    queue = cluster.options.queue
    if not queue:
        return {}
    _require_dns_name("cluster.queue", queue, "the name of a queue", "`kubectl get localqueues`")
    return {"labels": {_QUEUE_LABEL: queue}}


def _user_and_group(cluster: ClusterPlan) -> tuple[int, int] | None:
    """Return who the pod runs as, None for the user of the image."""
    text = cluster.options.user
    if not text:
        return None
    numbers = _USER_PATTERN.fullmatch(text)
    if numbers is None:
        raise BadInput(f"cluster.user: {visible(text)} is no user", "Give its number: UID or UID:GID, such as 1000.")
    return int(numbers[1]), int(numbers[2] or numbers[1])


def pod_security_context(cluster: ClusterPlan) -> dict[str, Any]:
    """Return the security context of a pod: its system calls are filtered, and it runs as the chosen user."""
    fields: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if user := _user_and_group(cluster):
        uid, gid = user
        # The group owns what claims hold; large ones are not gone through at each start.
        fields |= {"runAsUser": uid, "runAsGroup": gid, "fsGroup": gid, "fsGroupChangePolicy": "OnRootMismatch"}
        fields |= {"runAsNonRoot": True} if uid else {}
    return fields


def container_security_context(cluster: ClusterPlan) -> dict[str, Any]:
    """Return the security context of a container: as PodSecurity `restricted` has it, where its user is not root.

    Root keeps the capabilities of the runtime, without which it could not write to another user's folders.
    """
    user = _user_and_group(cluster)
    capabilities = {"drop": ["ALL"]} if user and user[0] else {}
    capabilities |= {"add": ["IPC_LOCK"]} if cluster.options.ipc_lock else {}
    return {"allowPrivilegeEscalation": False, **({"capabilities": capabilities} if capabilities else {})}


def pod_option_notes(cluster: ClusterPlan) -> Iterator[str]:
    """Yield what a namespace with a quota or with PodSecurity would refuse, and why."""
    options, user = cluster.options, _user_and_group(cluster)
    if missing := [key for key in ("cpus", "memory") if not getattr(options, key)]:
        names = " and ".join(f"cluster.{key}" for key in missing)
        yield f"A namespace with a ResourceQuota refuses pods without requests and limits: {names}."
    if user is None or user[0] == 0:
        yield "PodSecurity `baseline` takes these pods, `restricted` only with a user that is not root: cluster.user."
    if options.ipc_lock:
        yield "PodSecurity `baseline` refuses IPC_LOCK (cluster.ipc_lock): the namespace must be `privileged`."
        if user and user[0]:
            yield "IPC_LOCK has no effect for a user other than root: leave cluster.user or cluster.ipc_lock out."
    if options.pull_secrets:
        names = ", ".join(options.pull_secrets)
        yield f"The image is pulled with these Secrets, which must be in the namespace: {names}."
