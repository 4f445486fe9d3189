"""Stands in for the interpreter that trains: notes its words, environment and folder, byte for byte."""

import json
import os
import sys
import time

if "launch" in sys.argv and any(word.endswith("/supervisor") for word in sys.argv):
    os.execv(  # noqa: S606
        sys.executable, [sys.executable, *sys.argv[1:]]
    )
with open("/proc/self/environ", "rb") as file:
    pairs = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if entry]
told = {"argv": sys.argv, "env": {name: value for name, _, value in pairs}, "cwd": os.getcwd()}
os.makedirs(os.environ["STUB_NOTES"], exist_ok=True)
with open(f"{os.environ['STUB_NOTES']}/{time.time_ns()}.json", "w") as file:
    json.dump(told, file)
print(os.environ.get("STUB_SAYS", ""), end=os.environ.get("STUB_END", "\n"))
sys.exit(int(os.environ.get("STUB_CODE", "0")))
