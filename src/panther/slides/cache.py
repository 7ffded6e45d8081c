"""Copies of the next slides on a disk of this machine, for slides that lie on slow storage.

DIR/.panther-slides-HOST-PID/NUMBER/...   one slide with all its files, under their names and times

Copies of a process of this machine that has died are removed by the next one.
"""

import os
import queue
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from panther.slides.listing import SlideRef, files_read
from panther.storage.files import copy_file
from panther.store import check_writable_folder, is_running

PREFIX = ".panther-slides-"  # hidden: whoever lists slides below passes it over
AHEAD = 8  # slides, however small: others may have done them before their turn comes
PAUSE = 0.1  # seconds between looks whether there is room again
SPARE = 256 * 2**20  # bytes that are left free for others


class SlideCache:
    """A place for copies, at most ``limit`` bytes of them (by default half of what is free there); removed at the end."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder, self.notes = folder, list[str]()
        check_writable_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for copies in filter(
            Path.is_dir, folder.glob(f"{PREFIX}{_host()}-*")
        ):  # of processes of this machine that have died
            pid = copies.name.rpartition("-")[2]
            if pid.isdigit() and not is_running(int(pid)):
                shutil.rmtree(copies, ignore_errors=True)
        self.limit = limit or shutil.disk_usage(folder).free // 2
        self._own = folder / f"{PREFIX}{_host()}-{os.getpid()}"
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        self._own.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        shutil.rmtree(self._own, ignore_errors=True)

    def ahead(self, slides: Sequence[SlideRef], needed: Callable[[SlideRef], bool]) -> Iterator[SlideRef]:
        """The slides in their order, those that are ``needed`` with a copy, which is made while the ones before them are worked on.

        Whoever has worked on a slide removes its copy (:func:`remove_copy`); that makes room for the next.
        """
        ready: queue.Queue[SlideRef] = queue.Queue(AHEAD)
        copier = threading.Thread(target=self._copy_all, args=(slides, needed, ready), daemon=True)
        copier.start()
        try:
            for _ in slides:
                yield ready.get()
        finally:
            self._stop.set()
            copier.join()

    def _copy_all(
        self, slides: Sequence[SlideRef], needed: Callable[[SlideRef], bool], ready: "queue.Queue[SlideRef]"
    ) -> None:
        for number, slide in enumerate(slides):
            copied = slide
            with suppress(Exception):  # what is wrong with the slide is said by whoever reads it
                if not self._stop.is_set() and needed(slide):
                    copied = self._copied(slide, self._own / str(number))
            while not self._stop.is_set():
                with suppress(queue.Full):
                    ready.put(copied, timeout=PAUSE)
                    break

    def _copied(self, slide: SlideRef, place: Path) -> SlideRef:
        """The slide with a copy, or without one where there is no room for it."""
        sources = files_read(slide.path)
        size = sum(source.stat().st_size for source in sources)
        if size > self.limit:
            self._note(f"{slide.name} has {size / 1e9:.1f} GB, more than `cache_size=`, and is read in place")
            return slide
        while self._held() + size > self.limit and not self._stop.wait(PAUSE):
            pass
        if shutil.disk_usage(self.folder).free < size + SPARE:
            self._note(f"{self.folder} is full: slides are read in place while it is")
            return slide
        try:
            for source in sources:
                copy_file(source, place / source.relative_to(slide.path.parent), self._stop.is_set)
        except OSError as error:
            shutil.rmtree(place, ignore_errors=True)
            self._note(f"{slide.name} cannot be copied to {self.folder} ({error.strerror}) and is read in place")
            return slide
        return replace(slide, copy=place / slide.path.name)

    def _held(self) -> int:
        """Bytes of the copies that are there; whoever removes one meanwhile makes it less."""
        total = 0
        for place, _, names in os.walk(self._own):  # passes over folders that have just gone, where a glob would fail
            for name in names:
                with suppress(OSError):
                    total += (Path(place) / name).stat().st_size
        return total

    def _note(self, sentence: str) -> None:
        if not self.notes:  # one is enough: thousands of slides may follow
            self.notes.append(f"{sentence}.")


def remove_copy(slide: SlideRef) -> None:
    """Make room for the next slide."""
    if slide.copy is not None:
        shutil.rmtree(slide.copy.parent, ignore_errors=True)


def _host() -> str:
    return socket.gethostname().replace(".", "-")
