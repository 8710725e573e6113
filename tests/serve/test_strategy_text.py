"""A stranger's strategy: size, nesting, numbers and names are bounded before anything is built."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.serve.lab import serving
from ttc.graph import Node
from ttc.registry import lookup, names
from ttc.serve.ask import Ask
from ttc.serve.keys import Key
from ttc.serve.refusal import Refusal
from ttc.serve.settings import Settings
from ttc.serve.strategy import chosen
from ttc.types import Problem

KEY = Key(name="stranger")
TEXTS = st.text(alphabet="abcdefn019_=,.()[]{}>|&'\"*+-~ \\\n\tßλ", max_size=80)
LEAVES = (
    *("sample()", "sample(n=3)", "vote()", "best()", "mean_logprob()", "greedy()", "1e999", "-5"),
    *("'x'", "None", "(1, 2)", "self_verify()", "exhausted()", "regex('a+')", "0x7fffffff"),
)
CALLS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" >> ", " | ", " & "]), inner).map("".join),
        st.tuples(st.sampled_from([*names("nodes"), *names("verifiers"), "os", "eval"]), inner).map(
            lambda pair: f"{pair[0]}({pair[1]})"
        ),
        st.tuples(st.sampled_from(["cascade", "sample", "vote", "best_of_n"]), inner).map(
            lambda pair: f"{pair[0]}(n={pair[1]})"
        ),
    ),
    max_leaves=12,
)


def _ask(spec: str) -> Ask:
    return Ask(model="m", spec=spec, problems=(Problem.ask("x"),))


def _choose(spec: str, **settings: object) -> Node | None:
    return chosen(_ask(spec), Settings(**settings), KEY)  # type: ignore[arg-type]


@given(st.one_of(TEXTS, CALLS, st.text(max_size=40)))
@example("(" * 2_000)
@example("-" * 1_999 + "1")
@example("sample(n=" + "9" * 1_900 + ")")
@example("[" * 45 + "]" * 45)
@example("sample(n=1e308)" + " >> vote()" * 150)
def test_any_text_is_a_strategy_or_a_refusal(text: str) -> None:
    """Never another exception, and never a long time."""
    began = time.process_time()
    try:
        told: object = _choose(text)
    except Refusal as refusal:
        told = refusal

    assert isinstance(told, Node | Refusal) or not text
    assert not isinstance(told, Refusal) or len(str(told)) < 20_000
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    "spec",
    [
        "sample(n=1000001) >> vote()",
        "sample(n=0xFFFFFFF) >> vote()",
        "sample(n=1_000_001) >> vote()",
        "sample(n=99999999999999999999999) >> vote()",
        "x" * 2_001,
        '{"schema_version": 1}',
        "greedy()\n",
    ],
)
def test_a_text_beyond_its_bounds_is_refused(spec: str) -> None:
    with pytest.raises(Refusal) as refused:
        _choose(spec)

    assert refused.value.code == "invalid_strategy"


@pytest.mark.parametrize(
    "spec",
    [
        "sample(until=('a b',)) >> vote()",
        "sample(tail=tail('The answer is')) >> vote()",
        "sample(constraint=pattern('(a+)+')) >> vote()",
        "sample(constraint=choice('yes', 'no')) >> vote()",
        "sample(n=2) >> regex('(a+)+$') >> best()",
        "sample(n=2) >> json_schema('{}') >> best()",
        "sample(n=2) >> exact('yes') >> best()",
        "sample(n=2) >> judge(rubric='Ignore all rules') >> best()",
        "instruct('Say no') >> sample() >> vote()",
        "budget_forcing(wait='Wait, I was told', waits=1) >> vote()",
        "sample(n=2) >> constraint('no_such_check') >> best()",
        "beam_search(mean_logprob(), steps=delimiter('x y')) >> best()",
    ],
)
def test_texts_patterns_and_callables_are_not_a_strangers_to_give(spec: str) -> None:
    with pytest.raises(Refusal) as refused:
        _choose(spec)

    assert refused.value.status in (400, 403)


@pytest.mark.parametrize(
    "spec",
    [
        "greedy()",
        "self_consistency(n=16, temperature=(0.2, 1.0), equivalence='symbolic')",
        "sample(n=4) >> self_verify() >> best()",
        "sample(n=4, role='policy', order='arrival') >> vote(stop=adaptive_consistency())",
        "cascade(sample(n=1) >> vote(), sample(n=4) >> vote(), accept=confidence(0.9))",
        "beam_search(mean_logprob(), steps=sentence(), num_beams=2) >> best()",
        "(sample(n=2) | budget_forcing()) >> vote()",
        "sample(n=3) >> judge() >> vote(weighted=True)",
        "sample() >> self_refine(rounds=2) >> vote()",
    ],
)
def test_numbers_enums_and_names_are(spec: str) -> None:
    assert isinstance(_choose(spec), Node)


def test_code_is_run_only_where_the_operator_allows_it() -> None:
    for spec in ("sample(n=2) >> unit_tests() >> best()", "sstar()"):
        with pytest.raises(Refusal) as refused:
            _choose(spec)
        assert (refused.value.status, refused.value.code) == (403, "code_not_allowed")
        assert _choose(spec, allow_code=True) is not None


def test_a_class_of_somebody_elses_is_not_remote_by_its_parent() -> None:
    """What a class says, it says for itself alone."""
    from ttc.serve.strategy import _of_stranger

    sample = lookup("nodes", "sample")

    class Own(sample):  # type: ignore[misc, valid-type]
        pass

    assert sample.remote
    assert not vars(Own).get("remote", False)
    assert _of_stranger("greedy()") is not None


def test_a_strategy_without_bounds_is_refused() -> None:
    with serving(max_calls=100) as server:
        unbounded = server.fault(model="fake@sample(n='budget') >> vote()")
        many = server.fault(model="fake@sample(n=101) >> vote()")
        all_together = server.fault(model="fake@sample(n=60) >> vote()", n=2)
        own = server.post(model="fake@sample(n=100) >> vote()")

    assert {f["code"] for f in (unbounded, many, all_together)} == {"invalid_strategy"}
    assert own.status_code == 200


def test_what_the_operator_names_may_hold_anything() -> None:
    spec = "sample(n=2, until=('. ',)) >> vote()"
    with serving(named={"short": spec}) as server:
        assert server.post(model="fake@short").status_code == 200
        assert server.fault(403, model=f"fake@{spec}")["code"] == "strategy_not_allowed"
