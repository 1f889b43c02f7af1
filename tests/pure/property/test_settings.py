"""Legal settings of every kind, far beyond what a search space would offer."""

from hypothesis import given
from hypothesis import strategies as st

from autotune.configuration.job import Inspect, Job, job_from_json, job_to_json
from autotune.configuration.training_config import TrainingConfig, setting_faults
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Integers
from autotune.values.strict_yaml import dump, parse


def legal(knob):
    match knob.values:
        case Integers(low, high, nullable):
            numbers = st.integers(low, high)
            return st.none() | numbers if nullable else numbers
        case one_of:
            return st.sampled_from(one_of.options)


SETTINGS = st.fixed_dictionaries({}, optional={knob.name: legal(knob) for knob in ALL_KNOBS})
CONFIGS = SETTINGS.map(TrainingConfig.of)
WRONG = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none())


@given(SETTINGS)
def test_legal_settings_have_no_faults(settings):
    assert setting_faults(settings) == {}


@given(SETTINGS)
def test_a_configuration_keeps_every_setting_that_is_not_idle(settings):
    config = TrainingConfig.of(settings)
    for knob in ALL_KNOBS:
        if knob.needs is None and knob.name in settings:
            assert config[knob.name] == settings[knob.name]


@given(CONFIGS)
def test_a_configuration_is_its_own_canonical_form(config):
    assert TrainingConfig.of(config.as_dict()) == config


@given(CONFIGS)
def test_a_configuration_survives_yaml_with_its_types(config):
    read = parse(dump(config.as_dict()), "f").value
    assert read == config.as_dict()
    assert [type(value) for value in read.values()] == [
        type(value) for value in config.as_dict().values()
    ]


@given(CONFIGS)
def test_a_configuration_survives_a_job(config):
    job = Job(Inspect(), "cpu", config=config.as_dict())
    assert job_from_json(job_to_json(job)) == job


@given(CONFIGS, CONFIGS)
def test_the_differences_are_what_leads_from_one_to_the_other(one, other):
    assert other.replace(**one.differences(other)) == one


@given(st.sampled_from(ALL_KNOBS), WRONG)
def test_a_value_is_either_legal_with_exactly_its_type_or_named_as_a_fault(knob, value):
    match knob.values:
        case Integers(low, high, nullable):
            is_number = type(value) is int and low <= value <= high
            legal_here = is_number or (value is None and nullable)
        case one_of:
            typed = [(type(option), option) for option in one_of.options]
            legal_here = (type(value), value) in typed
    assert (knob.name in setting_faults({knob.name: value})) != legal_here
