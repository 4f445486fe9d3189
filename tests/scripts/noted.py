"""A script of a user's own that only notes what it is told: its words, its YAML files, its rank and some variables."""

import json
import os
import sys

told = {
    "name": __spec__.name if __spec__ else "",
    "argv": sys.argv[1:],
    "rank": os.environ.get("RANK", "0"),
    "world": os.environ.get("WORLD_SIZE", "1"),
    "cwd": os.getcwd(),
    "mixed": os.environ.get("ACCELERATE_MIXED_PRECISION", ""),
    "files": {},
}
for word in sys.argv[1:]:
    path = word.rpartition("=")[2]
    if path.endswith(".yaml"):
        with open(path) as file:
            told["files"][os.path.basename(path)] = file.read()
with open(f"{os.environ['NOTES']}/{told['rank']}.json", "w") as file:
    json.dump(told, file)
