"""The table of docs/how-to/cluster.md says which command takes which option on where work runs; the commands themselves know."""

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from panther.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
OPTIONS = ("--workers N", "--workers ADDRESS", "--part", "--device")


def takes(parameter: Any, option: str) -> bool:
    name, _, kind = option.partition(" ")
    return name in parameter.opts and (not kind or kind in parameter.metavar.split("|"))


def test_the_table_of_commands_is_what_they_take() -> None:
    header, _, *rows = re.findall(r"^\|(.+)\|$", PAGE.read_text().partition("\n## ")[0], re.MULTILINE)
    assert [cell.strip(" `") for cell in header.split("|")] == ["command", *OPTIONS]
    said = {}
    for row in rows:
        commands, *answers = (cell.strip() for cell in row.split("|"))
        assert set(answers) <= {"yes", "no"}
        for command in re.findall(r"`([a-z-]+)`", commands):
            assert command not in said
            said[command] = [option for option, answer in zip(OPTIONS, answers, strict=True) if answer == "yes"]
    found = {
        name: [option for option in OPTIONS if any(takes(parameter, option) for parameter in command.params)]
        for name, command in get_command(app).commands.items()
    }
    assert said == {name: options for name, options in found.items() if options}
