"""Processes that belong together are found, with the memory that they hold."""

import subprocess
import sys
from dataclasses import dataclass

import psutil
import pytest

from autotune.process.common import process_tree
from autotune.process.common.process_tree import (
    MemoryPeak,
    cpu_seconds_below,
    descendants,
    resident_bytes,
    tree_bytes,
)

MIB, GIB = 1 << 20, 1 << 30
# Starts a child of its own for each line that it is told, and ends one for an empty line.
PARENT = """
import subprocess, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
children = []
for line in sys.stdin:
    if line.strip():
        children.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
    else:
        children.pop().communicate(b"now\\n")
    print(*(child.pid for child in children), flush=True)
"""
HOLDER = "held = b'x' * (int(input()) << 20); print(len(held), flush=True); input()"


class Family:
    """A process that starts and ends children when it is told to."""

    def __init__(self):
        self.process = _start(PARENT)

    def change(self, line):
        """The numbers of its children afterwards."""
        return set(map(int, _tell(self.process, line).split()))


def _start(program):
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _tell(process, line):
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline()


@pytest.fixture
def family():
    found = Family()
    yield found
    for process in psutil.Process(found.process.pid).children(recursive=True):
        process.kill()
    found.process.kill()
    found.process.communicate()


@pytest.mark.parametrize("has_lists", [True, False])
def test_children_are_found_however_late_they_come_and_threads_are_none(
    has_lists, family, monkeypatch
):
    if not has_lists:
        monkeypatch.setattr(process_tree, "_lists_children", lambda: False)
    root = family.process.pid
    assert descendants(root) == ()
    first = family.change("more")
    assert set(descendants(root)) == first
    both = family.change("more")
    assert set(descendants(root)) == both > first
    assert set(descendants(root)) == both
    assert family.change("") == first
    assert set(descendants(root)) == first


def test_below_a_child_its_own_children_are_found(family):
    root = psutil.Process().pid
    children = family.change("more")
    assert {family.process.pid, *children} <= set(descendants(root))


def test_a_kernel_that_lists_children_is_asked_for_those_of_every_thread(tmp_path, monkeypatch):
    lists = {
        "7/task/7": "8 ",
        "7/task/70": "9 ",
        "8/task/8": "",
        "9/task/9": "10 ",
        "10/task/10": "",
    }
    for place, children in lists.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "children").write_text(children)
    monkeypatch.setattr(process_tree, "_PROC", tmp_path)
    monkeypatch.setattr(process_tree, "_lists_children", lambda: True)
    assert descendants(7) == (8, 9, 10)


def test_memory_is_that_of_all_and_read_only_where_it_is_worth_it():
    with _start(HOLDER) as holder:
        peak = MemoryPeak(holder.pid, None)
        peak.look()
        before = peak.bytes
        assert 0 < before < 64 * MIB
        _tell(holder, "200")
        peak.look(worth_bytes=1 << 40)
        assert peak.bytes == before, "not worth it"
        peak.look()
        assert 200 * MIB <= peak.bytes - before < 210 * MIB
        assert resident_bytes(holder.pid) >= peak.bytes
        holder.kill()
    peak.look()
    assert peak.bytes > 200 * MIB
    assert resident_bytes(holder.pid) == 0


@dataclass
class Sizes:
    """Numbers that the kernel tells of processes, written down by a test, in GiB."""

    resident: dict[int, float]
    held: float
    """By all together, pages that they share counted once."""
    reads: int = 0
    """Times that the shared pages were read."""

    def read(self, *_):
        self.reads += 1
        return int(self.held * GIB)


@pytest.fixture
def sizes(monkeypatch):
    """Those of five processes that share 2.2 GiB, of which each has a little of its own."""
    sizes = Sizes(dict.fromkeys(range(1, 6), 2.0), 2.2)
    resident = sizes.resident
    monkeypatch.setattr(process_tree, "resident_bytes", lambda pid: int(resident[pid] * GIB))
    monkeypatch.setattr(process_tree, "tree_bytes", sizes.read)
    monkeypatch.setattr(
        process_tree, "descendants", lambda root: tuple(sorted(set(resident) - {root}))
    )
    return sizes


@pytest.mark.parametrize(
    "after",
    [{1: 9.0}, {1: 9.0, 2: 0.1}, {1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1, 5: 8.6}, {2: 0.5, 1: 9.5}],
    ids=["alone", "beside another", "beside all", "as much in sum"],
)
def test_a_smaller_sum_of_resident_sizes_may_be_a_new_peak(after, sizes):
    peak = MemoryPeak(1, None)
    peak.look()
    assert peak.bytes == int(2.2 * GIB)
    sizes.resident.clear()
    sizes.resident.update(after)
    sizes.held = sum(after.values())
    peak.look(worth_bytes=8 * GIB)
    assert peak.bytes == int(sizes.held * GIB)


def test_shared_pages_are_read_again_only_where_that_may_show_a_new_peak(sizes):
    peak = MemoryPeak(1, None)
    for resident in (2.0, 2.01, 1.99, 2.0):
        sizes.resident[1] = resident
        peak.look()
    assert sizes.reads == 1, "nothing changed that is worth it"
    sizes.resident.update({1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1, 5: 1.7})
    peak.look()
    assert sizes.reads == 1, "all of it is less than the peak"
    del sizes.resident[5]
    peak.look(worth_bytes=8 * GIB)
    assert sizes.reads == 1


def test_memory_that_a_host_wrote_and_holds_alone_is_not_its_childs():
    with _start(HOLDER) as host, _start(HOLDER) as child:
        _tell(host, "200")
        _tell(child, "1")
        alone = tree_bytes([child.pid], None)
        assert alone < tree_bytes([child.pid], host.pid) < alone + 64 * MIB
        host.kill()
        child.kill()


def test_cpu_time_of_all_below_is_counted():
    spin = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()\n"
    root = psutil.Process().pid
    before = cpu_seconds_below(root)
    with _start(spin) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert cpu_seconds_below(root) - before >= 0.4
        child.kill()
