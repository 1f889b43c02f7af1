"""Configurations of an earlier search are tried first, as far as this search space has them."""

import optuna
import pytest

from autotune.commands.common import study_folder
from autotune.commands.search import warm_start_from
from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import TrialEnded
from autotune.values.errors import UsageError
from factories import best_config
from scripted_runner import ScriptedRunner, batch_of, events_of, unstored_in
from sharing import opened
from study_factories import CRASHED, HOLDS, tell

BASELINE = TrainingConfig.of({"batch_size": 16})


def earlier(nine, url):
    """A study of five trials, the third infeasible; its configurations."""
    rates = [100.0, 300.0, None, 200.0, 50.0]
    with opened(url, nine, name="earlier") as study:
        return [tell(study, rate, HOLDS if rate else CRASHED) for rate in rates]


def beside_it(nine, url):
    """The one configuration of a second, smaller study."""
    with opened(url, nine, name="my net") as study:
        return tell(study, 80.0, HOLDS)


@pytest.mark.parametrize("name", ["study.db", "."])
def test_the_best_few_of_a_study_come_first(nine, url, tmp_path, name):
    configs = earlier(nine, url)
    assert warm_start_from(str(tmp_path / name)) == (configs[1], configs[3], configs[0])


def test_an_answer_has_one_configuration(tmp_path):
    wanted = BASELINE.replace(num_workers=2)
    write_best(best_config(wanted, BASELINE), tmp_path / "best.yaml")
    assert warm_start_from(str(tmp_path / "best.yaml")) == (wanted,)


def test_a_study_without_a_feasible_trial_has_nothing_to_give(nine, url, tmp_path):
    with opened(url, nine, name="earlier") as study:
        tell(study, None, CRASHED)
    with pytest.raises(UsageError, match=r"no trial of study 'earlier' .* was feasible"):
        warm_start_from(str(tmp_path / "study.db"))


def test_a_search_tries_the_seeds_first_and_measures_them_itself(tmp_path):
    seeds = (TrainingConfig.of({"batch_size": 64}), TrainingConfig.of({"batch_size": 999}))
    runner = ScriptedRunner()
    events = events_of(unstored_in(tmp_path, trials=4, warm_start=seeds), runner)
    trials = [event.trial for event in events if isinstance(event, TrialEnded)]
    assert [batch_of(trial.config) for trial in trials[:2]] == [8, 64]
    assert runner.batches("trial")[0] == 64
    assert len({trial.config for trial in trials}) == 4, "what is outside is no trial of its own"


def test_a_study_that_is_not_ours_is_refused(tmp_path, url):
    optuna.create_study(storage=url).add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(UsageError, match=r"--warm-start: .* was not made by autotune"):
        warm_start_from(str(tmp_path / "study.db"))


def test_the_named_one_of_several_studies_is_read(nine, url, tmp_path, monkeypatch):
    earlier(nine, url)
    meant = beside_it(nine, url)
    with pytest.raises(UsageError, match=r"holds several studies: 'earlier', 'my net'\. Choose"):
        warm_start_from(str(tmp_path))
    folder = tmp_path / study_folder("my net")
    folder.mkdir(parents=True)
    (tmp_path / "study.db").rename(folder / "study.db")
    monkeypatch.chdir(tmp_path)
    assert warm_start_from("my net") == (meant,)


@pytest.fixture(params=["url", "server_storage"])
def storage(request):
    """A database of its own: a file, or one of a server."""
    return str(request.getfixturevalue(request.param))


def test_a_name_may_be_one_in_the_storage_of_the_search(nine, storage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configs = earlier(nine, storage)
    best = (configs[1], configs[3], configs[0])
    assert warm_start_from(storage) == best
    meant = beside_it(nine, storage)
    for name, wanted in (("my net", (meant,)), ("earlier", best)):
        assert warm_start_from(name, storage) == wanted
    with pytest.raises(UsageError, match="--warm-start: 'absent' is not a study: neither"):
        warm_start_from("absent", storage)
    absent = tmp_path / "absent.db"
    with pytest.raises(UsageError, match="neither earlier nor"):
        warm_start_from("earlier", f"sqlite:///{absent}")
    assert not absent.exists()
    with pytest.raises(UsageError, match="holds several studies: 'earlier', 'my net'"):
        warm_start_from(storage)
