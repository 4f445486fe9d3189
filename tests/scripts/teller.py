"""Tells numbered lines, and a bar (its end of line is the fourth word), for so many steps; ends with a code."""

import sys
import time

steps, pause, code, end = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), "".join(sys.argv[4:])
for step in range(steps):
    sys.stderr.write(f"\rbar {step:05d}|{end}")
    sys.stderr.flush()
    print(f"line {step:05d}.", flush=True)
    time.sleep(pause)
print("no end of line", end="", flush=True)
sys.exit(code)
