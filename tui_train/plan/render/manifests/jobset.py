"""A JobSet: one Indexed Job, each of whose pods is a machine of the plan."""

from tui_train.plan.render.manifests import kubernetes
from tui_train.plan.render.manifests.cluster import ClusterPlan, RenderedManifest

LABEL: str = "JobSet of Kubernetes"
FILE: str = "jobset.yaml"
ACCEPTS_CLAIMS: bool = True

_JOB = "nodes"


def address(name: str) -> str:
    """Return the name of the first pod, which JobSet keeps stable."""
    return f"{name}-{_JOB}-0-0.{name}"


def manifest(cluster: ClusterPlan) -> RenderedManifest:
    """Return the ConfigMap and the JobSet; BadInput where they cannot hold the plan."""
    kubernetes.check_cluster(cluster)
    volumes, mounted = kubernetes.volumes(cluster)
    nodes, name = cluster.plan.nodes, cluster.name
    resources = kubernetes.resources(cluster)
    container = {
        "name": "training",
        "image": cluster.image,
        "command": kubernetes.command(cluster, "JOB_COMPLETION_INDEX"),
        "env": kubernetes.variables(cluster),
        **({"resources": resources} if resources else {}),
        "volumeMounts": mounted,
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": kubernetes.grace_seconds(cluster),
        "containers": [container],
        "volumes": volumes,
    }
    job = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    # The name of a pod is then known only once its image is there and it runs: the others wait for that.
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": False}
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "network": network,
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": _JOB, "replicas": 1, "template": {"spec": job}}],
        },
    }
    needs = "For the JobSet controller in the cluster."
    failed = "A pod that fails is not started again: delete the JobSet and apply it once more."
    return kubernetes.render(cluster, FILE, document, needs, failed)
