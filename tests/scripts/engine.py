"""Stands in for docker, podman or apptainer: notes the words of `run` or `exec`, and has any image."""

import json
import os
import sys
import time

verb = sys.argv[1] if len(sys.argv) > 1 else ""
if verb in {"run", "exec"}:
    with open("/proc/self/environ", "rb") as file:
        pairs = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if entry]
    told = {"argv": sys.argv, "env": {name: value for name, _, value in pairs}, "cwd": os.getcwd()}
    os.makedirs(os.environ["STUB_NOTES"], exist_ok=True)
    with open(f"{os.environ['STUB_NOTES']}/{time.time_ns()}.json", "w") as file:
        json.dump(told, file)
    print(os.environ.get("STUB_SAYS", ""))
    sys.exit(int(os.environ.get("STUB_CODE", "0")))
if verb == "info":
    print(os.environ.get("STUB_SECURITY", "[name=seccomp,profile=default]"))
if verb == "image" and os.environ.get("STUB_NO_IMAGE"):
    sys.exit("Error: No such image")
if verb == "ps" and os.environ.get("STUB_SILENT"):
    sys.exit("Cannot connect to the Docker daemon")
sys.exit(1 if verb == "container" else 0)
