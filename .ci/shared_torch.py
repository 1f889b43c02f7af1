"""Let a virtual environment use the packages of this Python, if its torch is recent enough.

    python3 .ci/shared_torch.py .venv > .venv/constraints.txt

The output is a constraint for pip: the version of that torch. It is empty where there is none, and
pip then downloads one. Unlike `venv --system-site-packages`, this also works where this Python
is one of a virtual environment.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_RELEASED = re.compile(r"(\d+)\.(\d+)[\d.]*(?:\.post\d+)?(?:\+.*)?")


def main(environment: Path) -> None:
    """Share the packages, or say why not."""
    lowest = _lowest()
    found = _torch()
    if found is None or not is_enough(found, lowest):
        have = "no torch" if found is None else f"torch {found}"
        print(
            f"{sys.executable} has {have}, and autotune needs {lowest} or newer: "
            f"pip downloads it into {environment}, with CUDA several gigabytes",
            file=sys.stderr,
        )
        return
    share(environment)
    print(f"{environment} uses torch {found} of {sys.executable}", file=sys.stderr)
    print(f"torch=={found}")


def is_enough(found: str, lowest: str) -> bool:
    """Return True if `found` is a release of at least `lowest`.

    A pre-release never is: no release of torchvision goes with it.
    """
    released = _RELEASED.fullmatch(found)
    if released is None:
        return False
    major, minor = lowest.split(".")
    return (int(released[1]), int(released[2])) >= (int(major), int(minor))


def share(environment: Path) -> None:
    """Put the folders of this Python's packages behind those of the environment."""
    folders = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    # Read after the file that points at the checkout: its name comes later in the alphabet.
    (packages / "shared.pth").write_text("".join(f"{folder}\n" for folder in folders))


def _lowest() -> str:
    """Return the lowest torch that pyproject.toml allows, as `major.minor`."""
    found = re.search(r'"torch>=(\d+\.\d+)', PROJECT.read_text(encoding="utf-8"))
    assert found is not None, f"{PROJECT} names no lowest torch"
    return found[1]


def _torch() -> str | None:
    """Return the version of a torch that can be imported, else None."""
    try:
        found = version("torch")
        import_module("torch")
    except (PackageNotFoundError, ImportError, OSError):
        return None
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
