"""An answer says that nothing read a variable of the user's own back."""

import pytest

from autotune.configuration.best_config import read_best
from autotune.console.answer_lines import answer_lines
from autotune.production import Best
from scripted_runner import ScriptedRunner, at, events_of, unstored_in

SPACE = "env:\n  FOO: {values: [null, '1'], effect: exact}\nnum_workers: [0, 2]\n"
TOLD = "env FOO=1: nothing read it back"


def answered(folder, name):
    """The lines and the file of a search in which this setting is what makes it faster."""
    runner = ScriptedRunner(lambda config, _: at(200 if config[name] else 100))
    last = events_of(unstored_in(folder, SPACE, trials=4), runner)[-1]
    return answer_lines(last), read_best(last.path)


@pytest.mark.parametrize(("name", "is_told"), [("env.FOO", True), ("num_workers", False)])
def test_a_variable_of_the_answer_is_said_to_be_unproven(name, is_told, tmp_path):
    lines, best = answered(tmp_path, name)
    assert bool(best.config[name])
    assert (f"  not proven  {TOLD}" in lines) == is_told
    assert (f"  not proven  {TOLD}" in Best(best).explain().splitlines()) == is_told
    assert best.evidence.not_read_back == (("env.FOO",) if is_told else None)
    assert ("not_read_back" in (tmp_path / "best.yaml").read_text()) == is_told
