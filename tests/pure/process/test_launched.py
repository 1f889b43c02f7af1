"""Variables of a launcher, the processes it starts, and how its failures are named."""

import os
import sys
from dataclasses import replace

import pytest

from autotune.configuration.job import Inspect, Job, job_from_json, job_to_json
from autotune.process import ranks as ranks_of
from autotune.process.common.child_ties import (
    Place,
    hold_lifeline,
    lifeline,
    note_of,
    started_from,
    this_place,
)
from autotune.process.common.trial_folder import TrialFolder
from autotune.process.ranks import Ranks, write_program
from autotune.values.outcome import Lost
from children import completed
from command_line import command
from covering import covers
from factories import written

MODEL = "def build_model(): ...\ndef build_dataset(): ...\ndef compute_loss(model, batch): ...\n"
TORCH = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
PMI = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}
STEP = {"SLURM_STEP_ID": "0"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in (*TORCH, *MPI, *PMI, *SLURM, *STEP):
        monkeypatch.delenv(name, raising=False)


def given(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("variables", [TORCH, MPI, PMI, SLURM | STEP])
def test_each_launcher_s_own_words_tell_the_place(variables, monkeypatch):
    given(monkeypatch, variables)
    assert this_place() == Place(rank=3, size=8, local_rank=1)
    assert Place(3, 8, 1).torch_variables == TORCH


@pytest.mark.parametrize("variables", [{}, SLURM, {"RANK": "0"}, {"RANK": "x", "WORLD_SIZE": "2"}])
def test_a_script_that_sbatch_runs_is_no_rank(variables, monkeypatch):
    given(monkeypatch, variables)
    assert this_place() is None


def test_torch_s_launcher_within_another_tells_the_place(monkeypatch):
    given(monkeypatch, SLURM | STEP | {"RANK": "5", "WORLD_SIZE": "16"})
    assert this_place() == Place(rank=5, size=16, local_rank=0)


@covers("T30")
def test_a_process_on_another_host_ends_and_says_so(monkeypatch):
    place = lifeline()
    assert f"/proc/{os.getpid()}/fd/" in place
    monkeypatch.setattr("autotune.process.common.child_ties.this_host", lambda: "another")
    with pytest.raises(SystemExit, match=r"^autotune: it starts a process on .*; all must be on"):
        hold_lifeline(place)


@pytest.mark.parametrize("how", [[], [sys.executable]], ids=["as a program", "as a script"])
def test_a_launcher_starts_the_program_as_such_or_as_a_python_script(how, tmp_path, monkeypatch):
    files = TrialFolder(tmp_path / "it's a trial")
    files.path.mkdir()
    files.job.write_text(job_to_json(launching(2)))
    monkeypatch.chdir(tmp_path)
    program = write_program(files)
    done = completed(tmp_path, [*how, program, files.path, lifeline(), "0.0"])
    assert done.returncode == 1
    assert done.stderr.startswith("autotune: it sets no rank: none of RANK, ")


def launching(processes):
    return Job(Inspect(), "cpu", processes=processes, launch=("srun", "--ntasks", "2"))


@pytest.fixture
def begins(tmp_path):
    def note(rank, size):
        TrialFolder(tmp_path, rank).place.write_text(note_of(Place(rank, size, rank)))

    return note


def test_a_job_of_a_launcher_is_read_back_and_others_are_as_they_were():
    job = launching(0)
    assert job_from_json(job_to_json(job)) == job
    assert job.is_of_ranks
    assert replace(job, processes=1).is_of_ranks
    alone = replace(job, processes=1, launch=())
    assert not alone.is_of_ranks
    assert job_from_json(job_to_json(alone)) == alone


@covers("T29")
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("srun: error: Unable to allocate resources\n--------\n", "Unable to allocate resources"),
        ("autotune: it sets no rank\nTraceback\nError: 1\n", "it said: it sets no rank"),
        ("", "it said: nothing"),
    ],
)
def test_a_launcher_that_starts_nothing_is_named_with_its_last_words(said, told, tmp_path):
    TrialFolder(tmp_path).stderr.write_text(said)
    lost = Ranks(launching(2), TrialFolder(tmp_path)).of_exit(1)
    assert lost.detail.startswith("the launcher started no process and ended with code 1; ")
    assert told in lost.detail


@covers("T29")
def test_a_launcher_that_starts_fewer_processes_is_waited_for_and_named(
    begins, tmp_path, monkeypatch
):
    ranks = Ranks(launching(3), TrialFolder(tmp_path))
    assert ranks.look() is None
    assert ranks.phase == "start; rank 0 has not begun; rank 1 has not begun; rank 2 has not begun"
    begins(0, size=3)
    begins(2, size=3)
    assert ranks.look() is None
    assert ranks.phase == "start; rank 1 has not begun"
    monkeypatch.setattr(ranks_of, "PATIENCE_SECONDS", 0.0)
    lost = ranks.look()
    assert isinstance(lost, Lost)
    assert "started 2 of 3 processes within 0 s, without rank 1" in lost.detail


@covers("T29")
def test_another_number_of_processes_than_before_is_named(begins, tmp_path):
    begins(0, size=4)
    found = Ranks(launching(2), TrialFolder(tmp_path)).look()
    told = "the launcher started 4 processes, and 2 before. Let it start the same number each time"
    assert found == Lost(told)
    assert Ranks(launching(0), TrialFolder(tmp_path)).look() is None, "as many as it starts"


def test_a_note_that_is_no_note_is_none(tmp_path):
    for text in ("", "{}", "[]", "\xff"):
        assert started_from(written(tmp_path, text, "place")) is None
    assert started_from(tmp_path / "absent") is None


REFUSED = [
    (["--launcher", "nosuchlauncher -n 2"], "there is no program nosuchlauncher. Install it"),
    (["--launcher", ""], "the command is empty"),
    (["--launcher", "srun 'a"], "No closing quotation. Quote the command as a whole"),
    (["--launcher", "env", "--nproc-per-node", "2"], "Leave one of them out"),
]
# A script chooses its device.
OF_DEVICES = [
    (["--launcher", "env", "--device", "cpu:0,cpu:1"], "CUDA_VISIBLE_DEVICES"),
    (["--launcher", "env", "--device", "cuda:1"], "Give --device cuda."),
]
SCRIPT = "print('training')\n"


@covers("T29")
@pytest.mark.parametrize(
    ("source", "flags", "said"),
    [*((MODEL, *one) for one in (*REFUSED, *OF_DEVICES)), *((SCRIPT, *one) for one in REFUSED)],
)
def test_launchers_that_cannot_serve_are_refused_before_anything_is_started(
    source, flags, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = command("search", str(written(tmp_path, source, "train.py")), *flags)
    assert done.code == 2, done.err
    assert said in done.err
    assert not (tmp_path / "studies").exists() or not list((tmp_path / "studies").rglob("job.json"))
