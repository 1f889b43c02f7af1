"""The report of a study that a whole search made, in every form, from the command line."""

import json
import os
import re
import subprocess
import sys

import optuna
import pytest

from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import TrainingConfig
from autotune.report.html import page
from command_line import command
from covering import covers
from factories import best_config
from finished_study import finished_study
from reporting import OWN, Page, report_of, searched, trial
from stored_study import lost, stored
from study_factories import CRASHED
from terminals import Terminal

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(1)>&lt;b&gt; [bold]{{ 7*7 }}"""
SECTIONS = {
    *("next", "changes", "limits", "history", "memory", "failures", "time", "machine"),
    *("yaml", "trials"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished study with feasible, crashed, too large and inaccurate trials."""
    return searched(tmp_path_factory.mktemp("report"))


def run(*arguments):
    """`autotune report` in this process: exit code, stdout and stderr."""
    done = command("report", *arguments)
    return done.code, done.out, done.err


def test_a_study_is_chosen_by_its_own_name(folder):
    storage = f"sqlite:///{folder}/study.db"
    (name,) = optuna.get_all_study_names(storage)
    code, out, err = run(storage, "--study", name)
    assert (code, err) == (0, "")
    assert f"study {name} in {storage}" in out
    code, _, err = run(storage, "--study", "nobody")
    assert (code, f"holds no study 'nobody'; it holds '{name}'" in err) == (2, True)


def test_a_search_begins_the_history_of_its_rates(folder):
    (line,) = (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    told, best = json.loads(line), read_best(folder / "best.yaml")
    assert told["command"] == "search"
    assert told["samples_per_second"] == pytest.approx(
        best.evidence.best.samples_per_second, abs=0.1
    )


opened = None


def note(event, arguments):
    if opened is not None and event == "open":
        opened.append(str(arguments[0]))


@covers("S15")
def test_no_log_is_read(tmp_path):
    global opened  # noqa: PLW0603 (an audit hook has nothing else to be told by)
    place = finished_study(tmp_path)
    assert len(list(place.rglob("*.log"))) == 2
    sys.addaudithook(note)
    opened = []
    code, *_ = run(place, "--html", tmp_path / "report.html")
    read, opened = set(opened), None
    assert code == 0
    assert (tmp_path / "report.html").exists()
    assert str(place / "history.jsonl") in read, "what is opened is seen"
    assert not [name for name in read if name.endswith(".log")]


@pytest.fixture(scope="module")
def html(folder, tmp_path_factory):
    """The page, as the command writes it."""
    target = tmp_path_factory.mktemp("page") / "report.html"
    assert run(folder, "--html", target) == (0, "", f"Wrote {target}\n")
    return target.read_text(encoding="utf-8")


def test_the_terminal_says_answer_trials_failures_and_time(folder):
    code, out, err = run(folder)
    assert (code, err) == (0, "")
    best = read_best(folder / "best.yaml")
    assert f"{best.evidence.speedup.ratio:.2f}x faster than your settings" in out
    rows = re.findall(r"^ +\d+ +(?:\d+\.\d|-) ", out, re.MULTILINE)
    assert len(rows) == 15
    assert "2 x crashed: killed by SIGSEGV" in out
    assert "out of memory" in out
    assert "trials: timing" in out
    assert "rejected: evaluate is " in out


def test_json_has_a_schema_version_and_the_answer(folder):
    code, out, err = run(folder, "--json", "-")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["schema_version"], told["answer"]) == (1, "faster")
    assert told["best"] == read_best(folder / "best.yaml").model_dump(mode="json")
    assert len(told["trials"]) == 15
    assert told["confirmation"]["candidates"], "the search kept what became of the candidates"


def test_a_terminal_gets_folded_facts_and_commands_as_one_line(folder):
    terminal = Terminal(columns=80)
    words = [sys.executable, "-m", "autotune", "report", folder]
    environ = {**os.environ, "COLUMNS": "80"}
    subprocess.run(words, env=environ, stdout=terminal.far, check=True, timeout=60)
    lines = terminal.seen().splitlines()
    (used,) = [line for line in lines if line.startswith("  next ")]
    assert used.endswith(f"autotune export {folder}/best.yaml --format python")
    facts = [line for line in lines if line.startswith("  ") and line != used]
    assert max(map(len, facts)) <= 80
    assert any(line.startswith(14 * " ") for line in facts)


