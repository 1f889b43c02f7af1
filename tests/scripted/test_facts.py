"""A fact about a study is what its name says, or the study is refused."""

import json

import optuna
import pytest

from autotune.study.facts import Entries, Fact, StudyFacts
from autotune.values.errors import StudyMismatchError
from covering import covers
from readers import FACTS, RUN
from study_factories import opened

WRONG_FACTS = {
    "identity": [{"facts": {"space": {"batch_size": 8}}}, {"facts": 1}, "mine"],
    "plan": [{"options": [], "trials": 5}, {"options": {}}],
    "start_seconds": ["soon", -1.0, [2.0]],
    "baseline_runs": [[], [{}], [{**RUN, "blocks": []}], {"0": RUN}],
    "seed_seconds": [-1.0, "long"],
    "probe_samples": [-1, 1.5, "512x"],
    "seeds:batch_size=16": [0.5, ["good"]],
    "check:amp_dtype=null": [1, None],
    "drift:own": [5, [5], [{"trials": 1}], [{"trials": 4, "samples_per_second": -1}]],
    "seconds:accuracy": ["long", -1.0],
    "diagnosis": [{}, [], {"batch_size": "eight"}],
    "again_seconds:4": [[7.5], -1.0],
    "confirmation": [{"seconds": 1.0}, 5],
    "answer": [{"trials": 1}, {"trials": 1, "best": {}}, {"trials": "x", "best": {}}],
}


def test_a_study_reads_each_fact_as_what_it_wrote():
    written = {}
    read, facts = StudyFacts(FACTS), StudyFacts({}, written.__setitem__)
    for name, one in vars(StudyFacts).items():
        if isinstance(one, Fact) and name in FACTS:
            setattr(facts, name, getattr(read, name))
        elif isinstance(one, Entries):
            for key, value in one.read(read).items():
                one.read(facts)[key] = value
    assert written == json.loads(json.dumps({k: v for k, v in FACTS.items() if k != "colour"}))
    assert facts.attributes == written
    assert facts.drift_checks["@cuda:1"] == read.drift_checks["@cuda:1"]


@covers("S18")
@pytest.mark.parametrize(
    ("name", "fact"), [(name, fact) for name, facts in WRONG_FACTS.items() for fact in facts]
)
def test_a_fact_that_is_something_else_is_refused_by_name(name, fact):
    StudyFacts({name: FACTS[name]} if name in FACTS else {}).check()
    with pytest.raises(StudyMismatchError, match=f"fact '{name.partition(':')[0]}' is not what"):
        StudyFacts({name: fact}).check()


@covers("S18")
def test_a_study_with_such_a_fact_is_not_opened_and_not_backed_up(nine, url, tmp_path):
    optuna.create_study(study_name="s", storage=url, direction="maximize").set_user_attr(
        "seed_seconds", "long"
    )
    with pytest.raises(StudyMismatchError, match="'seed_seconds' is not what"):
        opened(url, nine)
    assert not (tmp_path / "study.db.bak").exists()
