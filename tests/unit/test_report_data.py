"""What is read from a study, whatever state it is in, and what is said of it."""

from __future__ import annotations

import gc
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import optuna
import pandas as pd
import pytest

from autotune.configuration.best_config import NOT_MEASURED, UNCHANGED, BestConfig, write_best
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.console.answer_lines import answer_lines
from autotune.dashboard.note import summary as note_of
from autotune.knobs import KNOBS
from autotune.production import Best
from autotune.report.data import ReportData, read_report
from autotune.report.effects import importances, knob_effects
from autotune.report.explain import explanation, headline
from autotune.report.find_study import StudyPlace, find_study
from autotune.report.frame import COLUMNS, trials_frame
from autotune.report.html import changes, page
from autotune.report.stage_charts import shade
from autotune.report.summary import summary
from autotune.report.terminal import after_table, aligned, before_table, chosen_trials, row_of
from autotune.report.totals import failure_kinds, phases
from autotune.searching.run.events import Answered
from autotune.storage.note_types import Answer
from autotune.storage.trial_details import TrialDetails
from autotune.study.archive import OpenTrial, read_archive
from autotune.study.opening import open_study
from autotune.values.errors import StorageError, UsageError
from factories import best_config
from reporting import OWN, Page, report_of, trial
from tuning import CRASHED, HOLDS, OOM, OVER_MEMORY, THROUGHPUT, tell

BASELINE = TrainingConfig.of(OWN)
FASTER = {"amp_dtype": "bfloat16"}


def answered(*others, number: int = 1, **notes) -> ReportData:
    """A study whose trial 1 was confirmed at 1.5 times."""
    best = best_config(BASELINE.replace(**FASTER), BASELINE)
    best = best.model_copy(update={"provenance": replace_trial(best, number)})
    return report_of([trial(0), trial(1, 160.0, **FASTER), *others], best, notes=notes)


def replace_trial(best: BestConfig, number: int):
    return best.provenance.model_copy(update={"trial": number})


def unmeasured() -> BestConfig:
    """The answer of a search in which nothing could change the quality."""
    best = best_config(BASELINE.replace(num_workers=2), BASELINE)
    nothing = {"baseline": 0.0, "best": 0.0, "tolerance": 0.0, "margin": 0.0, "samples": 0}
    told = {"metric": UNCHANGED, "evidence": "exact", "needs_full_run": False, **nothing}
    accuracy = best.constraints.accuracy.model_copy(update=told)
    constraints = best.constraints.model_copy(update={"accuracy": accuracy})
    return best.model_copy(update={"constraints": constraints})


def said_of(best: BestConfig) -> dict[str, str]:
    """What people read of an answer, wherever they do; best.yaml itself is for programs."""
    data = report_of([trial(0), trial(1, 150.0, num_workers=2)], best)
    study = optuna.create_study()
    study.set_user_attr("answer", {"trials": 2, "best": best.model_dump(mode="json")})
    return {
        "terminal": "\n".join(before_table(data)),
        "sentences": "\n".join(explanation(data)),
        "page": Page(page(data).partition('aria-labelledby="yaml"')[0]).text,
        "note": note_of(study, []),
        "end of a search": "\n".join(answer_lines(Answered(best, Path("best.yaml")))),
        "production": Best(best).explain(),
    }


def all_outputs(data: ReportData) -> list[str]:
    """Every output, so that none of them fails on what a study lacks."""
    shown = [row_of(data, one) for one in chosen_trials(data)]
    lines = [*before_table(data), *(aligned(shown) if shown else []), *after_table(data, 0)]
    table = trials_frame(data).to_csv(index=False)
    return [page(data), summary(data), table, "\n".join(explanation(data)), "\n".join(lines)]


def test_without_an_answer_the_digest_of_the_machine_is_not_called_the_machine() -> None:
    text = Page(page(report_of([trial(0)], notes={"identity": {"machine": "0123abcd"}}))).text
    assert "machine fingerprint0123abcd" in text


@pytest.mark.parametrize("place", said_of(unmeasured()))
def test_a_quality_that_nothing_could_change_is_said_not_to_be_measured(place: str) -> None:
    text = said_of(unmeasured())[place]
    assert NOT_MEASURED in text
    assert UNCHANGED not in text
    assert "seeds" not in text
    measured = said_of(best_config(BASELINE.replace(num_workers=2), BASELINE))[place]
    assert NOT_MEASURED not in measured
    assert "evaluate" in measured


