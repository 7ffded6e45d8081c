"""`panther status`."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._progress import duration, progress_of_others

MOST = 8  # slides that are shown of one kind; --json has all
CLEAR = "\033[2J\033[H"  # a terminal begins a new page


def status(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of `panther slides` or `panther run`, or what shards write.",
            show_default=False,
        ),
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Look again until the work has ended.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks of --watch.")] = 10.0,
    as_json: opt.JsonOption = False,
) -> None:
    """Tell what is done, running (where, since when), failed (why) and left, how fast it goes and when it ends; nothing is changed."""
    with progress_of_others():  # whoever watches a log wants to see theirs
        from panther.shards.session import session_folder
        from panther.status import look_at

        found = look_at(place)
        while watch and not all(one.ended for one in found):
            _show(found)
            time.sleep(every)
            # what shards meet in is removed when the last of them ends
            found = look_at(place) if place.exists() or session_folder(place).exists() else []
    result = {"time": time.time(), "work": [_plain(one) for one in found]}
    notes = [note for one in found for note in one.notes] or (
        [] if found else [f"{place} is gone: the work has ended."]
    )
    failures = {name: reason for one in found for name, reason in one.failed.items()}
    common.report(result, [line for one in found for line in _lines(one)], failures, as_json=as_json, notes=notes)


def _show(found: Sequence[Any]) -> None:
    import sys

    typer.echo((CLEAR if sys.stdout.isatty() else "") + "\n".join(line for one in found for line in _lines(one)) + "\n")


def _plain(one: Any) -> dict[str, Any]:
    steps = [{**asdict(step), "left": step.left, **_in_words(step)} for step in one.steps]
    people = {"at_work": [p._asdict() for p in one.at_work], "lost": [p._asdict() for p in one.lost]}
    return {**asdict(one), **people, "steps": steps, "ended": one.ended, "working": one.working}


def _in_words(step: Any) -> dict[str, Any]:
    ends = None if step.seconds_left is None else time.time() + step.seconds_left
    return {"running": [p._asdict() for p in step.running], "lost": [p._asdict() for p in step.lost], "ends": ends}


def _lines(one: Any) -> Iterator[str]:
    yield f"{one.place}: {one.what}, {_state(one)}"
    if one.steps:
        yield from _table(one.steps)
    for who in one.at_work[:MOST]:
        yield f"At work: {_process(who)}, for {_for(one, who)}"
    yield from _more(one.at_work)
    for step in one.steps:
        for hand in step.running[:MOST]:
            so_far = f", {hand.patches:,} patches so far" if hand.patches else ""
            yield f"Running: {hand.item} ({step.name}; {_process(hand)}), for {_for(one, hand)}{so_far}"
        yield from _more(step.running)
    for who in one.lost[:MOST]:
        yield f"Lost: {_process(who)}, which began {_clock(who.since)} and gave its last sign of life {_clock(who.seen)}"
    for step in one.steps:
        for hand in step.lost[:MOST]:
            yield f"Lost: {hand.item} ({step.name}), in the hands of {_process(hand)} since {_clock(hand.since)}, which is dead"
        yield from _more(step.lost)


def _state(one: Any) -> str:
    if one.working:
        return f"at work at {_clock(one.now)}"
    if one.ended:
        return "ended"
    if one.steps and all(step.ended for step in one.steps):
        return "nobody is at work, though not all is written; type the same command again to end it"
    return "stopped: nobody is at work; type the same command again to go on"


def _table(steps: Iterable[Any]) -> Iterator[str]:
    head = ("step", "done", "running", "failed", "left", "of", "speed", "ends")
    rows = [head, *(_row(step) for step in steps)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  " + "  ".join(cells).rstrip()


def _row(step: Any) -> tuple[str, ...]:
    numbers = (step.done, len(step.running), len(step.failed), step.left)
    ends = "" if step.seconds_left is None or step.ended else _ends(step.seconds_left)
    return (step.name, *(f"{number:,}" for number in numbers), f"{step.total:,} {step.unit}", _speed(step), ends)


def _speed(step: Any) -> str:
    if not step.rate or step.ended:
        return ""
    size, name = next(((size, name) for size, name in ((1, "s"), (60, "min")) if step.rate * size >= 1), (3600, "h"))
    return f"{step.rate * size:,.1f} {step.rate_unit}/{name}"


def _ends(seconds: float) -> str:
    return f"{_clock(time.time() + seconds)} (in {duration(seconds)})"


def _for(one: Any, who: Any) -> str:
    return duration(max(one.now - who.since, 0.0))


def _process(who: Any) -> str:
    return f"process {who.pid} on {who.host}"


def _clock(moment: float) -> str:
    """Hours and minutes; of another day the date, too."""
    there, today = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M" if there[:3] == today[:3] else "%Y-%m-%d %H:%M", there)


def _more(found: Sequence[Any]) -> Iterator[str]:
    if len(found) > MOST:
        yield f"... and {len(found) - MOST} more; --json lists all"
