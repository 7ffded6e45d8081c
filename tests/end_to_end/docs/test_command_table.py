"""The table of docs/how-to/cluster.md has the options on where work runs of every command."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from cyclopts import App

from panther.cli import build_app
from panther.verbs import VERBS

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "cluster.md"
OPTIONS = ("--workers N", "--workers ADDRESS", "--part", "--device")


def options(command: App) -> Iterator[str]:
    for argument in command.assemble_argument_collection():
        if "--workers" in argument.names:
            yield "--workers N"
            if str in get_args(argument.hint):
                yield "--workers ADDRESS"
        yield from {*argument.names} & {*OPTIONS}


def test_the_table_of_commands_has_their_options() -> None:
    header, _, *rows = re.findall(r"^\|(.+)\|$", PAGE.read_text().partition("\n## ")[0], re.MULTILINE)
    assert [cell.strip(" `") for cell in header.split("|")] == ["command", *OPTIONS]
    table = {}
    for row in rows:
        commands, *answers = (cell.strip() for cell in row.split("|"))
        assert set(answers) <= {"yes", "no"}
        for command in re.findall(r"`([a-z-]+)`", commands):
            assert command not in table
            table[command] = {option for option, answer in zip(OPTIONS, answers, strict=True) if answer == "yes"}
    app = build_app()
    commands = {name: set(options(app[name])) for name in VERBS if " " not in name}
    assert table == {name: options for name, options in commands.items() if options}
