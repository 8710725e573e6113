"""The file of a pool, and what makes one pool of others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttc import Message, RecordError, Sampling
from ttc.pools import Completion, Pool, PoolFile, append, merge, read, score, write
from ttc.pools.parquet import write_parquet


def completion(problem: str = "p", index: int = 0, text: str = "1", **more: Any) -> Completion:
    """A completion of a problem that is named after its question."""
    messages = (Message(role="user", content=problem),)
    return Completion(problem=problem, index=index, messages=messages, text=text, **more)


def failed(problem: str = "p", index: int = 0) -> Completion:
    """One of which nothing came."""
    return completion(problem, index, "", finish_reason="error", error="it broke", num_tokens=3)


numbers = st.floats(allow_nan=False)
completions = st.builds(
    completion,
    problem=st.sampled_from("ab"),
    index=st.integers(0, 3),
    text=st.text(),
    num_tokens=st.none() | st.integers(0, 9),
    logprobs=st.none() | st.lists(numbers).map(tuple),
    self_certainty=st.none() | numbers,
    finish_reason=st.sampled_from([None, "stop", "length"]),
    sampling=st.none() | st.builds(Sampling, temperature=st.floats(0, 2)),
    until=st.lists(st.text()).map(tuple),
    seed=st.none() | st.integers(0, 2**64 - 1),
    scores=st.dictionaries(st.text(), st.none() | numbers, max_size=2),
)


@given(made=st.lists(completions, unique_by=lambda c: c.key))
def test_a_pool_is_read_as_it_was_written(
    made: list[Completion], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever its texts hold."""
    path = tmp_path_factory.mktemp("pool") / "pool.jsonl"

    write(path, Pool(made))

    assert list(read(path)) == list(Pool(made))


def test_a_damaged_pool_is_continued(tmp_path: Path) -> None:
    """BK-08: a double and half a row are no samples, and other ends of lines are text."""
    path = tmp_path / "pool.jsonl"
    rows = [completion("a"), completion("b"), completion("c", text="x\u2028y\u0085z")]
    write(path, Pool(rows))
    first = path.read_bytes().split(b"\n")[0] + b"\n"
    raw = path.read_bytes().replace(b"\\u2028", "\u2028".encode())
    raw = raw.replace(b"\\u0085", "\u0085".encode())
    path.write_bytes(raw + first + first[:25])

    with PoolFile(path) as file:
        found = [c.key for c in file.pool]
        for problem in ("d", "e"):
            file.add(completion(problem))

    assert found == [row.key for row in rows]
    assert list(read(path))[:3] == rows
    assert path.read_bytes().endswith(b"\n")
    assert sorted(c.key for c in read(path)) == ["a#0", "b#0", "c#0", "d#0", "e#0"]


def test_a_file_keeps_in_memory_nothing_that_was_written(tmp_path: Path) -> None:
    """BK-06: neither of what it held before nor of what is added."""
    path, told = tmp_path / "pool.jsonl", dict[str, Any](token_ids=(1, 2), logprobs=(-0.5, -0.5))
    write(path, Pool([completion("a", text="long" * 99, num_tokens=2, **told)]))
    with PoolFile(path) as file:
        file.add(completion("b", text="long" * 99, num_tokens=2, **told))
        kept = list(file.pool)
    assert [(c.key, c.text, c.token_ids, c.logprobs) for c in kept] == [
        ("a#0", "", None, None), ("b#0", "", None, None),
    ]  # fmt: skip
    assert [c.length for c in kept] == [2, 2]
    assert [c.text for c in read(path)] == ["long" * 99] * 2


def test_a_completion_is_written_once(tmp_path: Path) -> None:
    with PoolFile(tmp_path / "pool.jsonl") as file:
        for one in (failed(), failed(), completion(), failed()):
            file.add(one)
        with pytest.raises(RecordError, match="holds a completion p#0 already"):
            file.add(completion(text="another"))
    assert [c.failed for c in read(tmp_path / "pool.jsonl")] == [False]
    assert len((tmp_path / "pool.jsonl").read_bytes().splitlines()) == 2


