"""A model's chat template: rendered as its authors meant it, and never trusted."""

from __future__ import annotations

import time

import pytest

from inferometer.errors import PromptError
from inferometer.prompts.template import PINNED_DATE, ChatFrame, chat_frame

SLOWEST_S = 10.0

# Templates in the manner of the families in use; each with the frame it must give.
CHATML = """\
{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\nYou help.<|im_end|>\n' -}}
{% endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' -}}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' -}}
{% endif %}
"""
BRACKETS = (
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "[INST] {{ m['content'] | trim }} [/INST]{% endfor %}"
)
HEADERS = """\
{%- if not date_string is defined %}
    {%- set date_string = "01 Jan 1970" %}
{%- endif %}
{%- set ns = namespace(first=true) %}
{%- for message in messages[::-1] %}
    {%- if ns.first and tools is none %}
        {{- "<h>" + message.role + "</h>" }}
        {%- set ns.first = false %}
    {%- endif %}
    {{- message.content.strip() }}
    {%- if loop.index > 5 %}{%- break %}{%- endif %}
{%- endfor %}
{{- "<d>" + date_string + "</d>" }}
"""
TURNS = """\
{%- macro turn(role, text) -%}
<turn>{{ role }}
{{ text | trim }}</turn>
{%- endmacro -%}
{%- for message in messages -%}
{{ turn(message.role, message.content) }}
{%- endfor -%}
{%- if add_generation_prompt -%}<turn>model{% endif -%}
"""


@pytest.mark.parametrize(
    ("template", "prefix", "suffix"),
    [
        (
            CHATML,
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n",
            "<|im_end|>\n<|im_start|>assistant\n",
        ),
        (BRACKETS, "<s>[INST] ", " [/INST]"),
        (HEADERS, "<h>user</h>", "<d>26 Jul 2024</d>"),
        (TURNS, "<turn>user\n", "</turn><turn>model"),
    ],
)
def test_templates_of_the_families_in_use_give_their_frames(template, prefix, suffix):
    assert chat_frame(template, bos_text="<s>", eos_text="</s>") == ChatFrame(prefix, suffix)


def frame(template: str, **texts: str) -> tuple[str, str]:
    found = chat_frame(template, **texts)
    return found.prefix, found.suffix


def refusal(template: str) -> str:
    started = time.perf_counter()
    with pytest.raises(PromptError) as caught:
        chat_frame(template)
    assert time.perf_counter() - started < SLOWEST_S
    message = str(caught.value)
    assert 'use prompt = "raw"' in message
    return message


SHOWN = "{{ messages[0].content }}"


# --- what a template is given --------------------------------------------------------------


def test_the_special_texts_are_given_as_they_are():
    template = "{{ bos_token }}|" + SHOWN + "|{{ eos_token }}"
    assert frame(template, bos_text="<s>", eos_text="</s>") == ("<s>|", "|</s>")
    assert frame(template) == ("|", "|")


def test_one_user_message_is_shown_and_an_answer_is_asked_for():
    template = "{{ messages | length }}{{ messages[0].role }}{{ add_generation_prompt }}" + SHOWN
    assert frame(template) == ("1userTrue", "")


def test_tools_and_documents_are_none_as_in_the_reference_renderer():
    assert frame("{{ tools is none }}{{ documents is none }}" + SHOWN) == ("TrueTrue", "")


def test_the_date_is_pinned_whichever_way_a_template_asks_for_it():
    assert PINNED_DATE == "2024-07-26"
    ways = "{{ strftime_now('%Y-%m-%d %H:%M') }}|{{ strftime_now('%d %B %Y') }}|{{ date_string }}|"
    assert frame(ways + SHOWN)[0] == "2024-07-26 00:00|26 July 2024|26 Jul 2024|"


def test_a_built_in_date_gives_way_to_the_pinned_one():
    template = (
        "{% if date_string is not defined %}{% set date_string = '01 Jan 1999' %}{% endif %}"
        "[sys]today is {{ date_string }}[/sys]{{ messages[0].content }}"
    )
    assert frame(template)[0] == "[sys]today is 26 Jul 2024[/sys]"


def test_json_is_written_for_a_model_and_not_for_a_browser():
    template = """{{ {"a": "<b> & 'ä'"} | tojson }}{{ [1] | tojson(indent=1) }}""" + SHOWN
    assert frame(template)[0] == """{"a": "<b> & 'ä'"}[\n 1\n]"""


def test_blocks_leave_no_lines_behind():
    assert frame("a\n  {% if true %}\nb\n  {% endif %}\n" + SHOWN) == ("a\nb\n", "")


def test_loops_may_break_and_continue():
    template = (
        "{% for n in range(9) %}{% if n == 1 %}{% continue %}{% endif %}"
        "{% if n == 4 %}{% break %}{% endif %}{{ n }}{% endfor %}" + SHOWN
    )
    assert frame(template)[0] == "023"


def test_loops_know_their_ends_and_filters():
    template = (
        "{% for n in [1, 2, 3, 4] if n != 2 %}{{ n }}{{ loop.length }}"
        "{% if not loop.last %},{% endif %}{% else %}none{% endfor %}" + SHOWN
    )
    assert frame(template)[0] == "13,33,43"


def test_loops_may_recurse():
    template = (
        "{% for n in [[1, []], [2, [[3, []]]]] recursive %}{{ n[0] }}({{ loop(n[1]) }})"
        "{% endfor %}" + SHOWN
    )
    assert frame(template)[0] == "1()2(3())"


