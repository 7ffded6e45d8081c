"""The command line in this process."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from panther.cli import main
from panther.errors import InputError


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """All that it printed."""
        return self.stdout + self.stderr


def invoke(*arguments: object) -> Ended:
    """Run `panther ARGUMENTS`."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
    return Ended(code if isinstance(code, int) else 0 if code is None else 1, out.getvalue(), err.getvalue())


def run(*arguments: object, code: int = 0) -> Ended:
    """Run `panther ARGUMENTS`, which must end with that exit code; a refusal raises its message."""
    ended = invoke(*arguments)
    if ended.exit_code == 2 != code:
        raise InputError(ended.stderr.removeprefix("panther: ").rstrip())
    assert ended.exit_code == code, ended.output
    return ended
