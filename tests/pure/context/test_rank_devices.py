"""Each of several processes needs a device of its own, which is checked before the first trial."""

from dataclasses import dataclass

import pytest

from autotune.configuration.job import Inspect, Job
from autotune.context import ranks
from autotune.context.options import Resources
from autotune.training import inspection
from autotune.training.ranks import World
from autotune.values.errors import UsageError
from factories import cuda_machine, host

SRUN = ("srun", "--ntasks", "2")


@dataclass(frozen=True)
class Pair(World):
    """Two processes of one host, of which this is rank 0; nothing is sent."""

    other_uuid: str = ""

    def shares(self, own):
        if isinstance(own, tuple):
            return [own, (self.other_uuid, "")]
        return [own, own]


@pytest.fixture
def gpus(monkeypatch):
    """A function that lets a process see some GPUs, and rank 1 train on one of a UUID."""

    def see(count, other_uuid="GPU-1"):
        def uuid_of(device):
            return f"GPU-{device.rpartition(':')[2]}"

        pair = Pair(0, 2, control=object(), other_uuid=other_uuid)
        monkeypatch.setenv("LOCAL_RANK", "0")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(inspection.torch.accelerator, "device_count", lambda: count)
        monkeypatch.setattr(inspection, "use_device", lambda _: None)
        monkeypatch.setattr(inspection, "join", lambda *_: pair)
        monkeypatch.setattr(inspection, "device_uuid", uuid_of)
        monkeypatch.setattr(inspection, "resolve_device", lambda _: "cuda:0")
        monkeypatch.setattr(inspection, "describe_machine", lambda _: cuda_machine())
        monkeypatch.setattr(inspection.memory, "device_memory", lambda _: None)

    return see


def of_two(launch=()):
    return Job(Inspect(), "cuda", "model.py", processes=2, launch=launch)


def of_script(launch=()):
    return Job(Inspect(processes=2), "cuda:0", None, launch=launch)


@pytest.mark.parametrize(("seen", "launch"), [(2, ()), (2, SRUN), (1, SRUN)])
def test_the_gpus_of_all_processes_are_told(seen, launch, gpus):
    gpus(seen)
    world, uuids = inspection._met(of_two(launch), cuda_machine())
    assert (world.size, uuids) == (2, ("GPU-0", "GPU-1"))


def test_two_processes_on_the_one_gpu_that_both_see_are_refused(gpus):
    gpus(1, other_uuid="GPU-0")
    with pytest.raises(UsageError, match="2 processes would train on one device"):
        inspection._met(of_two(SRUN), cuda_machine())


def test_a_process_of_a_higher_number_than_gpus_is_refused(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(UsageError, match=r"process 2 has no device: there are 2 \(cuda\)"):
        inspection._met(of_two(SRUN), cuda_machine())


def test_the_gpus_of_a_scripts_processes_are_those_of_their_numbers(gpus):
    gpus(4)
    found = inspection.inspect(of_script())
    assert found.rank_uuids == ("GPU-0", "GPU-1")


@pytest.mark.parametrize(("device", "refused"), [("cuda", True), ("auto", False), ("cpu", False)])
def test_more_processes_than_gpus_need_not_be_started_to_be_refused(device, refused, monkeypatch):
    """A PyTorch for the CPU trains on its cores, though there is a GPU: auto has to ask it."""
    monkeypatch.setattr(ranks, "nvidia_gpus", lambda: ("Test GPU",))
    monkeypatch.setattr(ranks, "probe_host", lambda: host(16))
    asked = Resources(device=device, processes=2)
    if refused:
        with pytest.raises(UsageError, match="--nproc-per-node 2: this machine has 1 GPU"):
            ranks.check_room(asked)
    else:
        ranks.check_room(asked)
