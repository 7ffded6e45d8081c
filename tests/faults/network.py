"""A folder that two machines see over a network: each has mounted it from a server on 127.0.0.1, and remembers names and times of files."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.lab import until

REMEMBERED = 20  # seconds, by the machine's system and once more by what mounts the folder
HERE = "127.0.0.1"
SETTINGS = """
ListenAddress {here}
Port {port}
HostKey {keys}/server
AuthorizedKeysFile {keys}/user.pub
AllowUsers root
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class Network:
    """The folder where it lies, and as each machine sees it."""

    served: Path
    seen_by: Mapping[str, Path]


def needs_network() -> None:
    """Skip where no folder can be served and mounted."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can serve a folder and mount it")
    missing = [name for name in ("sshfs", "ssh", "ssh-keygen", "fusermount3", "setpriv") if shutil.which(name) is None]
    if missing or not Path("/usr/sbin/sshd").exists() or not Path("/dev/fuse").exists():
        pytest.skip("a folder cannot be served and mounted here: sshfs, sshd or /dev/fuse is missing")


@contextmanager
def open_network(folder: Path, machines: Mapping[str, Mapping[str, str]], *options: str) -> Iterator[Network]:
    """Serve a new folder and mount it for every machine, whose environment is given, under its name; all ends with the block."""
    remember = [f"{what}_timeout={REMEMBERED}" for what in ("dcache", "attr", "entry")]
    keys = folder / "keys"
    for place in (keys, folder / "served", *(folder / name for name in machines)):
        place.mkdir(parents=True)
    with ExitStack() as running:
        port = _serve(keys, running)
        for name, environment in machines.items():
            settings = ["-o", ",".join(["cache=yes", *remember, *options, *_identity(keys)])]
            _mount(folder / "served", folder / name, ["-p", str(port), *settings], environment, running)
        yield Network(folder / "served", {name: folder / name for name in machines})


def _serve(keys: Path, running: ExitStack) -> int:
    """Start a server that only this machine can reach, with keys that were made for it."""
    for name in ("server", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name], check=True)
    with socket.socket() as free:
        free.bind((HERE, 0))
        port = int(free.getsockname()[1])
    (keys / "settings").write_text(SETTINGS.format(here=HERE, port=port, keys=keys))
    (keys / "known").write_text(f"[{HERE}]:{port} {(keys / 'server.pub').read_text()}")
    rooms = Path("/run/sshd")  # the server wants it, and only a system that starts it by itself makes it
    if not rooms.exists():
        rooms.mkdir(mode=0o755)
        running.callback(rooms.rmdir)
    server = _start(["/usr/sbin/sshd", "-D", "-e", "-f", str(keys / "settings")], keys / "server.log", {}, running)
    until(lambda: _answers(port) or server.poll() is not None, "the server")
    assert server.poll() is None, (keys / "server.log").read_text()
    return port


def _mount(source: Path, target: Path, words: list[str], environment: Mapping[str, str], running: ExitStack) -> None:
    """Mount a folder on a machine, by whose clock what mounts it works."""
    log = target.with_name(f"{target.name}.log")
    mount = ["sshfs", "-f", "-F", "/dev/null", *words, f"root@{HERE}:{source}", str(target)]
    process = _start(mount, log, environment, running)
    running.callback(_unmount, target)
    until(lambda: target.is_mount() or process.poll() is not None, "the mount")
    assert target.is_mount(), log.read_text()


def _identity(keys: Path) -> list[str]:
    """Who asks, and that nobody else answers than our server."""
    files = [f"IdentityFile={keys}/user", f"UserKnownHostsFile={keys}/known"]
    return [*files, "IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=yes"]


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], stderr=subprocess.DEVNULL, check=False)


def _start(
    words: list[str], log: Path, environment: Mapping[str, str], running: ExitStack
) -> "subprocess.Popen[bytes]":
    """Start what ends with the tests, also where these are killed."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **environment},
        )  # fmt: skip
    running.callback(_end, process)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((HERE, port)) == 0
