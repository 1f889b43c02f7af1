"""Pages: what programs write, what they claim, and the versions that they name."""

import importlib
import itertools
import json
import re
import tomllib
from pathlib import Path

import pytest

from autotune.configuration.script import BY_FLAG_ONLY, is_harmless
from autotune.configuration.search_space import read_space, shipped_spaces
from autotune.knobs import ALL_KNOBS, knob_named
from autotune.process.common.interpreter import SEARCHES
from autotune.values import errors
from autotune.values.errors import AutotuneError

ROOT = Path(__file__).parents[2]
CODES = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "program", "function"),
    [
        ("docs/reference/settings.md", "knobs_page", "knobs_page"),
        ("docs/reference/best-yaml.md", "best_yaml_page", "best_yaml_page"),
        ("docs/benchmarks.md", "benchmarks.page", "benchmarks_page"),
        ("README.md", "results", "searches"),
        ("docs/results.md", "results", "others"),
    ],
)
def test_a_page_has_what_its_program_writes(page, program, function, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module(program)
    text = (ROOT / page).read_text(encoding="utf-8")
    if begin := getattr(module, "BEGIN", ""):
        text = text.partition(begin)[2].partition(module.END)[0]
    assert text == getattr(module, function)(), f"{page} is stale: `make docs`"


def test_every_error_has_its_exit_code_on_the_page():
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    codes = {one.exit_code for one in classes if issubclass(one, AutotuneError)}
    assert codes <= {int(code) for code in re.findall(r"^\| (\d+) \|", CODES, re.MULTILINE)}


def test_pages_for_users_stay_short():
    docs = ROOT / "docs"
    pages = {*docs.rglob("*.md"), ROOT / "README.md"}
    pages -= {docs / "benchmarks.md", *docs.glob("dev/*.md")}
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert words[ROOT / "README.md"] <= 1000
    assert max(words[page] for page in docs.glob("concepts/*.md")) <= 800
    assert sum(words.values()) <= 20_000


DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", DOCS / "quickstart.md", DOCS / "results.md")
H200 = ROOT / "studies" / "h200"
LOGS = (*H200.rglob("*.log"), *(ROOT / "studies").glob("*/recorded_search.log"))
DECIMAL = re.compile(r"\d+\.\d+")
MEASURED = re.compile(r"\d+\.\d+|\d+(?=x\b| ?%)")
HEADLINE = re.compile(r"(\d+\.\d+)x?(?: faster than your settings)? \((\d+\.\d+) to (\d+\.\d+)")
KNOB = re.compile(r"`([a-z0-9_]+)[`:]")


def results():
    """Each recorded result, with its rows of a training that works."""
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        yield path.stem, result, [row for row in result["rows"] if not sleeps(result, row)]


def sleeps(result, row):
    sleeping = result.get("sleeping", [])
    return sleeping is True or row[0] in sleeping


def logged():
    return "\n".join(path.read_text(encoding="utf-8") for path in LOGS)


def recorded():
    """Each speed-up with its interval, from a log or from cells of one recorded row."""
    lines = [logged()]
    for _, _, rows in results():
        for row in map(list, rows):
            lines += [f"{cell}" for cell in row]
            # The interval has a column of its own in some results, and two in others.
            lines += [f"{one} ({two})" for one, two in itertools.pairwise(row)]
            threes = zip(row, row[1:], row[2:], strict=False)
            lines += [f"{one} ({low} to {high})" for one, low, high in threes]
    return {speed_up for line in lines for speed_up in headlines(line)}


def headlines(text):
    return {tuple(map(float, found)) for found in HEADLINE.findall(text)}


OF_WORKLOADS = ("zoo", "script_or_model", "repeat", "knobs", "h200")


def numbers_of(training):
    """Each number that a result of README's table records of a training."""
    names = {training, training.partition(",")[0]}
    names |= {f"train.py {name}" for name in names}
    cells = []
    for stem, result, rows in results():
        if stem in OF_WORKLOADS:
            cells += [cell for row in rows if row[0] in names for cell in row]
            columns = [at for at, name in enumerate(result["columns"]) if name in names]
            cells += [row[at] for row in rows for at in columns]
    return set(DECIMAL.findall(" ".join(map(str, cells))))


def unrecorded(readme):
    """Numbers of README's first screen and of its results that no record holds."""
    first = readme.partition("## Install")[0]
    prose = re.search(r"## Results\n(.*?)\n## ", readme, re.DOTALL)[1]
    table = re.findall(r"^\| (`?\w.*?) \| (.*)$", prose, re.MULTILINE)
    assert len(table) > 1 + 14 + 6
    missing = set(DECIMAL.findall(first)) - set(DECIMAL.findall(logged()))
    for training, rest in table:
        missing |= set(DECIMAL.findall(rest)) - numbers_of(training.replace("`", ""))
    outside = re.sub(r"^\|.*$", "", prose, flags=re.MULTILINE)
    return missing | set(MEASURED.findall(outside))


def settings_of(page, heading):
    """The settings in the first cell of each row of the table below a heading, with the rest."""
    text = page.read_text(encoding="utf-8").partition(heading)[2]
    table = re.search(r"\n\n((?:\|.*\n)+)", text)
    assert table is not None, heading
    for row in table[1].splitlines()[2:]:
        first, _, rest = row.removeprefix("| ").partition(" | ")
        yield set(KNOB.findall(first)), rest


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_speed_up_is_a_recorded_one_of_a_training_that_does_not_sleep(page):
    found = headlines(page.read_text(encoding="utf-8"))
    assert found
    assert not found - recorded()


def test_every_number_of_the_readme_is_in_a_record_of_the_same_training():
    assert not unrecorded((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("number", "invented"),
    [
        ("1.54x (1.23 to 1.80)", "1.55x (1.23 to 1.80)"),
        ("1.49/1.44/1.11", "1.49/1.44/1.12"),
        ("1.90x | 1.42/", "2.67x | 1.42/"),  # Recorded of another training.
        ("TF32 3.30; 7.8 % off", "TF32 3.30; 1.4 % off"),
        ("found 2.35x", "found 2.53x"),
        ("all small", "2x faster on average, all small"),
    ],
)
def test_an_invented_number_in_the_readme_is_found(number, invented):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert number in readme
    assert unrecorded(readme.replace(number, invented))


def test_the_page_on_quality_lists_the_settings_of_the_default_space():
    rows = settings_of(DOCS / "concepts" / "quality-checks.md", "# Quality checks")
    listed = {name for names, _ in rows for name in names}
    offered = read_space(shipped_spaces()["default"]).offers
    assert listed == {name for name in offered if not knob_named(name).of_ranks}


def test_the_page_on_scripts_says_which_settings_need_no_evidence_and_which_a_flag():
    rows = list(settings_of(DOCS / "reference" / "scripts.md", "## Settings"))
    always = {name for names, rest in rows if rest.endswith("| always |") for name in names}
    by_flag = {name for names, rest in rows if "`--map`" in rest for name in names}
    free = {k.name for k in ALL_KNOBS if is_harmless(k) and not k.script_obstacle}
    # `--deterministic` of the search asks for it.
    assert always == free - {*BY_FLAG_ONLY, "deterministic"}
    assert by_flag == {*BY_FLAG_ONLY, "amp_dtype"}


TEXT = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(TEXT)["project"]


def test_the_oldest_torch_is_the_one_that_the_package_asks_for():
    (asked,) = PROJECT["optional-dependencies"]["torch"]
    assert asked.removesuffix("a0") == "torch>={}.{}.0".format(*SEARCHES)
