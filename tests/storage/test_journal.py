"""Rows of a running job: a killed run goes on where it was, and never with half a row."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from limits import files_no_larger_than

from panther.errors import InputError
from panther.storage.journal import Journal

SAMPLES = ["a", "b", "c", "d"]


def row(index: int, width: int = 3) -> np.ndarray:
    return np.arange(width, dtype=np.float32) + 10 * index + 1


def filled(folder, indices, key="k", samples=SAMPLES):
    journal = Journal(folder, key, samples, 3)
    for index in indices:
        journal.add(index, row(index), {"fingerprint": f"f{index}", "n": index})
    return journal


def reopened(folder, key="k", samples=SAMPLES, width=3) -> set[str]:
    journal = Journal(folder, key, samples, width)
    done = set(journal.done())
    journal.close()
    return done


def test_rows_come_back_in_the_samples_order_whatever_the_order_they_came_in(tmp_path):
    for folder in (tmp_path / "j", None):
        journal = filled(folder, [2, 0, 3, 1])
        vectors, about = journal.rows(leave_out=())
        np.testing.assert_array_equal(vectors, [row(i) for i in range(4)])
        assert list(about) == SAMPLES
        assert about["c"]["n"] == 2
        journal.close()


def test_a_second_run_finds_what_the_first_has_done(tmp_path):
    filled(tmp_path / "j", [0, 2]).close()
    journal = Journal(tmp_path / "j", "k", SAMPLES, 3)
    assert journal.done() == {"a": {"fingerprint": "f0", "n": 0}, "c": {"fingerprint": "f2", "n": 2}}
    journal.add(3, row(3), {"fingerprint": "f3", "n": 3})
    vectors, about = journal.rows(leave_out={"c"})
    np.testing.assert_array_equal(vectors, [row(0), row(3)])
    assert list(about) == ["a", "d"]
    journal.close()


@pytest.mark.parametrize("change", [{"key": "other"}, {"samples": ["a", "b", "d", "c"]}, {"width": 4}])
def test_rows_of_another_request_are_thrown_away(tmp_path, change):
    filled(tmp_path / "j", [0, 1, 2]).close()
    assert reopened(tmp_path / "j", **change) == set()


def test_a_last_line_cut_anywhere_costs_that_row_only(tmp_path):
    filled(tmp_path / "j", [0, 1, 2]).close()
    log = tmp_path / "j" / "done.jsonl"
    content = log.read_bytes()
    last = content[:-1].rfind(b"\n") + 1
    for cut in range(last, len(content)):
        log.write_bytes(content[:cut])
        assert reopened(tmp_path / "j") == {"a", "b"}
        filled(tmp_path / "j", [2]).close()  # the run that goes on writes a sound line
        assert reopened(tmp_path / "j") == {"a", "b", "c"}


@pytest.mark.parametrize("junk", [b"\0" * 40 + b"\n", b"5\n", b'["nobody", {}, 0]\n', b"{not json}\n"])
def test_junk_in_the_list_is_dropped(tmp_path, junk):
    filled(tmp_path / "j", [0, 1]).close()
    with (tmp_path / "j" / "done.jsonl").open("ab") as log:
        log.write(junk)
    assert reopened(tmp_path / "j") == {"a", "b"}


def test_a_row_whose_numbers_were_lost_is_done_again(tmp_path):
    filled(tmp_path / "j", [0, 1, 2]).close()
    rows = tmp_path / "j" / "rows.f32"
    os.truncate(rows, rows.stat().st_size - 5)  # a crash of the machine: the list was on disk before the numbers
    assert reopened(tmp_path / "j") == {"a", "b"}
    content = bytearray(rows.read_bytes())
    content[0:12] = bytes(12)
    rows.write_bytes(content)
    assert reopened(tmp_path / "j") == {"b"}


def test_a_killed_process_loses_nothing_that_was_added(tmp_path):
    script = (
        "import os, sys, numpy as np\nfrom pathlib import Path\nfrom panther.storage.journal import Journal\n"
        "j = Journal(Path(sys.argv[1]), 'k', ['a', 'b', 'c', 'd'], 3)\n"
        "for i in range(2):\n    j.add(i, np.arange(3, dtype=np.float32) + 10 * i + 1, {'fingerprint': 'f', 'n': i})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, tmp_path / "j"], check=False).returncode == -9
    journal = filled(tmp_path / "j", [2, 3])
    np.testing.assert_array_equal(journal.rows(leave_out=())[0], [row(i) for i in range(4)])
    journal.close()


def test_a_full_disk_is_a_sentence_and_no_row_is_counted_that_is_not_whole(tmp_path):
    width = 1000
    samples = [str(i) for i in range(10)]
    journal = Journal(tmp_path / "j", "k", samples, width)
    added = []

    def add_all():
        for index in range(10):
            journal.add(index, row(index, width), {"fingerprint": "f"})
            added.append(str(index))

    with files_no_larger_than(int(4.5 * width * 4)), pytest.raises(InputError, match="free some space"):
        add_all()  # the fifth row fits by half
    journal.close()
    assert added == ["0", "1", "2", "3"]
    journal = Journal(tmp_path / "j", "k", samples, width)
    assert set(journal.done()) == set(added)
    for index in range(4, 10):
        journal.add(index, row(index, width), {"fingerprint": "f"})
    np.testing.assert_array_equal(journal.rows(leave_out=())[0], [row(i, width) for i in range(10)])
    journal.close()


def test_two_runs_do_not_write_to_one_folder_at_a_time(tmp_path):
    first = filled(tmp_path / "j", [0])
    with pytest.raises(InputError, match="another run is writing there"):
        Journal(tmp_path / "j", "other", SAMPLES, 3)
    first.close()
    assert reopened(tmp_path / "j") == {"a"}


def test_a_folder_without_a_single_row_is_removed(tmp_path):
    filled(tmp_path / "j", []).close()
    assert not (tmp_path / "j").exists()


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "j").touch()
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path / "j", "k", SAMPLES, 3)


def test_names_with_any_letters_survive(tmp_path):
    samples = ['quote"', "new\nline", "größe", "007"]
    filled(tmp_path / "j", range(4), samples=samples).close()
    assert reopened(tmp_path / "j", samples=samples) == set(samples)
    header = json.loads((tmp_path / "j" / "header.json").read_text())
    assert header["samples"] == samples
