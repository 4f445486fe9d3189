"""A Kubeflow TrainJob for the runtime `torch-distributed`, whose pods run launch.sh."""

from tui_train.plan.render.manifests import kubernetes
from tui_train.plan.render.manifests.cluster import ClusterPlan, RenderedManifest

LABEL: str = "TrainJob of Kubeflow Trainer"
FILE: str = "trainjob.yaml"
ACCEPTS_CLAIMS: bool = True

_RUNTIME = "torch-distributed"
# The name of the runtime's job, and of the container in it.
_NODE = "node"
_MANAGER = "tui-train"


def address(name: str) -> str:
    """Return the name of the first pod; PET_MASTER_ADDR is the same."""
    return f"{name}-{_NODE}-0-0.{name}"


def manifest(cluster: ClusterPlan) -> RenderedManifest:
    """Return the ConfigMap and the TrainJob; BadInput where they cannot hold the plan."""
    kubernetes.check_cluster(cluster)
    volumes, mounted = kubernetes.volumes(cluster)
    name, resources = cluster.name, kubernetes.resources(cluster)
    trainer = {
        "image": cluster.image,
        "numNodes": cluster.plan.nodes,
        "numProcPerNode": cluster.plan.world_size // cluster.plan.nodes,
        "command": kubernetes.command(cluster, "PET_NODE_RANK"),
        "env": kubernetes.variables(cluster),
        **({"resourcesPerNode": resources} if resources else {}),
    }
    pod = {
        "terminationGracePeriodSeconds": kubernetes.grace_seconds(cluster),
        "volumes": volumes,
        "containers": [{"name": _NODE, "volumeMounts": mounted}],
    }
    jobs = [{"name": _NODE, "template": {"spec": {"template": {"spec": pod}}}}]
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": _RUNTIME},
            "trainer": trainer,
            "runtimePatches": [
                {"manager": _MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
            ],
        },
    }
    needs = "For Kubeflow Trainer 2.2 or newer in the cluster (spec.runtimePatches)."
    failed = f"The ClusterTrainingRuntime {_RUNTIME} says how often a pod that fails is started again."
    return kubernetes.render(cluster, FILE, document, needs, failed)
