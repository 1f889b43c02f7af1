"""Trials of an unchanged script on several devices: each process sees its own and no other."""

import json
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest

import scripted_runner
from autotune.commands import execute
from autotune.configuration.script import Flag, ScriptOptions
from autotune.process.devices import Device, devices_of, seen_alone
from autotune.process.stop import Stop
from autotune.searching.run.events import Answered
from autotune.searching.search import search
from autotune.values.errors import StudyMismatchError, UsageError
from autotune.values.outcome import Inspected
from children import hurried, nobody_is_left, succeeded
from command_line import command
from factories import cuda_machine, written
from held import CORES, trials_in
from scripted_runner import ScriptedRunner, at, options_in
from sharing import OnDevice, in_threads, joined

SCRIPTS = Path(__file__).parents[2] / "scripts"
SPACE = "num_workers: [0, 1, 2, 3]\nnum_threads: [1, 2]\n"
SEEN = replace(scripted_runner.SEEN, device="cuda:0")


def more_workers_help(config, _):
    return at(100 * (1 + int(config["num_workers"] or 0)))


class Card(ScriptedRunner):
    """A runner whose processes see one card; of the same kind, and with a UUID of its own."""

    def __init__(self, visible, observed=SEEN):
        super().__init__(more_workers_help, observed=observed)
        self.visible = visible
        self.inspected = Inspected(cuda_machine(), None, device_uuid=f"GPU-{visible}")


def searched(folder, monkeypatch, *words, observed=SEEN):
    """A search at the command line whose processes are scripted, and its runners."""
    cards = []

    def runner(_, __, environ, *___):
        cards.append(Card(environ.get("CUDA_VISIBLE_DEVICES"), observed))
        return cards[-1]

    monkeypatch.setattr(execute, "SubprocessRunner", runner)
    folder.mkdir(exist_ok=True)
    written(folder, "raise SystemExit('ran')\n", "train.py")
    written(folder, SPACE)
    with chdir(folder):
        flags = ("--space", "space.yaml", "--trials", "8")
        return command("search", "train.py", *flags, *words, "--", "--epochs", "9"), cards


