"""A template comes from anywhere: it reaches nothing, changes nothing and ends."""

from __future__ import annotations

import tracemalloc
from time import perf_counter

import pytest

from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import EngineError
from ttc.types import Message

MUCH = "makes more than 134217728 bytes"
HELLO = [Message(role="user", content="hello")]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ ''.__class__ }}", "reaches for '__class__'"),
        ("{{ messages.__class__.__mro__ }}", "reaches for '__class__'"),
        ("{{ ''['__class__'] }}", "reaches for '__class__'"),
        ("{{ '' | attr('__class__') }}", "reaches for '__class__'"),
        ("{{ '{0.__class__}'.format('') }}", "reaches for '__class__'"),
        ("{{ strftime_now.__self__ }}", "reaches for '__self__'"),
        ("{{ raise_exception.__globals__ }}", "reaches for '__globals__'"),
        ("{{ ttc_step.__closure__ }}", "reaches for '__closure__'"),
        ("{% set n = namespace(__call__=1) %}", "no place for '__call__'"),
        ("{% set n = namespace() %}{% set n.__init__ = 1 %}", "no place for '__init__'"),
        ("{{ messages.append(1) }}", "reaches for 'append'"),
        ("{{ messages[0].update(role='system') }}", "reaches for 'update'"),
        ("{% include 'other' %}", "no loader"),
        ("{{ 'x' * 10 ** 9 }}", MUCH),
        ("{{ 10 ** 9 * [1, 2] }}", MUCH),
        ("{{ 7 ** 1000000000 }}", "too large a number"),
        ("{% for i in range(999999999) %}x{% endfor %}", "Range too big"),
        (
            "{% for i in range(20000) %}{{ 'x' * 10000 }}{% endfor %}",
            MUCH,
        ),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "recursion"),
    ],
)
def test_a_hostile_template_is_refused(tokens: TextTokens, source: str, message: str) -> None:
    """With what it tried."""
    with pytest.raises(EngineError, match=f"refused the messages: .*{message}"):
        ChatTemplate(source, tokens, {}).render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in messages recursive %}{{ loop(messages) }}{{ loop(messages) }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
        "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}{% endfor %}",
    ],
    ids=["loops in loops", "a loop in itself", "a macro in itself", "loops that choose nothing"],
)
def test_a_template_that_does_not_end_is_ended(tokens: TextTokens, source: str) -> None:
    """By the steps that it takes, which are the same on every machine."""
    template = ChatTemplate(source, tokens, {})
    started = perf_counter()

    with pytest.raises(EngineError, match=r"more than 100000 steps|recursion"):
        template.render(HELLO)
    assert perf_counter() - started < 20


def test_a_template_sees_copies(tokens: TextTokens) -> None:
    """What it is given stays what it was."""
    tools = [{"name": ["f"]}]
    ChatTemplate("{% set tools = [] %}{{ tools | length }}", tokens, {}).render(HELLO)

    assert tools == [{"name": ["f"]}]


DOUBLED = "{% set n = namespace(a='x') %}{% for i in range(60) %}{% set n.a = "
NESTED = "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = "
LISTS = "{% set s = 'x' * 9999 %}{% set a = [s] * 999 %}{% set b = [a] * 999 %}"


