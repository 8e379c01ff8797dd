"""Chat templates: the counted sandbox renders what plain Jinja renders; hostile templates end early with one line."""

from __future__ import annotations

import json
import time

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gml.models.template import ChatTemplate, ChatTemplateError

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Wie geht's <b>dir</b>? é 中"},
    {
        "role": "assistant",
        "content": "<think>hm</think> Gut.",
        "tool_calls": [{"name": "f", "arguments": {"x": [1, "é"]}}],
    },
    {"role": "user", "content": "  Fine  "},
]

CHATML = """{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{% endif %}"""

HEADERS = """{{ bos_token }}{% for m in messages %}
{%- set head = '<|h|>' ~ m.role ~ '<|/h|>\n\n' %}{{ head + m.content | trim + eos_token }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|h|>assistant<|/h|>' }}{% endif %}"""

FEATURES = """{%- if messages[0].role == 'system' %}
    {%- set system, rest = messages[0].content, messages[1:] %}
{%- else %}
    {%- set system, rest = '', messages %}
{%- endif %}
{%- set ns = namespace(last=-1, parts=[]) %}
{%- for m in rest %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- macro turn(role, content) %}[{{ role | upper }}]{{ content }}{% endmacro %}
{%- for m in rest %}
    {%- if m.role not in ['user', 'assistant'] or m.content is not string %}{% continue %}{% endif %}
    {%- set content = m.content.split('</think>')[-1].lstrip() if '</think>' in m.content else m.content %}
    {%- set ns.parts = ns.parts + [content | length] %}
    {{- turn(m.role, content) }}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last else ';' }}
    {%- for call in m.tool_calls or [] %}{{ call | tojson }}{{ call.arguments | tojson(indent=2) }}{% endfor %}
    {%- if loop.index0 == ns.last %}{{ '%s-%03d' % ('last', ns.last) }}{% break %}{% endif %}
{%- endfor %}
{{ ns.parts | join('+') }} {{ ns.parts | sum }} {{ {'a': (1, 2)}['a'][1] }} {{ 'x' * 3 }} {{ 7 // 2 ** 1 }} {{ system }}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | length }}
{{ "{:>4}|{}".format(1, 'b') }} {{ range(2, 5) | list }} {{ 'a-b' | replace('-', '+') }} {{ rest[::-1][0].content }}
{{ dict(a=1).items() | list }} {{ none is none }} {{ undefined_name is defined }} {{ "a\\nb" | indent(2) }}"""


