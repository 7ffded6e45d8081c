"""Attacks on every route of the viewer: hostile values in the place of each parameter, and which files were opened meanwhile."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar
from urllib.parse import quote

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.datastructures import ImmutableMultiDict

OWN = {"Origin": "http://localhost"}  # of the page that the test client shows
USUAL = {"name": "S0", "slide": "S0", "layer": "prototypes", "study": "run", "kind": "png", "ending": "png"}
HARMLESS = {"pixels": "128", "x": "0", "y": "0", "plane": "pca"} | dict.fromkeys(
    ("side", "size", "width", "height"), "64"
)
HOSTILE = (
    "..",
    "../outside/secret.txt",
    "../../../../../../etc/passwd",
    "/etc/passwd",
    "%2e%2e%2foutside%2fsecret.txt",
    "..\\outside\\secret.txt",
    "file:///etc/passwd",
    "S0\x00.tif",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "x" * 5000,
    "nan",
    "-1",
    "1e400",
    "",
)


class RecordingQuery(ImmutableMultiDict):
    """Query of a request that records the names that were looked up, all of them by `get`."""

    names: ClassVar[set[str]] = set()

    def get(self, key, *arguments, **options):
        self.names.add(key)
        return super().get(key, *arguments, **options)


_opened: list[str] | None = None  # a hook cannot be taken off again, so it is switched


def _watch(event, arguments):
    if _opened is not None and event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        _opened.append(os.path.realpath(os.fsdecode(arguments[0])))


sys.addaudithook(_watch)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    global _opened
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


def routes(app: Flask, method: str = "GET") -> list:
    return [rule for rule in app.url_map.iter_rules() if method in (rule.methods or ())]


def address(rule, **values: str) -> str:
    """Address of a route with these values, the others being harmless."""

    def part(match: re.Match[str]) -> str:
        kind, _, name = match[1].rpartition(":")
        usual = USUAL.get(name, "0" if kind.startswith("int") or len(name) == 1 else "S0")
        return quote(values.get(name, usual), safe="")

    return re.sub(r"<([^>]+)>", part, rule.rule)


def refused(response) -> bool:
    return 400 <= response.status_code < 500


def query_of(guest: FlaskClient, rule) -> dict[str, str]:
    """Query of a route that answers: the names that it looks up, with harmless values where there are some."""
    query: dict[str, str] = {}
    while True:
        RecordingQuery.names.clear()
        guest.get(address(rule), query_string={name: value for name, value in query.items() if value})
        names = {name: HARMLESS.get(name, "") for name in sorted(RecordingQuery.names - {"token"})}
        if names.keys() <= query.keys():
            return query
        query |= names


def attacks(guest: FlaskClient, rule) -> Iterator[tuple[str, dict[str, str]]]:
    """Address and query, one of whose parameters is hostile."""
    query = query_of(guest, rule)
    harmless = {name: value for name, value in query.items() if value}
    for name in rule.arguments:
        yield from ((address(rule, **{name: value}), harmless) for value in HOSTILE)
    for name in query:
        yield from ((address(rule), harmless | {name: value}) for value in HOSTILE)
