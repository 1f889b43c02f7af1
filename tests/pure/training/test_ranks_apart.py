"""Several processes: what each gets, whose time counts, and which of them is to blame."""

import os

import pytest
import torch
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

from autotune.configuration.job import Inspect, Job
from autotune.configuration.mismatch import mismatches
from autotune.configuration.training_config import TrainingConfig
from autotune.process.common.child_ties import Place, note_of
from autotune.process.common.trial_folder import TrialFolder
from autotune.process.ranks import Ranks, outcome_of_ranks
from autotune.training import ranks as world
from autotune.training.ranks import Lap, slowest
from autotune.training.training_setup import WholeSteps
from autotune.values.outcome import Crashed, Probed, TimedOut, UserError, outcome_to_json
from command_line import command
from covering import covers
from factories import best_config, written

KILLED = "rank 1 was killed by SIGKILL; log: stderr.rank1.log"
MODEL = "def build_model(): ...\ndef build_dataset(): ...\ndef compute_loss(model, batch): ...\n"


def shares(samples, step):
    data = TensorDataset(torch.arange(samples))
    orders = (DistributedSampler(data, 2, rank, drop_last=True) for rank in range(2))
    return [WholeSteps(order, step) for order in orders]


def test_ranks_share_an_epoch_evenly_and_the_next_one_is_in_another_order():
    one, other = shares(samples=101, step=8)
    first = list(one), list(other)
    assert [len(order) for order in first] == [48, 48] == [len(one), len(other)]
    assert not set(first[0]) & set(first[1])
    assert (list(one), list(other)) != first


def test_a_step_of_all_ranks_has_the_same_samples_in_batches_of_any_size():
    small, large = shares(samples=64, step=8), shares(samples=64, step=16)
    steps = [[list(order)[:16] for order in of_ranks] for of_ranks in (small, large)]
    assert steps[0] == steps[1]


def test_the_slowest_rank_and_its_boundary_count_and_the_steps_of_all():
    quick = Lap(seconds=1.5, steps=4, wait_seconds=0.1, boundary_seconds=0.5, has_boundary=True)
    slow = Lap(seconds=1.2, steps=4, wait_seconds=0.4, boundary_seconds=0.8, has_boundary=True)
    both = slowest([quick, slow])
    assert both.seconds == pytest.approx(1.2), "2.0 s from begin to end, of which 0.8 s boundary"
    assert (both.steps, both.wait_seconds, both.has_boundary) == (8, 0.4, True)


LOST, ODD = "Connection closed by peer", "it is odd"
ANSWER, LATE = Probed((0.5,), 1.0), TimedOut("measure", 5.0)
NAMED = UserError("rank 1: it is odd (log: stderr.rank1.log)", "model.py:3")
ENDED = "rank 1 ended with code {} and without a result; log: stderr.rank1.log"


@pytest.mark.parametrize(
    ("found", "told", "codes", "expected"),
    [
        (UserError(LOST, ""), {1: ODD, 0: LOST}, {}, NAMED),
        (UserError(LOST, ""), {0: LOST}, {0: 1, 1: -9}, Crashed(KILLED)),
        (None, {}, {1: 7}, Crashed(ENDED.format(7))),
        (None, {}, {0: -15, 1: 3}, Crashed(ENDED.format(3))),
        (LATE, {}, {1: -9}, LATE),
        (ANSWER, {1: ODD}, {}, NAMED),
        (ANSWER, {1: LOST}, {}, ANSWER),
        (None, {1: ODD}, {0: -6, 1: 1}, NAMED),
        (None, {1: LOST}, {0: -6, 1: 1}, Crashed("rank 0 was killed by SIGABRT; log: stderr.log")),
    ],
    ids=[
        "the first to fail is the cause",
        "one that a signal killed is the cause of what others say",
        "one that left without a word has its code",
        "one that the launcher ended for another is not the cause",
        "what the runner decided stands",
        "a result of rank 0 does not hide that another failed",
        "but that another lost it once it was done",
        "an abort for a lost connection is not the cause",
        "an abort is, if the others told of that",
    ],
)
def test_the_rank_that_is_to_blame_is_named(found, told, codes, expected, tmp_path):
    files = TrialFolder(tmp_path)
    for at, (rank, detail) in enumerate(told.items()):
        of_rank = files.of_rank(rank)
        of_rank.outcome.write_text(outcome_to_json(UserError(detail, "model.py:3")))
        os.utime(of_rank.outcome, ns=(at, at))
        of_rank.stderr.touch()
    if found == ANSWER:
        files.outcome.write_text(outcome_to_json(found))
    reports = (
        f"[{at}]:\n  time      : 2026-11-30_06:00:00\n  host      : localhost\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 70{rank})\n"
        for at, (rank, code) in enumerate(codes.items())
    )
    files.stderr.write_text("Root Cause (first observed failure):\n" + "".join(reports))
    assert outcome_of_ranks(files, found) == expected


def test_ranks_in_another_phase_are_named(tmp_path):
    for rank, phase in enumerate(["warm-up", "build"]):
        TrialFolder(tmp_path, rank).stderr.touch()
        TrialFolder(tmp_path, rank).enter_phase(phase)
    ranks = Ranks(Job(Inspect(), "cpu", processes=3), TrialFolder(tmp_path))
    TrialFolder(tmp_path).place.write_text(note_of(Place(0, 3, 0)))
    TrialFolder(tmp_path, 1).place.write_text(note_of(Place(1, 3, 1)))
    assert ranks.look() is None
    assert ranks.phase == "warm-up; rank 1 during build; rank 2 has not begun"


def test_another_world_size_is_a_mismatch(monkeypatch):
    best = best_config(TrainingConfig.of({"batch_size": 64}), TrainingConfig.of({}))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    usual = set(mismatches(best))
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert set(mismatches(best)) - usual == {"processes: 1 in the file, 4 here"}
    of_four = best.model_copy(update={"processes": 4})
    assert set(mismatches(of_four)) == usual
    assert "processes: 4 in the file, 2 here" in mismatches(of_four, processes=2)


@covers("T26")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--device", "cpu", "--nproc-per-node", "999"], "--nproc-per-node 999: this machine has"),
        (["--nproc-per-node", "2", "--device", "cuda:1"], "Give --device cuda."),
        (["--nproc-per-node", "2", "--device", "cpu:0,cpu:1"], "Leave one of them out"),
    ],
)
def test_processes_that_do_not_fit_are_refused_before_any_is_started(
    flags, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = command("search", str(written(tmp_path, MODEL, "model.py")), *flags)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("device", "backend", "seen"),
    [("cpu", "gloo", 0), ("cuda:1", "nccl", 2), ("cuda:0", "nccl", 1)],
)
def test_gradients_go_by_the_backend_of_the_device_and_words_by_gloo(
    device, backend, seen, monkeypatch
):
    """With one GPU in sight, a launcher has given each process its own."""
    monkeypatch.setattr(world.torch.accelerator, "device_count", lambda: seen)
    asked = []
    monkeypatch.setattr(world.distributed, "init_process_group", lambda b, **_: asked.append(b))
    monkeypatch.setattr(world.distributed, "new_group", lambda backend, **_: asked.append(backend))
    for name, told in {"is_initialized": True, "get_rank": 1, "get_world_size": 2}.items():
        monkeypatch.setattr(world.distributed, name, lambda told=told: told)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert world.device_of_rank(device.replace("1", "0")) == device
    joined = world.join(2, torch.device(device), 60.0)
    assert (joined.rank, joined.size, asked) == (1, 2, [backend, "gloo"])
