"""MANIFESTS: what a plan is exported for besides bash, one module each."""

from typing import Protocol

import msgspec

from tui_train.base.errors import BadInput
from tui_train.plan.render.manifests import jobset, skypilot, trainjob
from tui_train.plan.render.manifests.cluster import ClusterPlan, RenderedManifest, to_dns_label
from tui_train.profile.types import Profile
from tui_train.setup.profile_summary import chosen_or_derived_name


class Manifest(Protocol):
    """A file by which a cluster runs a plan; it is written beside launch.sh and submitted by nobody here.

    ACCEPTS_CLAIMS: volumes of the cluster can be named.
    """

    LABEL: str
    FILE_NAME: str
    ACCEPTS_CLAIMS: bool

    def first_machine_address(self, run_name: str) -> str:
        """Return the address of the first machine of a run with this name."""
        ...

    def render_manifest(self, cluster: ClusterPlan) -> RenderedManifest:
        """Return the file; BadInput where it cannot hold the plan."""
        ...


MANIFESTS: dict[str, Manifest] = {"jobset": jobset, "trainjob": trainjob, "skypilot": skypilot}


def with_cluster_address(profile: Profile, manifest_name: str) -> Profile:
    """Return a profile with the address that the first of its machines has in such a cluster."""
    if profile.nodes.machine_count == 1:
        return profile
    if profile.nodes.uneven_processes:
        raise BadInput("a manifest gives each machine as many processes", "Leave nodes.processes out.")
    address = MANIFESTS[manifest_name].first_machine_address(to_dns_label(chosen_or_derived_name(profile)))
    # Its machines are the cluster's, whatever their names are elsewhere.
    nodes = msgspec.structs.replace(profile.nodes, count=profile.nodes.machine_count, hosts=(), address=address)
    return msgspec.structs.replace(profile, nodes=nodes)
