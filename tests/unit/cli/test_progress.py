"""Logs are never silent for long: one line per minute where standard error is no terminal."""

import time

import pytest
import torch

from panther import progress
from panther.progress import EVERY, Phase, log_progress, track


@pytest.mark.parametrize(
    ("done", "seconds", "told"),
    [
        (0, 30, "embedding: 0 of 1,200, at work for 30.0 s"),
        (600, 60, "embedding: 600 of 1,200 (50%), 10.0/s, 60.0 s left"),
        (2, 7200, "embedding: 2 of 1,200 (0%), 1.0/h, 49.9 days left"),
    ],
)
def test_a_line_has_the_phase_its_progress_rate_and_time_left(done: int, seconds: float, told: str) -> None:
    assert Phase("embedding", 1200, 1000.0, done).line(1000.0 + seconds) == told


def test_lines_come_while_a_phase_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Arithmetic without an end in sight, in torch and in plain Python."""
    monkeypatch.setattr(progress, "FIRST", 0.05)
    monkeypatch.setenv(EVERY, "0.1")
    end = time.monotonic() + 1.5
    with log_progress("panther thinking"):
        while time.monotonic() < end:
            torch.ones(300, 300) @ torch.ones(300, 300)
            sum(range(10_000))
    lines = capsys.readouterr().err.splitlines()
    assert 4 <= len(lines) <= 15
    assert all(line.startswith("panther thinking: at work for") for line in lines)
    time.sleep(0.3)
    assert capsys.readouterr().err == ""  # and none after the end


@pytest.mark.parametrize(("every", "terminal"), [("0", False), ("0.05", True)])
def test_there_are_no_lines_on_a_terminal_or_where_they_are_switched_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, every: str, terminal: bool
) -> None:
    monkeypatch.setenv(EVERY, every)
    monkeypatch.setattr(progress, "_is_terminal", lambda: terminal)
    with log_progress("panther thinking"):
        time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar_and_an_iteration_that_is_given_up_is_no_phase_any_more(monkeypatch) -> None:
    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    assert list(track(iter("abc"), "letters", 3)) == ["a", "b", "c"]
    items = track(iter("abc"), "letters", 3)
    next(items)
    assert [phase.what for phase in progress.CURRENT.phases] == ["letters"]
    items.close()
    assert progress.CURRENT.phases == []