def test_each_trial_stands_for_one_thing() -> None:
    data = answered(
        trial(2, 90.0),
        trial(3, None, OOM, batch_size=64),
        trial(4, 200.0, {**HOLDS, "accuracy": 0.2}, batch_size=32),
        trial(5, None, CRASHED, batch_size=8),
        trial(6, 300.0, batch_size=128),
        confirmation={"seconds": 9.0, "candidates": {"6": {"refused": "accuracy"}}},
    )
    standings = [data.standing(one) for one in data.trials]
    measured = ["baseline", "answer", "feasible"]
    assert standings == [*measured, "memory", "accuracy", "failed", "refused"]


def test_rates_are_compared_with_the_baseline() -> None:
    data = answered()
    assert data.ratio(data.trials[1]) == pytest.approx(1.6)
    assert data.ratio_interval(data.trials[1]) == pytest.approx((1.6, 1.6))
    assert data.answer is data.trials[1]


def test_an_answer_of_another_trial_marks_none() -> None:
    assert answered(number=7).answer is None


STATES = {
    "nothing": report_of(),
    "only the baseline": report_of([trial(0)]),
    "a baseline that is infeasible": report_of([trial(0, None, OOM, "out of memory")]),
    "only infeasible trials": report_of(
        [trial(0, 90.0, OVER_MEMORY), trial(1, None, CRASHED, "died", batch_size=32)]
    ),
    "lost and running": report_of(
        [trial(0), trial(1, 120.0, batch_size=32)],
        open=(
            OpenTrial(2, "lost", BASELINE, "interrupted"),
            OpenTrial(3, "running", None, ""),
        ),
    ),
    "no details": report_of(
        [
            replace(one, details=TrialDetails())
            for one in (trial(0), trial(1, None, CRASHED, batch_size=8))
        ]
    ),
    "the answer alone": report_of([], best_config(BASELINE.replace(**FASTER), BASELINE)),
    "keep your settings": report_of([trial(0)], best_config(BASELINE, BASELINE)),
    "an answer": answered(),
    "notes of another make": answered(
        diagnosis={"what": "is this"}, confirmation="none", identity=[]
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_every_output_is_there_whatever_state_a_study_is_in(state: str) -> None:
    written = all_outputs(STATES[state])
    assert all(written)
    assert "None" not in written[4]
    assert json.loads(written[1])["schema_version"] == 1


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("nothing", "No answer yet: no trial has ended. It can be continued."),
        ("only the baseline", "No answer yet: of 1 trials, none is faster than your settings. It"),
        ("only infeasible trials", "No answer: no trial is feasible, your own settings included."),
        (
            "lost and running",
            "trial 1 is the fastest, 1.20x your settings. Nothing is confirmed. A",
        ),
        ("keep your settings", "Keep your settings: nothing was faster beyond the noise."),
        ("an answer", "1.50x faster than your settings (1.45 to 1.55, 6 rounds): amp_dtype="),
    ],
)
def test_the_headline_says_how_far_the_search_is(state: str, sentence: str) -> None:
    assert sentence in headline(STATES[state])


@pytest.mark.parametrize(
    ("fate", "sentence"),
    [
        ({"ratios": [1.1], "refused": "too slow"}, "was a candidate and was not confirmed: too sl"),
        ({"ratios": [1.1], "set_aside_for": 1}, "was a candidate, set aside for trial 1"),
        ({"ratios": [1.1]}, "was a candidate, and another was confirmed first"),
        ({}, "is slower than trial 1 beyond both intervals"),
    ],
)
def test_a_runner_up_lost_for_the_reason_that_the_study_knows(fate, sentence: str) -> None:
    notes = {"seconds": 9.0, "candidates": {"2": fate} if fate else {}}
    text = "\n".join(explanation(answered(trial(2, 150.0, batch_size=32), confirmation=notes)))
    assert f"Trial 2 (1.50x, batch_size=32) {sentence}" in text


