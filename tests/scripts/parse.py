"""Let torchrun or accelerate launch read command lines with their own parsers, and say what they understood.

Reads {"tool": "torchrun" or "accelerate", "lines": [[word, ...], ...]} from stdin; prints {"version", "found": [...]}.
"""

import json
import os
import sys


def torchrun(words):
    """What torchrun would do."""
    from torch.distributed import run

    seen = {}
    run.elastic_launch = lambda config, entrypoint: lambda *_: seen.update(config=config, entrypoint=entrypoint)
    args = run.get_args_parser().parse_args(words)
    run.run(args)
    config = seen["config"]
    return {
        "nodes": [config.min_nodes, config.max_nodes],
        "processes": config.nproc_per_node,
        "restarts": config.max_restarts,
        "rendezvous": config.rdzv_backend,
        "endpoint": config.rdzv_endpoint,
        "rank": config.rdzv_configs.get("rank"),
        "address": config.local_addr,
        "script": args.training_script,
    }


def plugin(variables):
    """Make of the variables what a script's Accelerator makes of them; it refuses some."""
    from accelerate.utils import FullyShardedDataParallelPlugin

    before = dict(os.environ)
    os.environ.update(variables)
    try:
        FullyShardedDataParallelPlugin()
    finally:
        os.environ.clear()
        os.environ.update(before)


def accelerate(words):
    """What accelerate launch would do: which of its launchers, with which variables."""
    import yaml
    from accelerate.commands import launch
    from accelerate.utils import launch as env

    parser = launch.launch_command_parser()
    args = parser.parse_args(words)
    with open(args.config_file) as file:
        told = yaml.safe_load(file)
    inner = {**told.get("fsdp_config", {}), **told.get("deepspeed_config", {})}
    seen = {}
    for name in ("deepspeed_launcher", "multi_gpu_launcher", "simple_launcher"):
        setattr(launch, name, lambda args, name=name: seen.update(name=name, args=args))
    launch.launch_command(args)
    before, args = dict(os.environ), seen["args"]
    if seen["name"] == "multi_gpu_launcher":
        after = env.prepare_multi_gpu_env(args)
    else:
        make = "deepspeed" if seen["name"] == "deepspeed_launcher" else "simple_launcher"
        after = getattr(env, f"prepare_{make}_cmd_env")(args)[1]
    if args.use_fsdp:
        plugin(after)
    return {
        "launcher": seen["name"],
        # Keys in there that it does not know are dropped without a word.
        "ignored": sorted(key for key in inner if not hasattr(args, key)),
        "env": {name: value for name, value in after.items() if before.get(name) != value},
        "processes": str(getattr(args, "nproc_per_node", "")),
        "machines": args.num_machines,
        "rank": args.machine_rank,
        "address": str(getattr(args, "master_addr", "")),
        "port": str(getattr(args, "master_port", "")),
        "static": getattr(args, "rdzv_backend", ""),
    }


asked = json.load(sys.stdin)
version = __import__("torch" if asked["tool"] == "torchrun" else "accelerate").__version__
found = []
for line in asked["lines"]:
    try:
        found.append({"torchrun": torchrun, "accelerate": accelerate}[asked["tool"]](line))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what a tool refuses is what is asked
        found.append({"refused": repr(error)})
print(json.dumps({"version": version, "found": found}))
