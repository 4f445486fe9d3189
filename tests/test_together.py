"""Several machines after an out-of-memory: one decides, all follow; and what ends them all instead."""

import os
import re
import shutil
import signal
import subprocess

import pytest
from support import SCRIPTS, UUIDS, exported, facts, gpu, plain_environment, profile, until

from tui_train.runs.rundir import RunDir
from tui_train.runs.status import status

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
LOSS = f"echo '{OUT_OF_MEMORY}'; exit 1"
STEP = f"""echo 'Traceback (most recent call last):
  File "/t.py", line 2, in <module>
    optimizer.step()
{OUT_OF_MEMORY}'; exit 1"""
STRANGER = f"echo '{OUT_OF_MEMORY} Process 42 has 20.50 GiB memory in use. this process has 2.00 GiB memory'; exit 1"
FAILS = "exit 3"
# A collective whose peer is gone, which notices it much later.
HANGS = "exec /bin/sleep 300"
SAVES_AND_ENDS_WELL = "trap 'exit 0' TERM; /bin/sleep 300 & wait"
QUICK = {"look_every": 0.1, "patience": 30, "meet_wait": 30, "answer_wait": 30}
AT_ONCE = {"patience": 0}
SOON = {"meet_wait": 1, "answer_wait": 1}


class Machines:
    """Machines that share a run folder, or have copies of it; each plays its scenes, one for each attempt."""

    def __init__(self, folder, *scenes, shared=True, waits=None, **more):
        self.folder, self.started = folder, []
        python = folder / "python"
        shutil.copy(SCRIPTS / "machine.sh", python)
        python.chmod(0o755)
        values = {
            "trainer.kind": "script",
            "trainer.preset": "hf-trainer",
            "trainer.launcher": "accelerate",
            "trainer.script": "/t.py",
            "trainer.output": str(folder / "out"),
            "trainer.working_directory": "/",
            "recipe.global_batch": 48,
            "recipe.micro_batch": 4,
            "nodes.count": len(scenes),
            "nodes.address": "127.0.0.1",
            "ladder.rungs": ("fused_optimizer", "micro_batch"),
            **more,
        }
        found = facts(python=python, gpus=(gpu(0), gpu(1)), torch="2.7.1", transformers="4.57.0")
        self.runs = []
        for rank in range(len(scenes)):
            if shared and rank:
                self.runs.append(RunDir(self.runs[0].path))
                continue
            run, self.plan = exported(folder / f"run-{rank}", profile(values), found)
            self.runs.append(run)
        self.wait(**{**QUICK, **(waits or {})})
        (folder / "bin").mkdir()
        lists = "".join(f"GPU {number}: X (UUID: {uuid})\\n" for number, uuid in enumerate(UUIDS))
        (folder / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\ncase $* in *-L*) printf '{lists}' ;; esac\n")
        (folder / "bin" / "nvidia-smi").chmod(0o755)
        self.say(*scenes)

    def say(self, *scenes):
        """Give each machine what it plays from now on, in each attempt."""
        self.scenes = self.folder / f"scenes-{len(list(self.folder.glob('scenes-*')))}"
        self.scenes.mkdir()
        for rank, attempts in enumerate(scenes):
            for number, text in enumerate(attempts, start=1):
                (self.scenes / f"{rank}-{number}").write_text(text)

    def wait(self, **seconds):
        """Say how long the machines wait for each other."""
        for run in self.runs:
            text = run.script.read_text()
            for name, value in seconds.items():
                text, found = re.subn(f"^{name}=.*$", f"{name}={value}", text, flags=re.MULTILINE)
                assert found == 1
            run.script.write_text(text)

    def start(self, rank, *words, script="", path="", alone=False):
        """Start the launch.sh of one machine; one that is `alone` trains without waiting for the others."""
        told = {"SCENES": self.scenes, "OUTPUT": self.folder / "out", "RUN": self.runs[rank].path, "TUI_TRAIN_GRACE": 1}
        told["MACHINES"] = 1 if alone else len(self.runs)
        environment = plain_environment(**{name: str(value) for name, value in told.items()})
        environment["PATH"] = f"{path}{self.folder / 'bin'}:{environment['PATH']}"
        process = subprocess.Popen(
            ["bash", script or self.runs[rank].script, f"--node-rank={rank}", *words],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def together(self, *, alone=False):
        """Start all machines; return the exit code of each, and what each said."""
        return ended(*(self.start(rank, alone=alone) for rank in range(len(self.runs))))

    def begun(self, rank, attempt=1):
        """Wait until a machine has begun an attempt."""
        until((self.scenes / f"{rank}-{attempt}.words").exists)

    def own(self, rank):
        """Return the folder of a machine's own files as a run."""
        return RunDir(self.runs[rank].path / f"node-{rank}") if rank else self.runs[0]

    def tried(self, rank):
        """Return the positions of the attempts that a machine has begun."""
        return [attempt.position for attempt in status(self.own(rank)).attempts]

    def words(self, rank, attempt):
        """Return the words with which an attempt was started on a machine."""
        return (self.scenes / f"{rank}-{attempt}.words").read_text().splitlines()


def ended(*processes):
    said = [process.communicate(timeout=60)[0] for process in processes]
    return [process.returncode for process in processes], said


@pytest.fixture
def machines(tmp_path):
    """Return the maker of machines, all of which are ended afterwards."""
    made = []

    def make(*scenes, **more):
        made.append(Machines(tmp_path, *scenes, **more))
        return made[-1]

    yield make
    for process in (process for one in made for process in one.started if process.poll() is None):
        process.terminate()
        process.wait(timeout=60)


def test_one_decides_and_all_follow(tmp_path, machines):
    """Memory runs out on the last machine, the others do not notice; all take the same checkpoint."""
    scenes = (HANGS, "save 40; begun 1-2"), (HANGS, ""), (f"begun 0-1 1-1; save 20; {LOSS}", "")
    three = machines(*scenes, waits=AT_ONCE)
    # The one between reads the decision when there is a newer checkpoint already.
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sleep").write_text(
        f"#!/bin/bash\n/bin/sleep 0.5\nwhile [ -e '{three.runs[0].path}/.decision' ] && "
        f"[ ! -e '{tmp_path}/out/checkpoint-40/trainer_state.json' ]; do /bin/sleep 0.05; done\n"
    )
    (tmp_path / "slow" / "sleep").chmod(0o755)
    codes, said = ended(three.start(0), three.start(1, path=f"{tmp_path / 'slow'}:"), three.start(2))
    assert codes == [0, 0, 0], said
    position = three.plan.attempts[0].then["loss"]
    assert [three.tried(rank) for rank in range(3)] == [[1, position]] * 3
    assert "attempt 1 ran out of GPU memory in the forward or backward pass on machine 2\n" in said[0]
    assert "attempt 1 ran out of GPU memory in the forward or backward pass\n" in said[2]
    assert "the attempt of another machine has failed: ends the one of this machine" in said[1]
    for rank in range(3):
        assert [attempt.out_of_memory for attempt in status(three.own(rank)).attempts] == [True, False]
        first, second = three.words(rank, 1), three.words(rank, 2)
        assert not [word for word in first if word.startswith("--resume")]
        assert f"--resume_from_checkpoint={tmp_path}/out/checkpoint-20" in second
        micro, accumulation = three.plan.micro_batch // 2, three.plan.accumulation * 2
        assert micro * accumulation * three.plan.world_size == three.plan.global_batch
        assert {f"--per_device_train_batch_size={micro}", f"--gradient_accumulation_steps={accumulation}"} <= {*second}


