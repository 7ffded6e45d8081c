"""Temporary files of others, and outputs that only their owner may replace."""

import os

from panther.store import atomic_write, is_running


def test_processes_of_other_users_are_running_and_their_temporary_files_stay(tmp_path, monkeypatch):
    def hidden(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", hidden)
    assert is_running(1)
    name = f".a.txt.{os.uname().nodename[:64]}.1.1.part"
    (tmp_path / name).touch()
    with atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / name).exists()
    monkeypatch.undo()
    (tmp_path / name).rename(tmp_path / f".a.txt.{os.uname().nodename[:64]}.1.{2**22 + 1}.part")  # of no process
    with atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("newer")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
