"""Jobs of a search say how to treat the dataset; scripted, so that nothing is built."""

import pytest
from click.testing import CliRunner

from autotune.cli import cli
from autotune.values.outcome import Inspected
from factories import cpu_machine, written
from scripted_runner import (
    FACTS,
    ScriptedRunner,
    at,
    batch_of,
    changed,
    events_of,
    unstored_in,
)


def dear(is_shared):
    """Larger batches train faster, and the dataset takes a minute."""
    return ScriptedRunner(
        measure=lambda config, phase: at(100 + batch_of(config)),
        inspected=Inspected(cpu_machine(), FACTS, dataset_seconds=60.0, is_shared=is_shared),
    )


def hosts_of_rounds(runner):
    together = zip(runner.jobs, runner.asked, strict=True)
    return {job.host for job, asked in together if asked.phase == "confirmation"}


def test_the_rounds_of_a_search_share_a_dear_dataset(tmp_path):
    events_of(unstored_in(tmp_path), runner := dear(is_shared=True))
    assert hosts_of_rounds(runner) == {"search"}


def test_rounds_have_hosts_of_their_own_where_these_build_nothing(tmp_path):
    events_of(unstored_in(tmp_path), runner := dear(is_shared=False))
    assert len(hosts_of_rounds(runner)) > 1


@pytest.mark.parametrize("fresh_data", [True, False])
def test_each_job_says_whether_its_process_builds_the_dataset(fresh_data, tmp_path):
    options = changed(unstored_in(tmp_path), fresh_data=fresh_data)
    events_of(options, runner := dear(is_shared=not fresh_data))
    assert {job.fresh_data for job in runner.jobs} == {fresh_data}


def test_the_flag_of_the_command_reaches_the_search(tmp_path, monkeypatch):
    found = []

    def driven(options, *_):
        found.append(options)
        return True

    monkeypatch.setattr("autotune.commands.search.execute_search", driven)
    model = str(written(tmp_path, "def build_model(): ...\n", "model.py"))
    for flags in ([], ["--fresh-data"]):
        assert CliRunner().invoke(cli, ["search", model, *flags]).exit_code == 0
    assert [options.workload.fresh_data for options in found] == [False, True]
