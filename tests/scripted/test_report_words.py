"""The words and numbers of a report tell trials, failures, time and the space."""

import html
import re
from dataclasses import replace

import pytest

from autotune.configuration.evidence import Gain
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS
from factories import best_config
from reporting import trial
from stored_study import (
    BASELINE,
    FASTER,
    TRIALS,
    answered,
    as_json,
    as_page,
    as_rows,
    lost,
    report,
    running,
    stored,
)
from study_factories import CRASHED, OVER_MEMORY

# Beside the settings: what the table says of each trial.
COLUMNS = [
    *("trial", "state", "outcome", "feasible", "value", "ratio_to_baseline"),
    *("samples_per_second", "samples_per_second_low", "samples_per_second_high"),
    *("joules_per_sample", "machine_speed", "compile_seconds"),
    *("peak_memory_bytes", "quality", "seconds", "assumed_samples"),
    *("memory_margin", "accuracy_margin", "ran_margin", "pareto_best", "flags", "reason"),
]


def test_a_runner_up_lost_for_the_reason_that_the_study_knows(url):
    fate = {"ratios": [1.1], "refused": "too slow"}
    notes = {"seconds": 9.0, "candidates": {"2": fate}}
    source = answered(url, trial(2, 150.0, batch_size=32), confirmation=notes)
    assert re.search(
        r"^ +2 .*batch_size=32; not confirmed: too slow$", report(source), re.MULTILINE
    )


def reasons(source):
    """Return what the page says of each change, by setting."""
    row = r'<tr><th scope="row"><code>(\w+)</code>(?:(?!</tr>).)*<td class="why">(.*?)</td>'
    page = report(source, "--html", "-").replace("<wbr>", "")
    found = re.findall(row, page, re.DOTALL)
    return {name: html.unescape(why) for name, why in found}


def test_a_change_says_when_it_pays_and_taking_it_back_what_more_would_cost(url):
    own = TrainingConfig.of({"batch_size": 32, "channels_last": True})
    best = best_config(own.replace(batch_size=16, channels_last=False, amp_dtype="bfloat16"), own)
    why = reasons(stored(url, [], best))
    assert why["amp_dtype"] == KNOBS["amp_dtype"].pays
    for name in ("batch_size", "channels_last"):
        assert why[name] == f"More can hurt: {KNOBS[name].hurts}"


def test_a_change_that_was_timed_by_itself_says_what_it_gives_here(url):
    own = TrainingConfig.of({"batch_size": 32})
    best = best_config(own.replace(amp_dtype="bfloat16"), own)
    gain = Gain(settings={"amp_dtype": "bfloat16"}, ratio=1.52, ci95=(1.4, 1.63), rounds=6)
    evidence = best.evidence.model_copy(update={"gains": (gain,)})
    why = reasons(stored(url, [], best.model_copy(update={"evidence": evidence})))
    given = "Measured here: amp_dtype=bfloat16 1.52x (1.40 to 1.63). "
    assert why["amp_dtype"] == given + KNOBS["amp_dtype"].pays


def test_failures_are_counted_by_kind_with_the_first_line_of_the_first(url):
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
    assert ("lost", [4], "its process is gone") in kinds


def test_time_is_told_by_what_it_was_spent_on(url):
    noted = {"confirmation": {"seconds": 30.0, "candidates": {}}, "seconds:accuracy": 9.0}
    source = answered(url, trial(2, None, CRASHED, batch_size=8), **noted)
    spent = {phase["name"]: phase["seconds"] for phase in as_json(source)["phases"]}
    shown = report(source, "--html", "-")
    for phase in spent:
        assert f"<tr><td>{phase}</td>" in shown
    assert spent["your settings: timing"] == 2.0
    assert spent["your settings: quality"] == 9.0
    assert "diagnosis" not in spent, "nothing is known of it"
    assert spent["trials: timing"] == pytest.approx(6 * 32 / 160.0), "the blocks of trial 1"
    assert spent["trials that failed"] == 2.0
    assert spent["confirmation"] == 30.0


def test_the_table_has_a_row_for_each_trial_and_null_is_no_gap(url):
    died = trial(1, None, CRASHED, "died", batch_size=8)
    read = as_rows(stored(url, [trial(0), died, lost(2, "disk full", BASELINE)]))

    def column(name):
        return [row[name] for row in read]

    settings = [knob.name for knob in ALL_KNOBS]
    assert list(read[0]) == [*COLUMNS[:4], *settings, *COLUMNS[4:]]
    assert column("trial") == ["0", "1", "2"]
    assert column("state") == ["finished", "finished", "lost"]
    assert column("amp_dtype") == ["null"] * 3
    assert column("outcome") == ["measured", "crashed", ""]
    assert column("reason") == ["", "died", "disk full"]


def test_numbers_that_are_none_become_null_in_json(url):
    odd = trial(0)
    odd = replace(odd, details=replace(odd.details, quality=float("nan"), seconds=float("inf")))
    (told,) = as_json(stored(url, [odd]))["trials"]
    assert (told["quality"], told["seconds"]) == (None, None)


def test_a_large_study_shows_the_fastest_in_the_terminal(url):
    trials = [trial(0), *(trial(n, 100.0 + n, batch_size=16 + n) for n in range(1, 50))]
    shown = report(stored(url, trials))
    numbers = re.findall(r"^ *(\d+) +\d+\.\d  ", shown, re.MULTILINE)
    assert [int(number) for number in numbers] == [0, *range(49, 30, -1)]
    assert "\n30 slower or rejected trials" in shown


LEADS = pytest.mark.parametrize(
    ("change", "lead"),
    [
        (FASTER, "faster than your settings (1.45 to 1.55, 6 rounds)"),
        ({}, "Nothing was faster beyond the noise."),
    ],
    ids=["faster", "keep"],
)


@LEADS
def test_the_answer_says_how_much_of_the_search_space_it_rests_on(change, lead, url):
    best = best_config(BASELINE.replace(**change), BASELINE)
    varied = {"batch_size": [16, 32, 64], "num_workers": [0, 2], "amp_dtype": [None, "bfloat16"]}
    space = {name: [value] for name, value in BASELINE.as_dict().items()} | varied
    trials = [*TRIALS, trial(2, None, batch_size=64)]
    source = stored(url, trials, best, identity={"space": space})
    seen = as_page(source).text
    assert lead in seen
    assert "; measured 1 of 12 configurations" in seen, "the baseline is none of them"
    said = report(source)
    assert "1 of 12 configurations: batch_size 16, 64; amp_dtype null, bfloat16\n" in said
    assert "  not tried   other values of num_workers\n" in said
