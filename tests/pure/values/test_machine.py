"""Facts of the machine are read from folders that stand for /proc and /sys."""

from dataclasses import replace

import pytest

from autotune.values.machine import cpu_quota, nvidia_driver, oom_kills, probe_host
from covering import covers
from factories import GIB, cpu_machine, host


def place(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def probe_v2(root, files):
    """The host whose process lies in the cgroup /app/job of the unified hierarchy."""
    placed = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    return probe_host(place(root, {"proc/self/cgroup": "0::/app/job\n", **placed}))


def probe_v1(root, files):
    """The host whose process lies in /docker/1 of two hierarchies of version 1."""
    lines = "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n1:name=systemd:/docker/1\n"
    placed = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    return probe_host(place(root, {"proc/self/cgroup": lines, **placed}))


@covers("P4")
@pytest.mark.parametrize(
    ("files", "quota", "limit"),
    [
        ({"app/job/cpu.max": "150000 100000\n"}, 1.5, None),
        ({"app/job/cpu.max": "400000 100000\n", "app/cpu.max": "200000 100000\n"}, 2, None),
        ({"app/job/cpu.max": "max 100000\n", "app/job/memory.max": "max\n"}, None, None),
        ({"app/job/memory.max": "max\n", "app/memory.max": "1000\n"}, None, 1000),
        # Limits of neighbours and of cgroups below do not count.
        ({"other/cpu.max": "1 2\n", "app/job/deeper/memory.max": "1000\n"}, None, None),
        # Without a cgroup namespace the path is the host's, while the mount is the container's.
        ({"cpu.max": "300000 100000\n", "memory.max": "7000\n"}, 3, 7000),
    ],
    ids=str,
)
def test_the_tightest_limit_on_the_way_to_the_root_counts(tmp_path, files, quota, limit):
    found = probe_v2(tmp_path, files)
    assert (found.quota_cores, found.memory_limit_bytes) == (quota, limit)


@pytest.mark.parametrize(
    ("quota", "folder", "limit", "found"),
    [
        ("50000", "docker", "5000", (0.5, 5000)),
        ("-1", "docker/1", "9223372036854771712", (None, None)),  # as it spells no limit
    ],
)
def test_version_1_is_read_from_the_folder_of_each_controller(
    quota, folder, limit, found, tmp_path
):
    files = {
        "cpu/docker/1/cpu.cfs_quota_us": f"{quota}\n",
        "cpu/docker/1/cpu.cfs_period_us": "100000\n",
        f"memory/{folder}/memory.limit_in_bytes": f"{limit}\n",
    }
    host = probe_v1(tmp_path, files)
    assert (host.quota_cores, host.memory_limit_bytes) == found


def test_the_used_part_of_a_quota_is_that_of_its_own_cgroup(tmp_path):
    unified = {
        "app/job/cpu.max": "400000 100000\n",
        "app/job/cpu.stat": "usage_usec 7000000\n",
        "app/cpu.max": "200000 100000\n",
        "app/cpu.stat": "usage_usec 9000000\nuser_usec 1\n",
    }
    probe_v2(tmp_path / "2", unified)
    quota = cpu_quota(tmp_path / "2")
    assert quota.used_seconds() == 9.0
    separate = {
        "cpu/docker/1/cpu.cfs_quota_us": "50000\n",
        "cpu/docker/1/cpu.cfs_period_us": "100000\n",
        "cpuacct/docker/1/cpuacct.usage": "3500000000\n",
    }
    probe_v1(tmp_path / "1", separate)
    quota = cpu_quota(tmp_path / "1")
    assert quota.used_seconds() == 3.5


def test_a_machine_without_any_of_these_files_has_no_limits(tmp_path):
    found = probe_host(tmp_path)
    assert found.quota_cores is None
    assert found.memory_limit_bytes is None
    assert found.shm_bytes is None
    assert found.cpu_name


def test_the_name_of_the_cpu_is_its_model_name(tmp_path):
    place(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon: 8\nmodel name\t: B\n"})
    assert probe_host(tmp_path).cpu_name == "Xeon: 8"


def test_this_machine_has_cores_and_memory():
    found = probe_host()
    assert 1 <= found.usable_cores <= found.affinity_count <= found.cpu_count
    assert 0 < found.usable_memory_bytes <= found.memory_bytes


@pytest.mark.parametrize(
    ("quota", "usable"), [(None, 8), (1.5, 2), (0.2, 1), (2.0, 2), (100.0, 8)], ids=str
)
def test_usable_cores_round_a_quota_up_and_never_exceed_the_affinity(quota, usable):
    assert replace(host(8), quota_cores=quota).usable_cores == usable


@pytest.mark.parametrize(
    "changed",
    [
        replace(cpu_machine(), torch="2.16.0"),
        replace(cpu_machine(), default_num_threads=1),
        replace(cpu_machine(), host=replace(host(), quota_cores=1.0)),
        replace(cpu_machine(), host=replace(host(), memory_limit_bytes=GIB)),
        replace(cpu_machine(), device="cuda:0"),
        replace(cpu_machine(), driver="580.82.07"),
    ],
    ids=["torch", "threads", "quota", "memory limit", "device", "driver"],
)
def test_the_fingerprint_changes_with_the_machine(changed):
    assert changed.fingerprint != cpu_machine().fingerprint


@pytest.mark.parametrize(
    ("first_line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19", "535.129.03"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82  Release", "580.82"),
        ("something else 1.2", ""),
    ],
)
def test_the_driver_is_read_from_either_kind_of_kernel_module(first_line, version, tmp_path):
    text = f"{first_line}\nGCC version:  gcc version 12.3.0\n"
    assert nvidia_driver(place(tmp_path, {"proc/driver/nvidia/version": text})) == version


UNIFIED = {"proc/self/cgroup": "0::/app/job\n", "proc/vmstat": "oom_kill 7\n"}


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, 7),
        ({"sys/fs/cgroup/app/job/memory.events": "oom 9\noom_kill 2\n"}, 2),
        ({"sys/fs/cgroup/memory.events": "oom_kill 4\n"}, 4),  # sees its own as the root
        ({"proc/vmstat": "nr_free_pages 1\n"}, 0),
    ],
)
def test_kills_for_lack_of_memory_are_counted_as_near_as_can_be(files, kills, tmp_path):
    assert oom_kills(place(tmp_path, {**UNIFIED, **files})) == kills


def test_version_1_counts_kills_in_another_file(tmp_path):
    files = {
        "proc/self/cgroup": "4:memory:/docker/1\n",
        "sys/fs/cgroup/memory/docker/1/memory.oom_control": "under_oom 0\noom_kill 3\n",
    }
    assert oom_kills(place(tmp_path, files)) == 3