def test_what_ran_out_in_several_phases_is_mended_in_all(machines):
    two = machines((LOSS, ""), (STEP, ""))
    codes, said = two.together()
    assert codes == [0, 0], said
    attempts = two.plan.attempts
    both = attempts[attempts[0].then["loss"] - 1].then["step"]
    assert [two.tried(rank) for rank in range(2)] == [[1, both]] * 2
    assert both not in attempts[0].then.values()


def test_the_ladder_ends_for_all(machines):
    two = machines((FAILS,) * 2, (STEP,) * 2)
    codes, said = two.together()
    assert codes == [3, 1], said
    assert [two.tried(rank) for rank in range(2)] == [[1, two.plan.attempts[0].then["step"]]] * 2
    assert "in the optimizer step on machine 1, and nothing is left on the ladder that helps there" in said[0]


@pytest.mark.parametrize(
    ("scenes", "codes", "parts"),
    [
        ((HANGS, FAILS), [143, 3], ("failed with exit code 143: see", "failed with exit code 3")),
        ((FAILS, HANGS), [3, 143], ("failed with exit code 3: see", "failed with exit code 143")),
        ((SAVES_AND_ENDS_WELL, FAILS), [143, 3], ("failed with exit code 143: see", "failed with exit code 3")),
        ((FAILS, STRANGER), [3, 1], ("less GPU memory does not help on machine 1", "another process (42) fills")),
        (("", LOSS), [0, 1], ("finished", "machine 0 has finished: see")),
        ((LOSS, ""), [1, 0], ("machine 1 has finished: see", "finished")),
    ],
)
def test_what_is_not_tried_again_ends_all(machines, scenes, codes, parts):
    two = machines(*((scene, "") for scene in scenes), waits=AT_ONCE if 143 in codes else {})
    found, said = two.together()
    assert found == codes, said
    assert [two.tried(rank) for rank in range(2)] == [[1], [1]]
    for text, part in zip(said, parts, strict=True):
        assert part in text


