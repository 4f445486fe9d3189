"""torchrun, started as a module so that the chosen interpreter runs it."""

from tui_train.base.command import (
    ADDRESS_VARIABLE,
    NODE_RANK_VARIABLE,
    PORT_VARIABLE,
    PROCESSES_VARIABLE,
    CommandPart,
    CommandWord,
    EnvSetting,
    RuntimeVariable,
    join_pieces,
)
from tui_train.launchers.launcher import Launcher


class Torchrun(Launcher):
    """Starts one process per device by torchrun."""

    label = "torchrun"
    description = "one process per device; part of PyTorch"
    starts_several_processes = True
    starts_on_several_machines = True
    allows_uneven_processes = True
    takes_address_as_arguments = True
    sets_ranks = True
    starts_nemo_recipes = True

    def command_parts(self) -> tuple[CommandPart, ...]:
        """Return the torchrun command for one of the machines."""
        command = [CommandPart((self.job.python, "-m", "torch.distributed.run"), "torchrun of this Python")]
        if self.job.nodes == 1:
            command += self._flag_parts("--standalone", None, "one machine: picks a free port")
            command += self._flag_parts("--local-addr", "127.0.0.1", "works where the host name does not resolve")
        else:
            command += self._flag_parts(
                "--nnodes", str(self.job.nodes), "number of machines; each runs this command with its own rank"
            )
            command += self._flag_parts(
                "--node-rank", NODE_RANK_VARIABLE, "0 is the first machine, at the address below"
            )
            command += self._flag_parts("--master-addr", ADDRESS_VARIABLE, "address of the first machine")
            command += self._flag_parts(
                "--master-port",
                PORT_VARIABLE if self.job.is_slurm_job else str(self.job.port),
                "a free port on the first machine",
            )
        processes = PROCESSES_VARIABLE if self.job.uneven_processes else str(self.job.processes)
        command += self._flag_parts("--nproc-per-node", processes, "not auto: that counts all visible GPUs")
        why = "a restart would fail again; the next attempt changes something"
        return (*command, *self._flag_parts("--max-restarts", "0", why))

    def environment_settings(self) -> tuple[EnvSetting, ...]:
        """Return the variables for several processes on the CPU; none for GPUs."""
        if self.job.gpus or self.job.world_size == 1:
            return ()
        why = "otherwise scripts with accelerate become unconnected processes on a machine without GPUs"
        return (EnvSetting("ACCELERATE_USE_CPU", "true", why, "launcher"),)

    def _flag_parts(self, flag: str, value: str | RuntimeVariable | None, why: str) -> list[CommandPart]:
        """Return a flag as this torchrun spells it, nothing if it does not know the flag (it would reject it)."""
        underscored = "--" + flag[2:].replace("-", "_")
        accepted_flag = next(
            (spelling for spelling in (flag, underscored) if spelling in (self.job.torchrun_flags or (flag,))), None
        )
        if accepted_flag is None:
            return []
        word: CommandWord = accepted_flag
        if value is not None:
            word = f"{accepted_flag}={value}" if isinstance(value, str) else join_pieces((f"{accepted_flag}=", value))
        return [CommandPart((word,), why)]
