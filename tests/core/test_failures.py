"""What the end of a process is called, and what its log adds to that."""

from __future__ import annotations

import signal

import pytest
from attrs import evolve

from inferometer.engine import LogEvidence
from inferometer.failures import (
    LOG_TAIL_LINES,
    Failure,
    describe_exit,
    exit_kind,
    find_evidence,
    log_lines,
    log_tail,
    refined,
    signal_of,
)

METAL = (
    "model ready",
    "request 7: prompt 30000 tokens",
    "status 5: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    "abort",
)
BATCH = LogEvidence(
    pattern="n_tokens_all <= n_batch", kind="engine_aborted", hint="prompt longer than n_batch"
)


def failure(**changes) -> Failure:
    return Failure(**{"kind": "connection_lost", "message": "the stream broke", **changes})


# --- exit codes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (0, "exited_early"),
        (1, "engine_error"),
        (-6, "aborted"),
        (-9, "killed"),
        (-11, "segfault"),
        (134, "aborted"),
        (137, "killed"),
        (139, "segfault"),
    ],
)
def test_every_exit_code_of_a_dead_engine_has_its_kind(code, kind):
    assert exit_kind(code) == kind
    assert describe_exit(code, (), stage="cold p512").kind == kind


@pytest.mark.parametrize("number", [6, 7, 9, 11, 15])
def test_both_spellings_of_a_signal_mean_the_same(number):
    assert signal_of(-number) is signal_of(128 + number) is signal.Signals(number)
    assert exit_kind(-number) == exit_kind(128 + number)


@pytest.mark.parametrize("code", [1, 2, 64, 127, 128, 255, 1000])
def test_an_exit_code_that_is_no_signal_stays_a_number(code):
    found = describe_exit(code, (), stage="load")
    assert signal_of(code) is None
    assert (found.kind, found.signal, found.exit_code) == ("engine_error", None, code)
    assert f"exit code {code}" in found.message


def test_a_killed_process_points_to_memory():
    found = describe_exit(137, (), stage="cold p512")
    assert found.signal == "SIGKILL"
    assert found.exit_code == 137
    assert "memory pressure" in found.message
    assert "cold p512" in found.message


def test_a_build_for_another_processor_does_not_point_to_memory():
    found = describe_exit(-signal.SIGILL, (), stage="load")
    assert found.kind == "illegal_instruction"
    assert "memory" not in found.message
    assert "another processor" in found.message


@pytest.mark.parametrize("number", [signal.SIGFPE, signal.SIGHUP, signal.SIGPIPE])
def test_other_signals_are_not_called_killed(number):
    found = describe_exit(-number, (), stage="load")
    assert found.kind == "ended_by_signal"
    assert found.signal == number.name
    assert "memory" not in found.message


def test_an_exit_without_an_error_while_work_was_pending_is_a_failure():
    found = describe_exit(0, ("bye",), stage="reuse p512")
    assert found.kind == "exited_early"
    assert found.log_tail == ("bye",)
    assert "while work was pending" in found.message


# --- what the log says ----------------------------------------------------------------------


def test_an_abort_with_a_full_gpu_in_its_log_is_a_full_gpu():
    found = describe_exit(-6, METAL, stage="cold p30000")
    assert found.kind == "gpu_out_of_memory"
    assert (found.exit_code, found.signal) == (-6, "SIGABRT")
    assert found.log_tail == METAL


def test_a_broken_stream_with_a_full_gpu_in_the_log_is_a_full_gpu():
    found = refined(failure(stage="cold p30000"), METAL)
    assert found.kind == "gpu_out_of_memory"
    assert found.message.startswith("the stream broke; the GPU ran out of memory")
    assert (found.stage, found.log_tail) == ("cold p30000", METAL)


def test_an_engine_adds_words_of_its_own():
    log = ("prompt tokens: 3784", "assertion failed: n_tokens_all <= n_batch")
    found = describe_exit(-6, log, stage="cold p3784", evidence=(BATCH,))
    assert found.kind == "engine_aborted"
    assert found.exit_code == -6
    assert found.message.endswith("prompt longer than n_batch")
    assert describe_exit(-6, log, stage="cold p3784").kind == "aborted"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "gpu_out_of_memory"),
        ("torch.OutOfMemoryError: HIP out of memory.", "gpu_out_of_memory"),
        ("CUDA error: out of memory", "gpu_out_of_memory"),
        ("error 2: cudaErrorMemoryAllocation", "gpu_out_of_memory"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate", "out_of_memory"),
        ("what():  std::bad_alloc", "out_of_memory"),
    ],
)
def test_the_words_of_the_platforms_are_known(line, kind):
    found = find_evidence(["all is well", line], ())
    assert found is not None
    assert found.kind == kind


def test_a_log_without_evidence_leaves_the_kind_alone():
    assert find_evidence(["out of luck"], (BATCH,)) is None
    found = refined(failure(), ["out of luck"])
    assert found == failure(log_tail=("out of luck",))


# --- the log itself -------------------------------------------------------------------------


def test_the_tail_of_a_log_is_its_last_lines(tmp_path):
    log = tmp_path / "launch.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert log_tail(log) == tuple(f"line {n}" for n in range(100 - LOG_TAIL_LINES, 100))


def test_evidence_is_found_above_what_is_kept_of_the_log(tmp_path):
    log = tmp_path / "launch.log"
    log.write_text("CUDA out of memory\n" + "  frame of a long traceback\n" * 300)
    found = refined(failure(), log_lines(log))
    assert found.kind == "gpu_out_of_memory"
    assert len(found.log_tail) == LOG_TAIL_LINES


def test_only_the_end_of_an_endless_log_is_read(tmp_path):
    log = tmp_path / "launch.log"
    log.write_bytes(b"x" * 3_000_000 + b"\nlast\n")
    long, last = log_tail(log)
    assert last == "last"
    assert len(long) <= 2_000


def test_a_log_that_is_not_there_has_no_tail(tmp_path):
    assert log_tail(tmp_path / "none.log") == ()
    assert log_lines(tmp_path) == ()


def test_a_log_that_is_not_text_is_read_all_the_same(tmp_path):
    log = tmp_path / "launch.log"
    log.write_bytes(b"caf\xc3\xa9 \xff\n")
    assert log_tail(log) == ("café \N{REPLACEMENT CHARACTER}",)


@pytest.mark.parametrize("kind", ["context_overflow", "contract_violation", "prompt_rejected"])
def test_a_kind_that_is_known_exactly_is_not_overruled_by_a_line_of_the_log(kind):
    known = Failure(kind=kind, message="as it was")
    log = ["CUDA out of memory, trying again with less", "MemoryError"]
    assert refined(known, log) == evolve(known, log_tail=tuple(log))


def test_a_kill_from_outside_is_not_explained_by_a_line_of_the_log():
    died = describe_exit(-9, ["MemoryError"], stage="load")
    assert died.kind == "killed"
