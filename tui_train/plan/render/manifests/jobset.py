"""A JobSet: one Indexed Job, each of whose pods is a machine of the plan."""

from tui_train.plan.render.manifests import kubernetes
from tui_train.plan.render.manifests.cluster import ClusterPlan, RenderedManifest

LABEL: str = "JobSet of Kubernetes"
FILE_NAME: str = "jobset.yaml"
ACCEPTS_CLAIMS: bool = True

_JOB_NAME = "nodes"


def first_machine_address(run_name: str) -> str:
    """Return the name of the first pod, which JobSet keeps stable."""
    return f"{run_name}-{_JOB_NAME}-0-0.{run_name}"


def render_manifest(cluster: ClusterPlan) -> RenderedManifest:
    """Return the ConfigMap and the JobSet; BadInput where they cannot hold the plan."""
    kubernetes.refuse_plan_unfit_for_pods(cluster)
    volumes, mounted = kubernetes.pod_volumes_and_mounts(cluster)
    nodes, name = cluster.plan.nodes, cluster.name
    resources = kubernetes.pod_resources(cluster)
    container = {
        "name": "training",
        "image": cluster.image,
        "command": kubernetes.pod_command(cluster, "JOB_COMPLETION_INDEX"),
        "env": kubernetes.pod_variables(cluster),
        **({"resources": resources} if resources else {}),
        "volumeMounts": mounted,
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": kubernetes.pod_grace_seconds(cluster),
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
            "replicatedJobs": [{"name": _JOB_NAME, "replicas": 1, "template": {"spec": job}}],
        },
    }
    needs = "For the JobSet controller in the cluster."
    failed = "A pod that fails is not started again: delete the JobSet and apply it once more."
    return kubernetes.render_with_config_map(cluster, FILE_NAME, document, needs, failed)
