"""How commands begin: workers get ready while the command imports what it needs, and nothing is started in vain."""

import os
import signal
import subprocess
import sys
import time

import pytest

WATCHED = """
import sys
import time
import panther.machine
began = []
panther.machine.start_early = lambda: began.append("torch" in sys.modules)
from panther.cli import main
sys.argv = ["panther", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
print("began", began)
"""
POOL = """
import os, sys
from multiprocessing import forkserver
from panther.engine import ProcessPool
from panther.machine import start_early
start_early()
server = forkserver._forkserver._forkserver_pid
pool = ProcessPool(1)
print(pool.schedule(os.getppid).result() == server, "torch" in sys.modules)
pool.close()
"""


def python(program: str, *arguments: str) -> str:
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120)
    return run.stdout


@pytest.mark.parametrize(
    ("arguments", "began"),
    [
        (("embed", "nowhere", "-p", "none.safetensors", "-o", "out.h5ad"), "[False]"),
        (("embed", "--help"), "[]"),
        (("--version",), "[]"),
        (("doctor", "--help"), "[]"),
    ],
)
def test_the_fork_server_starts_before_torch_is_imported_and_only_where_workers_are_used(arguments, began, tmp_path):
    assert python(WATCHED, *arguments).splitlines()[-1] == f"began {began}"


def test_workers_come_from_the_server_that_was_started_early():
    assert python(POOL).split() == ["True", "False"]


def test_a_study_begins_without_the_large_rooms_of_scipy():
    large = ("scipy.stats", "scipy.optimize", "sklearn", "matplotlib")
    program = f"import sys, panther.study.training; print([name for name in {large} if name in sys.modules])"
    assert python(program).strip() == "[]"


def test_a_refused_command_does_not_wait_for_workers_that_still_get_ready(tmp_path):
    """Whoever reads its output through a pipe would wait for them, too."""
    (tmp_path / "h5py.py").write_text(
        "import time\ntime.sleep(600)\n"
    )  # which the fork server imports, and a wrong option does not
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "panther", "prototypes", "--no-such-option"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert refused.returncode == 2
    assert "--no-such-option" in refused.stderr


@pytest.mark.parametrize(
    ("limit", "culprit"),
    [
        ("rmdir $PWD", "working directory"),
        ("ulimit -n 8", "Too many open files"),
        ("ulimit -v 700000", "out of memory"),  # kilobytes: too little for torch
    ],
)
def test_a_machine_that_lacks_something_is_one_line(limit, culprit, tmp_path):
    (tmp_path / "here").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    command = f"{limit}; exec {sys.executable} -m panther prototypes feats -o p.safetensors"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path / "here", env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert culprit in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("module", "who"), [("cyclopts", "the command, which has hardly begun"), ("torch", "its fork server")]
)
def test_ctrl_c_while_modules_are_imported_is_one_line(module, who, tmp_path):
    server_only = "sys.argv[0] == '-c'" if who == "its fork server" else "True"
    lines = [
        "import sys, time",
        f"if {server_only}: open({str(tmp_path / 'importing')!r}, 'w').close()",
        # in steps: one long sleep goes on when a signal has come after Python's last look and before the system call
        "for _ in range(6000): time.sleep(0.1)",
    ]
    (tmp_path / f"{module}.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "panther", "embed", "nowhere", "-p", "none.safetensors", "-o", "out.h5ad"]
    # a shell that runs its commands in the background has them ignore Ctrl-C
    listen = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", listen, *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    end = time.monotonic() + 100
    while not (tmp_path / "importing").exists() and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=100)
    assert process.returncode in (130, -signal.SIGINT)  # a shell calls both 130
    assert "Traceback" not in said
    assert "panther: stopped." in said