def test_a_row_without_a_newline_counts_if_it_is_whole(tmp_path: Path) -> None:
    """As people leave files."""
    path = tmp_path / "pool.jsonl"
    write(path, Pool([completion("a"), completion("b")]))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))

    assert len(read(path)) == 2


def test_one_that_failed_gives_way_to_one_that_did_not() -> None:
    pool = Pool([failed()])

    assert pool.add(completion())
    assert not pool.add(failed())
    assert [c.failed for c in pool] == [False]


def test_two_completions_of_one_name_that_differ_are_refused() -> None:
    with pytest.raises(RecordError, match="two completions are called p#0, and their text differs"):
        Pool([completion(text="1"), completion(text="2")])


def test_one_id_stands_for_one_prompt() -> None:
    other = replace(completion(index=1), messages=(Message(role="user", content="q"),))

    with pytest.raises(RecordError, match="p#1 asks something else than p#0"):
        Pool([completion(), other])


def test_appended_completions_are_counted_on() -> None:
    first = Pool([completion(index=0), completion(index=1, text="2")])

    whole = append(first, Pool([completion(index=0, text="3"), completion("q")]))

    assert [(c.key, c.text) for c in whole] == [
        ("p#0", "1"),
        ("p#1", "2"),
        ("p#2", "3"),
        ("q#0", "1"),
    ]


def test_merged_pools_hold_each_completion_once() -> None:
    first, second = Pool([completion(), completion("q")]), Pool([completion(index=1), completion()])

    assert [c.key for c in merge(first, second)] == ["p#0", "p#1", "q#0"]
    with pytest.raises(RecordError, match="their text differs; append one pool to the other"):
        merge(first, Pool([completion(text="other")]))


def test_a_column_of_scores_is_written_once() -> None:
    scored = score(Pool([completion(), completion("q")]), "s", {("p", 0): 1.0, ("q", 0): None})

    assert [c.scores for c in scored] == [{"s": 1.0}, {"s": None}]
    assert scored.columns == ("s",)
    with pytest.raises(RecordError, match="a column 's' already, and scores are written once"):
        score(scored, "s", {})
    with pytest.raises(RecordError, match="2 completions have no score 't', p#0 among them"):
        score(scored, "t", {})
    with pytest.raises(RecordError, match="the pools carry different scores, s and none"):
        merge(scored, Pool([completion("r")]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "line 1 is no completion of version 1: schema_version is None"),
        ("[]", "line 1 is no completion of version 1: it is no JSON object"),
        ('{"schema_version": 2}', "schema_version is 2"),
        ('{"schema_version": 1, "problem": "p", "index": 0}', "needs messages or a prompt"),
        ('{"schema_version": 1, "colour": 1}', "unexpected keyword argument 'colour'"),
    ],
)
def test_a_file_that_is_no_pool_is_refused_by_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text(line + "\n", encoding="utf-8")

    with pytest.raises(RecordError, match=message):
        read(path)


def test_a_pool_in_use_is_told(tmp_path: Path) -> None:
    with (
        PoolFile(tmp_path / "pool.jsonl"),
        pytest.raises(RecordError, match="in use by another process"),
    ):
        PoolFile(tmp_path / "pool.jsonl")


def test_a_pool_becomes_a_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    one = completion(sampling=Sampling(temperature=0.8), token_ids=(1, 2), seed=2**64 - 1)
    pool = score(Pool([one]), "s", {("p", 0): None})

    write_parquet(tmp_path / "pool.parquet", pool)

    table = parquet.read_table(tmp_path / "pool.parquet")
    (row,) = table.to_pylist()
    assert table.schema.metadata[b"schema_version"] == b"1"
    assert (row["text"], row["token_ids"], row["seed"]) == ("1", [1, 2], 2**64 - 1)
    assert (row["sampling.temperature"], row["score.s"]) == (0.8, None)
    assert row["messages"] == [{"role": "user", "content": "p"}]
