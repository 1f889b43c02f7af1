"""Allocators that are preloaded: found, composed with what is set, read back."""

import ctypes.util
import os
import subprocess
import sys

import pytest

from autotune.knobs import KNOBS, process
from autotune.knobs.process import allocator_in_use, library
from factories import cpu_machine
from needs import missing

CPU = cpu_machine()
PACKAGES = {"jemalloc": "libjemalloc2", "tcmalloc": "libtcmalloc-minimal4"}
ALLOCATOR = KNOBS["cpu_allocator"]


@pytest.fixture
def only_jemalloc(monkeypatch):
    """A machine on which jemalloc is installed and tcmalloc is not."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    found = {"jemalloc": "libjemalloc.so.2", "tcmalloc": None}
    monkeypatch.setattr(process, "library", found.get)


def test_a_library_that_is_not_installed_is_an_obstacle_that_says_how_to_get_it(only_jemalloc):
    assert ALLOCATOR.suggestions(CPU) == (None, "jemalloc")
    assert ALLOCATOR.obstacle("tcmalloc", CPU) == (
        "libtcmalloc is not installed: apt-get install libtcmalloc-minimal4"
    )


def test_what_the_user_preloads_stays(only_jemalloc, monkeypatch):
    assert ALLOCATOR.environ("jemalloc") == {"LD_PRELOAD": "libjemalloc.so.2"}
    assert ALLOCATOR.environ(None) == {}
    monkeypatch.setenv("LD_PRELOAD", "/opt/libprobe.so /opt/libother.so")
    assert ALLOCATOR.environ("jemalloc") == {
        "LD_PRELOAD": "libjemalloc.so.2:/opt/libprobe.so:/opt/libother.so"
    }


def test_an_allocator_that_is_preloaded_already_is_part_of_the_baseline(only_jemalloc, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/opt/libtcmalloc.so.4:/opt/libprobe.so")
    assert ALLOCATOR.resolve(None, CPU) == "tcmalloc"
    assert ALLOCATOR.obstacle("tcmalloc", CPU) is None
    assert ALLOCATOR.environ("tcmalloc") == {"LD_PRELOAD": "/opt/libtcmalloc.so.4:/opt/libprobe.so"}
    assert ALLOCATOR.environ("jemalloc") == {"LD_PRELOAD": "libjemalloc.so.2:/opt/libprobe.so"}


def test_the_linker_is_asked_for_each_name(monkeypatch):
    found = {"tcmalloc": "libtcmalloc.so.4"}
    monkeypatch.setattr(ctypes.util, "find_library", found.get)
    library.cache_clear()
    assert (library("jemalloc"), library("tcmalloc")) == (None, "libtcmalloc.so.4")
    library.cache_clear()


@pytest.mark.parametrize("allocator", ["jemalloc", "tcmalloc"])
def test_a_process_reads_the_allocator_in_use_from_its_own_memory(allocator):
    name = library(allocator)
    if name is None:
        missing(f"lib{allocator}", f"apt-get install {PACKAGES[allocator]}")
    code = "from autotune.knobs.process import allocator_in_use as a; print(a())"
    environment = {**os.environ, **ALLOCATOR.environ(allocator)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == allocator


def test_the_c_librarys_own_allocator_is_none_of_them():
    if "LD_PRELOAD" not in os.environ:
        assert allocator_in_use() is None
