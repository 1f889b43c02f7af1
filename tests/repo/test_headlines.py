"""Numbers in README, the quick start and the results are recorded, and no dataset sleeps."""

import json
import re
from pathlib import Path

import pytest

from autotune.configuration.script import BY_FLAG_ONLY, is_harmless
from autotune.configuration.search_space import read_space, shipped_spaces
from autotune.knobs import ALL_KNOBS, knob_named

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", DOCS / "quickstart.md", DOCS / "results.md")
H200 = ROOT / "studies" / "h200"
LOGS = (*H200.rglob("*.log"), *(ROOT / "studies").glob("*/recorded_search.log"))
NUMBER = re.compile(r"\d+\.\d+|\d+")
HEADLINE = re.compile(r"(\d+\.\d+)x?(?: faster than your settings)? \((\d+\.\d+) to (\d+\.\d+)")
KNOB = re.compile(r"`([a-z0-9_]+)[`:]")


def recorded():
    """Each three numbers that follow each other in a recorded row of a training that works."""
    lines = [line for path in LOGS for line in path.read_text(encoding="utf-8").splitlines()]
    lines += (H200 / "README.md").read_text(encoding="utf-8").splitlines()
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        awake = [row for row in result["rows"] if not sleeps(result, row)]
        lines += map(json.dumps, awake)
    found = ([float(number) for number in NUMBER.findall(line)] for line in lines)
    return {three for row in found for three in zip(row, row[1:], row[2:], strict=False)}


def sleeps(result, row):
    sleeping = result.get("sleeping", [])
    return sleeping is True or row[0] in sleeping


def headlines(page):
    for found in HEADLINE.findall(page.read_text(encoding="utf-8")):
        yield tuple(map(float, found))


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
    found = list(headlines(page))
    assert found
    assert not set(found) - recorded()


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