def test_marks_for_training_are_passed_over():
    template = "{% generation %}{% set x = 'a' %}{{ x }}{% endgeneration %}" + SHOWN
    assert frame(template)[0] == "a"


def test_joined_and_repeated_text_is_fine_in_small_amounts():
    template = "{{ '-' * 3 ~ (1 + 2) ~ 2 ** 3 }}{{ [1] + [2] }}" + SHOWN
    assert frame(template)[0] == "---38[1, 2]"


def test_trimming_the_message_is_no_change():
    assert frame("<{{ messages[0].content | trim }}>") == ("<", ">")


def test_a_frame_is_rendered_once():
    chat_frame.cache_clear()
    for _ in range(3):
        chat_frame(SHOWN)
    assert chat_frame.cache_info().misses == 1


# --- what a template must not do -----------------------------------------------------------


def test_a_template_that_refuses_is_quoted():
    message = refusal("{{ raise_exception('system role is not allowed') }}")
    assert "refuses the message: system role is not allowed" in message


@pytest.mark.parametrize(
    "template",
    ["", "nothing", "{{ messages[0].role }}", "{{ messages[1] }}", "{{ content }}"],
)
def test_a_template_that_does_not_show_the_message_is_refused(template):
    assert "does not show the message" in refusal(template)


@pytest.mark.parametrize("times", [2, 3])
def test_a_template_that_shows_the_message_more_than_once_is_refused(times):
    assert f"shows the message {times} times" in refusal(SHOWN * times)


@pytest.mark.parametrize(
    "change",
    [
        "| upper",
        "| capitalize",
        "| e",
        "| tojson",
        "| replace('\\n', ' ')",
        "| replace('\"', '')",
        "| title",
        "| striptags",
        "[:-1]",
        "[1:]",
        ".split('\\n')[0]",
        "| indent(2)",
        ".encode('ascii', 'replace').decode()",
    ],
)
def test_a_template_that_changes_the_message_is_refused(change):
    assert "changes the message" in refusal("{{ messages[0].content" + change + " }}")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% if %}", "TemplateSyntaxError"),
        ("{% for m in messages %}", "TemplateSyntaxError"),
        ("{{ messages | nosuchfilter }}", "nosuchfilter"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ nothing.at.all }}", "UndefinedError"),
        ("{% include 'other' %}", "TypeError"),
        ("{{ strftime_now() }}", "TypeError"),
        ("{% endgeneration %}", "TemplateSyntaxError"),
    ],
)
def test_a_broken_template_is_refused_with_its_fault(template, reason):
    message = refusal(template)
    assert "fails with" in message
    assert reason in message


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'content': 'other'}) }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ strftime_now.__self__.__class__('/etc/passwd') }}",
        "{{ self._TemplateReference__context.environment.filters }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_a_template_cannot_reach_out_of_the_sandbox(template):
    assert "fails with" in refusal(template + SHOWN)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(10 ** 12) %}{% endfor %}",
        "{% for i in range(2000) %}{% for j in range(2000) %}x{% endfor %}{% endfor %}",
        "{% for i in 'x' * 10 ** 12 %}{% endfor %}",
        "{{ 'x' * (2 ** 40) }}",
        "{{ (2 ** 40) * [0] }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% set x = namespace(t='ab') %}{% for i in range(60) %}{% set x.t = x.t + x.t %}{% endfor %}",
        "{% set x = namespace(t='ab') %}{% for i in range(60) %}{% set x.t = x.t ~ x.t %}{% endfor %}",
        "{% set x = namespace(n=3) %}{% for i in range(60) %}{% set x.n = x.n * x.n %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% for a in [[]] recursive %}{{ loop([[]]) }}{{ loop([[]]) }}{% endfor %}",
        "{% for s in ['nan'] %}{{ (s | float) * 1 }}{% endfor %}",
        "{{ range(999999) | list }}{{ range(999999) | list }}",
    ],
)
def test_a_template_that_would_not_end_is_stopped(template):
    message = refusal(template + SHOWN)
    assert "fails with" in message
    assert "steps" in message or "recursion" in message.lower()


def test_a_macro_that_calls_itself_for_ever_is_stopped():
    assert "fails with" in refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}" + SHOWN)


def test_a_template_nested_too_deep_is_refused():
    depth = 500
    assert "fails with" in refusal("{% if true %}" * depth + SHOWN + "{% endif %}" * depth)
    assert "fails with" in refusal("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}" + SHOWN)


def test_one_template_s_budget_is_not_the_next_one_s():
    busy = "{% for i in range(90000) %}{% endfor %}" + SHOWN
    for number in range(4):
        assert frame(f"{number}{busy}")[0] == str(number)


@pytest.mark.parametrize(
    "growth",
    [
        "'x' | center(10 ** 9)",
        "'x\ny' | indent(10 ** 9)",
        "'x\ny' | indent(width=10 ** 9)",
        "'%1000000000d' | format(1)",
        "'%*d' | format(1000000000, 1)",
        "['x'] | batch(10 ** 9, 'y') | list",
        "['x'] | slice(10 ** 9) | list",
        "'x'.center(10 ** 9)",
        "'x'.ljust(10 ** 9)",
        "'%1000000000d' % 1",
        "'{:>1000000000}'.format(1)",
        "'x'.replace('x', 'y' * 999999).replace('y', 'z' * 999999)",
    ],
)
def test_a_filter_cannot_grow_text_without_bound(growth):
    with pytest.raises(PromptError, match=r"pads text|formats text|steps"):
        chat_frame("{{ " + growth + " }}{{ messages[0].content }}", bos_text="", eos_text="")
