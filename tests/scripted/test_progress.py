"""A search as it is shown: lines of a pipe, a terminal that is drawn on, the answer at the end."""

import io
import json
import re
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

import shown_search
from autotune.configuration.best_config import facts, searched_facts
from autotune.configuration.evidence import LearningRate, PredictedRun, Searched
from autotune.configuration.script import ScriptOptions
from autotune.configuration.search_space import narrow, read_space
from autotune.configuration.training_config import TrainingConfig
from autotune.console.lines import answer_lines, result
from autotune.console.progress import LiveProgress, PlainProgress, display
from autotune.context.options import SearchOptions, StudyOptions, WorkloadOptions
from autotune.context.search_context import SearchContext
from autotune.context.workload import traits_of_model
from autotune.searching.run import events as told
from autotune.searching.run.events import (
    Answered,
    NothingFeasible,
    PhaseStarted,
    Planned,
    RoundEnded,
    StepStarted,
    TrialEnded,
)
from autotune.searching.run.search_run import details_of
from autotune.values.measurement import Noise
from autotune.values.outcome import Measured
from covering import covers
from factories import IMAGE_FACTS, best_config, cpu_machine, measurement, written
from reporting import OWN, trial
from scripted_runner import changed
from study_factories import OOM
from terminals import Terminal, written_to

BASELINE = TrainingConfig.of(OWN)
BASE = trial(0)
FASTER = trial(1, 150.0, batch_size=64)
DISTURBED = tuple(replace(one, noise=Noise(foreign=0.5)) for one in measurement().blocks)
TOO_LARGE = trial(2, None, OOM, "out of host memory: \x1b[31mfull", batch_size=512)


@pytest.fixture
def shown(tmp_path):
    """Progress that knows its plan, and the lines that it writes from then on."""
    file = read_space(written(tmp_path, "batch_size: [32, 64, 512]\n"))
    traits = traits_of_model(IMAGE_FACTS)
    space = narrow(file, cpu_machine(), IMAGE_FACTS, BASELINE)
    kept = StudyOptions("s", "sqlite://", tmp_path, tmp_path / "best.yaml")
    options = SearchOptions(WorkloadOptions(Path("model.py")), kept)
    lines = []
    progress = PlainProgress(lines.append)
    progress.show(
        Planned(SearchContext(options, cpu_machine(), traits, BASELINE, space, 3, 1 << 32), 0)
    )
    lines.clear()
    return progress, lines


def ended(trial, best):
    return TrialEnded(trial, BASE, best, elapsed_seconds=61, eta_seconds=30)


def test_a_trial_shows_what_differs_its_rate_its_gain_its_memory_and_its_verdict(shown):
    progress, lines = shown
    progress.show(ended(FASTER, FASTER))
    assert lines[0].split() == ["1", "150.0/s", "1.50x", "1", "GiB", "batch_size=64", "ok"]


@pytest.mark.parametrize(
    ("timed", "note"),
    [
        ({"flags": ("stopped_early",)}, "stopped early, clearly slower"),
        ({"blocks": DISTURBED}, "ok; while it was timed, other programs used 50 % of the cores"),
        ({"blocks": (*measurement().blocks, *DISTURBED)}, "  ok"),
        ({"machine_speed": 0.75}, "ok; the machine ran at 75 % of its first speed"),
    ],
)
def test_a_number_that_is_not_what_it_seems_says_so(timed, note, shown):
    progress, lines = shown
    details = details_of(Measured(replace(measurement(150.0), **timed)), 2.0)
    progress.show(ended(replace(FASTER, details=details), FASTER))
    assert lines[0].endswith(note)


def test_before_the_trials_each_step_is_told(shown):
    progress, lines = shown
    progress.show(StepStarted("process 2 of 3"))
    progress.show(PhaseStarted("diagnosis", "each phase of a step by itself", 50.0))
    assert lines == ["  process 2 of 3", "  each phase of a step by itself"]


