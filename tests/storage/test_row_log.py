"""Rows of a running job, kept by blocks: a killed run goes on where it was, and never with half a row."""

import os
import subprocess
import sys

import numpy as np
import pytest
from limits import files_no_larger_than

from panther.errors import InputError
from panther.storage.row_log import LineLog, RowLog
from panther.storage.working import MARKER, make_working_folder, remove_working_folder


def row(index: int, width: int = 3) -> np.ndarray:
    return np.arange(width, dtype=np.float32) + 10 * index + 1


def filled(folder, indices, key="k"):
    log = RowLog(folder, key, 3)
    for index in indices:
        log.add(index, row(index)[None], {"n": index})
    return log


def reopened(folder, key="k", width=3, dtype=np.float32) -> set[int]:
    log = RowLog(folder, key, width, dtype)
    done = set(log.done)
    log.close()
    return done


def test_rows_come_back_in_order_whatever_the_order_they_came_in(tmp_path):
    for folder in (tmp_path / "j", None):
        log = filled(folder, [2, 0, 3, 1])
        np.testing.assert_array_equal(log.rows(range(4), 4), [row(i) for i in range(4)])
        assert log.done[2].about["n"] == 2
        log.close()


def test_a_second_run_finds_what_the_first_has_done(tmp_path):
    filled(tmp_path / "j", [0, 2]).close()
    log = RowLog(tmp_path / "j", "k", 3)
    assert log.done == {0: (1, {"n": 0}), 2: (1, {"n": 2})}
    log.add(3, row(3)[None], {"n": 3})
    np.testing.assert_array_equal(log.rows([0, 3], 4), [row(0), row(3)])
    log.close()


def test_blocks_of_several_rows_are_whole_up_to_the_first_gap(tmp_path):
    rows = np.stack([row(i) for i in range(7)])
    log = RowLog(tmp_path / "j", "k", 3)
    for start in (0, 2, 5):
        log.add(start, rows[start : start + 2], {str(start): "why"})
    assert log.whole() == 4
    log.close()
    log = RowLog(tmp_path / "j", "k", 3)
    assert log.whole() == 4
    log.add(4, rows[4:5], {})
    assert log.whole() == 7
    np.testing.assert_array_equal(log.rows(range(7), 7), rows)
    log.close()


@pytest.mark.parametrize("change", [{"key": "other"}, {"width": 4}, {"dtype": np.float16}])
def test_rows_of_another_request_are_thrown_away(tmp_path, change):
    filled(tmp_path / "j", [0, 1, 2]).close()
    assert reopened(tmp_path / "j", **change) == set()


def test_a_last_line_cut_anywhere_costs_that_row_only(tmp_path):
    filled(tmp_path / "j", [0, 1, 2]).close()
    log = tmp_path / "j" / "done.jsonl"
    content = log.read_bytes()
    last = content[:-1].rfind(b"\n") + 1
    for cut in range(
        last, len(content) - 1
    ):  # the last byte but one ends the value: the line is whole without its newline
        log.write_bytes(content[:cut])
        assert reopened(tmp_path / "j") == {0, 1}
        filled(tmp_path / "j", [2]).close()  # the run that goes on writes a sound line
        assert reopened(tmp_path / "j") == {0, 1, 2}


@pytest.mark.parametrize(
    "junk", [b"\0" * 40 + b"\n", b"5\n", b'["x", 1, 0, {}]\n', b"[-1, 1, 0, {}]\n", b"{not json}\n"]
)
def test_junk_in_the_list_is_dropped(tmp_path, junk):
    filled(tmp_path / "j", [0, 1]).close()
    with (tmp_path / "j" / "done.jsonl").open("ab") as log:
        log.write(junk)
    assert reopened(tmp_path / "j") == {0, 1}


