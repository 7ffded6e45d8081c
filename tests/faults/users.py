"""Other users of this machine: commands under their numbers, in the group that they have in common."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

GROUP = 64999
# In a view of the files of its own: the Python that the tests run in, which may lie in root's home, can be read by everybody there;
# and a /proc that, where it is asked for, shows to each user only that user's processes, as on many login nodes.
AS_USER = """
base=$1 closed=$2 hide=$3 umask=$4 number=$5 group=$6; shift 6
if [ -n "$closed" ]; then
  mount --bind "$base" /mnt && mount -t tmpfs -o mode=755 none "$closed" && mkdir -p "$base" && mount --move /mnt "$base" || exit 99
fi
if [ -n "$hide" ]; then mount -t proc -o hidepid=2 proc /proc || exit 99; fi
umask "$umask"
exec setpriv --reuid "$number" --regid "$group" --clear-groups "$@"
"""


@dataclass(frozen=True)
class User:
    """Somebody else, who needs no account: numbers are enough for the system."""

    number: int
    umask: str = "002"
    hidden: bool = False  # processes of others are not shown

    @property
    def words(self) -> tuple[str, ...]:
        """What stands before a command of this user's."""
        closed = next((str(folder) for folder in reversed(Path(sys.base_prefix).parents) if _closed(folder)), "")
        given = (sys.base_prefix, closed, "yes" if self.hidden else "", self.umask, str(self.number), str(GROUP))
        return ("unshare", "--mount", "sh", "-c", AS_USER, "sh", *given)

    def python(self, script: str, folder: Path, *words: str) -> "subprocess.Popen[str]":
        """Have this user run a script in a folder."""
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "HOME": str(folder)}
        command = [*self.words, sys.executable, "-c", script, *words]
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def own(self, *paths: Path) -> None:
        """Give files to this user."""
        for path in paths:
            os.chown(path, self.number, GROUP)


def _closed(folder: Path) -> bool:
    return not folder.stat().st_mode & 0o001


def needs_users() -> None:
    """Skip where commands cannot be run as other users."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can run commands as other users")
    if shutil.which("setpriv") is None or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("this system does not let root change what a process sees (unshare, setpriv)")