def test_a_round_shows_its_ratio_what_all_say_so_far_and_whose_it_is(shown):
    progress, lines = shown
    progress.show(RoundEnded(FASTER.config, (1.4, 1.5), (1.4, 1.5)))
    progress.show(RoundEnded(FASTER.config, (1.4, 1.5, 1.6), (1.4, 1.6)))
    progress.show(RoundEnded(TOO_LARGE.config, (1.1,), (1.1, 1.1)))
    *first, last = lines
    assert first == [
        "  round 2  1.500x  batch_size=64",
        "  round 3  1.600x  (so far 1.400 to 1.600)",
    ]
    assert last.startswith("  round 1  1.100x  batch_size=")


def test_the_time_of_a_run_is_told_where_it_was_asked_for():
    best = best_config(FASTER.config, BASELINE)
    run = PredictedRun(samples=6000, baseline_seconds=90.0, best_seconds=59.0)
    evidence = best.evidence.model_copy(update={"predicted_run": run})
    best = best.model_copy(update={"evidence": evidence})
    lines = answer_lines(Answered(best, Path("best.yaml"), seconds=62.0))
    assert any(line.startswith("  run         1 min 30 s -> 59 s") for line in lines)
    assert any(line.startswith("  pays back   after 2 runs ") for line in lines)
    total = "in the first run: 30 s of search + 59 s, instead of 1 min 30 s"
    assert f"  pays back   {total}" in answer_lines(Answered(best, Path("best.yaml"), seconds=30.0))


def test_an_answer_says_when_its_search_has_paid_for_itself():
    best = best_config(FASTER.config, BASELINE)
    lines = answer_lines(Answered(best, Path("best.yaml"), seconds=312.0))
    paid = "after 10 min 24 s of training (the search took 5 min 12 s)"
    assert f"  pays back   {paid}" in lines, "1.5 times as fast: half a second gained a second"
    slow = best.evidence.model_copy(update={"break_even_samples": 54000})
    lines = answer_lines(
        Answered(best.model_copy(update={"evidence": slow}), Path("best.yaml"), seconds=312.0)
    )
    paid = "after 16 min 24 s of training (the search took 5 min 12 s)"
    assert f"  pays back   {paid}" in lines, "180 s more to start"
    kept = answer_lines(Answered(best_config(BASELINE, BASELINE), Path("b.yaml"), seconds=9.0))
    assert not [line for line in kept if "pays back" in line]


def test_a_learning_rate_that_stayed_beside_another_batch_is_told():
    best = best_config(FASTER.config, BASELINE)
    said = dict(facts(best))["lr"]
    assert said == "unchanged, for a batch of 64 instead of 16: check it, or use --lr-scaling"
    scaled = best.model_copy(update={"lr_scaling": LearningRate(rule="linear", factor=2.0)})
    assert dict(facts(scaled))["lr"] == "times 2, for a batch of 64 instead of 16"
    assert "lr" not in dict(facts(best_config(BASELINE.replace(num_workers=2), BASELINE)))


def test_settings_that_are_the_script_s_own_are_told_with_the_reason():
    own = BASELINE.replace(amp_dtype="bfloat16", num_threads=1)
    why = "the script sets it itself"
    fixed = {"amp_dtype": why, "num_threads": "it runs before torch", "compile_mode": why}
    best = best_config(own.replace(batch_size=64), own)
    lines = answer_lines(Answered(best, Path("best.yaml"), own_settings=fixed))
    told = [line for line in lines if line.startswith("  not varied")]
    assert told == [
        f"  not varied  amp_dtype=bfloat16, compile_mode=null: {why}",
        "  not varied  num_threads=1: it runs before torch",
    ]


def test_the_answer_of_a_script_ends_with_the_command_that_trains_with_it():
    script = ScriptOptions(("--epochs", "90", "--token", "planted"))
    best = best_config(FASTER.config, BASELINE)
    found = best.provenance.model_copy(update={"model": "train.py"})
    best = best.model_copy(update={"provenance": found})
    lines = answer_lines(Answered(best, Path("best.yaml"), script=script))
    assert lines[-1] == ("  use it      autotune run best.yaml train.py --epochs 90 --token '***'")


