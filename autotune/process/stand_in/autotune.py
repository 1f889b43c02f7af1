"""The package, for an interpreter in which it is not installed.

This folder is on the PYTHONPATH of such an interpreter, see `process.common.interpreter`, and the
other packages that are installed beside autotune are not. The first import replaces this module by
the package two folders above.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[2]
_SPEC = spec_from_file_location(
    "autotune", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
)
assert _SPEC is not None
assert _SPEC.loader is not None
sys.modules["autotune"] = module_from_spec(_SPEC)
_SPEC.loader.exec_module(sys.modules["autotune"])
