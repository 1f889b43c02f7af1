"""Functions of a model.py that adapters make: which optimizer, which baseline, what they refuse."""

from __future__ import annotations

import ast

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
    with pytest.raises(ValueError, match=r"of Asks uses self\.trainer.* Search the script that"):
        asking.build_optimizer(model.parameters())

    parts = from_lightning(Two, lambda: None)
    model = parts.build_model()
    with pytest.raises(ValueError, match="of Two gives 2 optimizers"):
        parts.build_optimizer(model.parameters())
    with pytest.raises(ValueError, match="ByHand sets automatic_optimization = False"):
        from_lightning(ByHand, lambda: None).build_model()


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