def test_each_trial_sees_the_one_device_that_it_runs_on(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    done, cards = searched(tmp_path, monkeypatch, "--device", "cuda:0,cuda:1")
    assert done.code == 0, done.err
    assert [card.visible for card in cards] == ["4", "7"]
    assert [len(card.batches("trial")) > 0 for card in cards] == [True, True]
    assert cards[1].batches("baseline") == cards[1].batches("confirmation") == []
    jobs = [job for card in cards for job in card.jobs if job.script and job.config]
    assert {job.device for job in jobs} == {"cuda:0"}, "the first one that its process sees"
    assert {job.script.arguments for job in jobs if job.script} == {("--epochs", "9")}


def test_a_script_that_chooses_its_device_itself_is_refused(tmp_path, monkeypatch):
    words = ("--device", "cuda:0,cuda:1")
    sets = replace(SEEN, visible_devices="0")
    done, _ = searched(tmp_path / "sets", monkeypatch, *words, observed=sets)
    assert done.code == 2
    assert "the script sets CUDA_VISIBLE_DEVICES=0 itself" in done.err
    on_cpu = replace(SEEN, device="cpu")
    done, cards = searched(tmp_path / "cpu", monkeypatch, *words, observed=on_cpu)
    assert done.code == 2
    assert "the script trains on cpu, as its own arguments say" in done.err
    assert not any(card.batches("baseline") for card in cards)


@pytest.mark.parametrize(
    ("visible", "devices", "entries"),
    [
        (None, "cuda:0,cuda:3", ["0", "3"]),
        ("4, 7", "cuda:1", ["7"]),
        ("GPU-a,MIG-b", "cuda:0,cuda:1", ["GPU-a", "MIG-b"]),
    ],
)
def test_a_device_is_named_as_the_search_itself_sees_it(visible, devices, entries, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    named = devices_of(devices)
    alone = tuple(map(seen_alone, named))
    assert [device.visible for device in alone] == entries
    assert {device.torch_name for device in alone} == {"cuda:0"}
    assert [device.locks() for device in alone] == [device.locks() for device in named]


@pytest.mark.parametrize(
    ("visible", "device", "said"),
    [
        ("4", "cuda:1", "there is no cuda:1"),
        ("", "cuda:0", "there is no"),
    ],
)
def test_a_device_to_which_no_process_can_be_kept_is_refused(visible, device, said, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UsageError, match=said):
        seen_alone(Device(device))


@pytest.mark.usefixtures("devices_to_itself")
@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_a_real_script_is_tried_on_two_groups_of_cores_at_once(tmp_path):
    source = (SCRIPTS / "plain_loop.py").read_text()
    keep = (
        "import os\nopen(f'ran-{os.getpid()}', 'w').write(str(sorted(os.sched_getaffinity(0))))\n"
    )
    written(tmp_path, keep + source, "train.py")
    written(tmp_path, "num_workers: [0, 1, 2]\n")
    devices = ",".join(f"cpu:{core}" for core in CORES)
    flags = ("--space", "space.yaml", "--trials", "3", "--device", devices, "--json")
    arguments = ("--", "--epochs", "100000", "--read-seconds", "0.002")
    done = succeeded(hurried(tmp_path, "search", "train.py", *flags, *arguments))
    assert json.loads(done.stdout)["answer"] in {"faster", "keep"}
    seen = {path.read_text() for path in tmp_path.glob("ran-*")}
    assert seen == {f"[{core}]" for core in CORES}
    assert nobody_is_left(tmp_path)


class OfScript(OnDevice):
    """A device of a host on which the script is run; its trials take a moment."""

    def __init__(self, number, machine=None):
        super().__init__(number, machine)
        self.measure = more_workers_help
        self.observed = replace(SEEN, device=f"cuda:{number}")
        self.inspected = replace(self.inspected, workload=None)


CALL = ScriptOptions(
    ("--bs", "16", "--token", "planted-hunter2"), (Flag("batch_size", "--bs"),), metric="acc (.*)"
)


def shared_search(folder, storage, join):
    """Results, or errors, of a search of a script and of one that joins it."""
    options = options_in(folder, SPACE, storage=storage, script=CALL, trials=8)
    stop = Stop()

    def leads():
        try:
            return list(search(options, OfScript(0)))
        finally:
            stop.request()

    first, second = in_threads(leads, lambda: join(stop))
    return first, second


def test_a_worker_runs_trials_of_a_script_with_its_own_arguments(server_storage, tmp_path):
    options = options_in(tmp_path, SPACE, storage=server_storage, script=CALL, trials=8)
    worker = OfScript(1)
    own = ScriptOptions(CALL.arguments)
    events, _ = shared_search(
        tmp_path, server_storage, lambda stop: list(joined(options, 1, worker, stop, script=own))
    )
    assert isinstance(events, list), events
    assert isinstance(events[-1], Answered)
    begun = trials_in(server_storage)
    told = [t for t in begun if t.user_attrs.get("reason") != "not needed"]
    assert [trial.state.name for trial in told] == ["COMPLETE"] * 8
    calls = [job.script for job in worker.jobs if job.config]
    assert calls, "it ran some of them"
    assert {call.arguments for call in calls if call} == {CALL.arguments}
    assert all(call and {"num_workers"} <= set(call.asked) for call in calls)
    assert all(call and call.by_flag == ("batch_size",) for call in calls)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"planted-hunter2" in path.read_bytes()]


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        (ScriptOptions(("--bs", "32")), StudyMismatchError, "script"),
        (None, UsageError, "is of a script; to run .* as one, add --"),
    ],
)
def test_a_worker_with_other_arguments_is_refused(script, error, said, server_storage, tmp_path):
    options = options_in(tmp_path, SPACE, storage=server_storage, script=CALL, trials=3)
    list(search(options, OfScript(0)))
    runner = OfScript(1)
    runner.inspected = replace(runner.inspected, workload=SEEN.workload)
    with pytest.raises(error, match=said):
        list(joined(options, 1, runner, script=script))


def test_a_worker_of_another_kind_of_device_is_refused(server_storage, tmp_path):
    options = options_in(tmp_path, SPACE, storage=server_storage, script=CALL, trials=3)
    list(search(options, OfScript(0)))
    runner = OfScript(1)
    runner.observed = replace(SEEN, device="cpu")
    with pytest.raises(UsageError, match="the script trains on cpu"):
        list(joined(options, 1, runner, script=ScriptOptions(CALL.arguments)))
