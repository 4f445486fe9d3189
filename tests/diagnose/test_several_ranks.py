"""What several processes say together: which of them is at fault, and which only met its end."""

import pytest
from diagnosed import said

TIMEOUT = (
    "[rank{0}]:[E611 10:22:31 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={1}, OpType={2}, NumelIn={3}, NumelOut=8, Timeout(ms)=600000) ran for 600080 milliseconds.\n"
)
GROUP = "[rank{0}]:[E611 x.cpp:1785] [PG ID {1} PG GUID {1} Rank {0}]  failure detected by watchdog at work: 4\n"
BLOCK = (
    "W0611 10:22 4 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 41823 closing signal SIGTERM\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-06-11_10:22:31\n  host      : gpu-07\n"
    "  rank      : 2 (local_rank: 2)\n  exitcode  : {} (pid: 41822)\n  error_file: <N/A>\n"
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
)
RAISED = (
    '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/work/train.py", line 12, in main\n[rank2]:     {}\n'
)


def timeouts(*calls):
    return "".join(TIMEOUT.format(*call) for call in calls)


def test_ranks_in_different_exchanges_went_different_ways():
    found = said(timeouts((0, 122, "ALLREDUCE", 4), (1, 126, "BROADCAST", 4)))
    assert "rank 0 in 122 (ALLREDUCE), rank 1 in 126 (BROADCAST)" in found.cause


def test_one_exchange_of_different_sizes_is_another_way_too():
    assert "different ways" in said(timeouts((0, 7, "ALLREDUCE", 4), (1, 7, "ALLREDUCE", 5))).cause


def test_a_rank_that_reports_nothing_is_the_one_that_is_waited_for():
    calls = [(rank, 7, "ALLREDUCE", 4) for rank in range(3)]
    found = said("[rank3]: a line of it\n" + timeouts(*calls))
    assert "Ranks 0, 1, 2 waited in exchange 7 (ALLREDUCE) for rank 3" in found.cause
    assert "for ranks 3 to 7, which are stuck" in said(timeouts(*calls), world_size=8).cause


def test_when_all_ranks_wait_the_exchange_itself_hangs():
    found = said(timeouts(*((rank, 1, "ALLREDUCE", 4) for rank in range(8))), world_size=8)
    assert "Ranks 0 to 7 are all in exchange 1 (ALLREDUCE)" in found.cause
    assert "NCCL_P2P_DISABLE=1" in found.remedy


def test_the_timeouts_of_several_groups_are_not_compared():
    text = timeouts((0, 122, "ALLREDUCE", 4), (1, 4, "BROADCAST", 4)) + GROUP.format(0, 1) + GROUP.format(1, 2)
    assert "Rank 0 waited 10 min 00 s in exchange 122" in said(text).cause


def test_an_error_that_no_one_caught_outweighs_what_other_ranks_say_of_it():
    lost = (
        "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"
    )
    found = said(lost + RAISED.format('raise RuntimeError("mask is empty")') + "[rank2]: RuntimeError: mask is empty\n")
    assert (found.failure, found.rank) == ("user_exception", 2)
    assert "mask is empty" in found.cause
    # What only lost the connection is no cause, and the log has nothing else.
    assert said(lost).failure == "peer_lost"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BLOCK.format(1), "Rank 2 on gpu-07 ended first, with exit code 1"),
        (BLOCK.format(-6), "Rank 2 aborted (SIGABRT), and its own message is not in this log"),
        (
            (
                "srun: error: node4: task 9: Exited with exit code 1\n"
                "slurmstepd: error: *** STEP 88.0 ON node1 CANCELLED AT 2026-05-02T03:12:11 ***\n"
            ),
            "Task 9 on node4 ended first, with exit code 1",
        ),
    ],
    ids=["torchrun", "abort", "srun"],
)
def test_an_end_without_its_own_words_is_called_that(text, words):
    assert words in said(text).cause


@pytest.mark.parametrize(
    "text",
    [
        BLOCK.format(-15),
        "W0611 1 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers\n"
        + BLOCK.format(1),
    ],
    ids=["all by it", "torchrun itself"],
)
def test_an_end_from_outside_stays_one(text):
    assert said(text).failure == "sigterm"


@pytest.mark.parametrize(
    "prefix",
    [
        "gpu-b: ",
        "[3]: ",
        "(EngineCore_DP0 pid=1) ERROR 09-28 15:47:24 [core.py:718] ",
        "[2024-02-27T21:35:28.4198Z] fa88a9df [rank=3] || ",
        "trainer-1  | ",
        "trainer-1  | [rank3]: ",
        "[pod/train-0/trainer] ",
        "2026-11-27T09:12:41.123456789Z ",
        "2026-11-27T09:12:41.123456789Z stderr F [rank1]: ",
        "Nov  7 09:12:41 gpu-a python[4242]: ",
    ],
    ids=["pdsh", "NeMo", "vLLM", "Determined", "Compose", "Compose rank", "kubectl", "Docker", "CRI", "journal"],
)
def test_what_launchers_write_before_each_line_is_no_part_of_it(prefix):
    text = (
        'Traceback (most recent call last):\n  File "/work/train.py", line 12, in main\n    f()\nValueError: no way\n'
    )
    found = said("".join(f"{prefix}{line}\n" for line in text.splitlines()))
    assert (found.line, found.source_file) == ("ValueError: no way", "/work/train.py")