def test_an_infeasible_trial_that_was_faster_is_explained_by_its_reason() -> None:
    greedy = trial(2, 400.0, OVER_MEMORY, "memory: 25 % over the limit", batch_size=64)
    text = "\n".join(explanation(answered(greedy)))
    assert "Trial 2 (4.00x, batch_size=64) is infeasible: memory: 25 % over the limit." in text


def test_a_change_says_when_it_pays_and_taking_it_back_what_more_would_cost() -> None:
    own = TrainingConfig.of({"batch_size": 32, "channels_last": True})
    best = best_config(own.replace(batch_size=16, channels_last=False, amp_dtype="bfloat16"), own)
    why = {change.knob: change.why for change in changes(report_of([], best), ())}
    assert why["amp_dtype"] == KNOBS["amp_dtype"].pays
    for name in ("batch_size", "channels_last"):
        assert why[name] == f"More can hurt: {KNOBS[name].hurts}"


def test_a_change_that_slowed_its_trials_down_is_not_praised() -> None:
    slower = {"float32_matmul_precision": "medium"}
    trials = [
        trial(0),
        trial(1, 150.0, **FASTER),
        trial(2, 120.0, **FASTER, **slower),
        trial(3, 80.0, **slower),
        trial(4, 155.0, **FASTER, batch_size=32),
    ]
    data = report_of(trials, best_config(BASELINE.replace(**FASTER, **slower), BASELINE))
    why = {one.knob: one.why for one in changes(data, knob_effects(data.trials, BASELINE))}
    assert why["float32_matmul_precision"].startswith("Gains nothing by itself here")
    assert why["amp_dtype"] == KNOBS["amp_dtype"].pays


def test_a_rate_of_a_slower_machine_says_so_beside_its_ratio() -> None:
    slow = replace(trial(1, 100.0, **FASTER), details=TrialDetails(machine_speed=0.8))
    assert row_of(report_of([trial(0), slow]), slow)[-1] == "machine at 80 % of its first speed"


def test_failures_are_counted_by_kind_with_the_first_line_of_the_first() -> None:
    data = report_of(
        [
            trial(0),
            trial(1, None, CRASHED, "killed by SIGSEGV\nmore", batch_size=8),
            trial(2, 130.0, OVER_MEMORY, "memory: 25 % over the limit", batch_size=32),
            trial(3, None, CRASHED, "killed by SIGBUS", batch_size=64),
        ],
        open=(OpenTrial(4, "lost", None, ""), OpenTrial(5, "running", None, "")),
    )
    kinds = [(one.kind, one.trials, one.example) for one in failure_kinds(data)]
    assert kinds[0] == ("crashed", (1, 3), "killed by SIGSEGV")
    assert ("accuracy", (2,), "memory: 25 % over the limit") in kinds, "the largest margin"
    assert ("lost", (4,), "the process that ran it is gone") in kinds


def test_time_is_told_by_what_it_was_spent_on() -> None:
    noted = {
        "confirmation": {"seconds": 30.0, "candidates": {}},
        "phase_seconds": {"accuracy": 9.0, "proving": 4.0},
    }
    data = answered(trial(2, None, CRASHED, batch_size=8), **noted)
    assert all(re.fullmatch(r"shade\d", shade(phase)) for phase in phases(data))
    spent = {phase.name: phase.seconds for phase in phases(data)}
    run = data.trials[1].details.measurement
    assert spent["your settings: timing"] == 2.0
    assert spent["your settings: accuracy"] == 9.0
    assert spent["validation of incumbents"] == 4.0
    assert "diagnosis" not in spent, "nothing is known of it"
    assert spent["trials: timing"] == pytest.approx(sum(b.seconds for b in run.blocks))
    assert spent["trials that gave no number"] == 2.0
    assert spent["confirmation"] == 30.0


def test_the_table_has_a_row_for_each_trial_and_null_is_no_gap() -> None:
    data = report_of(
        [trial(0), trial(2, None, CRASHED, "died", batch_size=8)],
        open=(OpenTrial(1, "lost", BASELINE, "disk full"),),
    )
    read = pd.read_csv(io.StringIO(trials_frame(data).to_csv(index=False)), keep_default_na=False)
    assert list(read.columns) == list(COLUMNS)
    assert list(read["trial"]) == [0, 1, 2]
    assert list(read["state"]) == ["finished", "lost", "finished"]
    assert list(read["amp_dtype"]) == ["null"] * 3
    assert list(read["outcome"]) == ["measured", "", "crashed"]
    assert list(read["reason"]) == ["", "disk full", "died"]


