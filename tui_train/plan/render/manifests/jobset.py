"""A JobSet: one Indexed Job, each of whose pods is a machine of the plan."""

from tui_train.base.text import quantity
from tui_train.plan.render.manifests import kubernetes, pod_options
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
    resources, options = pod_options.pod_resources(cluster), cluster.options
    container = {
        "name": "training",
        "image": cluster.image,
        "command": kubernetes.pod_command(cluster, "JOB_COMPLETION_INDEX"),
        "env": kubernetes.pod_variables(cluster),
        **({"resources": resources} if resources else {}),
        "volumeMounts": mounted,
        "securityContext": pod_options.container_security_context(cluster),
    }
    pod = {
        "restartPolicy": "Never",
        # A training asks nothing of the cluster.
        "automountServiceAccountToken": False,
        "securityContext": pod_options.pod_security_context(cluster),
        **pod_options.pod_placement_and_pull_secrets(cluster),
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
        "metadata": {"name": name, **pod_options.job_labels(cluster)},
        "spec": {
            "network": network,
            "failurePolicy": {"maxRestarts": options.restarts},
            **({"ttlSecondsAfterFinished": options.ttl} if options.ttl else {}),
            "replicatedJobs": [{"name": _JOB_NAME, "replicas": 1, "template": {"spec": job}}],
        },
    }
    needs = "For the JobSet controller in the cluster."
    return kubernetes.render_with_config_map(cluster, FILE_NAME, document, needs, _after_failure_notes(cluster))


def _after_failure_notes(cluster: ClusterPlan) -> tuple[str, ...]:
    restarts = cluster.options.restarts
    again = (
        f"All pods start again where one fails or is preempted, up to {quantity(restarts, 'time')}."
        if restarts
        else "A pod that fails or is preempted is not started again (cluster.restarts): delete the JobSet and apply it "
        "once more."
    )
    unused = cluster.unused_option_notes(LABEL, kubernetes.POD_OPTION_NAMES | {"restarts", "ttl"})
    return (again, kubernetes.restart_note(cluster), *unused)
