"""Steps run once, and again only where something before them or of their own has changed."""

import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from panther.engine import open_executor, untracked
from panther.errors import InputError
from panther.machine import cores, process_context
from panther_demo.cohort import CohortSettings, make_patients
from panther_demo.pipeline import Demo, closing, draw_cohort, run_demo, steps
from panther_demo.steps import Runner, command, share_server


class Recorder:
    """Stands for the command line: notes what it was asked for and writes what a step promises."""

    def __init__(self, code=0, write=True):
        self.asked, self.said, self._code, self._write = [], [], code, write

    def __call__(self, step):
        self.asked.append(step.arguments)
        for path in step.outputs if self._write else ():
            path.write_text("made")
        return self._code

    def run(self, folder, *todo):
        Runner(folder / ".done", self.said.append, self).run(todo)


def three(folder, second="b"):
    return [command(name, [folder / name], word) for name, word in (("one", "a"), ("two", second), ("three", "c"))]


def test_a_step_runs_again_after_a_change_of_it_or_of_an_earlier_one_or_without_its_file_or_stamp(tmp_path):
    runs = [Recorder() for _ in range(4)]
    runs[0].run(tmp_path, *three(tmp_path))
    runs[1].run(tmp_path, *three(tmp_path))
    runs[2].run(tmp_path, *three(tmp_path, second="other"))
    (tmp_path / "two").unlink()
    (tmp_path / ".done" / "three.json").write_text("[1")
    runs[3].run(tmp_path, *three(tmp_path, second="other"))
    commands = [[arguments[0] for arguments in run.asked] for run in runs]
    assert commands == [["a", "b", "c"], [], ["other", "c"], ["other", "c"]]
    assert all("done already" in line for line in runs[1].said)


@pytest.mark.parametrize("failure", [{"code": 2}, {"write": False}])
def test_a_command_that_fails_or_writes_nothing_stops_the_demo_and_is_run_again(tmp_path, failure):
    with pytest.raises(InputError, match="`panther a`"):
        Recorder(**failure).run(tmp_path, *three(tmp_path))
    again = Recorder()
    again.run(tmp_path, *three(tmp_path))
    assert len(again.asked) == 3


def test_commands_are_printed_as_they_are_typed(tmp_path):
    recorder = Recorder()
    recorder.run(tmp_path, command("x", [], "map", "my slide.h5", "-p", "p"))
    assert recorder.said[0] == "\n$ panther map 'my slide.h5' -p p"
    demo = Demo(tmp_path / "my demo")
    assert closing(demo, Runner(tmp_path, print))[-1] == f"  panther view '{tmp_path / 'my demo'}'"


def test_every_command_of_the_demo_is_one_that_the_product_has(tmp_path):
    from panther.cli import build_app

    app = build_app()
    for step in steps(Demo(tmp_path, CohortSettings(patients=9, sites=3, side=1536))):
        if step.act is None and step.arguments[0] in app:
            # refuses unknown options
            _, bound, _ = app.parse_args(step.arguments, exit_on_error=False, print_error=False)
            assert bound.arguments, step


def test_another_cohort_in_the_same_folder_leaves_nothing_of_the_first(tmp_path):
    tiny_cohort = CohortSettings(patients=3, sites=1, side=512)
    draw_cohort(tmp_path, tiny_cohort, untracked)
    (tmp_path / "job").mkdir()
    draw_cohort(tmp_path, tiny_cohort, untracked)
    assert (tmp_path / "job").exists()  # the same cohort goes on
    draw_cohort(tmp_path, replace(tiny_cohort, patients=2), untracked)
    assert not (tmp_path / "job").exists()
    plans = [plan.name for patient in make_patients(replace(tiny_cohort, patients=2)) for plan in patient.slides]
    assert sorted(path.stem for path in (tmp_path / "slides").iterdir()) == sorted(plans)
    assert sorted(path.stem for path in (tmp_path / "truth").glob("*.png")) == sorted(plans)


def test_missing_packages_are_refused_together(tmp_path, monkeypatch):
    monkeypatch.setattr("panther.errors.find_spec", lambda name: None if name in ("plotly", "timm") else object())
    with pytest.raises(InputError, match="timm, plotly"):
        run_demo(Demo(tmp_path), print)


@pytest.mark.slow
def test_a_step_is_the_command_itself_in_a_process_of_its_own(tmp_path):
    # as the installed command begins, which every step's process imports again
    program = "from panther.__main__ import run\nif __name__ == '__main__':\n    from panther_demo.steps import *\n"
    program += "    print(*(launch(command('x', [], *words)) for words in (['--version'], ['inspect', 'nowhere'])))\n"
    (tmp_path / "typed.py").write_text(program)
    run = subprocess.run([sys.executable, "typed.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    version, codes = run.stdout.splitlines()
    assert version.startswith("panther-wsi")
    assert codes == "0 2"
    assert "nowhere" in run.stderr
    assert "Warning" not in run.stderr


def _parents(connection) -> None:
    share_server()
    with open_executor(2) as executor:
        connection.send((os.getppid(), executor.schedule(os.getppid).result(), executor.schedule(cores).result()))


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="no fork server here")
def test_workers_of_a_step_are_forked_by_the_server_of_all_steps():
    context = process_context()
    here, there = context.Pipe()
    step = context.Process(target=_parents, args=(there,))
    step.start()
    assert here.poll(60)
    server, server_of_worker, count = here.recv()
    step.join()
    assert step.exitcode == 0
    assert server_of_worker == server
    assert count == cores()
