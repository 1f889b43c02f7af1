"""A password in a storage URL is shown nowhere, and no text from elsewhere steers a terminal."""

import re
import stat
import sys

import pytest
from click.testing import CliRunner

from autotune.cli import COMMANDS, cli
from autotune.study.storage import check_storage, masked, refuse
from autotune.values.errors import StorageError, UsageError
from autotune.values.text import clean
from children import autotune, completed
from covering import covers
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in
from sharing import joined
from shown_search import lines_of

PASSWORD = "hunter2"
URLS = [
    f"postgresql://me:{PASSWORD}@127.0.0.1:1/trials",
    f"postgresql+nosuch://me:{PASSWORD}@127.0.0.1/trials",
    f"mysql://:{PASSWORD}@127.0.0.1:1/trials",
    f"postgresql://127.0.0.1:1/trials?user=me&password={PASSWORD}",
    f"postgresql://me:{PASSWORD}@host:port/trials",
    f"postgresql:/me:{PASSWORD}@host",
    f"me:{PASSWORD}@host",
]

# The command line, in which the first thing it does fails as nobody expected.
BROKEN = f"""
import sys
from autotune import cli
from autotune.commands import common

def fail(*given):
    raise RuntimeError("no way to \\x1b[31m{URLS[0]}\\x07")

common.check_model = fail
sys.argv = ["autotune", "search", "model.py"]
cli.main()
"""


@covers("X8")
@pytest.mark.parametrize("url", URLS)
def test_no_message_about_a_storage_holds_its_password(url):
    said = []
    try:
        check_storage(url)
        said.append(masked(url))
        refuse(url, RuntimeError(f"cannot connect to {url}: refused"))
    except (UsageError, StorageError) as error:
        said.append(str(error))
    assert said
    assert PASSWORD not in " ".join(said)


@covers("X8")
def test_the_password_of_a_server_is_in_no_file_no_row_and_no_event(server_storage, tmp_path):
    url = server_storage.replace("autotune@", f"autotune:{PASSWORD}@")
    assert PASSWORD in url
    options = options_in(tmp_path, storage=url)
    events = events_of(options, ScriptedRunner(lambda config, phase: at(10 * batch_of(config))))
    first = next(iter(joined(options, 2, ScriptedRunner())))
    assert PASSWORD not in "\n".join(lines_of([*events, first]))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert "best.yaml" in {path.name for path in files}
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
    import psycopg

    with psycopg.connect(url) as connection:
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        names = [name for (name,) in connection.execute(tables)]
        rows = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}
    assert rows["study_user_attributes"]
    assert not [name for name in names if PASSWORD in str(rows[name])]


def test_help_shows_no_value_that_was_given(tmp_path):
    done = autotune(tmp_path, "search", "--storage", URLS[0], "--help")
    assert done.returncode == 0
    assert PASSWORD not in done.stdout + done.stderr


def test_every_command_has_help_of_plain_text():
    for command in (cli.get_command(None, name) for name in COMMANDS):
        done = CliRunner().invoke(command, ["--help"])
        assert done.exit_code == 0
        assert clean(done.stdout) == done.stdout


@covers("X8")
def test_the_report_of_a_fault_of_ours_is_private_and_holds_no_password(tmp_path):
    done = completed(tmp_path, [sys.executable, "-c", BROKEN], TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "internal error: RuntimeError: no way to postgresql://me:***@" in done.stderr
    (report,) = tmp_path.iterdir()
    assert str(report) in done.stderr
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    text = report.read_text(encoding="utf-8")
    assert "in fail" in text
    assert PASSWORD not in text + done.stderr
    assert not re.search(r"[\x1b\x07]", text + done.stderr)