def test_a_setting_that_only_workers_use_is_told_with_the_one_value_that_it_had():
    searched = Searched(
        configurations=8, measured=3, tried={}, never_varied=("num_threads", "prefetch_factor")
    )
    changed = {"num_workers": 2, "prefetch_factor": 4}
    said = dict(searched_facts(searched, changed))["not tried"]
    assert said == "other values of num_threads, prefetch_factor (always 4 where it was used)"


def test_nothing_feasible_counts_each_reason():
    lines = answer_lines(NothingFeasible({"out of host memory": 3}))
    assert "  3 x out of host memory" in lines


def test_text_that_reaches_the_terminal_has_no_escape_sequences(capsys):
    from autotune.console.progress import to_stderr

    to_stderr(TOO_LARGE.verdict.reason)
    assert capsys.readouterr().err == "out of host memory: full\n"


def test_programs_read_the_answer_as_one_json_object_with_a_schema_version():
    faster = json.loads(result(Answered(best_config(FASTER.config, BASELINE), Path("b.yaml"))))
    assert (faster["schema_version"], faster["answer"]) == (1, "faster")
    assert faster["best"]["config"]["batch_size"] == 64
    none = json.loads(result(NothingFeasible({"why": 1})))
    assert (none["answer"], none["reasons"]) == ("none", {"why": 1})


COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
SERVER = "postgresql://tuner@studies.example/all"


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    return shown_search.whole_search(tmp_path_factory.mktemp("live"))


def row(text, word):
    """The first line with a word."""
    return next(line for line in text.splitlines() if word in line)


def test_a_trial_is_a_line_and_stands_among_the_fastest(events):
    seen = shown_search.until(events, told.TrialEnded, 5)
    line = row(shown_search.drawn(seen, shown_search.recording()), "164.0/s")
    assert {"164.0/s", "1.52x", "GiB", "batch_size=64", "ok"} <= set(line.split())
    fastest = row(shown_search.frame(seen), "batch_size=64")
    assert {"2", "164.0", "1.52x", "GiB", "batch_size=64"} <= set(fastest.split())


def test_bars_compare_the_rates_with_computing_alone(events):
    text = shown_search.frame(shown_search.until(events, told.TrialEnded, 5))
    light, trial = (row(text, word).count("━") for word in ("by itself", "batch_size=64"))
    assert light == 15
    assert trial == pytest.approx(164 / 200 * 15, abs=1)


@pytest.mark.parametrize("width", [80, 160])
def test_a_configuration_that_cannot_be_used_says_why_without_markup_and_escapes(events, width):
    text = shown_search.drawn(events, shown_search.recording(width))
    assert "no room for [bold]128" in " ".join(text.split())


def test_the_phase_the_step_and_the_time_of_the_answer_are_told(events):
    seen = shown_search.until(events, told.TrialStarted, 2)
    ended = [event for event in seen if isinstance(event, told.TrialEnded)][-1]
    assert ended.eta_seconds is not None
    text = shown_search.frame(seen)
    assert "search (3 of 4)" in text
    assert re.search(r"since \S+: trial \d+: batch_size=\d+", text)
    answer = re.search(r"elapsed at (\S+), about .* left \(result at ([\d:]+)", text)
    times = [[int(part) for part in clock.split(":")] for clock in answer.groups()]
    seconds = [3600 * hours + 60 * minutes + rest for hours, minutes, rest in times]
    assert (seconds[1] - seconds[0]) % 86_400 == pytest.approx(ended.eta_seconds, abs=1)
    assert "confirmation (4 of 4)" in shown_search.frame(
        shown_search.until(events, told.RoundEnded)
    )


