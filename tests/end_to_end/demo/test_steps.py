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
from panther_demo import pipeline
from panther_demo.cohort import CohortSettings, make_patients, tiny
from panther_demo.pipeline import Demo, closing, draw_cohort, mapped, run_demo, steps
from panther_demo.steps import DemoStep, Runner, command, share_server


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


def test_what_is_done_is_not_done_again(tmp_path):
    first, again = Recorder(), Recorder()
    first.run(tmp_path, *three(tmp_path))
    again.run(tmp_path, *three(tmp_path))
    assert first.asked == [("a",), ("b",), ("c",)]
    assert again.asked == []
    assert all("done already" in line for line in again.said)


def test_a_changed_step_and_all_after_it_run_anew(tmp_path):
    Recorder().run(tmp_path, *three(tmp_path))
    changed = Recorder()
    changed.run(tmp_path, *three(tmp_path, second="other"))
    assert changed.asked == [("other",), ("c",)]


def test_a_step_whose_file_is_gone_or_whose_stamp_is_broken_runs_again(tmp_path):
    Recorder().run(tmp_path, *three(tmp_path))
    (tmp_path / "two").unlink()
    (tmp_path / ".done" / "three.json").write_text("[1")
    again = Recorder()
    again.run(tmp_path, *three(tmp_path))
    assert again.asked == [("b",), ("c",)]


def test_a_command_that_fails_stops_the_demo_and_is_tried_again(tmp_path):
    with pytest.raises(InputError, match="`panther a` ended with exit code 2"):
        Recorder(code=2).run(tmp_path, *three(tmp_path))
    again = Recorder()
    again.run(tmp_path, *three(tmp_path))
    assert len(again.asked) == 3


def test_a_command_that_writes_nothing_is_found_out(tmp_path):
    with pytest.raises(InputError, match="ended without writing"):
        Recorder(write=False).run(tmp_path, *three(tmp_path))


def test_commands_are_printed_as_one_would_type_them(tmp_path):
    recorder = Recorder()
    recorder.run(tmp_path, command("x", [], "map", "my slide.h5", "-p", "p"))
    assert recorder.said[0] == "\n$ panther map 'my slide.h5' -p p"
    assert str(DemoStep("y", (), ("draw", "it"), lambda: "")) == "# draw it"


def test_every_command_of_the_demo_is_one_that_the_product_has(tmp_path):
    from panther.cli import build_app

    app = build_app()
    for step in steps(Demo(tmp_path, tiny())):
        if step.act is None and step.arguments[0] in app:
            _, bound, _ = app.parse_args(
                step.arguments, exit_on_error=False, print_error=False
            )  # refuses unknown options
            assert bound.arguments, step


def test_another_seed_or_more_methods_change_the_first_step_that_they_touch(tmp_path):
    plain = [step.arguments for step in steps(Demo(tmp_path, CohortSettings()))]
    seed = [step.arguments for step in steps(Demo(tmp_path, CohortSettings(seed=7)))]
    full = [step.arguments for step in steps(Demo(tmp_path, CohortSettings(), full=True))]
    assert plain[0] != seed[0]
    assert plain[:3] == full[:3]
    assert plain[3] != full[3]


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


def test_slides_with_maps_are_of_the_cohort_and_different_patients():
    names = mapped(CohortSettings())
    assert len({name.rsplit("-", 1)[0] for name in names}) == len(names) == pipeline.MAPPED


def test_the_demo_ends_by_telling_how_to_open_its_cohort_in_the_browser(tmp_path):
    demo = Demo(tmp_path / "my demo")
    assert closing(demo, Runner(tmp_path, print))[-1] == f"  panther view '{tmp_path / 'my demo'}'"


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
