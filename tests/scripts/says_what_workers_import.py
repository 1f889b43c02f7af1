"""Loads with workers, started the way its argument says, and says what they had to import."""

import sys

from torch import multiprocessing
from torch.utils.data import DataLoader, Dataset


class Modules(Dataset):
    def __init__(self, known: list[str]) -> None:
        self.known = known

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[str]:
        return sorted(m for m in sys.modules if m.startswith("autotune") and m not in self.known)


def main() -> None:
    # A fork has what its parent had; anything else a worker would have imported itself.
    known = [] if sys.argv[1] == "spawn" else list(sys.modules)
    context = multiprocessing.get_context(sys.argv[1])
    loader = DataLoader(
        Modules(known), num_workers=1, multiprocessing_context=context, collate_fn=list
    )
    found = sorted({name for batch in loader for sample in batch for name in sample})
    print(loader.num_workers, found)


if __name__ == "__main__":
    main()
