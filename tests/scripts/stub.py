"""Stands in for the interpreter that trains: notes its words, environment and folder, byte for byte."""

import json
import os
import sys
import time

if sys.argv[1:5] == ["-I", "-S", "-X", "utf8"]:
    # So the supervisor is started, which a real interpreter runs as well.
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606
with open("/proc/self/environ", "rb") as file:
    pairs = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if entry]
told = {"argv": sys.argv, "env": {name: value for name, _, value in pairs}, "cwd": os.getcwd()}
os.makedirs(os.environ["STUB_NOTES"], exist_ok=True)
with open(f"{os.environ['STUB_NOTES']}/{time.time_ns()}.json", "w") as file:
    json.dump(told, file)
print(os.environ.get("STUB_SAYS", ""), end=os.environ.get("STUB_END", "\n"))
sys.exit(int(os.environ.get("STUB_CODE", "0")))
