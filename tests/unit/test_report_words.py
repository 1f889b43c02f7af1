"""What the outputs of a report say of a study, whatever state it is in."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import optuna_dashboard
import pytest

from autotune.configuration.accuracy_evidence import NOT_MEASURED, UNCHANGED
from autotune.configuration.best_config import BestConfig, write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.production import Best
from autotune.searching.run.events import Answered
from autotune.storage.note_types import as_json as note_as_json
from dashboards import attached
from factories import best_config
from reporting import OWN, STAGES, Page, trial
from shown_events import lines_of
from stored_study import as_json, as_page, as_rows, lost, report, running, stored
from tuning import CRASHED, OOM, OVER_MEMORY

BASELINE = TrainingConfig.of(OWN)
FASTER = {"amp_dtype": "bfloat16"}
TRIALS = [trial(0), trial(1, 160.0, **FASTER)]
# Beside the settings: what the table says of each trial.
COLUMNS = [
    *("trial", "state", "outcome", "feasible", "value", "ratio_to_baseline"),
    *("samples_per_second", "samples_per_second_low", "samples_per_second_high"),
    *("machine_speed", "peak_memory_bytes", "quality", "compile_seconds", "seconds"),
    *("memory_margin", "accuracy_margin", "ran_margin", "flags", "reason"),
]


def confirmed() -> BestConfig:
    """The answer that trial 1 was confirmed at 1.5 times."""
    best = best_config(BASELINE.replace(**FASTER), BASELINE)
    found = best.provenance.model_copy(update={"trial": 1})
    return best.model_copy(update={"provenance": found})


def answered(url: str, *others: Any, **notes: Any) -> str:
    """A study whose trial 1 was confirmed."""
    return stored(url, [*TRIALS, *others], confirmed(), **notes)


def explained(source: str) -> str:
    return report(source, "--explain")


def unmeasured() -> BestConfig:
    """The answer of a search in which nothing could change the quality."""
    best = best_config(BASELINE.replace(num_workers=2), BASELINE)
    nothing = {"baseline": 0.0, "best": 0.0, "tolerance": 0.0, "margin": 0.0, "samples": 0}
    told = {"metric": UNCHANGED, "evidence": "exact", "needs_full_run": False, **nothing}
    accuracy = best.constraints.accuracy.model_copy(update=told)
    constraints = best.constraints.model_copy(update={"accuracy": accuracy})
    return best.model_copy(update={"constraints": constraints})


def noted(source: str) -> str:
    """The note of a study that the dashboard shows."""
    attached(source)
    study = optuna.load_study(study_name="made up", storage=source)
    return optuna_dashboard.get_note(study)


# What people read of an answer, wherever they do; best.yaml itself is for programs.
PLACES: dict[str, Callable[[str, BestConfig], str]] = {
    "terminal": lambda url, best: report(url),
    "sentences": lambda url, best: explained(url),
    "page": lambda url, best: (
        Page(report(url, "--html", "-").partition('aria-labelledby="yaml"')[0]).text
    ),
    "note": lambda url, best: noted(url),
    "end of a search": lambda url, best: "\n".join(lines_of([Answered(best, Path("best.yaml"))])),
    "production": lambda url, best: Best(best).explain(),
}


def test_without_an_answer_the_digest_of_the_machine_is_not_called_the_machine(url: str) -> None:
    text = as_page(stored(url, [trial(0)], identity={"machine": "0123abcd"})).text
    assert "machine fingerprint0123abcd" in text


@pytest.mark.parametrize("place", PLACES)
def test_a_quality_that_nothing_could_change_is_said_not_to_be_measured(
    place: str, url: str
) -> None:
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    text = PLACES[place](stored(url, trials, unmeasured()), unmeasured())
    assert NOT_MEASURED in text
    assert UNCHANGED not in text
    assert "seeds" not in text


@pytest.mark.parametrize("place", PLACES)
def test_a_quality_that_was_measured_is_told(place: str, url: str) -> None:
    best = best_config(BASELINE.replace(num_workers=2), BASELINE)
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    measured = PLACES[place](stored(url, trials, best), best)
    assert NOT_MEASURED not in measured
    assert "evaluate" in measured
    assert "difference 0.01 (0.004 to 0.016) over the same 3 seeds" in measured


@pytest.mark.parametrize("place", ["terminal", "sentences", "page", "note", "end of a search"])
def test_how_much_the_probes_can_tell_stands_where_the_answer_stands(place: str, url: str) -> None:
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    told = PLACES[place](stored(url, trials, CONFIRMED_RATES), CONFIRMED_RATES)
    assert (
        "4096 samples each (0.41 of an epoch, 0.2 % of the run); "
        "a difference below 0.006 would not show" in told
    )


CONFIRMED_RATES = best_config(BASELINE.replace(num_workers=2), BASELINE)


@pytest.mark.parametrize("place", ["terminal", "note", "end of a search", "production"])
def test_a_confirmed_throughput_says_so_wherever_it_stands(place: str, url: str) -> None:
    """The factory's answer: 150 samples/s, where the user's settings reach 100."""
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    lines = PLACES[place](stored(url, trials, CONFIRMED_RATES), CONFIRMED_RATES).splitlines()
    (line,) = [one for one in lines if re.search(r"\b100\b.*\b150\b", one)]
    assert "samples/s in the confirmation" in line


def test_the_page_says_which_throughputs_were_confirmed(url: str) -> None:
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    said = as_page(stored(url, trials, CONFIRMED_RATES)).text
    assert re.search(r"150 samples/s\s*yours 100, in the confirmation", said)
    assert said.count("training, in the confirmation") == 2, "in the diagram of the stages"


@pytest.mark.parametrize("place", ["terminal", "page", "note", "end of a search"])
def test_the_throughput_of_kept_settings_is_of_the_search(place: str, url: str) -> None:
    best = best_config(BASELINE, BASELINE)
    said = PLACES[place](stored(url, [trial(0)], best), best)
    assert "in the search" in said
    assert "in the confirmation" not in said


def test_rates_of_trials_say_that_they_are_of_the_search(url: str) -> None:
    source = answered(url)
    assert "\n\nIn the search:\ntrial" in report(source)
    page = report(source, "--html", "-")
    assert "2 trials, as measured in the search" in page
    assert "100.0 samples/s in the search" in page, "where the mouse points at a trial"


def test_the_answer_alone_has_nothing_of_the_search(tmp_path: Path) -> None:
    write_best(confirmed(), tmp_path / "best.yaml")
    assert "In the search:" not in report(tmp_path / "best.yaml"), "there is no table"


def test_without_an_answer_the_rate_of_training_is_of_the_search(url: str) -> None:
    source = stored(url, [trial(0)], diagnosis=note_as_json(STAGES))
    assert "training, in the search" in as_page(source).text


LATER = {"batch_size": 32}
STATES: dict[str, Callable[[str], str]] = {
    "nothing": stored,
    "only the baseline": lambda url: stored(url, [trial(0)]),
    "a baseline that is infeasible": lambda url: stored(url, [trial(0, None, OOM, "too large")]),
    "only infeasible trials": lambda url: stored(
        url, [trial(0, 90.0, OVER_MEMORY), trial(1, None, CRASHED, "died", **LATER)]
    ),
    "lost and running": lambda url: stored(
        url,
        [trial(0), trial(1, 120.0, **LATER), lost(2, "interrupted", BASELINE), running(3)],
    ),
    "no details": lambda url: stored(
        url,
        [
            replace(one, details=type(one.details)())
            for one in (trial(0), trial(1, None, CRASHED, batch_size=8))
        ],
    ),
    "keep your settings": lambda url: stored(url, [trial(0)], best_config(BASELINE, BASELINE)),
    "an answer": answered,
    "notes of another make": lambda url: answered(
        url, diagnosis={"what": "is this"}, confirmation="none", identity=[]
    ),
}


def assert_every_output_is_there(source: object) -> None:
    written = [report(source, *flags) for flags in (["--html", "-"], ["--csv", "-"], [])]
    assert all(written)
    assert "None" not in written[-1]
    assert report(source, "--explain")
    assert as_json(source)["schema_version"] == 1


@pytest.mark.parametrize("state", STATES)
def test_every_output_is_there_whatever_state_a_study_is_in(state: str, url: str) -> None:
    assert_every_output_is_there(STATES[state](url))


def test_every_output_is_there_of_an_answer_alone(tmp_path: Path) -> None:
    write_best(confirmed(), tmp_path / "best.yaml")
    assert_every_output_is_there(tmp_path / "best.yaml")


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
def test_the_headline_says_how_far_the_search_is(state: str, sentence: str, url: str) -> None:
    source = STATES[state](url)
    assert sentence in explained(source).partition("\n\n")[0]
    assert sentence in report(source)


@pytest.mark.parametrize(
    ("fate", "sentence"),
    [
        ({"ratios": [1.1], "refused": "too slow"}, "was a candidate and was not confirmed: too sl"),
        ({"ratios": [1.1], "set_aside_for": 1}, "was a candidate, set aside for trial 1"),
        ({"ratios": [1.1]}, "was a candidate, and another was confirmed first"),
        ({}, "is slower than trial 1 beyond both intervals"),
    ],
)
def test_a_runner_up_lost_for_the_reason_that_the_study_knows(fate, sentence, url: str) -> None:
    notes = {"seconds": 9.0, "candidates": {"2": fate} if fate else {}}
    text = explained(answered(url, trial(2, 150.0, batch_size=32), confirmation=notes))
    assert f"Trial 2 (1.50x, batch_size=32) {sentence}" in text


def test_an_infeasible_trial_that_was_faster_is_explained_by_its_reason(url: str) -> None:
    greedy = trial(2, 400.0, OVER_MEMORY, "memory: 25 % over the limit", batch_size=64)
    text = explained(answered(url, greedy))
    assert "Trial 2 (4.00x, batch_size=64) is infeasible: memory: 25 % over the limit." in text


def reasons(source: str) -> dict[str, str]:
    """What the page says of each change, by setting."""
    row = r'<tr><th scope="row"><code>(\w+)</code>(?:(?!</tr>).)*<td class="why">(.*?)</td>'
    found = re.findall(row, report(source, "--html", "-"), re.DOTALL)
    return {name: html.unescape(why) for name, why in found}


def test_a_change_says_when_it_pays_and_taking_it_back_what_more_would_cost(url: str) -> None:
    own = TrainingConfig.of({"batch_size": 32, "channels_last": True})
    best = best_config(own.replace(batch_size=16, channels_last=False, amp_dtype="bfloat16"), own)
    why = reasons(stored(url, [], best))
    assert why["amp_dtype"] == KNOBS["amp_dtype"].pays
    for name in ("batch_size", "channels_last"):
        assert why[name] == f"More can hurt: {KNOBS[name].hurts}"


def test_a_change_that_slowed_its_trials_down_is_not_praised(url: str) -> None:
    slower = {"float32_matmul_precision": "medium"}
    trials = [
        trial(0),
        trial(1, 150.0, **FASTER),
        trial(2, 120.0, **FASTER, **slower),
        trial(3, 80.0, **slower),
        trial(4, 155.0, **FASTER, batch_size=32),
    ]
    best = best_config(BASELINE.replace(**FASTER, **slower), BASELINE)
    why = reasons(stored(url, trials, best))
    assert why["float32_matmul_precision"].startswith("Gains nothing by itself here")
    assert why["amp_dtype"] == KNOBS["amp_dtype"].pays


def test_a_rate_of_a_slower_machine_says_so_beside_its_ratio(url: str) -> None:
    slow = trial(1, 100.0, **FASTER)
    slow = replace(slow, details=replace(slow.details, machine_speed=0.8))
    shown = report(stored(url, [trial(0), slow]))
    (line,) = [line for line in shown.splitlines() if re.match(r" +1 +\d", line)]
    assert line.endswith("  machine at 80 % of its first speed")


def test_failures_are_counted_by_kind_with_the_first_line_of_the_first(url: str) -> None:
    trials = [
        trial(0),
        trial(1, None, CRASHED, "killed by SIGSEGV\nmore", batch_size=8),
        trial(2, 130.0, OVER_MEMORY, "memory: 25 % over the limit", batch_size=32),
        trial(3, None, CRASHED, "killed by SIGBUS", batch_size=64),
        lost(4),
        running(5),
    ]
    told = as_json(stored(url, trials))["failures"]
    kinds = [(one["kind"], one["trials"], one["example"]) for one in told]
    assert kinds[0] == ("crashed", [1, 3], "killed by SIGSEGV")
    assert ("accuracy", [2], "memory: 25 % over the limit") in kinds, "the largest margin"
    assert ("lost", [4], "the process that ran it is gone") in kinds


def test_time_is_told_by_what_it_was_spent_on(url: str) -> None:
    noted = {
        "confirmation": {"seconds": 30.0, "candidates": {}},
        "phase_seconds": {"accuracy": 9.0, "proving": 4.0},
    }
    source = answered(url, trial(2, None, CRASHED, batch_size=8), **noted)
    spent = {phase["name"]: phase["seconds"] for phase in as_json(source)["phases"]}
    shown = report(source, "--html", "-")
    for phase in spent:
        assert re.search(rf'<span class="chip shade\d"></span>{phase}</td>', shown)
    assert spent["your settings: timing"] == 2.0
    assert spent["your settings: accuracy"] == 9.0
    assert spent["validation of incumbents"] == 4.0
    assert "diagnosis" not in spent, "nothing is known of it"
    assert spent["trials: timing"] == pytest.approx(6 * 32 / 160.0), "the blocks of trial 1"
    assert spent["trials that gave no number"] == 2.0
    assert spent["confirmation"] == 30.0


def test_the_table_has_a_row_for_each_trial_and_null_is_no_gap(url: str) -> None:
    died = trial(2, None, CRASHED, "died", batch_size=8)
    read = as_rows(stored(url, [trial(0), lost(1, "disk full", BASELINE), died]))

    def column(name: str) -> list[str]:
        return [row[name] for row in read]

    settings = [knob.name for knob in ALL_KNOBS]
    assert list(read[0]) == [*COLUMNS[:4], *settings, *COLUMNS[4:]]
    assert column("trial") == ["0", "1", "2"]
    assert column("state") == ["finished", "lost", "finished"]
    assert column("amp_dtype") == ["null"] * 3
    assert column("outcome") == ["measured", "", "crashed"]
    assert column("reason") == ["", "disk full", "died"]


def test_numbers_that_are_none_become_null_in_json(url: str) -> None:
    odd = trial(0)
    odd = replace(odd, details=replace(odd.details, quality=float("nan"), seconds=float("inf")))
    (told,) = as_json(stored(url, [odd]))["trials"]
    assert (told["quality"], told["seconds"]) == (None, None)


def test_a_large_study_shows_the_fastest_in_the_terminal(url: str) -> None:
    trials = [trial(0), *(trial(n, 100.0 + n, batch_size=16 + n) for n in range(1, 50))]
    shown = report(stored(url, trials))
    numbers = re.findall(r"^ *(\d+) +\d+\.\d  ", shown, re.MULTILINE)
    assert [int(number) for number in numbers] == [0, *range(49, 30, -1)]
    assert "\n30 slower or infeasible trials" in shown


LEADS = pytest.mark.parametrize(
    ("change", "lead"),
    [
        (FASTER, "the throughput of your settings, confirmed in fresh processes, "),
        ({}, "Nothing was faster beyond the noise"),
    ],
    ids=["faster", "keep"],
)


@LEADS
def test_the_answer_says_how_much_of_the_search_space_it_rests_on(
    change: dict[str, str], lead: str, url: str
) -> None:
    best = best_config(BASELINE.replace(**change), BASELINE)
    varied = {"batch_size": [16, 32, 64], "num_workers": [0, 2], "amp_dtype": [None, "bfloat16"]}
    space = {name: [value] for name, value in BASELINE.as_dict().items()} | varied
    trials = [*TRIALS, trial(2, None, batch_size=64)]
    source = stored(url, trials, best, identity={"space": space})
    assert re.search(
        rf"{lead}(\d+ rounds)?; 1 of 12 configurations was measured", as_page(source).text
    ), "the baseline is none of them"
    assert (
        "1 of 12 configurations were measured. Tried: batch_size 16, 64; amp_dtype null, bfloat16. "
        "Never varied: num_workers."
    ) in explained(source)


@LEADS
def test_where_the_space_is_unknown_nothing_is_said_of_its_size(
    change: dict[str, str], lead: str, url: str
) -> None:
    best = best_config(BASELINE.replace(**change), BASELINE)
    unknown = as_page(stored(url, TRIALS, best)).text
    assert lead in unknown
    assert "configurations" not in unknown
