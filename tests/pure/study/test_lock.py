"""One writing process per study."""

import subprocess
import sys

import pytest

from autotune.study.storage import LOCK_FILE, study_lock
from autotune.values.errors import StorageError
from covering import covers


def test_the_lock_is_free_again_after_the_block(tmp_path):
    for _ in range(2):
        with study_lock(tmp_path):
            assert (tmp_path / LOCK_FILE).exists()


@covers("S13")
def test_a_holder_that_is_killed_leaves_the_lock_free(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from autotune.study.storage import study_lock\n"
        "with study_lock(Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert run.returncode == -9
    with study_lock(tmp_path):
        pass


@covers("X10")
def test_the_folder_of_a_study_can_be_looked_into_by_its_owner_alone(tmp_path):
    with study_lock(tmp_path / "studies" / "s"):
        assert (tmp_path / "studies" / "s").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_there_keeps_its_permissions(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s").chmod(0o755)
    with study_lock(tmp_path / "s"):
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o755


def test_files_of_others_in_the_folder_stay_as_they_are(tmp_path):
    theirs = tmp_path / "lock"
    theirs.write_text("of another program")
    with study_lock(tmp_path):
        assert theirs.read_text() == "of another program"


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("123")
    (tmp_path / LOCK_FILE).symlink_to(theirs)
    with pytest.raises(StorageError, match="cannot be used"), study_lock(tmp_path):
        pass
    assert theirs.read_text() == "123"
