"""Copies of the next slides on a disk of this machine, for slides on slow storage.

DIR/.panther-slides-HOST-PID/NUMBER/...   one slide with all its files, with their names and times

Copies of a dead process of this machine are removed by the next one.
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

PREFIX = ".panther-slides-"  # hidden, so that no listing of slides includes it
AHEAD = 8  # slides at most, however small: other processes may do them first
PAUSE = 0.1  # seconds between checks for room
SPARE = 256 * 2**20  # bytes that are left free


class SlideCache:
    """A folder of copies, at most ``limit`` bytes (by default half of the free space); removed at the end."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder, self.notes = folder, list[str]()
        check_writable_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        prefix = f"{PREFIX}{socket.gethostname().replace('.', '-')}-"
        for copies in filter(Path.is_dir, folder.glob(f"{prefix}*")):
            pid = copies.name.rpartition("-")[2]
            if pid.isdigit() and not is_running(int(pid)):
                shutil.rmtree(copies, ignore_errors=True)
        self.limit = limit or shutil.disk_usage(folder).free // 2
        self._copies = folder / f"{prefix}{os.getpid()}"
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        self._copies.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        shutil.rmtree(self._copies, ignore_errors=True)

    def ahead(self, slides: Sequence[SlideRef], needed: Callable[[SlideRef], bool]) -> Iterator[SlideRef]:
        """The slides in their order; those that are ``needed`` are copied while earlier ones are processed.

        The caller removes a copy after its use (:func:`remove_copy`), which makes room for the next.
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
            with suppress(Exception):  # the reader of the slide reports what is wrong with it
                if not self._stop.is_set() and needed(slide):
                    copied = self._copied(slide, self._copies / str(number))
            while not self._stop.is_set():
                with suppress(queue.Full):
                    ready.put(copied, timeout=PAUSE)
                    break

    def _copied(self, slide: SlideRef, folder: Path) -> SlideRef:
        """The slide with a copy, or without one where there is no room."""
        sources = files_read(slide.path)
        size = sum(source.stat().st_size for source in sources)
        if size > self.limit:
            self._note(f"{slide.name} has {size / 1e9:.1f} GB, more than `cache_size=`, and is read in place")
            return slide
        while self._held() + size > self.limit and not self._stop.wait(PAUSE):
            pass
        if shutil.disk_usage(self.folder).free < size + SPARE:
            self._note(f"{self.folder} is full: slides are read in place")
            return slide
        try:
            for source in sources:
                copy_file(source, folder / source.relative_to(slide.path.parent), self._stop.is_set)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            self._note(f"{slide.name} cannot be copied to {self.folder} ({error.strerror}) and is read in place")
            return slide
        return replace(slide, copy=folder / slide.path.name)

    def _held(self) -> int:
        """Bytes of the present copies; workers may be removing some."""
        total = 0
        for folder, _, names in os.walk(self._copies):  # skips folders that have just been removed; a glob would fail
            for name in names:
                with suppress(OSError):
                    total += Path(folder, name).stat().st_size
        return total

    def _note(self, sentence: str) -> None:
        if not self.notes:  # thousands of slides may follow
            self.notes.append(f"{sentence}.")


def remove_copy(slide: SlideRef) -> None:
    """Remove the copy of a slide, to make room for the next."""
    if slide.copy is not None:
        shutil.rmtree(slide.copy.parent, ignore_errors=True)
