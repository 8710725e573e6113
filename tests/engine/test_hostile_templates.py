"""A template comes from anywhere: it reaches nothing, changes nothing and ends."""

from __future__ import annotations

from time import perf_counter

import pytest

from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import EngineError
from ttc.types import Message

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
        ("{{ 'x' * 10 ** 9 }}", "repeats 1 letters"),
        ("{{ 10 ** 9 * [1, 2] }}", "repeats 2 letters"),
        ("{{ 7 ** 1000000000 }}", "too large a number"),
        ("{% for i in range(999999999) %}x{% endfor %}", "Range too big"),
        (
            "{% for i in range(2000) %}{{ 'x' * 10000 }}{% endfor %}",
            "writes more than 16777216 letters",
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

    with pytest.raises(EngineError, match=r"more than 250000 steps|recursion"):
        template.render(HELLO)
    assert perf_counter() - started < 20


def test_a_template_sees_copies(tokens: TextTokens) -> None:
    """What it is given stays what it was."""
    tools = [{"name": ["f"]}]
    ChatTemplate("{% set tools = [] %}{{ tools | length }}", tokens, {}).render(HELLO)

    assert tools == [{"name": ["f"]}]