def test_without_a_ladder_one_that_fails_still_ends_the_others(machines):
    two = machines((HANGS,), (LOSS,), waits=AT_ONCE, **{"ladder.rungs": ()})
    codes, said = two.together()
    assert codes == [143, 1], said


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_machine_ends_the_others(machines, stopped):
    two = machines((HANGS, ""), (HANGS, ""), waits=AT_ONCE)
    processes = [two.start(rank) for rank in range(2)]
    for rank in range(2):
        two.begun(rank)
    processes[stopped].send_signal(signal.SIGINT)
    codes, said = ended(*processes)
    assert codes[stopped] == 130, said
    assert codes[1 - stopped] == 143, said
    assert [two.tried(rank) for rank in range(2)] == [[1], [1]]
    assert [status(two.own(rank)).state for rank in (stopped, 1 - stopped)] == ["stopped", "failed"]
    assert f"failed with exit code 143 (machine {stopped} has stopped): see" in said[1 - stopped]


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_machine_is_not_waited_for(tmp_path, machines, killed):
    """The power is gone: nothing says how its attempt ended."""
    fails = f"wait_for '{tmp_path}/gone'; {LOSS}"
    two = machines(*((HANGS, "") if rank == killed else (fails, "") for rank in range(2)), waits=SOON)
    processes = [two.start(rank) for rank in range(2)]
    folder = two.own(killed)
    two.begun(killed)
    leader = status(folder).leader
    processes[killed].kill()
    os.killpg(leader, signal.SIGKILL)
    processes[killed].communicate(timeout=60)
    (tmp_path / "gone").touch()
    (code,), (said,) = ended(processes[1 - killed])
    assert code == 1
    assert two.tried(1 - killed) == [1]
    assert f"machine {killed} does not say how its attempt ended" in said


def test_machines_that_do_not_share_the_folder_stop(machines):
    two = machines((LOSS, ""), (LOSS, ""), shared=False, waits=SOON)
    codes, said = two.together(alone=True)
    assert codes == [1, 1]
    assert [two.tried(rank) for rank in range(2)] == [[1], [1]]
    for rank in range(2):
        assert f"machine {1 - rank} is not seen in this folder, and without one that all machines share" in said[rank]


def test_a_checkpoint_that_a_machine_does_not_see_ends_all(tmp_path, machines):
    two = machines((HANGS, HANGS), (f"begun 0-1; save 20; {LOSS}", ""), waits=AT_ONCE)
    other = two.runs[0].path / "other.sh"
    other.write_text(two.runs[0].script.read_text().replace(f"{tmp_path}/out", f"{tmp_path}/elsewhere"))
    codes, said = ended(two.start(0), two.start(1, script=other))
    assert codes == [143, 69], said
    log = two.own(1).attempt_log(2).read_text()
    assert f"the first machine goes on from {tmp_path}/elsewhere/checkpoint-20, and this one does not see it" in log


def test_what_an_earlier_start_left_is_not_believed(machines):
    """Each machine is started alone beside the words with which both once went on; then both together."""
    two = machines((FAILS, FAILS), (LOSS, FAILS))
    assert two.together()[0] == [3, 3]
    first, second = two.runs[0].path / ".word", two.own(1).path / ".word"
    marks = [first.read_text().split()[1], second.read_text().split()[1]]
    next_one = two.plan.attempts[0].then["loss"]
    for rank, other in enumerate((1, 0)):
        first.write_text(f"{marks[0]} {marks[0]} 1 loss\n")
        second.write_text(f"{marks[0]} {marks[1]} 1 loss\n")
        two.say((LOSS, ""), (LOSS, ""))
        two.wait(**SOON)
        (code,), (said,) = ended(two.start(rank, alone=True))
        assert code == 1
        assert f"machine {other} " in said
        assert two.tried(rank)[-2:] == [next_one, 1]
    # The last words of the first machine are of a failure: one that is there before it is not ended by them.
    first.write_text(f"{marks[0]} {marks[0]} 1 failed\n")
    fresh = 'while grep -q failed "$RUN/.word"; do /bin/sleep 0.05; done; met; '
    two.say((fresh + LOSS, ""), (HANGS, ""))
    two.wait(**QUICK | AT_ONCE)
    there = two.start(1)
    until(lambda: second.read_text().split()[0] == marks[0] and second.read_text().split()[3] == "running")
    codes, said = ended(two.start(0), there)
    assert codes == [0, 0], said
    assert [two.tried(rank)[-2:] for rank in range(2)] == [[1, next_one]] * 2


def test_all_begin_with_the_attempt_that_they_are_told(machines):
    two = machines(("",) * 2, ("",) * 2)
    codes, said = ended(*(two.start(rank, "--attempt=2", alone=True) for rank in range(2)))
    assert codes == [0, 0], said
    assert two.together()[0] == [0, 0]
    assert [two.tried(rank) for rank in range(2)] == [[2, 1]] * 2