def test_long_settings_leave_the_numbers_their_room(events):
    *before, ended = shown_search.until(events, told.TrialEnded, 5)
    assert isinstance(ended, told.TrialEnded)
    changes = {"num_workers": 2, "amp_dtype": "bfloat16", "channels_last": True}
    config = ended.trial.config.replace(**changes, optimizer_impl="fused")
    trial = replace(ended.trial, number=777, config=config)
    shown = row(
        shown_search.frame([*before, replace(ended, trial=trial, best=trial)], width=60), "777"
    )
    assert re.search(r"777 +132\.0 .*1\.22x .*batch_size=.*…", shown)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(events, width):
    text = shown_search.frame(shown_search.until(events, told.RoundEnded), width)
    assert max(map(len, text.splitlines())) <= width
    assert "1.52x" in text


def test_at_the_end_every_trial_stands_below_the_other(events):
    text = shown_search.drawn(events, shown_search.recording())
    assert all(f"batch_size={batch}" in text for batch in (16, 32, 64, 128))
    assert "1.52x" in text[text.rindex("samples/s") :], "the fastest, last of all"


def test_many_trials_leave_the_state_short(events):
    *before, ended = shown_search.until(events, told.TrialEnded, 5)
    assert isinstance(ended, told.TrialEnded)
    more = [replace(ended, trial=replace(ended.trial, number=number)) for number in range(9, 40)]
    assert len(shown_search.frame([*before, ended, *more]).splitlines()) <= 12


def run_by(events, **options):
    """The events as a search with these options would tell them."""
    (planned,) = [event for event in events if isinstance(event, told.Planned)]
    other = changed(planned.context.options, **options)
    plan = replace(planned, context=replace(planned.context, options=other))
    return [plan if event is planned else event for event in events]


def drawings(events):
    """Return each event that was drawn and when, for events that come every tenth of a second."""
    clock, found = shown_search.NOON, []
    console = shown_search.recording()
    assert isinstance(console.file, io.StringIO)
    progress = LiveProgress(console, now=lambda: clock)
    with progress.drawn():
        for event in events:
            before = console.file.tell()
            progress.show(event)
            if console.file.tell() > before:
                found.append((event, clock))
            clock += 0.1
    return found


@pytest.mark.parametrize(
    "options",
    [{"at_once": 8, "storage": None}, {"at_once": 1, "storage": SERVER}],
    ids=["devices", "server"],
)
def test_a_search_beside_others_is_drawn_once_a_second_at_most_and_nothing_waits(
    events, options, monkeypatch
):
    def sleep(seconds):
        pytest.fail(f"the search was held up for {seconds} s")

    monkeypatch.setattr("time.sleep", sleep)
    trials = shown_search.until(events, told.TrialEnded, 5)
    many = run_by([*trials, *trials[-1:] * 50, *events[len(trials) :]], **options)
    found = drawings(many)
    phases = [(event, at) for event, at in found if isinstance(event, told.PhaseStarted)]
    assert [event.phase for event, _ in phases] == list(get_args(told.Phase))
    (_, search), (_, confirmation) = phases[2:]
    times = [at for _, at in found if search <= at < confirmation]
    gaps = [after - before for before, after in pairwise(times)]
    assert min(gaps) >= 1 - 1e-6
    assert max(gaps) < 1.2
    # In the confirmation there is nobody else, except for workers on a server.
    rounds = [event for event, _ in found if isinstance(event, told.RoundEnded)]
    assert bool(rounds) == (options["storage"] is None)


def test_a_search_alone_is_drawn_at_each_event(events):
    assert [event for event, _ in drawings(events)] == events


def test_events_that_were_not_drawn_in_time_stand_there_in_the_end(events):
    seen = run_by(shown_search.until(events, told.TrialEnded, 5), at_once=8)
    assert seen[-1] not in [event for event, _ in drawings(seen)]
    assert "batch_size=64" in row(shown_search.drawn(seen, shown_search.recording()), "164.0/s")