@pytest.mark.parametrize(
    "source",
    [
        DOUBLED + "n.a ~ n.a %}{% endfor %}",
        DOUBLED + "n.a + n.a %}{% endfor %}",
        DOUBLED + "[n.a, n.a] | join %}{% endfor %}",
        DOUBLED + "n.a | replace('x', 'xx') %}{% endfor %}",
        DOUBLED + "n.a.replace('x', 'xx') %}{% endfor %}",
        DOUBLED + "'{0}{0}'.format(n.a) %}{% endfor %}",
        DOUBLED + "'%s%s' % (n.a, n.a) %}{% endfor %}",
        DOUBLED + "[n.a, n.a] | tojson %}{% endfor %}",
        DOUBLED + "n.a.join(['', '', '']) %}{% endfor %}",
        NESTED + "n.a + n.a %}{% endfor %}",
        "{% set n = namespace(a=[]) %}{% for i in range(9999) %}"
        "{% set n.a = n.a + ['x' * 99999] %}{% endfor %}",
        NESTED + "[n.a, n.a] | sum(start=[]) %}{% endfor %}",
        NESTED + "[n.a, n.a] %}{% endfor %}{{ n.a }}",
        LISTS + "{{ b }}",
        LISTS + "{{ b | string }}",
        LISTS + "{{ b | tojson }}",
        LISTS + "{{ b | join }}",
        LISTS + "{{ '' ~ b }}",
        LISTS + "{{ ''.join(a * 99) }}",
        LISTS + "{{ '%s' % (b,) }}",
        LISTS + "{{ '{}'.format(b) }}",
        LISTS + "{{ {'x': b}.items() }}",
        LISTS + "{% set n = namespace(b=b) %}{{ n }}",
        LISTS + "{{ b | trim }}",
        "{{ ('x' * 9999999) | list }}",
        "{{ ('x' * 9999999).split('x') }}",
        "{{ (' x' * 9999999).split() }}",
        "{{ ('\n' * 9999999) | indent(60, true, true) }}",
        "{% set x %}{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}{% endset %}",
        "{% macro f() %}" + "x" * 9999 + "{% endmacro %}"
        "{% set x %}{% for i in range(99999) %}{{ f() }}{% endfor %}{% endset %}",
    ],
)
def test_a_template_makes_no_more_than_a_bound(tokens: TextTokens, source: str) -> None:
    """However it goes about it; the process stays small."""
    template = ChatTemplate(source, tokens, {})
    tracemalloc.start()
    try:
        with pytest.raises(EngineError, match=f"refused the messages: it {MUCH}"):
            template.render(HELLO)
        assert tracemalloc.get_traced_memory()[1] < 6 << 27
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{{ 'x' | center(999999999) }}", "uses the filter 'center'"),
        ("{{ 'x'.center(999999999) }}", "calls 'center' of 'str'"),
        ("{{ 'x' | attr('ljust')(999999999) }}", "calls 'ljust' of 'str'"),
        ("{{ 'x'.zfill(999999999) }}", "calls 'zfill' of 'str'"),
        ("{{ '\t'.expandtabs(999999999) }}", "calls 'expandtabs' of 'str'"),
        ("{{ (1).to_bytes(999999999, 'big') }}", "calls 'to_bytes' of 'int'"),
        ("{{ '{:999999999}'.format(1) }}", "pads a text"),
        ("{{ '{:{w}}'.format(1, w=999999999) }}", "pads a text"),
        ("{{ '{x}'.format_map({'x': 1}) }}", "calls 'format_map' of 'str'"),
        ("{{ '%999999999d' % 1 }}", "pads a text"),
        ("{{ '%*d' % (999999999, 1) }}", "pads a text"),
        ("{{ '%d' | format(1) }}", "uses the filter 'format'"),
        ("{{ 'x' | indent(999999999, true) }}", "pads a text by 999999999"),
        ("{{ [1] | tojson(indent=999999999) }}", "pads a text by 999999999"),
        ("{{ 1.5 | round(999999999, 'floor') }}", "pads a text by 999999999"),
        ("{{ [1] | batch(999999999, 'x') | list }}", "uses the filter 'batch'"),
        ("{{ [1] | slice(999999999) | list }}", "uses the filter 'slice'"),
        ("{{ lipsum(n=999999999) }}", "'lipsum' is undefined"),
    ],
)
def test_what_pads_at_will_is_refused(tokens: TextTokens, source: str, what: str) -> None:
    """By name: chat templates have no use for it."""
    with pytest.raises(EngineError, match=f"refused the messages: .*{what}"):
        ChatTemplate(source, tokens, {}).render(HELLO)


def test_a_long_conversation_is_well_within_the_bounds(tokens: TextTokens) -> None:
    """Also where a template writes it anew with each of its messages."""
    source = (
        "{% set n = namespace(a='') %}{% for m in messages %}"
        "{% set n.a = n.a + m.content.split('</think>')[-1] | trim %}{% endfor %}{{ n.a }}"
    )
    messages = [Message(role="user", content="word " * 800) for _ in range(200)]

    assert len(ChatTemplate(source, tokens, {}).render(messages).text) > 700_000