def test_every_section_is_on_the_page_and_every_diagram_has_a_name(html):
    read = Page(html)
    assert set(read.attributes("id")) == SECTIONS
    drawings = [attrs for tag, attrs in read.elements if tag == "svg"]
    named = [attrs for attrs in drawings if attrs.get("role") == "img"]
    assert all(attrs["aria-label"] for attrs in named)
    assert len(named) == 2
    assert all(attrs.get("aria-hidden") == "true" for attrs in drawings if attrs not in named)


def test_the_page_has_the_yaml_as_it_stands_in_the_file(html, folder):
    headline, _, rest = (folder / "best.yaml").read_text().partition("\n")
    assert headline.startswith("# ")
    assert rest in Page(html).text


@covers("X2")
def test_the_page_asks_nobody_for_anything(html):
    read = Page(html)
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "iframe", "object", "embed", "img", "video", "audio", "base"}
    assert {*read.attributes("src"), *read.attributes("href")} == {"data:,"}
    assert not any(name.startswith("on") for _, attrs in read.elements for name in attrs)
    styles = "".join(read.styles)
    assert len(styles) > 1000
    assert "url(" not in styles
    assert "@import" not in styles
    policy = next(a["content"] for t, a in read.elements if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")


def hostile_page(tmp_path):
    """A report whose every text is an attack."""
    config = TrainingConfig.of(OWN)
    best = best_config(config.replace(amp_dtype="bfloat16"), config)
    texts = dict.fromkeys(("study", "storage", "model", "autotune"), HOSTILE)
    machine = best.machine.model_copy(update={"cpu": HOSTILE, "device": HOSTILE})
    metric = best.constraints.accuracy.model_copy(update={"metric": HOSTILE})
    best = best.model_copy(
        update={
            "provenance": best.provenance.model_copy(update={**texts, "trial": 1}),
            "machine": machine,
            "constraints": best.constraints.model_copy(update={"accuracy": metric}),
        }
    )
    trials = [trial(0), trial(1, 150.0, amp_dtype="bfloat16")]
    trials += [trial(2 + n, None, CRASHED, HOSTILE, batch_size=8 + n) for n in range(3)]
    notes = {"confirmation": {"seconds": 9.0, "candidates": {"1": {"refused": HOSTILE}}}}
    data = report_of(
        trials, best, name=HOSTILE, storage=HOSTILE, open=(lost(9, HOSTILE),), notes=notes
    )
    return page(type(data)(data.archive, best, (HOSTILE,)))


@covers("X2")
def test_nothing_in_a_study_becomes_markup(tmp_path, html):
    read = Page(hostile_page(tmp_path))
    assert {tag for tag, _ in read.elements} <= {tag for tag, _ in Page(html).elements}
    names = {name for _, attrs in read.elements for name in attrs}
    assert "onerror" not in names
    assert "src" not in names
    assert read.text.count(HOSTILE) > 10, "it is all there, as text"
    assert "49" not in re.findall(r"\[bold\](.{0,4})", read.text), "and no template"


@covers("X2")
def test_a_hostile_study_goes_through_the_command_line(tmp_path, url):
    folder = tmp_path / "a <script> \x1b[31m"
    folder.mkdir()
    stored(url, [trial(0, None, CRASHED, HOSTILE + "\x1b[2J")], name=HOSTILE)
    (tmp_path / "study.db").rename(folder / "study.db")
    for flags in ([], ["--csv", "-"], ["--json", "-"]):
        code, out, _ = run(folder, *flags)
        assert code == 0
        assert "\x1b" not in out
    assert run(folder, "--html", tmp_path / "page.html")[0] == 0
    assert "script" not in {tag for tag, _ in Page((tmp_path / "page.html").read_text()).elements}


def test_two_outputs_on_stdout_are_refused(folder):
    code, out, err = run(folder, "--csv", "-", "--json", "-")
    assert (code, out) == (2, "")
    assert all(word in err for word in ("--csv -", "--json -", "stdout"))


def test_a_storage_that_cannot_be_read_has_its_own_exit_code(tmp_path):
    (tmp_path / "study.db").write_text("no database, but long enough to look like one" * 9)
    for study in (tmp_path, f"sqlite:///{tmp_path / 'absent.db'}"):
        code, out, err = run(study)
        assert (code, out) == (5, "")
        assert "cannot be used" in err
        assert "Traceback" not in err
