"""Libraries and programs that some tests need and not every machine has.

Without them such a test is skipped, with a line that says how to get them. With
AUTOTUNE_ALL_TESTS=required, which .ci/run sets, it fails instead.
"""

import os
from importlib.util import find_spec
from types import ModuleType
from typing import NoReturn

import pytest

_EXTRA, _GROUP = "-e '.[{}]'", "--group {}"
HOW = {
    **dict.fromkeys(("PIL", "sklearn", "torchvision"), _GROUP.format("examples")),
    **dict.fromkeys(
        ("transformers", "accelerate", "lightning", "timm", "torchdata"),
        _GROUP.format("frameworks"),
    ),
    "playwright": _GROUP.format("browser"),
    "psycopg": _EXTRA.format("postgres"),
    "pymysql": _EXTRA.format("mysql"),
    **dict.fromkeys(("hydra", "jsonargparse", "tensorboard"), _GROUP.format("test")),
    "tyro": _GROUP.format("test"),
    **dict.fromkeys(("sphinx", "myst_parser", "sphinx_click", "furo"), _GROUP.format("site")),
}
"""Words for `pip install`, in a checkout, to get a library."""


def library(name: str) -> ModuleType:
    """Import a library, or end the test that needs it."""
    installed(name)
    module: ModuleType = pytest.importorskip(name)
    return module


def installed(name: str) -> None:
    """End the test that needs a library where it is not installed."""
    if find_spec(name) is None:
        missing(name, f"`make check` or pip install {HOW[name]}")


def missing(what: str, how: str) -> NoReturn:
    """End the running test, which needs `what`, and say how to get it."""
    reason = f"{what} is not installed: {how}"
    if os.environ.get("AUTOTUNE_ALL_TESTS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)
