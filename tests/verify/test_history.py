"""The history: what a process wrote is what the judge reads."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from holdfast.verify.history import Call, Fault, History, Note, Recorder, Run, line, parse, read, write


def test_what_was_recorded_is_read_back_as_it_was(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "c1")
    begun = recorder.begin("acquire", owner="c1/1", name="k")
    answered = recorder.end(begun, "ok", token=7, claim="s-1", deadline=12.5)
    fault = recorder.undo(recorder.fault("pause", "c2", seconds=3))
    note = recorder.note("heal", within=5.0)

    history = read(tmp_path)

    assert history == History((answered,), (fault,), (note,))
    assert history.calls[0].end is not None
    assert history.calls[0].token == 7


def test_a_call_that_was_never_answered_stays_in_the_history(tmp_path: Path) -> None:
    begun = Recorder(tmp_path, "c1").begin("acquire", name="k")

    assert read(tmp_path).calls == (begun,)
    assert begun.end is None
    assert begun.outcome == "unknown"


def test_a_killed_process_keeps_its_history(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        recorder = Recorder(tmp_path, "c1")
        recorder.begin("acquire", name="k")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    assert [call.op for call in read(tmp_path).calls] == ["acquire"]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "c1")
    kept = recorder.moment("check", claim="x")
    with (tmp_path / "c1.jsonl").open("a") as file:
        file.write(line(kept)[:20])

    assert read(tmp_path).calls == (kept,)


def test_the_files_of_many_processes_are_merged_by_time(tmp_path: Path) -> None:
    one, two = Recorder(tmp_path, "c1"), Recorder(tmp_path, "c2")
    for turn in range(6):
        (one, two)[turn % 2].moment("check", claim=str(turn))

    assert [call.claim for call in read(tmp_path).calls] == ["0", "1", "2", "3", "4", "5"]


def test_what_was_run_is_told_by_the_note_that_opens_the_history(tmp_path: Path) -> None:
    run = Run("redis", "mutex", 7, "holdfast verify redis --seed 7", 2.0, ("pause",), {"fair": True})
    Recorder(tmp_path, "stage").write(run.begin())

    assert read(tmp_path).run == run


def test_a_field_that_only_a_newer_version_knows_is_left_out() -> None:
    assert parse('{"type":"note","what":"heal","at":1.0,"novelty":1}') == Note("heal", 1.0)


def test_a_whole_history_can_be_kept_in_one_file(tmp_path: Path) -> None:
    history = History.of([Call("1", "read", "c1", 1.0, 2.0, "ok", value=["a"]), Note("end", 3.0)])
    write(history, tmp_path / "one.jsonl")

    assert read(tmp_path / "one.jsonl") == history


def test_a_fault_of_another_run_on_the_same_stage_is_not_this_ones() -> None:
    work = Call("1", "read", "c1", 5.0, 6.0, "ok")
    before, during, after = Fault("pause", "c1", 1.0, 2.0), Fault("pause", "c1", 4.0, 5.5), Fault("pause", "c1", 7.0)

    assert History.of([work, before, during, after]).own().faults == (during,)
