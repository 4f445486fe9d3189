"""MANIFESTS: what a plan is exported for besides bash, one module each."""

from typing import Protocol

import msgspec

from tui_train.base.errors import BadInput
from tui_train.profile.types import Profile
from tui_train.render.manifests import jobset, skypilot, trainjob
from tui_train.render.manifests.cluster import Claim, Cluster, for_cluster, label
from tui_train.render.manifests.made import Made
from tui_train.resolve.naming import name_of

__all__ = ["MANIFESTS", "Claim", "Cluster", "Made", "Manifest", "for_cluster", "placed"]


class Manifest(Protocol):
    """A file by which a cluster runs a plan; it is written beside launch.sh and submitted by nobody here.

    CLAIMS: volumes of the cluster can be named.
    """

    LABEL: str
    FILE: str
    CLAIMS: bool

    def address(self, name: str) -> str:
        """Return the address of the first machine of a run with this name."""
        ...

    def manifest(self, cluster: Cluster) -> Made:
        """Return the file; BadInput where it cannot hold the plan."""
        ...


MANIFESTS: dict[str, Manifest] = {"jobset": jobset, "trainjob": trainjob, "skypilot": skypilot}


def placed(profile: Profile, kind: str) -> Profile:
    """Return a profile with the address that the first of its machines has in such a cluster."""
    if profile.nodes.machines == 1:
        return profile
    if profile.nodes.uneven:
        raise BadInput("a manifest gives each machine as many processes", "Leave nodes.processes out.")
    address = MANIFESTS[kind].address(label(name_of(profile)))
    # Its machines are the cluster's, whatever their names are elsewhere.
    nodes = msgspec.structs.replace(profile.nodes, count=profile.nodes.machines, hosts=(), address=address)
    return msgspec.structs.replace(profile, nodes=nodes)
