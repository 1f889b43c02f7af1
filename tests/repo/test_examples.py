"""The example workloads under studies/ train as they are, without autotune and without network."""

import gzip
import hashlib
import importlib.util
import math
import pickle
import struct
import sys
from itertools import chain, islice, repeat
from pathlib import Path
from types import ModuleType

import pytest
import torch

from needs import library

STUDIES = Path(__file__).parents[2] / "studies"
NEEDS = {
    "digits_cnn": ["sklearn"],
    "photos_jpeg": ["PIL", "sklearn", "torchvision"],
    "char_transformer": [],
    "fashion_mnist": ["torchvision"],
    "tabular_mlp": ["sklearn"],
    "chirp_gru": [],
    "pendulum_ode": [],
}
KNOBS = {
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "amp_dtype",
    "compile_mode",
    "cudnn_benchmark",
    "num_threads",
    "channels_last",
    "float32_matmul_precision",
    "optimizer_impl",
}


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Import an example by path, with a tiny Fashion-MNIST in place of the real one."""

    def load(name: str) -> ModuleType:
        for needed in NEEDS[name]:
            library(needed)
        if name == "fashion_mnist":
            place_fashion_mnist(tmp_path, monkeypatch)
        spec = importlib.util.spec_from_file_location(name, STUDIES / name / "model.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # pickle looks classes up there
        spec.loader.exec_module(module)
        return module

    return load


def place_fashion_mnist(root: Path, monkeypatch) -> None:
    """256 training and 64 test images as the four archives that torchvision would download."""
    from torchvision.datasets import FashionMNIST

    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    archives = {}
    for prefix, count in (("train", 256), ("t10k", 64)):
        pixels = bytes(torch.randint(256, (count * 28 * 28,)).tolist())
        labels = bytes(index % 10 for index in range(count))
        archives[f"{prefix}-images-idx3-ubyte.gz"] = idx(pixels, count, 28, 28)
        archives[f"{prefix}-labels-idx1-ubyte.gz"] = idx(labels, count)
    for name, content in archives.items():
        (raw / name).write_bytes(content)
    checksums = [(name, hashlib.md5(content).hexdigest()) for name, content in archives.items()]
    monkeypatch.setattr(FashionMNIST, "resources", checksums)
    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://localhost:9/"])  # nobody answers there
    monkeypatch.setenv("AUTOTUNE_DATA", str(root))


def idx(content: bytes, *shape: int) -> bytes:
    """Unsigned bytes in the gzipped IDX format of MNIST: 0, 0, type 8, rank, sizes, content."""
    return gzip.compress(struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape) + content)


def train(workload: ModuleType, model, steps: int) -> list[float]:
    """Take so many optimizer steps on the CPU with the baseline's batch size; the losses."""
    build = getattr(workload, "build_optimizer", lambda p: torch.optim.AdamW(p, lr=1e-3))
    optimizer = build(model.parameters())
    loader = torch.utils.data.DataLoader(
        workload.build_dataset(), workload.BASELINE["batch_size"], shuffle=True, drop_last=True
    )
    losses = []
    for batch in islice(chain.from_iterable(repeat(loader)), steps):
        optimizer.zero_grad()
        loss = workload.compute_loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(autouse=True)
def _one_seed_and_one_thread():
    """Same numbers every time; threads that wait for a busy core make a step 10 times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NEEDS)
def test_three_steps_give_finite_losses_and_change_every_parameter(load, name):
    workload = load(name)
    model = workload.build_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]

    losses = train(workload, model, steps=3)

    assert len(losses) == 3
    assert all(math.isfinite(loss) for loss in losses)
    assert not any(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("name", NEEDS)
def test_the_dataset_and_its_items_survive_pickling(load, name):
    dataset = load(name).build_dataset()
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(copy) == len(dataset)
    item = pickle.loads(pickle.dumps(dataset[0]))
    assert item[0].shape == copy[0][0].shape


@pytest.mark.parametrize("name", NEEDS)
def test_two_builds_give_the_same_dataset(load, name):
    workload = load(name)
    first, second = workload.build_dataset(), workload.build_dataset()
    torch.manual_seed(1)
    one = first[len(first) - 1]
    torch.manual_seed(1)
    other = second[len(second) - 1]
    assert all(map(torch.equal, map(torch.as_tensor, one), map(torch.as_tensor, other)))


@pytest.mark.parametrize("name", NEEDS)
def test_the_baseline_names_only_settings_that_can_be_tuned(load, name):
    assert set(load(name).BASELINE) <= KNOBS


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_is_shorter_than_80_lines(name):
    assert len((STUDIES / name / "model.py").read_text().splitlines()) < 80


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_comes_with_the_command_that_runs_it(name):
    command = f"autotune search studies/{name}/model.py --space quick"
    assert command in (STUDIES / name / "README.md").read_text()


@pytest.mark.parametrize("name", ["digits_cnn", "fashion_mnist", "tabular_mlp"])
def test_evaluate_gives_a_share_and_leaves_the_model_training(load, name):
    workload = load(name)
    model = workload.build_model()
    assert 0.0 <= workload.evaluate(model, torch.device("cpu")) <= 1.0
    assert model.training


@pytest.mark.parametrize("name", ["photos_jpeg", "char_transformer", "chirp_gru", "pendulum_ode"])
def test_an_example_without_evaluate_has_its_quality_from_held_out_loss(load, name):
    assert not hasattr(load(name), "evaluate")


def test_digits_are_read_far_above_chance_after_120_steps(load):
    workload = load("digits_cnn")
    model = workload.build_model()
    train(workload, model, steps=120)
    assert workload.evaluate(model, torch.device("cpu")) > 0.8  # chance is 0.1


def test_every_part_of_both_photos_is_a_class(load):
    labels = {label for _, label in load("photos_jpeg").build_dataset().crops}
    assert labels == set(range(12))


def test_no_character_sees_a_later_one(load):
    workload = load("char_transformer")
    model = workload.build_model().eval()
    (window,) = workload.build_dataset()[0]
    changed = window.clone()
    changed[40:] = 65
    before, after = model(window[None, :64]), model(changed[None, :64])
    torch.testing.assert_close(before[:, :40], after[:, :40])
    assert not torch.allclose(before[:, 40:], after[:, 40:])


def test_the_optimizer_of_fashion_mnist_takes_what_the_tuner_decides(load):
    workload = load("fashion_mnist")
    optimizer = workload.build_optimizer(workload.build_model().parameters(), fused=True)
    assert optimizer.defaults["fused"] is True


def test_fashion_mnist_is_downloaded_only_where_files_are_absent(load, monkeypatch, tmp_path):
    workload = load("fashion_mnist")
    assert len(workload.build_dataset()) == 256

    monkeypatch.setenv("AUTOTUNE_DATA", str(tmp_path / "empty"))
    with pytest.raises(RuntimeError, match="Error downloading"):
        workload.build_dataset()
