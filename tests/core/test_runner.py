"""Runs from plan to results, with an engine that fails in every way a real one does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from attrs import evolve

from inferometer import journal, runner
from inferometer.artifact import inspect_model
from inferometer.codec import from_json
from inferometer.engine import FinishReason
from inferometer.errors import PluginError, ResultsError, SuiteError
from inferometer.failures import Failure
from inferometer.journal import file as file_module
from inferometer.judge import judge
from inferometer.launcher import Limits, group
from inferometer.load import load_results
from inferometer.plan import PlannedLaunch
from inferometer.results import Launch, Results, Sample, Skip
from inferometer.runner import launching
from inferometer.suite import Condition, Workload
from inferometer.survey import survey
from inferometer.wire import Described
from support.plugin_folder import installed, write_scripted
from support.scripted_run import (
    SUITE,
    is_alive,
    measured,
    model_file,
    one_cell,
    planned,
    subject,
)

COLD, REUSE, CONTROL = Condition.COLD, Condition.REUSE, Condition.CONTROL
Cell = tuple[int, str, str, Condition]


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory) -> Iterator[None]:
    with installed(write_scripted(tmp_path_factory.mktemp("plugin"))):
        yield


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    yield
    assert psutil.Process().children() == []


def of(results: Results, name: str) -> list[Sample]:
    return [sample for sample in results.samples if sample.subject == name]


def launch_of(results: Results, name: str) -> Launch:
    (launch,) = [launch for launch in results.launches if launch.subject == name]
    assert launch.ended
    return launch


def counted(results: Results) -> Counter[Cell]:
    """Return how often each cell was measured, by round and subject."""
    return Counter(
        (s.round, s.subject, s.workload, s.condition) for s in results.samples if not s.warmup
    )


def asked(run: runner.Run) -> Counter[Cell]:
    """Return what a plan asks for, in the same words."""
    found: Counter[Cell] = Counter()
    for launch in run.plan.launches:
        found.update(_cells(launch))
    return found


def _cells(launch: PlannedLaunch) -> Iterator[Cell]:
    if launch.first_request:
        yield launch.round, launch.subject, launch.first_request.name, Condition.LOAD
    for cell in launch.cells:
        for condition in cell.conditions:
            yield launch.round, launch.subject, cell.workload.name, condition


# --- a run in which all is well ---------------------------------------------------------------


@pytest.fixture(scope="module")
def good(plugin, tmp_path_factory) -> runner.Run:
    folder = tmp_path_factory.mktemp("good")
    run = planned(
        folder,
        evolve(SUITE, rounds=2),
        [
            subject(folder, "one"),
            subject(folder, "two"),
            subject(folder, "printing", fault="prints"),
        ],
        order_seed=3,
    )
    runner.execute(run)
    return run


def test_a_run_measures_what_was_planned_each_once(good):
    results = load_results(good.folder)
    assert results.complete
    assert counted(results) == asked(good)
    assert set(counted(results).values()) == {1}
    assert not any(sample.failure for sample in results.samples)


def test_a_run_leaves_journal_results_suite_plan_and_logs(good):
    assert sorted(path.name for path in good.folder.iterdir()) == [
        "journal.jsonl",
        "logs",
        "plan.json",
        "results.json",
        "suite.json",
    ]
    logs = sorted(path.stem for path in (good.folder / "logs").iterdir())
    assert logs == sorted(launch.id for launch in good.plan.launches)
    assert from_json((good.folder / "suite.json").read_bytes())["name"] == "small"
    assert len(from_json((good.folder / "plan.json").read_bytes())["launches"]) == 6


def test_the_results_file_is_what_the_journal_amounts_to(good):
    assert load_results(good.folder / "results.json") == journal.load(good.journal_path)


def test_every_phase_of_every_load_is_there(good):
    for launch in load_results(good.folder).launches:
        phases = launch.phases
        assert None not in (phases.spawn_ns, phases.import_ns, phases.prepare_ns, phases.load_ns)
        assert phases.spawn_ns > 1_000_000
        assert launch.identity is not None
        assert launch.harness_overhead_ns is not None
        assert launch.usage is not None
        assert launch.host_load is not None
        assert launch.file_cache_ratio is not None


def test_launches_interleave_by_round_in_the_planned_order(good):
    done = [(launch.round, launch.subject) for launch in load_results(good.folder).launches]
    assert done == [(launch.round, launch.subject) for launch in good.plan.launches]
    assert [number for number, _ in done] == [1, 1, 1, 2, 2, 2]
    assert {name for _, name in done[:3]} == {name for _, name in done[3:]}


def test_the_seed_decides_the_order_and_repeats_it(tmp_path):
    def order(seed: int, folder: str) -> list[str]:
        subjects = [subject(tmp_path, name) for name in ("a", "b", "c", "d")]
        (tmp_path / folder).mkdir()
        run = planned(tmp_path / folder, evolve(SUITE, rounds=3), subjects, order_seed=seed)
        return [launch.id for launch in run.plan.launches]

    first = order(1, "first")
    assert order(1, "again") == first
    assert order(2, "other") != first


def test_all_subjects_get_the_same_prompts_and_every_round_other_ones(good):
    digests: dict[tuple[int, str], list[str]] = {}
    for sample in sorted(load_results(good.folder).samples, key=lambda s: s.request_id):
        digests.setdefault((sample.round, sample.subject), []).append(sample.prompt_digest)
    assert digests[1, "one"] == digests[1, "two"] == digests[1, "printing"]
    assert digests[2, "one"] == digests[2, "two"]
    assert not set(digests[1, "one"]) & set(digests[2, "one"])


def test_what_an_engine_prints_spoils_nothing_and_is_in_its_log(good):
    log = (good.folder / "logs" / "r1-printing.log").read_text()
    assert "this line is not a message" in log
    assert "neither is this" in log
    assert len(of(load_results(good.folder), "printing")) == 18


def test_warm_ups_are_kept_and_marked(good):
    warmups = [sample for sample in load_results(good.folder).samples if sample.warmup]
    assert len(warmups) == 2 * 3 * 2


# --- every fault, one subject each --------------------------------------------------------------

FAULTS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "killed": {"after": 3},
    "exits": {"exit_code": 0, "after": 3},
    "aborts_with_oom_in_log": {"after": 3},
    "leaks_a_child": {},
    "leaks_a_daemon": {},
    "dies_and_leaves_a_fork": {},
    "miscounts": {},
    "ignores_ignore_eos": {},
    "one_arrival": {},
    "cached_in_cold": {},
    "prepends_bos": {},
    "no_finished": {},
    "after_finished": {},
    "not_a_chunk": {},
    "endless": {},
    "figures_that_are_not_json": {},
    "raises": {},
    "engine_error": {"after": 2},
    "fatal_error": {"after": 3},
    "create_fails": {},
    "create_cannot_read": {},
    "create_returns_nothing": {},
    "load_fails": {},
    "no_identity": {},
    "usage_raises": {},
    "unload_raises": {},
}
REQUESTS = 1 + 2 * 3
"""What a launch of this run sends: the one that ends loading, and three for each cell."""


@pytest.fixture(scope="module")
def faulty(plugin, tmp_path_factory) -> Path:
    """Return the folder of a run in which every subject but one has a fault of its own."""
    folder = tmp_path_factory.mktemp("faulty")
    subjects = [
        subject(
            folder,
            fault.replace("_", "-"),
            fault=fault,
            tell=str(folder / fault) if "leave" in fault or "leak" in fault else "",
            **options,
        )
        for fault, options in FAULTS.items()
    ]
    workloads = tuple(evolve(workload, warmup=0) for workload in SUITE.workloads)
    measured(folder, evolve(SUITE, workloads=workloads), *subjects)
    return folder


@pytest.fixture
def results(faulty) -> Results:
    return load_results(faulty / "run")


def failures(results: Results, name: str) -> list[Failure | None]:
    return [sample.failure for sample in of(results, name)]


def skips(results: Results, name: str) -> list[Skip]:
    return [skip for skip in results.skips if skip.subject == name]


def test_no_fault_of_one_subject_touches_another(results):
    assert results.complete
    assert failures(results, "none") == [None] * REQUESTS
    assert launch_of(results, "none").failure is None


def test_what_was_measured_before_a_kill_is_kept(results):
    assert len(of(results, "killed")) == 3
    assert failures(results, "killed") == [None] * 3


def test_a_kill_is_told_with_signal_stage_and_hint(results):
    launch = launch_of(results, "killed")
    failure = launch.failure
    assert failure is not None
    assert (failure.kind, failure.exit_code, failure.signal) == ("killed", -9, "SIGKILL")
    assert failure.stage.startswith(("cold", "reuse", "control"))
    assert failure.stage in failure.message
    assert "memory pressure" in failure.message
    assert launch.phases.load_ns is not None, "what was known of it is kept"


def test_leaving_in_the_middle_of_a_request_is_a_failure_even_with_exit_code_zero(results):
    failure = launch_of(results, "exits").failure
    assert failure is not None
    assert (failure.kind, failure.exit_code) == ("exited_early", 0)
    assert len(of(results, "exits")) == 3


def test_an_abort_with_a_full_gpu_in_the_log_is_a_full_gpu(results):
    failure = launch_of(results, "aborts-with-oom-in-log").failure
    assert failure is not None
    assert (failure.kind, failure.signal) == ("gpu_out_of_memory", "SIGABRT")
    assert failure.log_tail == ("status 5: kIOGPUCommandBufferCallbackErrorOutOfMemory",)


def test_a_forked_child_neither_hides_a_death_nor_outlives_it(results, faulty):
    failure = launch_of(results, "dies-and-leaves-a-fork").failure
    assert failure is not None
    assert (failure.kind, failure.signal) == ("killed", "SIGKILL")
    assert not psutil.pid_exists(int((faulty / "dies_and_leaves_a_fork").read_text()))


@pytest.mark.parametrize("fault", ["leaks_a_child", "leaks_a_daemon"])
def test_a_leaked_process_is_gone_after_the_run(results, faulty, fault):
    assert failures(results, fault.replace("_", "-")) == [None] * REQUESTS
    leaked = int((faulty / fault).read_text())
    assert not psutil.pid_exists(leaked) or not is_alive(psutil.Process(leaked))


@pytest.mark.parametrize(
    ("name", "excluded"),
    [
        ("miscounts", "counts_disagree"),
        ("cached-in-cold", "cached_in_cold"),
        ("prepends-bos", "prompt_count_differs"),
    ],
)
def test_what_an_adapter_gets_wrong_is_measured_and_never_counted(results, name, excluded):
    cold = [sample for sample in of(results, name) if sample.condition is COLD]
    assert len(cold) == 2
    assert {judge(sample).excluded for sample in cold} == {excluded}
    assert failures(results, name) == [None] * REQUESTS


def test_ignoring_ignore_eos_is_seen(results):
    cold = [s for s in of(results, "ignores-ignore-eos") if s.condition is not Condition.LOAD]
    assert {s.ending.reason for s in cold if s.ending} == {FinishReason.STOP_EOS}
    assert {judge(sample).short for sample in cold} == {"ignore_eos_not_honoured"}


def test_one_arrival_of_all_tokens_is_recorded_as_one(results):
    cold = [s for s in of(results, "one-arrival") if s.condition is COLD]
    assert [sample.arrivals.tokens for sample in cold] == [(4,), (4,)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-finished", "the stream ended without Finished"),
        ("after-finished", "after Finished"),
        ("not-a-chunk", "is str, not a Chunk or a Finished"),
        ("endless", "the stream went on after"),
        ("figures-that-are-not-json", "cannot be recorded"),
    ],
)
def test_a_broken_stream_is_a_violation_and_the_rest_of_its_cell_is_skipped(results, name, words):
    first, *cells = of(results, name)
    assert first.condition is Condition.LOAD
    assert [sample.condition for sample in cells] == [COLD, COLD], "the next cell goes on"
    for failure in failures(results, name):
        assert failure is not None
        assert failure.kind == "contract_violation"
        assert words in failure.message
    assert {(skip.condition, skip.code) for skip in skips(results, name)} == {
        (REUSE, "earlier_request_failed"),
        (CONTROL, "earlier_request_failed"),
    }
    assert launch_of(results, name).failure is None


def test_an_adapter_that_raises_is_a_crash_of_each_request(results):
    assert {f.kind for f in failures(results, "raises") if f} == {"adapter_crashed"}
    assert "ValueError: a bug in the adapter" in failures(results, "raises")[0].message


def test_an_engine_error_costs_its_cell_and_no_other(results):
    told = failures(results, "engine-error")
    assert [failure is None for failure in told] == [True, True, False, False]
    assert told[2].kind == "request_rejected"
    assert told[2].detail == {"status": 400}
    assert told[2].stage.startswith("reuse")
    conditions = [sample.condition for sample in of(results, "engine-error")]
    assert conditions == [Condition.LOAD, COLD, REUSE, COLD]
    assert launch_of(results, "engine-error").failure is None


def test_a_fatal_error_ends_its_launch(results):
    assert [f is None for f in failures(results, "fatal-error")] == [True, True, True, False]
    failure = launch_of(results, "fatal-error").failure
    assert failure is not None
    assert failure.kind == "connection_lost"
    assert failure == failures(results, "fatal-error")[-1]


@pytest.mark.parametrize(
    ("name", "kind", "stage", "words"),
    [
        ("create-fails", "engine_unusable", "import", "libsomething.so.1"),
        ("create-cannot-read", "engine_unusable", "import", "/dev/accelerator0"),
        ("create-returns-nothing", "contract_violation", "import", "NoneType"),
        ("load-fails", "load", "load", "a kind this engine does not know"),
        ("no-identity", "contract_violation", "identify", "NoneType, not EngineIdentity"),
        ("usage-raises", "adapter_crashed", "usage", "no such counter"),
    ],
)
def test_a_launch_that_fails_outside_a_request_says_where(results, name, kind, stage, words):
    failure = launch_of(results, name).failure
    assert failure is not None
    assert (failure.kind, failure.stage) == (kind, stage)
    assert words in failure.message
    assert len(of(results, name)) == (REQUESTS if stage == "usage" else 0)


def test_the_log_of_a_crash_has_its_traceback(results):
    failure = launch_of(results, "create-fails").failure
    assert failure is not None
    assert failure.log_tail[0] == "Traceback (most recent call last):"


def test_a_failing_unload_costs_nothing(results, faulty):
    assert launch_of(results, "unload-raises").failure is None
    assert "already freed" in (faulty / "run/logs/r1-unload-raises.log").read_text()


# --- rounds and limits ---------------------------------------------------------------------------


def test_the_round_after_a_kill_goes_on(tmp_path):
    dying = subject(tmp_path, "dying", fault="killed", after=2, once_file=str(tmp_path / "once"))
    found = measured(tmp_path, evolve(SUITE, rounds=2), dying, subject(tmp_path, "fine"))
    kinds = Counter(la.failure and la.failure.kind for la in found.launches)
    assert kinds == {None: 3, "killed": 1}
    assert found.complete
    assert {s.round for s in of(found, "dying") if s.condition is CONTROL} == {2}


def impatient_with(names: set[str], stages: set[str], monkeypatch) -> None:
    """Let the idle limit be short for these launches in these stages: others may take their time."""
    receive = launching.Worker.receive

    def hurried(worker):
        if worker._log_path.stem in names and worker.stage in stages:
            worker._limits = Limits(idle_s=0.3, total_s=60.0)
        return receive(worker)

    monkeypatch.setattr(launching.Worker, "receive", hurried)


def test_a_hanging_worker_is_ended_at_the_idle_limit_and_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(group, "GRACE_S", 0.2)
    impatient_with({"r1-request", "r1-load"}, {"cold only", "load"}, monkeypatch)
    told = str(tmp_path / "told")
    found = measured(
        tmp_path,
        one_cell(COLD),
        subject(tmp_path, "request", fault="hangs_and_ignores_sigterm", tell=told),
        subject(tmp_path, "load", fault="hangs_in_load"),
        subject(tmp_path, "fine"),
    )
    for name, stage in (("request", "cold only"), ("load", "load")):
        failure = launch_of(found, name).failure
        assert failure is not None
        assert (failure.kind, failure.stage) == ("hung", stage)
        assert failure.message == (
            f"nothing was heard for 0.3 s during {stage}: the worker was ended (see --idle-limit)"
        )
    assert launch_of(found, "fine").failure is None
    assert not psutil.pid_exists(int(Path(told).read_text()))


def test_a_launch_is_ended_at_its_own_limit(tmp_path):
    found = measured(
        tmp_path,
        one_cell(COLD),
        subject(tmp_path, fault="hangs"),
        limits=Limits(idle_s=60.0, total_s=2.0),
    )
    failure = found.launches[0].failure
    assert failure is not None
    assert "the launch took longer than 2 s" in failure.message
    assert "--launch-limit" in failure.message


def test_a_prompt_that_the_template_rejects_is_skipped_with_the_reason(tmp_path):
    refusing = subject(tmp_path, "refusing", template="{{ raise_exception('only with tools') }}")
    found = measured(tmp_path, SUITE, refusing)
    assert found.samples == ()
    assert {skip.code for skip in found.skips} == {"prompt_rejected"}
    assert len(found.skips) == 1 + 2 * 3
    assert all("only with tools" in skip.reason for skip in found.skips)
    assert found.complete


def test_a_prompt_that_is_too_long_is_a_planned_skip(tmp_path):
    suite = evolve(
        SUITE,
        workloads=(
            *SUITE.workloads,
            Workload(name="huge", prompt_tokens=2_040, output_tokens=40),
        ),
    )
    run = planned(tmp_path, suite, [subject(tmp_path)])
    (skip,) = run.plan.skips
    assert skip.code == "context_exceeded"
    assert "2040 prompt + 40 output tokens do not fit the context of 2048 tokens" in skip.reason
    assert {cell.workload.name for la in run.plan.launches for cell in la.cells} == {
        *("short", "longer"),
    }


def test_nothing_to_measure_is_an_error_listing_every_reason(tmp_path):
    with pytest.raises(SuiteError) as caught:
        planned(tmp_path, SUITE, [subject(tmp_path, "small", context_tokens=50)])
    words = str(caught.value)
    assert "nothing to measure" in words
    assert "small short: 64 prompt + 4 output tokens do not fit the context of 50" in words
    assert "small longer: 90 prompt" in words
    assert not (tmp_path / "run").exists()


def test_a_worker_that_is_no_longer_there_fails_its_launch_and_the_run_goes_on(tmp_path):
    run = planned(tmp_path, one_cell(COLD), [subject(tmp_path, "gone"), subject(tmp_path, "fine")])
    gone = evolve(run.subjects["gone"], python=str(tmp_path / "python"))
    found = runner.execute(evolve(run, subjects={**run.subjects, "gone": gone}))
    failure = launch_of(found, "gone").failure
    assert failure is not None
    assert (failure.kind, failure.stage) == ("plugin", "start")
    assert "cannot start the interpreter" in failure.message
    assert launch_of(found, "fine").failure is None


def unlike(worker):
    raise PluginError("parent and worker do not speak alike: 'Hm' is unknown here")


def untimely(worker):
    return Described()


@pytest.mark.parametrize(
    ("receive", "words"),
    [(unlike, "do not speak alike"), (untimely, "the worker said Described out of turn")],
)
def test_a_worker_that_babbles_fails_its_launch_and_nothing_more(
    tmp_path, monkeypatch, receive, words
):
    run = planned(tmp_path, one_cell(COLD), [subject(tmp_path)])
    with monkeypatch.context() as patch:
        patch.setattr(launching.Worker, "receive", receive)
        patch.setattr(launching.Worker, "hello", lambda worker: None)
        found = runner.execute(run)
    failure = found.launches[0].failure
    assert failure is not None
    assert failure.kind == "plugin"
    assert words in failure.message


# --- folders ---------------------------------------------------------------------------------


def test_a_folder_that_holds_a_run_is_not_written_over(good):
    before = good.journal_path.read_bytes()
    with pytest.raises(ResultsError, match="holds a run already: choose another --out, or use"):
        planned(good.folder.parent, SUITE, [subject(good.folder.parent)])
    assert good.journal_path.read_bytes() == before


def test_a_folder_whose_run_could_not_begin_can_be_used_again(tmp_path, monkeypatch):
    def full(fd, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_module.os, "write", full)
        with pytest.raises(ResultsError, match="No space left on device"):
            planned(tmp_path, SUITE, [subject(tmp_path)])
    assert planned(tmp_path, SUITE, [subject(tmp_path)]).journal_path.exists()


@pytest.mark.parametrize("obstacle", ["run", "run/logs"])
def test_a_folder_that_cannot_be_made_is_told(tmp_path, obstacle):
    (tmp_path / obstacle).parent.mkdir(exist_ok=True)
    (tmp_path / obstacle).touch()
    with pytest.raises(ResultsError, match=f"cannot write {tmp_path}/run: "):
        planned(tmp_path, SUITE, [subject(tmp_path)])


def test_a_run_in_the_current_folder_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = survey([subject(tmp_path)])
    run = runner.create(
        Path(),
        SUITE,
        found.records,
        rounds=1,
        order_seed=1,
        evidence=found.evidence,
        limits=Limits(),
    )
    assert journal.load(run.journal_path).run_id == tmp_path.name


# --- a disk that fills up ----------------------------------------------------------------------


def test_a_disk_that_fills_up_ends_the_run_and_everything_before_is_whole(tmp_path, monkeypatch):
    run = planned(tmp_path, SUITE, [subject(tmp_path)])
    append, appended = journal.Journal.append, []

    def fills_up(book, record):
        appended.append(record)
        if len(appended) == 5:
            monkeypatch.setattr(file_module.os, "write", _full)
        append(book, record)

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "append", fills_up)
        with pytest.raises(ResultsError, match=r"cannot write .*journal.jsonl: No space left"):
            runner.execute(run)
        monkeypatch.undo()
    found = journal.load(run.journal_path)
    assert len(found.samples) == 2
    assert not found.complete
    assert load_results(run.folder / "results.json") == found
    resumed = runner.execute(runner.reopen(run.folder, evidence={}, limits=Limits()))
    assert resumed.complete
    assert counted(resumed) == asked(run)


def _full(fd: int, data: memoryview) -> int:
    raise OSError(28, "No space left on device")


def test_what_ended_a_run_is_told_and_not_that_results_did_not_fit(tmp_path, monkeypatch):
    run = planned(tmp_path, SUITE, [subject(tmp_path)])
    with monkeypatch.context() as patch:
        patch.setattr(file_module.os, "write", _full)
        patch.setattr("inferometer.load.os.fsync", lambda fd: _full(fd, memoryview(b"")))
        with pytest.raises(ResultsError, match="Everything measured before is kept"):
            runner.execute(run)


# --- interrupted, and resumed --------------------------------------------------------------------


class Interrupting(runner.Unobserved):
    """Interrupts like Ctrl-C when so many requests have ended."""

    def __init__(self, requests: int) -> None:
        self._left = requests

    def request_ended(self, sample: Sample) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def again(run: runner.Run) -> runner.Run:
    return runner.reopen(run.folder, evidence={}, limits=run.limits)


def test_an_interrupt_keeps_what_was_measured_and_ends_the_worker(tmp_path):
    run = planned(tmp_path, SUITE, [subject(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        runner.execute(run, Interrupting(5))
    found = load_results(run.folder / "results.json")
    assert len(found.samples) == 5
    assert not found.complete
    assert [launch.ended for launch in found.launches] == [False]


def test_a_run_interrupted_again_and_again_measures_everything_once(tmp_path):
    run = planned(tmp_path, evolve(SUITE, rounds=2), [subject(tmp_path, "a")])
    interruptions = 0
    while True:
        try:
            found = runner.execute(again(run), Interrupting(4))
            break
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions >= 4
    assert found.complete
    assert counted(found) == asked(run)
    assert found == load_results(run.folder / "results.json") == journal.load(run.journal_path)
    names = [launch.id for launch in found.launches]
    assert len(set(names)) == len(names) > 4
    assert {journal.planned_id(name) for name in names} == {"r1-a", "r2-a"}


def test_a_resumed_cell_asks_the_same_prompts(tmp_path):
    whole = measured(tmp_path / _made(tmp_path, "whole"), SUITE, subject(tmp_path))
    run = planned(tmp_path, SUITE, [subject(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        runner.execute(run, Interrupting(3))
    resumed = runner.execute(again(run))

    def prompts(results: Results) -> set[tuple[str, str, str]]:
        return {(s.workload, s.condition, s.prompt_digest) for s in results.samples if not s.warmup}

    assert prompts(resumed) == prompts(whole)


def _made(folder: Path, name: str) -> str:
    (folder / name).mkdir()
    return name


def test_resuming_a_complete_run_starts_and_writes_nothing(good, monkeypatch):
    monkeypatch.setattr(launching, "Worker", lambda *_, **__: pytest.fail("a worker was started"))
    before = good.journal_path.read_bytes()
    found = runner.execute(again(good))
    assert found.complete
    assert good.journal_path.read_bytes() == before
    assert list(runner.remaining(good)) == []


@pytest.fixture
def cut(good, tmp_path) -> Callable[[int], runner.Run]:
    """Return a maker of runs that got as far as so many records of the good one."""

    def make(records: int) -> runner.Run:
        lines = good.journal_path.read_bytes().splitlines(keepends=True)
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / journal.NAME).write_bytes(b"".join(lines[:records]))
        return evolve(good, folder=tmp_path)

    return make


def test_wherever_a_run_is_cut_off_what_is_left_is_what_is_missing(good, cut):
    records = len(list(journal.read(good.journal_path)))
    for number in range(1, records + 1):
        run = cut(number)
        left: Counter[Cell] = Counter()
        for launch in runner.remaining(run):
            assert launch.requests
            left.update(_cells(launch))
        assert left + counted(journal.load(run.journal_path)) == asked(good), number


def test_a_second_attempt_has_a_name_and_a_log_of_its_own(good, cut):
    records = list(journal.read(good.journal_path))
    first = next(i for i, record in enumerate(records) if isinstance(record, journal.Ended))
    run = cut(first - 1)
    launch = good.plan.launches[0]
    assert next(iter(runner.remaining(run))).id == f"{launch.id}+1"


def test_a_launch_cut_off_after_its_last_request_is_closed_without_a_worker(good, cut, monkeypatch):
    monkeypatch.setattr(launching, "Worker", lambda *_, **__: pytest.fail("a worker was started"))
    run = cut(len(list(journal.read(good.journal_path))) - 1)
    assert not journal.load(run.journal_path).complete
    found = runner.execute(run)
    assert found.complete
    assert found.launches[-1].ended


def test_what_was_skipped_on_the_way_is_not_tried_again(tmp_path):
    broken = subject(tmp_path, fault="engine_error")
    run = planned(tmp_path, SUITE, [broken])

    class AfterTheFirstCell(runner.Unobserved):
        def stage_begins(self, stage: str, workload: str | None) -> None:
            cells = [cell.workload.name for cell in run.plan.launches[0].cells]
            if (stage, workload) == ("warm-up", cells[1]):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.execute(run, AfterTheFirstCell())
    (left,) = runner.remaining(run)
    assert [cell.workload.name for cell in left.cells] == [
        run.plan.launches[0].cells[1].workload.name
    ]
    found = runner.execute(again(run))
    assert len(found.skips) == 6
    assert [sample.warmup for sample in found.samples] == [False, True, True]


def test_two_processes_cannot_work_on_one_run(good):
    book = journal.Journal(good.journal_path)
    try:
        with pytest.raises(ResultsError, match="another process is writing this run"):
            runner.execute(good)
    finally:
        book.close()


# --- what may not be resumed -------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b'{"kind":"Opened"'])
def test_a_folder_without_a_run_cannot_be_resumed(tmp_path, content):
    if content is not None:
        (tmp_path / journal.NAME).write_bytes(content)
    with pytest.raises(ResultsError, match=str(tmp_path)):
        runner.reopen(tmp_path, evidence={}, limits=Limits())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("__version__", r"Inferometer was .*, now it is other"),
        ("PINNED_DATE", r"the date that templates are told was .*, now it is other"),
    ],
)
def test_a_run_is_not_resumed_by_another_version(good, monkeypatch, name, words):
    monkeypatch.setattr(f"inferometer.runner.folder.{name}", "other")
    with pytest.raises(ResultsError, match=words):
        again(good)


def test_a_run_is_not_resumed_with_other_prompts_or_on_another_machine(good, monkeypatch):
    monkeypatch.setattr("inferometer.runner.folder.corpus_version", lambda: "sha256:other")
    monkeypatch.setattr("inferometer.runner.folder._machine", lambda host: f"{id(host)}")
    with pytest.raises(ResultsError) as caught:
        again(good)
    first, *changes = str(caught.value).splitlines()
    assert first == f"{good.folder} cannot be resumed, start a new run:"
    assert [change.split(" was ")[0].strip() for change in changes] == [
        *("the prompts' text", "the machine"),
    ]


def test_a_run_is_not_resumed_with_another_model_or_adapter(tmp_path):
    run = planned(tmp_path, SUITE, [subject(tmp_path)])
    (record,) = survey([subject(tmp_path)]).records
    again_with = evolve(record, adapter_distribution="inferometer-scripted 2.0")
    with model_file(tmp_path).open("ab") as file:
        file.write(b"\0" * 64)
    again_with = evolve(again_with, artifact=inspect_model(model_file(tmp_path)))
    with pytest.raises(ResultsError) as caught:
        runner.reopen(run.folder, evidence={}, limits=Limits(), subjects=[again_with])
    assert "subject scripted: the model has changed" in str(caught.value)
    assert "from inferometer-scripted 1.0, now it is from inferometer-scripted 2.0" in str(
        caught.value
    )
    assert runner.reopen(run.folder, evidence={}, limits=Limits(), subjects=[record])


# --- what is watched ---------------------------------------------------------------------------


class Watching(runner.Unobserved):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def launch_begins(self, launch: PlannedLaunch, number: int, total: int) -> None:
        self.told.append(f"{launch.id} is {number} of {total}")

    def stage_begins(self, stage: str, workload: str | None) -> None:
        self.told.append(stage)

    def request_ended(self, sample: Sample) -> None:
        self.told.append("=")

    def launch_ended(self, launch: PlannedLaunch, failure: Failure | None) -> None:
        self.told.append(f"{launch.id}: {failure and failure.kind}")


def test_an_observer_is_told_every_step(tmp_path):
    watching = Watching()
    runner.execute(planned(tmp_path, one_cell(COLD), [subject(tmp_path)]), watching)
    assert watching.told == [
        *("r1-scripted is 1 of 1", "import", "prepare", "load", "identify"),
        *("prompt", "cold", "=", "usage", "r1-scripted: None"),
    ]


def test_an_observer_is_told_of_a_failure(tmp_path):
    watching = Watching()
    failing = subject(tmp_path, fault="load_fails")
    runner.execute(planned(tmp_path, one_cell(COLD), [failing]), watching)
    assert watching.told[-1] == "r1-scripted: load"


def test_order_seeds_differ():
    seeds = {runner.new_order_seed() for _ in range(5)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**31 for seed in seeds)
