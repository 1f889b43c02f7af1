"""Settings reach a script through arguments of the classes and functions that it calls."""

import pytest

from autotune.configuration.best_config import read_best
from children import autotune, hurried
from factories import written
from tiers import late
from tuned_scripts import SCRIPTS, report_of, run

LIBRARY = "trainer_library"
BATCH = f"batch_size=call:{LIBRARY}.Arguments.batch_size"


@pytest.mark.parametrize(
    ("settings", "printed", "said"),
    [
        ({"batch_size": 64}, "- 64 0.5", f"batch_size=64 (by {BATCH.partition('=')[2]})"),
        late({f"calls.{LIBRARY}.Arguments.doubled": True}, "- 32 0.5", "Arguments.doubled=true"),
        late({f"calls.{LIBRARY}.Fit.momentum": 0.25}, "- 16 0.25", "Fit.momentum=0.25"),
        late({f"calls.{LIBRARY}.report.mark": "!"}, "! 16 0.5", "report.mark=!"),
    ],
)
def test_run_passes_settings_to_what_the_script_calls(tmp_path, settings, printed, said):
    maps = ("--map", BATCH) if "batch_size" in settings else ()
    done = run(tmp_path, "--allow-numerics", *maps, SCRIPTS / "calls_library.py", **settings)
    assert done.stdout.strip() == printed, done.stderr
    applied = [line for line in report_of(done) if line.startswith("applied: ")]
    assert said in applied[0]


def test_a_call_that_fails_with_a_setting_is_repeated_without_it(tmp_path):
    settings = {f"calls.{LIBRARY}.Fit.momentum": 2, f"calls.{LIBRARY}.Gone.size": 3}
    done = run(tmp_path, "--allow-numerics", SCRIPTS / "calls_library.py", **settings)
    assert done.stdout.strip() == "- 16 0.5", done.stderr
    said = "\n".join(report_of(done))
    assert f"calls.{LIBRARY}.Fit.momentum=2 (AssertionError: momentum 2)" in said
    assert f"calls.{LIBRARY}.Gone.size=3 (the script did not call {LIBRARY}.Gone)" in said


def test_arguments_of_calls_are_searched_and_the_result_applies_them(tmp_path):
    space = written(
        tmp_path,
        "batch_size: [16, 32]\n"
        f"calls:\n  {LIBRARY}.Fit.momentum: {{values: [null, 0.25], effect: exact}}\n"
        f"  {LIBRARY}.Gone.size: {{values: [null, 2], effect: exact}}\n",
    )
    script = SCRIPTS / "calls_library.py"
    options = ("--space", space, "--trials", "4", "--map", BATCH)
    done = hurried(tmp_path, "search", script, *options, "--", "forever")
    assert done.returncode == 0, done.stderr
    assert (
        f"stays as it is: the script was not seen to call {LIBRARY}.Gone; write the" in done.stderr
    )
    found = read_best(tmp_path / "studies" / "calls_library" / "best.yaml")
    assert found.evidence.searched.measured >= 2, done.stderr
    assert found.evidence.searched.failed == 0, done.stderr
    assert BATCH in found.provenance.maps
    assert found.evidence.searched.tried[f"calls.{LIBRARY}.Fit.momentum"] == (None, 0.25)


def test_a_map_to_what_the_script_does_not_call_is_refused(tmp_path):
    way = f"batch_size=call:{LIBRARY}.Gone.batch_size"
    done = autotune(tmp_path, "search", SCRIPTS / "calls_library.py", "--map", way, "--", "forever")
    assert done.returncode == 2, done.stderr
    assert f"--map {way}: the script was not seen to call {LIBRARY}.Gone; write the" in done.stderr
