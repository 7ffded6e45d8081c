"""Spellings of the version before, which work for one more version: the only place that knows them.

They are put into today's words before anything is parsed, with a note on standard error.
"""

from collections.abc import Sequence
from typing import Any

COMMANDS = {"probe": "tissue-classifier"}
# commands, their old option -> what it is called now
OPTIONS = {
    ("embed", "--by"): "--level",
    ("attribute", "--by"): "--level",
    ("predict", "--by"): "--level",
    ("concordance", "--by"): "--class-from",
    ("concordance", "--probe"): "--classifier",
    ("concordance", "--labels"): "--patch-labels",
    ("map", "--slide"): "--slides",
    ("convert", "--mpp"): "--slide-mpp",
    ("slides", "--mpp-table"): "--slide-mpp-table",
    ("map", "--mpp-table"): "--slide-mpp-table",
    ("atlas", "--mpp-table"): "--slide-mpp-table",
    ("attribute", "--mpp-table"): "--slide-mpp-table",
    ("atlas", "--site"): "--site-column",
    ("shift", "--site"): "--site-column",
    ("shift", "--patient"): "--patient-column",
}
OUTPUT_LAST = ("convert",)  # the output was a last argument


def in_todays_words(arguments: Sequence[str], commands: Any) -> tuple[list[str], list[str]]:
    """Arguments with old spellings replaced, and a note for each; ``commands`` is what typer made of the app."""
    if not arguments:
        return [], []
    typed, *words = arguments
    name = COMMANDS.get(typed, typed)
    changes = [] if name == typed else [(f"panther {typed}", f"panther {name}")]
    for index, word in enumerate(words):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        new = OPTIONS.get((name, option))
        if new is not None:
            words[index] = f"{new}{equals}{value}"
            changes.append((option, new))
    if name in OUTPUT_LAST and not any(_is_output(word) for word in words):
        places = _arguments(words, commands.commands[name])
        if len(places) == 2:
            words.insert(places[1], "-o")
            changes.append((f"panther {name} IN OUT", f"panther {name} IN -o OUT"))
    return [name, *words], [f"{old} is now {new}; the old spelling goes with the next version." for old, new in changes]


def _is_output(word: str) -> bool:
    return word.startswith(("-o", "--output"))


def _arguments(words: Sequence[str], command: Any) -> list[int]:
    """Places of the words that are neither options nor their values."""
    options = [one for one in command.params if one.param_type_name == "option"]
    valued = {spelling for one in options if not one.is_flag for spelling in one.opts}
    return [
        place
        for place, word in enumerate(words)
        if not word.startswith("-") and not (place and words[place - 1] in valued)
    ]