def test_a_row_whose_numbers_were_lost_is_done_again(tmp_path):
    filled(tmp_path / "j", [0, 1, 2]).close()
    rows = tmp_path / "j" / "rows"
    os.truncate(rows, rows.stat().st_size - 5)  # a crash of the machine: the list was on disk before the numbers
    assert reopened(tmp_path / "j") == {0, 1}
    content = bytearray(rows.read_bytes())
    content[0:12] = bytes(12)
    rows.write_bytes(content)
    assert reopened(tmp_path / "j") == {1}


def test_a_killed_process_loses_nothing_that_was_added(tmp_path):
    script = (
        "import os, sys, numpy as np\nfrom pathlib import Path\nfrom panther.storage.row_log import RowLog\n"
        "log = RowLog(Path(sys.argv[1]), 'k', 3)\n"
        "for i in range(2):\n    log.add(i, np.arange(3, dtype=np.float32)[None] + 10 * i + 1, {'n': i})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, tmp_path / "j"], check=False).returncode == -9
    log = filled(tmp_path / "j", [2, 3])
    np.testing.assert_array_equal(log.rows(range(4), 4), [row(i) for i in range(4)])
    log.close()


def test_a_full_disk_is_a_sentence_and_no_row_is_counted_that_is_not_whole(tmp_path):
    width = 1000
    log = RowLog(tmp_path / "j", "k", width)
    added = []

    def add_all():
        for index in range(10):
            log.add(index, row(index, width)[None], {})
            added.append(index)

    with files_no_larger_than(int(4.5 * width * 4)), pytest.raises(InputError, match="free some space"):
        add_all()  # the fifth row fits by half
    log.close()
    assert added == [0, 1, 2, 3]
    log = RowLog(tmp_path / "j", "k", width)
    assert set(log.done) == set(added)
    for index in range(4, 10):
        log.add(index, row(index, width)[None], {})
    np.testing.assert_array_equal(log.rows(range(10), 10), [row(i, width) for i in range(10)])
    log.close()


def test_two_runs_do_not_write_to_one_folder_at_a_time(tmp_path):
    first = filled(tmp_path / "j", [0])
    with pytest.raises(InputError, match="another run is writing there"):
        RowLog(tmp_path / "j", "other", 3)
    first.close()
    assert reopened(tmp_path / "j") == {0}


def test_a_folder_without_a_single_row_is_removed(tmp_path):
    filled(tmp_path / "j", []).close()
    assert not (tmp_path / "j").exists()


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "j").touch()
    with pytest.raises(InputError, match="cannot be written"):
        RowLog(tmp_path / "j", "k", 3)


def test_lines_that_are_no_json_are_passed_over_and_the_next_line_begins_anew(tmp_path):
    log = LineLog(tmp_path / "far" / "down" / "log.jsonl")
    assert log.read() == []
    log.append(["größe", 'quote"', "new\nline"])
    path = tmp_path / "far" / "down" / "log.jsonl"
    path.write_bytes(path.read_bytes() + b'{"cut": ')
    log.append({"next": 1})
    assert log.read() == [["größe", 'quote"', "new\nline"], {"next": 1}]


@pytest.mark.parametrize("marked", [True, False])
def test_a_process_killed_while_it_took_the_lock_leaves_nothing_for_good(tmp_path, marked):
    folder = tmp_path / ".s.partial"
    filled(folder, [0]).close()
    for purpose in ("new", "now", "stale"):
        (folder / f"lock.{purpose}-139723181841280.vm.17115.part").touch()
    if not marked:  # killed once more while the folder was removed
        (folder / MARKER).unlink()
    assert reopened(folder) == {0}
    remove_working_folder(folder)
    assert not folder.exists()


def test_what_is_not_ours_stays(tmp_path):
    folder = tmp_path / ".s.partial"
    make_working_folder(folder)
    (folder / "block.h5.part").touch()
    remove_working_folder(folder)
    assert [path.name for path in folder.iterdir()] == ["block.h5.part"]
