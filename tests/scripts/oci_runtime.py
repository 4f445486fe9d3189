"""Stands in for runc: leaves out the limits that a machine without full rights may not set, then is runc."""

import json
import os
import resource
import shutil
import sys

words = sys.argv[1:]
runc = shutil.which("runc", path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin")


def possible(limit):
    allowed = resource.getrlimit(getattr(resource, limit["type"]))[1]
    return allowed == resource.RLIM_INFINITY or (limit["hard"] < 2**63 and limit["hard"] <= allowed)


if {"create", "run"} & {*words}:
    bundle = next((words[at + 1] for at, word in enumerate(words) if word in {"--bundle", "-b"}), os.getcwd())
    with open(f"{bundle}/config.json") as file:
        asked = json.load(file)
    asked["process"]["rlimits"] = [limit for limit in asked["process"].get("rlimits", []) if possible(limit)]
    with open(f"{bundle}/config.json", "w") as file:
        json.dump(asked, file)
os.execv(runc, ["runc", *words])  # noqa: S606