def plain_jinja(source: str, **variables: object) -> str:
    """What templates are written against: the same environment without counting."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    return environment.from_string(source).render(tools=None, documents=None, **variables)


@pytest.mark.parametrize("source", [CHATML, HEADERS, FEATURES], ids=["chatml", "headers", "features"])
@pytest.mark.parametrize("messages", [TALK, TALK[1:2], TALK[1:]], ids=len)
def test_renders_what_plain_jinja_renders(source, messages):
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    expected = plain_jinja(source, messages=messages, add_generation_prompt=True, **tokens)
    assert ChatTemplate(source, **tokens).render(messages) == expected
    assert len(expected) > 10


def test_variables_and_the_generation_prompt():
    source = "{{ enable_thinking }}{{ messages | length }}{{ '>' if add_generation_prompt }}{{ tools | tojson }}"
    template = ChatTemplate(source)
    assert template.render(TALK, enable_thinking=False, tools=[{"a": "<é>"}]) == 'False4>[{"a": "<é>"}]'
    assert template.render([], add_generation_prompt=False, enable_thinking=1) == "10null"


def test_strftime_now():
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([]) == time.strftime("%Y")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n\n{% for %}", "line 3: Expected an expression"),
        ("\n{{ 'a' + 1 }}", "line 2: can only concatenate str"),
        ("{{ a.b.c }}", "line 1: 'a' is undefined"),
        (
            "\n{{ raise_exception('roles must\nalternate') }}",
            "line 2: the template refuses .*: roles must alternate",
        ),
        ("{{ 1 / 0 }}", "line 1: division by zero"),
        ("{% include 'x' %}", "line 1: no loader"),
        ("{{ messages.append(1) }}", "line 1: .*unsafe"),
        ("{{ ''.__class__.__mro__ }}", "line 1: .*unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "line 1: .*unsafe"),
        ("{{ 'x' | nosuchfilter }}", "line 1: No filter named 'nosuchfilter'"),
    ],
)
def test_errors_are_one_line(source, message):
    with pytest.raises(ChatTemplateError, match=f"^chat template, {message}") as caught:
        ChatTemplate(source).render([])
    assert "\n" not in str(caught.value)


LOOP = "{% for i in range(100) %}"
HOSTILE = {
    "repeat": "{{ 'a' * 10**9 }}",
    "range": "{% for i in range(10**12) %}{% endfor %}",
    "loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "block set": "{% set n = namespace(x='aaaa') %}" + LOOP + "{% set y %}{{ n.x }}{{ n.x }}{% endset %}"
    "{% set n.x = y %}{% endfor %}",
    "plus": "{% set n = namespace(x='aaaa') %}" + LOOP + "{% set n.x = n.x + n.x %}{% endfor %}",
    "tilde": "{% set n = namespace(x='aaaa') %}" + LOOP + "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "join": "{% set n = namespace(x='aaaa') %}" + LOOP + "{% set n.x = [n.x, n.x] | join(n.x) %}{% endfor %}",
    "lists": "{% set n = namespace(x=[1]) %}" + LOOP + "{% set n.x = n.x + n.x %}{% endfor %}",
    "nested lists": "{% set n = namespace(x=[1]) %}" + LOOP + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "nested tuples": "{% set n = namespace(x=1) %}" + LOOP + "{% set n.x = (n.x, n.x) %}{% endfor %}{{ n.x == 1 }}",
    "nested dicts": "{% set n = namespace(x=1) %}"
    + LOOP
    + "{% set n.x = {1: n.x, 2: n.x} %}{% endfor %}{{ n.x | tojson }}",
    "integers": "{% set n = namespace(x=3) %}" + LOOP + "{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "loop recursion": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "expandtabs": "{{ ('\t' * 9999).expandtabs(tabsize=10**6) }}",
    "format": "{{ '{:999999999}'.format(1) }}",
    "computed format": "{{ '{:{}}'.format(1, 999999999) }}",
    "percent": "{{ '%999999999d' % 1 }}",
    "computed percent": "{{ '%*d' % (999999999, 1) }}",
    "format filter": "{{ '%999999999d' | format(1) }}",
    "replace": "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "replace filter": "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "indent": "{{ ('\n' * 100000) | indent(100000) }}",
    "tojson indent": "{{ [1] | tojson(indent=10**9) }}",
    "upper": "{% set x = 'a' * 30000000 %}" + LOOP + "{% set y = x | upper %}{% endfor %}",
    "search": "{% set x = 'a' * 6000000 %}{% for i in range(9999) %}{% set y = 'b' in x %}{% endfor %}",
    "parentheses": "{{ " + "(" * 3000 + ")" * 3000 + " }}",
    "blocks": "{% for i in [1] %}" * 60 + "{% endfor %}" * 60,
    "source": "a" * (1 << 21),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_early(name):
    started = time.process_time()
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplate(HOSTILE[name]).render([{"role": "user", "content": "x"}])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    # not a measurement: without the limits these take minutes to years
    assert time.process_time() - started < 30


def test_a_long_conversation_is_no_attack():
    talk = [{"role": ("user", "assistant")[i % 2], "content": "word " * 200} for i in range(2000)]
    assert len(ChatTemplate(CHATML).render(talk)) > 2_000_000


def test_the_environment_is_not_shared_between_renderings():
    template = ChatTemplate("{% for i in range(9999) %}{% endfor %}x")
    assert [template.render([]) for _ in range(30)] == ["x"] * 30
