"""How much of a prompt may come from memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferometer_llama_cpp.prefix import reusable

IDS = st.lists(st.integers(0, 2), max_size=8)


def test_a_repeated_prompt_is_reused_but_for_its_last_token():
    assert reusable([1, 2, 3, 4], [1, 2, 3, 4]) == 3


def test_only_the_shared_start_is_reused():
    assert reusable([1, 2, 9, 4], [1, 2, 3, 4]) == 2
    assert reusable([9, 2, 3], [1, 2, 3]) == 0


def test_output_that_became_part_of_the_next_prompt_is_reused_too():
    assert reusable([1, 2, 30, 31], [1, 2, 30, 31, 5, 6]) == 4


def test_a_prompt_of_one_token_is_always_evaluated():
    assert reusable([1], [1]) == 0


@given(remembered=IDS, prompt=IDS.filter(bool))
def test_what_is_reused_is_the_longest_shared_start_that_leaves_a_token(remembered, prompt):
    shared = reusable(remembered, prompt)
    assert remembered[:shared] == prompt[:shared]
    assert shared < len(prompt)
    longer = shared + 1
    assert longer == len(prompt) or remembered[:longer] != prompt[:longer]
