"""A Kubeflow TrainJob for the runtime `torch-distributed`, whose pods run launch.sh."""

from tui_train.plan.render.manifests import kubernetes, pod_options
from tui_train.plan.render.manifests.cluster import ClusterPlan, RenderedManifest

LABEL: str = "TrainJob of Kubeflow Trainer"
FILE_NAME: str = "trainjob.yaml"
ACCEPTS_CLAIMS: bool = True

_RUNTIME_NAME = "torch-distributed"
# The name of the runtime's job, and of the container in it.
_JOB_NAME = "node"
_PATCH_MANAGER_NAME = "tui-train"


def first_machine_address(run_name: str) -> str:
    """Return the name of the first pod; PET_MASTER_ADDR is the same."""
    return f"{run_name}-{_JOB_NAME}-0-0.{run_name}"


def render_manifest(cluster: ClusterPlan) -> RenderedManifest:
    """Return the ConfigMap and the TrainJob; BadInput where they cannot hold the plan."""
    kubernetes.refuse_plan_unfit_for_pods(cluster)
    volumes, mounted = kubernetes.pod_volumes_and_mounts(cluster)
    name, resources = cluster.name, pod_options.pod_resources(cluster)
    trainer = {
        "image": cluster.image,
        "numNodes": cluster.plan.nodes,
        "numProcPerNode": cluster.plan.world_size // cluster.plan.nodes,
        "command": kubernetes.pod_command(cluster, "PET_NODE_RANK"),
        "env": kubernetes.pod_variables(cluster),
        **({"resourcesPerNode": resources} if resources else {}),
    }
    pod = {
        "terminationGracePeriodSeconds": kubernetes.pod_grace_seconds(cluster),
        "securityContext": pod_options.pod_security_context(cluster),
        **pod_options.pod_placement_and_pull_secrets(cluster),
        "volumes": volumes,
        "containers": [
            {
                "name": _JOB_NAME,
                "volumeMounts": mounted,
                "securityContext": pod_options.container_security_context(cluster),
            }
        ],
    }
    jobs = [{"name": _JOB_NAME, "template": {"spec": {"template": {"spec": pod}}}}]
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, **pod_options.job_labels(cluster)},
        "spec": {
            "runtimeRef": {"name": _RUNTIME_NAME},
            "trainer": trainer,
            "runtimePatches": [
                {
                    "manager": _PATCH_MANAGER_NAME,
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
                }
            ],
        },
    }
    needs = "For Kubeflow Trainer 2.2 or newer in the cluster (spec.runtimePatches)."
    failed = f"The ClusterTrainingRuntime {_RUNTIME_NAME} says how often a pod that fails is started again."
    unused = cluster.unused_option_notes(LABEL, kubernetes.POD_OPTION_NAMES)
    after_failure = (failed, kubernetes.restart_note(cluster), *unused)
    return kubernetes.render_with_config_map(cluster, FILE_NAME, document, needs, after_failure)
