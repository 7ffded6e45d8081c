"""What is left of the memory that a job was given."""

import pytest

from panther import machine
from panther.machine import SMALL, _memory_left, cores, is_spare

GB = 1 << 30
STAT = {1: "cache 7\ntotal_inactive_file {}\ntotal_active_file {}\n", 2: "anon 7\ninactive_file {}\nactive_file {}\n"}
NAMES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}


def group(folder, version, limit, used, cached):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(NAMES[version], (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(STAT[version].format(cached // 2, cached - cached // 2))


@pytest.mark.parametrize("version", [1, 2])
def test_files_that_are_only_cached_do_not_count_and_groups_around_do(tmp_path, version):
    top = tmp_path / "memory" if version == 1 else tmp_path
    group(top / "slurm" / "job", version, 4 * GB, 3 * GB, 2 * GB)
    group(top / "slurm", version, 8 * GB, 6 * GB, 0)
    (tmp_path / "own").write_text(f"5:cpu:/x\n{'4:memory' if version == 1 else '0:'}:/slurm/job\n")
    assert sorted(_memory_left(tmp_path / "own", tmp_path)) == [2 * GB, 3 * GB]


def test_no_limit_and_no_control_groups_are_no_limit(tmp_path):
    group(tmp_path / "job", 2, "max", GB, 0)
    (tmp_path / "own").write_text("0::/job\n")
    assert not list(_memory_left(tmp_path / "own", tmp_path))
    assert not list(_memory_left(tmp_path / "nothing", tmp_path))


def test_caches_of_all_cores_take_at_most_half_of_the_free_memory(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 200 * SMALL * cores())
    assert is_spare(100 * SMALL)
    assert not is_spare(100 * SMALL + 1)
    monkeypatch.setattr(machine, "free_memory", lambda: 0)
    assert is_spare(SMALL)
