"""Who may import whom: two processes with one vocabulary, each module below those that use it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "autotune"

# Low to high: a module imports only from those before it on its side, and from the shared ones.
# `package:` stands before modules of the same package.
LAYERS = """
shared   version errors text suggest lr_scaling non_inferiority machine intervals measurement
shared   strict_json workload_facts outcome strict_yaml
shared   knobs.base knobs.loader knobs.precision knobs.model knobs.process knobs knobs.page
shared   config script space_file space objectives constraints job trial_folder best lifeline
shared   channel cores mismatch
child    training training.workload training.settings training.apply training.batches
child    training.boundary training.disturbance
child    training.timing training.memory
child    training.quality training.failures training.inspection training.tasks
child    training.diagnose training.operators
child    training.trajectory training.gate
child    scripting scripting.program scripting.seen scripting.outer scripting.optimizers
child    scripting.sites scripting.snapshot scripting.loaders
child    scripting.interpose scripting.report scripting.run
child    scripting.feed scripting.observe scripting.printed scripting.timed
child    scripting.trial scripting.perform
child    training.worker
child    training.preload training.host
parent   tuning tuning.running tuning.sampling tuning.storing tuning.judging tuning.confirming
parent   tuning.running: launch family logs runner
parent   tuning.sampling: samplers
parent   tuning.confirming: rounds belief
parent   tuning.sampling: surrogate encoding promise coverage surrogate_sampler
parent   tuning.storing: lock heartbeat storage leases mutex finished facts lines journal
parent   tuning.storing: knowledge overrule identity retell study own_runs opening archive
parent   tuning.storing: importance repair
parent   tuning.running: stop device_locks devices neighbours
parent   tuning.sampling: stopping warm_start
parent   tuning.running: shrinkage table replay
parent   tuning.observation tuning.scene
parent   tuning.diagnosis
parent   tuning.judging: seeds gates accuracy script_accuracy costs reliance
parent   tuning.confirming: confirm compare
parent   tuning.events
parent   tuning.confirming: fates answer
parent   tuning.reserve
parent   tuning.session
parent   tuning.confirming: candidates unconfirmed
parent   tuning.breaker tuning.forecast
parent   tuning.baseline tuning.trial_plan tuning.drift tuning.foresight tuning.proving
parent   tuning.expense
parent   tuning.trials tuning.crew
parent   tuning.workers
parent   tuning.confirming: playoff conclusion
parent   tuning.search
parent   tuning.running: record
parent   export.form export.env export.torchrun export.json_object export.python_literal
parent   export.deepspeed export.lightning export.timm export.accelerate export.hf export
parent   tables progress comparison interrupts board live drive flags
parent   report report.source report.data report.account report.effects report.explain
parent   report.frame report.summary report.terminal report.svg report.marks
parent   report.trial_charts report.knob_charts report.stage_charts report.html
parent   dashboard dashboard.guard dashboard.place dashboard.plots dashboard.note
parent   dashboard.logs dashboard.attributes dashboard.attach dashboard.shorten dashboard.serve
parent   commands commands.common commands.scripts commands.init commands.search
parent   commands.profile commands.record commands.compare commands.dashboard commands.export
parent   commands.report commands.run commands.show commands.repair commands.worker
parent   cli __main__
user     model_template production notebook __init__
"""
SEEN_BY = {
    "shared": [],
    "child": ["shared"],
    "parent": ["shared"],
    "user": ["shared", "child", "parent"],
}
ROWS: dict[str, list[str]] = {}
for side, *modules in map(str.split, LAYERS.strip().splitlines()):
    package = modules.pop(0).replace(":", ".") if modules[0].endswith(":") else ""
    ROWS.setdefault(side, []).extend(package + module for module in modules)


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def side_of(module: str) -> str:
    return next(side for side, row in ROWS.items() if module in row)


def on_side(side: str) -> list[str]:
    return [module for module in ROWS[side] if module in SOURCES]


def imports(module: str, deep: bool = True) -> Iterator[str]:
    """Full names of what a module imports; what is only for type checkers does not count.

    Shallow leaves out what is imported inside functions.
    """
    pending: list[ast.AST] = [ast.parse(SOURCES[module].read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING"), orelse=orelse):
                pending += orelse
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if not deep:
                continue
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(name, names, level):
                assert level == 0, f"{module} has a relative import"
                yield from (submodule(str(name), alias.name) for alias in names)
            case _:
                pending += ast.iter_child_nodes(node)


def submodule(package: str, name: str) -> str:
    """`autotune.knobs` for `from autotune import knobs`; the package where a name is no module."""
    full = f"{package}.{name}"
    return full if full.removeprefix("autotune.") in SOURCES else package


def own_imports(module: str) -> set[str]:
    """Modules of the package that a module imports; the package itself is `__init__`."""
    names = {name for name in imports(module) if name.partition(".")[0] == "autotune"}
    return {name.removeprefix("autotune.") if name != "autotune" else "__init__" for name in names}


def foreign_imports(module: str, deep: bool = True) -> set[str]:
    return {name.partition(".")[0] for name in imports(module, deep)}


def test_every_module_stands_in_exactly_one_row() -> None:
    listed = Counter(module for row in ROWS.values() for module in row)
    assert {module: listed[module] for module in SOURCES} == dict.fromkeys(SOURCES, 1)


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_imports_only_from_below(module: str) -> None:
    side = side_of(module)
    row = ROWS[side]
    below = row[: row.index(module)] + [m for other in SEEN_BY[side] for m in ROWS[other]]
    assert own_imports(module) - set(below) == set()


@pytest.mark.parametrize("module", on_side("shared"))
def test_a_shared_module_loads_no_torch_and_never_optuna(module: str) -> None:
    assert "torch" not in foreign_imports(module, deep=False)
    assert "optuna" not in foreign_imports(module)


@pytest.mark.parametrize("module", [m for m in on_side("shared") if not m.startswith("knobs")])
def test_only_the_hooks_of_knobs_import_torch_on_the_shared_side(module: str) -> None:
    assert "torch" not in foreign_imports(module)


@pytest.mark.parametrize("module", on_side("child"))
def test_a_child_module_never_imports_optuna(module: str) -> None:
    assert "optuna" not in foreign_imports(module)


@pytest.mark.parametrize("module", on_side("parent"))
def test_a_parent_module_never_imports_torch(module: str) -> None:
    assert "torch" not in foreign_imports(module)


@pytest.mark.parametrize(
    ("statement", "unloaded"),
    [
        ("import autotune", "torch optuna pydantic yaml numpy"),
        ("import autotune.cli", "torch optuna pydantic"),
        ("import autotune.tuning.search", "torch"),
        ("import autotune.training.worker, autotune.training.tasks", "optuna sqlalchemy"),
    ],
)
def test_importing_loads_nothing_that_it_does_not_need(statement: str, unloaded: str) -> None:
    program = (
        f"{statement}\nimport sys\n"
        f"print([name for name in {unloaded.split()!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