def test_numbers_that_are_none_become_null_in_json() -> None:
    odd = replace(trial(0), details=TrialDetails(quality=float("nan"), seconds=float("inf")))
    told = json.loads(summary(report_of([odd])))["trials"][0]
    assert (told["quality"], told["seconds"]) == (None, None)


def test_a_large_study_shows_the_fastest_in_the_terminal() -> None:
    trials = [trial(0), *(trial(n, 100.0 + n, batch_size=16 + n) for n in range(1, 50))]
    data = report_of(trials)
    shown = chosen_trials(data)
    assert [one.number for one in shown] == [0, *range(49, 30, -1)]
    assert after_table(data, len(shown))[0].startswith("30 slower or infeasible trials")


def test_what_is_finished_lost_and_running_is_read_from_a_storage(
    nine: SearchSpace, url: str
) -> None:
    study = open_study("mine", url, nine, THROUGHPUT)
    config = tell(study, 80.0, HOLDS)
    study.lose(study.ask()[0], "disk full")
    study.ask()
    archive = read_archive(url)
    assert [(one.number, one.config) for one in archive.finished] == [(0, config)]
    assert [(one.number, one.state) for one in archive.open] == [(1, "lost"), (2, "running")]
    assert archive.open[0].reason == "disk full"
    assert headline(read_report(StudyPlace(url, None))).startswith("No answer yet")


def test_reading_changes_nothing(nine: SearchSpace, url: str, tmp_path: Path) -> None:
    tell(open_study("mine", url, nine, THROUGHPUT), 80.0, HOLDS)
    before = (tmp_path / "study.db").read_bytes()
    read_archive(url)
    assert (tmp_path / "study.db").read_bytes() == before


def test_reading_does_not_go_through_everything_for_garbage(nine: SearchSpace, url: str) -> None:
    study = open_study("mine", url, nine, THROUGHPUT)
    for _ in range(9):
        tell(study, 80.0, HOLDS)
    read_archive(url)  # what is imported on the way
    seen: list[str] = []
    gc.callbacks.append(lambda phase, _: seen.append(phase))
    try:
        read_archive(url)
    finally:
        gc.callbacks.pop()
    assert gc.isenabled()
    assert seen.count("start") <= 2, "only before and after"


def test_a_storage_of_several_studies_asks_which(nine: SearchSpace, url: str) -> None:
    for name in ("one", "two"):
        tell(open_study(name, url, nine, THROUGHPUT), 80.0, HOLDS)
    with pytest.raises(UsageError, match=r"several studies: 'one', 'two'\. Choose one"):
        read_archive(url)
    with pytest.raises(UsageError, match="no study 'three', but 'one', 'two'"):
        read_archive(url, "three")
    assert read_archive(url, "two").name == "two"


