"""Suite and subjects to launches and skips: pure, ordered by a seed, nothing left out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.artifact import ModelArtifact, ModelFormat
from inferometer.codec import from_json, structure, to_json
from inferometer.engine import Capabilities, Placement
from inferometer.errors import SuiteError
from inferometer.plan import Plan, PlannedLaunch, make_plan, shuffled, window_of
from inferometer.prompts import PromptSource
from inferometer.results import SubjectRecord
from inferometer.suite import MAX_ROUNDS, Condition, Subject, Suite, Workload, read_suite

REQUESTS = (Condition.COLD, Condition.REUSE, Condition.CONTROL)


def record(
    name: str = "one", *, window: int | None = None, ids_in: bool = True, **options: object
) -> SubjectRecord:
    return SubjectRecord(
        subject=Subject(name=name, engine="made-up", model=Path("m.gguf"), options=options),
        placement=Placement.IN_PROCESS,
        capabilities=Capabilities(token_ids_in=ids_in),
        artifact=ModelArtifact(
            format=ModelFormat.GGUF, name="m.gguf", files=1, size_bytes=1, context_tokens=window
        ),
    )


def asking(*shapes: tuple[int, int], **changes: object) -> Suite:
    workloads = tuple(
        Workload(name=f"p{prompt}", prompt_tokens=prompt, output_tokens=output)
        for prompt, output in shapes
    )
    return Suite(name="mine", workloads=workloads, **changes)


def planned(suite: Suite, *records: SubjectRecord, rounds: int = 1, seed: int = 0) -> Plan:
    return make_plan(suite, records or (record(),), rounds=rounds, order_seed=seed)


def subjects_by_round(plan: Plan) -> list[list[str]]:
    numbers = range(1, plan.rounds + 1)
    return [[la.subject for la in plan.launches if la.round == number] for number in numbers]


SUITE = asking((512, 256), (2048, 256), (128, 32))
THREE = (record("a"), record("b"), record("c"))


# --- rounds and order ----------------------------------------------------------------------


def test_every_round_launches_every_subject_once():
    for names in subjects_by_round(planned(SUITE, *THREE, rounds=20)):
        assert sorted(names) == ["a", "b", "c"]


def test_rounds_follow_one_another():
    rounds = [launch.round for launch in planned(SUITE, *THREE, rounds=4).launches]
    assert rounds == sorted(rounds)
    assert set(rounds) == {1, 2, 3, 4}


def test_every_cell_is_measured_once_in_every_round():
    plan = planned(SUITE, *THREE, rounds=5)
    cells = Counter(
        (launch.round, launch.subject, cell.workload.name, condition)
        for launch in plan.launches
        for cell in launch.cells
        for condition in cell.conditions
    )
    assert set(cells.values()) == {1}
    assert len(cells) == 5 * 3 * len(SUITE.workloads) * len(REQUESTS)


def test_the_same_seed_gives_the_same_plan():
    assert planned(SUITE, *THREE, rounds=9, seed=7) == planned(SUITE, *THREE, rounds=9, seed=7)


def test_another_seed_gives_another_order():
    orders = {
        tuple(launch.id for launch in planned(SUITE, *THREE, rounds=5, seed=seed).launches)
        for seed in range(10)
    }
    assert len(orders) == 10


def test_rounds_do_not_share_one_order():
    plan = planned(SUITE, *THREE, rounds=20)
    assert len({tuple(names) for names in subjects_by_round(plan)}) > 3


def test_launches_do_not_share_one_order_of_cells():
    plan = planned(SUITE, *THREE, rounds=20)
    orders = {tuple(c.workload.name for c in launch.cells) for launch in plan.launches}
    assert len(orders) == 6


def test_another_subject_beside_it_leaves_a_subjects_own_order_alone():
    alone = {la.id: la.cells for la in planned(SUITE, THREE[0], rounds=5).launches}
    beside = {la.id: la.cells for la in planned(SUITE, *THREE, rounds=5).launches}
    assert alone.items() <= beside.items()


def test_an_order_is_the_same_on_every_machine():
    assert shuffled("abcdef", "7/1") == ["c", "d", "f", "b", "e", "a"]


def test_what_is_shuffled_stays_as_it_was():
    items = [1, 2, 3]
    shuffled(items, "0")
    assert items == [1, 2, 3]


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 5))
def test_no_seed_loses_a_launch_or_repeats_one(seed, subjects, rounds):
    records = [record(f"s{number}") for number in range(subjects)]
    plan = planned(SUITE, *records, rounds=rounds, seed=seed)
    assert len({launch.id for launch in plan.launches}) == subjects * rounds


def test_a_launch_is_named_after_round_and_subject():
    assert [launch.id for launch in planned(SUITE, rounds=2).launches] == ["r1-one", "r2-one"]


@pytest.mark.parametrize("rounds", [0, -1, MAX_ROUNDS + 1, 10**9])
def test_a_number_of_rounds_that_can_only_be_a_mistake_is_refused(rounds):
    with pytest.raises(SuiteError, match=f"{rounds} rounds: ask for 1 to {MAX_ROUNDS}"):
        planned(SUITE, rounds=rounds)


def test_planning_reads_nothing_from_the_disk(monkeypatch):
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a plan is made of what it is given")

    for name in ("open", "stat", "exists", "read_bytes", "read_text"):
        monkeypatch.setattr(Path, name, touched)
    assert planned(SUITE, *THREE, rounds=3).launches


# --- what a launch measures ----------------------------------------------------------------


def test_conditions_are_measured_in_the_order_that_gives_them_their_meaning():
    suite = asking((8, 1), conditions=(Condition.CONTROL, Condition.REUSE, Condition.COLD))
    (launch,) = planned(suite).launches
    assert launch.cells[0].conditions == REQUESTS


def test_loading_ends_with_a_request_of_the_shortest_workload():
    (launch,) = planned(SUITE).launches
    assert launch.first_request is not None
    assert launch.first_request.name == "p128"


def test_the_shortest_workload_that_is_not_skipped_ends_loading():
    suite = asking((128, 5000), (512, 256))
    (launch,) = planned(suite, record(window=4096)).launches
    assert launch.first_request is not None
    assert launch.first_request.name == "p512"


def test_nothing_but_loading_can_be_measured():
    (launch,) = planned(asking((8, 1), conditions=(Condition.LOAD,))).launches
    assert launch.cells == ()
    assert launch.first_request is not None
    assert launch.requests == 1


def test_loading_can_be_left_out():
    (launch,) = planned(asking((8, 1), conditions=REQUESTS)).launches
    assert launch.first_request is None
    assert launch.requests == 1 + 3


def test_the_window_holds_the_longest_request():
    (launch,) = planned(asking((512, 256), (100, 900))).launches
    assert launch.context_tokens == 1000


def test_a_skipped_workload_needs_no_room():
    (launch,) = planned(asking((512, 256), (8192, 256)), record(window=8192)).launches
    assert launch.context_tokens == 768


@pytest.mark.parametrize(
    ("conditions", "warmup", "requests"),
    [
        (tuple(Condition), 1, 1 + 2 * (1 + 3)),
        (tuple(Condition), 0, 1 + 2 * 3),
        (tuple(Condition), 3, 1 + 2 * (3 + 3)),
        ((Condition.LOAD,), 1, 1),
        ((Condition.COLD,), 1, 2 * (1 + 1)),
        # Without a cold request before it, what is to be reused must be asked once first.
        ((Condition.REUSE,), 1, 2 * (1 + 1 + 1)),
        ((Condition.REUSE, Condition.CONTROL), 0, 2 * (1 + 2)),
    ],
)
def test_the_number_of_requests_is_exact(conditions, warmup, requests):
    suite = asking((128, 32), (512, 32), conditions=conditions)
    warmed = tuple(evolve(workload, warmup=warmup) for workload in suite.workloads)
    plan = planned(evolve(suite, workloads=warmed), record("a"), record("b"), rounds=3)
    assert [launch.requests for launch in plan.launches] == [requests] * 6
    assert plan.requests == 6 * requests


def test_the_quick_suite_on_one_subject_takes_27_requests():
    quick = read_suite("quick")
    assert planned(quick, rounds=quick.rounds).requests == 27


# --- skips ---------------------------------------------------------------------------------


def test_what_does_not_fit_the_context_is_skipped_with_all_three_numbers():
    plan = planned(read_suite("prefill-decode"), record(window=8192))
    (skip,) = plan.skips
    assert (skip.subject, skip.workload, skip.condition) == ("one", "p8192", None)
    assert skip.code == "context_exceeded"
    assert skip.reason == (
        "8192 prompt + 256 output tokens do not fit the context of 8192 tokens (from the model)"
    )
    assert {c.workload.name for la in plan.launches for c in la.cells} == {"p512", "p2048"}


def test_a_request_that_fills_the_context_to_the_last_token_is_measured():
    assert planned(asking((8192, 256)), record(window=8448)).skips == ()
    assert planned(asking((8192, 256)), record(window=8447)).skips != ()


def test_a_smaller_window_that_the_user_asks_for_decides():
    (skip,) = planned(asking((512, 256)), record(window=8192, context_tokens=700)).skips
    assert "the context of 700 tokens (from option context_tokens)" in skip.reason


def test_a_larger_window_than_the_model_was_trained_for_does_not_help():
    (skip,) = planned(asking((8192, 256)), record(window=8192, context_tokens=100_000)).skips
    assert "the context of 8192 tokens (from the model)" in skip.reason


def test_a_window_that_only_the_user_knows_decides():
    assert planned(asking((512, 256)), record(context_tokens=700)).skips != ()
    assert planned(asking((512, 256)), record(context_tokens=768)).skips == ()


def test_an_unknown_context_holds_everything():
    plan = planned(read_suite("prefill-decode"), record(window=None))
    assert plan.skips == ()
    assert plan.launches[0].context_tokens == 8448


@pytest.mark.parametrize("asked", [None, True, "8192", 4096.0])
def test_only_a_whole_number_is_taken_for_a_window(asked):
    assert window_of(record(window=2048, context_tokens=asked)) == (2048, "the model")


def test_an_adapter_that_takes_no_token_ids_is_skipped_for_that_reason():
    plan = planned(SUITE, record(ids_in=False))
    assert plan.launches == ()
    assert {skip.code for skip in plan.skips} == {"needs_token_ids"}
    assert plan.skips[0].reason == (
        "adapter made-up takes no token ids, so a prompt of exactly 512 tokens cannot be sent"
    )


def test_one_subjects_skip_is_not_anothers():
    plan = planned(asking((512, 256)), record("small", window=512), record("large", window=4096))
    assert [skip.subject for skip in plan.skips] == ["small"]
    assert [launch.subject for launch in plan.launches] == ["large"]


def test_a_skip_is_told_once_and_not_in_every_round():
    assert len(planned(asking((512, 256)), record(window=512), rounds=5).skips) == 1


def test_given_ids_are_measured_by_their_own_length():
    given_ids = Workload(name="w", prompt=PromptSource.IDS, ids=(1,) * 700, output_tokens=100)
    (skip,) = planned(Suite(name="s", workloads=(given_ids,)), record(window=750)).skips
    assert skip.reason.startswith("700 prompt + 100 output tokens")


def test_no_subject_means_no_launch():
    plan = make_plan(SUITE, (), rounds=3, order_seed=0)
    assert (plan.launches, plan.skips, plan.requests) == ((), (), 0)


def test_a_plan_survives_being_written_down():
    plan = planned(read_suite("prefill-decode"), record(window=8192), *THREE, rounds=3, seed=5)
    assert structure(from_json(to_json(plan)), Plan) == plan


def test_a_prompt_of_given_ids_has_no_control_and_the_plan_says_why():
    workload = Workload(name="ids", prompt=PromptSource.IDS, ids=(1, 2, 3), output_tokens=1)
    plan = planned(Suite(name="mine", workloads=(workload,)))
    (launch,), (skip,) = plan.launches, plan.skips
    assert launch.cells[0].conditions == (Condition.COLD, Condition.REUSE)
    assert (skip.condition, skip.code) == (Condition.CONTROL, "control_needs_another_prompt")


def test_given_ids_without_a_control_in_the_suite_skip_nothing():
    workload = Workload(name="ids", prompt=PromptSource.IDS, ids=(1, 2, 3), output_tokens=1)
    suite = Suite(name="mine", workloads=(workload,), conditions=(Condition.COLD,))
    assert planned(suite).skips == ()


@pytest.mark.parametrize("name", ["../../../escape", "r1-a/../b", "r1-a\0", "", "x"])
def test_a_launch_cannot_be_named_so_that_its_log_leaves_the_folder(name):
    with pytest.raises(ValueError, match="regex"):
        PlannedLaunch(id=name, round=1, subject="a", context_tokens=1, cells=())
