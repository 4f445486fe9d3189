"""Rows of what a manifest asks of Kubernetes or SkyPilot."""

from tui_train.profile.rows.field import make_field

CLUSTER_ROWS = (
    make_field(
        "cluster.cpus",
        "CPU cores of a pod",
        "CPU cores of each pod, requested and as its limit. A namespace with a quota wants them. 0: none named.",
        limits=(0, 4096),
    ),
    make_field(
        "cluster.memory",
        "Memory of a pod",
        "Main memory of each pod, requested and as its limit, such as 64Gi. It includes /dev/shm.",
        empty="none named",
    ),
    make_field(
        "cluster.disk",
        "Disk of a pod",
        "Disk of the node for caches and logs of each pod (ephemeral-storage), such as 100Gi.",
        empty="none named",
    ),
    make_field(
        "cluster.resources",
        "Extended resources",
        "Further resources of each pod, each NAME=COUNT, such as rdma/hca=1 for InfiniBand.",
        empty="none",
    ),
    make_field(
        "cluster.node_labels",
        "Node labels",
        "Labels that a node must have, each KEY=VALUE, such as nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB.",
        empty="any node",
    ),
    make_field(
        "cluster.tolerations",
        "Tolerations",
        "Taints of nodes that pods accept, each KEY, KEY=VALUE or KEY=VALUE:EFFECT, such as nvidia.com/gpu.",
        empty="none",
    ),
    make_field(
        "cluster.pull_secrets",
        "Pull secrets",
        "Names of the Secrets with which the image is pulled; they must exist in the namespace.",
        kind="names",
        empty="none",
    ),
    make_field(
        "cluster.queue", "Kueue queue", "LocalQueue of Kueue in which the job waits for its resources.", empty="none"
    ),
    make_field(
        "cluster.user",
        "User in the pod",
        "UID or UID:GID of the training, such as 1000. PodSecurity `restricted` wants one that is not root.",
        empty="the image's",
    ),
    make_field(
        "cluster.ipc_lock",
        "IPC_LOCK",
        "Adds the capability to lock memory, for RDMA. PodSecurity `baseline` refuses it.",
    ),
    make_field(
        "cluster.host_paths",
        "Paths of the node",
        "yes: takes what lies on no claim from the disk of the node (hostPath), which PodSecurity refuses.",
    ),
    make_field(
        "cluster.restarts",
        "Restarts",
        "How often a training that failed or was preempted starts again, from its newest checkpoint.",
        limits=(0, 1000),
    ),
    make_field(
        "cluster.ttl",
        "Removed after",
        "Seconds after its end until a JobSet is removed, with the logs of its pods. 0: it stays.",
        limits=(0, 31_536_000),
    ),
    make_field(
        "cluster.spot",
        "Spot machines",
        "SkyPilot: spot machines, which are cheaper and may be taken away; a managed job is then recovered.",
    ),
    make_field(
        "cluster.autostop",
        "Stopped when idle",
        "SkyPilot: minutes without a job after which the machines are stopped. 0: they run until you end them.",
        limits=(0, 100_000),
    ),
)
