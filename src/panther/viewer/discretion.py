"""What a browser is told of files: their names, not where they lie; the terminal has the whole sentence."""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flask import Flask
from flask.json.provider import DefaultJSONProvider

SENTENCES = frozenset({"error", "failures", "notes", "problem", "why"})  # fields of answers that hold them
REMEMBERED = 1000  # sentences that the terminal has had
STEP = r"""[^/\\\s'"`,;:()<>]+"""  # a folder in the middle of a sentence; one that holds a blank ends it
START = r"(?<![\w.~/\\-])"
PATH = re.compile(rf"{START}/(?:{STEP}/)+")  # a path from the root on, without its last part

logger = logging.getLogger(__name__)


class Discretion:
    """Takes folders out of sentences. Threads may share it."""

    def __init__(self, places: Iterable[Path] = ()) -> None:
        # long ones first: a folder that was opened may lie in another one; a whole disk is none to be cut off
        known = sorted((place for place in set(places) if len(place.parts) > 2), key=lambda one: -len(str(one)))
        self._places = [(_below(place), _itself(place), place.name) for place in known if place.is_absolute()]
        self._told: set[str] = set()

    def sentence(self, text: str) -> str:
        """The sentence with names of files alone: `/data/job/S1.tif: it is damaged.` is about `S1.tif`."""
        found = text
        for below, itself, name in self._places:
            found = itself.sub(lambda _, name=name: name, below.sub("", found))  # type: ignore[misc]
        found = PATH.sub("…/", found)
        if found != text and text not in self._told and len(self._told) < REMEMBERED:
            self._told.add(text)
            logger.warning("%s", text)
        return found

    def answer(self, value: Any) -> Any:
        """An answer, with its sentences taken care of."""
        if not isinstance(value, Mapping):
            return value
        return {key: self._all(one) if key in SENTENCES else self.answer(one) for key, one in value.items()}

    def _all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.sentence(value)
        if isinstance(value, Mapping):
            return {key: self._all(one) for key, one in value.items()}
        return [self._all(one) for one in value] if isinstance(value, (list, tuple)) else value

    def applied_to(self, app: Flask) -> None:
        """Let every answer in JSON go through it, also those of pages that are added later."""
        discretion = self

        class Provider(DefaultJSONProvider):
            sort_keys = False

            def dumps(self, obj: Any, **options: Any) -> str:
                return super().dumps(discretion.answer(obj), **options)

        app.json = Provider(app)


def _below(place: Path) -> re.Pattern[str]:
    """What lies below a folder: all of a path but its last part."""
    return re.compile(rf"{START}{re.escape(str(place))}(?:[/\\]{STEP})*[/\\]")


def _itself(place: Path) -> re.Pattern[str]:
    return re.compile(rf"{START}{re.escape(str(place))}(?![\w.-]*\w)")
