"""Functions of a model.py that adapters make: which optimizer, which baseline, what they refuse."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from needs import installed

pytestmark = pytest.mark.slow


def test_what_a_model_py_cannot_be_is_refused_with_the_reason() -> None:
    installed("lightning")
    import torch
    from lightning.pytorch import LightningModule

    from autotune.adapters.lightning import from_lightning

    class Two(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def configure_optimizers(self) -> list[torch.optim.Optimizer]:
            return [torch.optim.SGD(self.parameters(), 0.1) for _ in range(2)]

    class ByHand(Two):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

    class Asks(Two):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1 / self.trainer.estimated_stepping_batches)

    asking = from_lightning(Asks, lambda: None)
    model = asking.build_model()
    with pytest.raises(ValueError, match=r"Asks uses self\.trainer.* Search the script that"):
        asking.build_optimizer(model.parameters())

    parts = from_lightning(Two, lambda: None)
    model = parts.build_model()
    with pytest.raises(ValueError, match="of Two gives 2 optimizers"):
        parts.build_optimizer(model.parameters())

    class NoOptimizer(Two):
        def configure_optimizers(self) -> None:
            return None

        def training_step(self, batch: torch.Tensor) -> float:
            return self.trainer.global_step

    parts = from_lightning(NoOptimizer, lambda: None)
    model = parts.build_model()
    with pytest.raises(ValueError, match="of NoOptimizer gives 0 optimizers"):
        parts.build_optimizer(model.parameters())
    with pytest.raises(ValueError, match=r"NoOptimizer uses self\.trainer"):
        parts.compute_loss(model, torch.zeros(1, 1))
    with pytest.raises(ValueError, match="ByHand sets automatic_optimization = False"):
        from_lightning(ByHand, lambda: None).build_model()


def test_layers_made_by_hooks_and_a_step_of_the_batch_alone_are_a_model_py() -> None:
    installed("lightning")
    import torch
    from lightning.pytorch import LightningDataModule, LightningModule

    from autotune.adapters.lightning import from_lightning

    class Late(LightningModule):
        def setup(self, stage: str) -> None:
            self.first = torch.nn.Linear(2, 3)

        def configure_model(self) -> None:
            self.last = torch.nn.Linear(3, 1)

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(batch)).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    class Several(LightningDataModule):
        def train_dataloader(self) -> dict[str, object]:
            return {"near": [], "far": []}

    parts = from_lightning(Late, Several)
    model = parts.build_model()
    parts.compute_loss(model, torch.ones(4, 2)).backward()
    (group,) = parts.build_optimizer(model.parameters()).param_groups
    assert len(group["params"]) == 4
    with pytest.raises(ValueError, match="train_dataloader of Several gives a dict"):
        parts.build_dataset()


def test_a_baseline_has_what_the_loader_of_a_lightning_training_has() -> None:
    installed("lightning")
    import torch
    from lightning.pytorch import LightningModule
    from torch.utils.data import DataLoader

    from autotune.adapters.lightning import from_lightning

    given = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 8}
    loader = DataLoader(torch.zeros(64, 1), batch_size=16, **given)  # type: ignore[arg-type]
    right = {"batch_size": 16, **given}
    assert from_lightning(LightningModule, lambda: loader, right).build_dataset() is loader.dataset
    with pytest.raises(ValueError, match=r"prefetch_factor=8 \(baseline: 2\)") as told:
        from_lightning(
            LightningModule, lambda: loader, right | {"prefetch_factor": 2}
        ).build_dataset()
    assert "persistent_workers" in str(told.value).partition("BASELINE = ")[2]
    with pytest.raises(ValueError, match="persistent_workers=true"):
        from_lightning(LightningModule, lambda: loader, {"batch_size": 16}).build_dataset()


def test_a_baseline_has_the_precision_of_training_arguments(tmp_path: Path) -> None:
    """Otherwise a search would find what the user's training has already."""
    installed("transformers")
    import torch
    from transformers import Trainer, TrainingArguments

    from autotune.adapters.transformers import from_trainer

    samples = [{"x": torch.zeros(1)}] * 8

    def build_trainer() -> Trainer:
        given = {"bf16": True, "activation_checkpointing": True, "dataloader_num_workers": 1}
        arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", **given)
        return Trainer(torch.nn.Linear(1, 1), arguments, train_dataset=samples)

    right = {
        "batch_size": 8,
        "num_workers": 1,
        "amp_dtype": "bfloat16",
        "optimizer_impl": "fused",
        "activation_checkpointing": True,
    }
    assert from_trainer(build_trainer, right).build_dataset() is samples
    with pytest.raises(ValueError, match=r"amp_dtype=bfloat16 \(baseline: null\)") as told:
        from_trainer(build_trainer, {"batch_size": 8}).build_dataset()
    written_out = str(told.value).partition("BASELINE = ")[2].partition(" and give")[0]
    assert ast.literal_eval(written_out) == {**right, "prefetch_factor": 2}
    assert from_trainer(build_trainer, ast.literal_eval(written_out)).build_dataset()


def test_an_optimizer_is_that_of_the_model_whose_parameters_are_given() -> None:
    installed("lightning")
    import torch
    from lightning.pytorch import LightningModule

    from autotune.adapters.lightning import from_lightning

    class Net(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    parts = from_lightning(Net, lambda: None)
    models = [parts.build_model() for _ in range(2)]
    for model in models:
        (group,) = parts.build_optimizer(model.parameters()).param_groups
        assert list(map(id, group["params"])) == list(map(id, model.parameters()))
    with pytest.raises(ValueError, match="parameters of no model that build_model made"):
        parts.build_optimizer(Net().parameters())


def test_a_baseline_that_the_loader_does_not_have_is_refused_with_the_right_one() -> None:
    installed("lightning")
    import torch
    from torch.utils.data import DataLoader

    from autotune.adapters.lightning import from_lightning

    loader = DataLoader(torch.zeros(64, 1), batch_size=16)
    mine = {"batch_size": 16, "num_threads": 1}
    assert from_lightning(list, lambda: loader, mine).build_dataset() is loader.dataset
    for given, right in (
        (None, {"batch_size": 16}),
        ({"num_workers": 2, "num_threads": 1, "batch_size": 16}, {**mine, "num_workers": 0}),
    ):
        with pytest.raises(ValueError, match=r"^the DataLoader: ") as told:
            from_lightning(list, lambda: loader, given).build_dataset()
        written_out = str(told.value).partition("BASELINE = ")[2].partition(" and give")[0]
        assert ast.literal_eval(written_out) == right