def test_after_silence_it_is_drawn_once_more_with_the_time_that_went_by(events):
    clock = shown_search.NOON
    console = shown_search.recording()
    assert isinstance(console.file, io.StringIO)
    progress = LiveProgress(console, now=lambda: clock)
    with progress.drawn():
        progress.wait(10.0)
        assert "... inspecting the machine and the file, 10 s so far" in console.file.getvalue()
        for event in run_by(shown_search.until(events, told.TrialStarted, 2), at_once=8):
            progress.show(event)
        before = console.file.tell()
        clock += 70.0
        progress.wait(70.0)
        text = shown_search.plain(console.file.getvalue()[before:])
    assert re.search(r"trial 2: batch_size=\d+\n1 min 10 s elapsed", text)


def test_drawing_starts_no_thread_that_could_wake_up_while_a_child_is_timed(events):
    before = threading.active_count()
    progress = LiveProgress(shown_search.recording())
    with progress.drawn():
        for event in events:
            progress.show(event)
        assert threading.active_count() == before


class Gone(io.StringIO):
    """A terminal that is there until it is taken away."""

    is_gone = False

    def write(self, text):
        if self.is_gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def ended_after(events, terminal, error):
    """Somebody ends the search after these events; SystemExit takes its terminal away."""
    progress = LiveProgress(shown_search.recording(file=terminal))
    with progress.drawn():
        for event in events:
            progress.show(event)
        terminal.is_gone = isinstance(error, SystemExit)
        raise error


def test_an_error_leaves_the_cursor_and_the_trials_so_far(events):
    terminal = Gone()
    with pytest.raises(KeyboardInterrupt):
        ended_after(shown_search.until(events, told.TrialEnded, 3), terminal, KeyboardInterrupt())
    text = terminal.getvalue()
    assert text.rindex(shown_search.SHOW_CURSOR) > text.rindex(shown_search.HIDE_CURSOR)
    assert "batch_size" in text[text.rindex(shown_search.SHOW_CURSOR) :]


def test_a_terminal_that_is_gone_does_not_hide_why_the_search_ends(events):
    terminal = Gone()
    with pytest.raises(SystemExit) as ended:
        ended_after(shown_search.until(events, told.TrialEnded, 3), terminal, SystemExit(143))
    assert ended.value.code == 143
    terminal.is_gone = False


@pytest.fixture
def plain_environment(monkeypatch):
    """An environment that says nothing of colours or CI, to be changed."""
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def shown_on(terminal, events, mode):
    """Return what reaches a terminal that is in the place of stderr."""
    with written_to(terminal) as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        before = terminal.settings
        with display(mode) as show:
            for event in events:
                show(event)
        assert terminal.settings == before
    return terminal.seen()


@pytest.mark.parametrize("mode", ["auto", "rich"])
@pytest.mark.usefixtures("plain_environment")
def test_a_terminal_is_drawn_on_and_left_as_it_was(events, mode, capsys):
    text = shown_on(Terminal(), events, mode)
    assert COLOUR.search(text)
    assert text.rindex(shown_search.SHOW_CURSOR) > text.rindex(shown_search.HIDE_CURSOR)
    assert capsys.readouterr().out == ""


@covers("P5")
@pytest.mark.parametrize(
    ("name", "value", "columns", "mode"),
    [
        *(("TERM", "dumb", 80, "auto"), ("TERM", "dumb", 80, "rich")),
        *(("NO_COLOR", "1", 80, "auto"), ("NO_COLOR", "1", 80, "rich"), ("CI", "1", 80, "auto")),
        ("TERM", "xterm", 59, "rich"),
    ],
)
def test_a_terminal_that_cannot_be_drawn_on_gets_lines_without_control_characters(
    plain_environment, events, name, value, columns, mode
):
    plain_environment.setenv(name, value)
    text = shown_on(Terminal(columns=columns), events, mode)
    assert shown_search.ESCAPE not in text
    assert "best so far: trial" in text


@covers("P5")
@pytest.mark.parametrize("mode", ["auto", "rich", "plain"])
def test_a_pipe_gets_lines(events, mode, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with display(mode) as show:
        for event in events:
            show(event)
    said = capsys.readouterr()
    assert shown_search.ESCAPE not in said.err
    assert "best so far: trial" in said.err
    assert said.out == ""