def test_a_study_of_somebody_elses_is_refused(url: str) -> None:
    other = optuna.create_study(storage=url, study_name="other")
    other.optimize(lambda t: t.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(UsageError, match="'other' was not made by autotune"):
        read_archive(url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    for name, content in (("text.db", b"no database" * 99), ("empty.db", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(StorageError, match=name):
            read_archive(f"sqlite:///{tmp_path / name}")
    assert (tmp_path / "empty.db").read_bytes() == b"", "no tables are made"


@pytest.mark.parametrize("study", ["mine", "studies/mine", "studies/mine/study.db"])
def test_a_study_is_found_by_name_folder_and_file(study: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("studies", "mine")
    folder.mkdir(parents=True)
    (folder / "study.db").touch()
    (folder / "best.yaml").touch()
    wanted = StudyPlace("sqlite:///studies/mine/study.db", folder / "best.yaml")
    assert find_study(study) == wanted
    assert find_study("sqlite:///studies/mine/study.db") == wanted


def test_the_folder_of_a_model_does_not_hide_the_study_of_its_name(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path("mnist"), Path("studies", "mnist")):
        folder.mkdir(parents=True)
    Path("mnist", "model.py").touch()
    Path("studies", "mnist", "study.db").touch()
    assert find_study("mnist") == StudyPlace("sqlite:///studies/mnist/study.db", None)
    Path("mnist", "best.yaml").touch()
    assert find_study("mnist") == StudyPlace(None, Path("mnist", "best.yaml"))


def test_without_a_study_the_answer_beside_it_is_read(tmp_path: Path) -> None:
    best = best_config(BASELINE.replace(**FASTER), BASELINE)
    write_best(best, tmp_path / "recorded_best.yaml")
    for named in (tmp_path, tmp_path / "recorded_best.yaml"):
        data = read_report(find_study(str(named)))
        assert data.best == best
        assert "which holds no trials" in data.remarks[0]


@pytest.mark.parametrize(
    ("study", "words"),
    [
        ("nowhere", ["'nowhere'", "neither nowhere nor studies/nowhere", "Name a study"]),
        ("empty", ["empty holds neither study.db nor best.yaml"]),
        ("://", ["not a storage URL"]),
    ],
)
def test_what_is_not_there_is_said(study, words, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    with pytest.raises(UsageError) as refused:
        find_study(study)
    assert all(word in str(refused.value) for word in words)


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"absent\.db does not exist"):
        find_study(f"sqlite:///{tmp_path / 'absent.db'}")
    assert not (tmp_path / "absent.db").exists()


def test_an_answer_that_trials_came_after_says_so(nine: SearchSpace, url: str) -> None:
    study = open_study("tiny", url, nine, THROUGHPUT)
    best = best_config(BASELINE.replace(**FASTER), BASELINE)
    study.notes.answer = Answer(1, best)
    for rate in (80.0, 90.0, 95.0):
        tell(study, rate, HOLDS)
    data = read_report(StudyPlace(url, None))
    assert data.best == best
    assert "confirmed after 1 trials; 2 came later" in data.remarks[0]


@pytest.mark.parametrize("study", ["tiny", "other"])
def test_the_file_beside_a_study_counts_where_it_is_of_that_study(
    study: str, nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    tell(open_study(study, url, nine, THROUGHPUT), 80.0, HOLDS)
    write_best(best_config(BASELINE, BASELINE), tmp_path / "best.yaml")  # of "tiny"
    data = read_report(StudyPlace(url, tmp_path / "best.yaml"))
    assert (data.best is not None) == (study == "tiny")
    assert any("is of study 'tiny'" in remark for remark in data.remarks) == (study == "other")


def test_importances_come_with_enough_trials() -> None:
    """Larger batches are faster, workers make no difference."""
    trials = [
        trial(n, 10.0 * batch + n, batch_size=batch, num_workers=2 * (n % 2))
        for n, batch in enumerate((16, 32, 64) * 5)
    ]
    found = importances(trials)
    assert sum(found.values()) == pytest.approx(1.0)
    assert max(found, key=lambda name: found[name]) == "batch_size"
    assert importances(trials[:11]) == {}
    assert importances([trial(n) for n in range(15)]) == {}


@pytest.mark.parametrize(
    ("change", "lead"),
    [
        (FASTER, "the throughput of your settings, confirmed in fresh processes, "),
        ({}, "Nothing was faster beyond the noise"),
    ],
    ids=["faster", "keep"],
)
def test_the_answer_says_how_much_of_the_search_space_it_rests_on(
    change: dict[str, str], lead: str
) -> None:
    best = best_config(BASELINE.replace(**change), BASELINE)
    varied = {"batch_size": [16, 32, 64], "num_workers": [0, 2], "amp_dtype": [None, "bfloat16"]}
    space = {name: [value] for name, value in BASELINE.as_dict().items()} | varied
    trials = [trial(0), trial(1, 160.0, **FASTER), trial(2, None, batch_size=64)]
    data = report_of(trials, best, notes={"identity": {"space": space}})
    block = Page(page(data)).text
    assert re.search(rf"{lead}(\d+ rounds)?; 1 of 12 configurations was measured", block), (
        "the baseline is none of them"
    )
    assert (
        "1 of 12 configurations were measured. Tried: batch_size 16, 64; amp_dtype null, bfloat16. "
        "Never varied: num_workers."
    ) in explanation(data)
    unknown = Page(page(report_of(trials, best))).text
    assert lead in unknown
    assert "configurations" not in unknown
