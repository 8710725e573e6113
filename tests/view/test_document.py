"""What the viewer knows of a run: out of its journal, while it runs, and out of its outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.view.lab import QUESTION, SEARCH, VOTE, keep, search
from ttc import Budget, Outcome, RecordError
from ttc.errors import EngineError
from ttc.journal.entries import entry_of, line_of
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Event
from ttc.view import RunView, document, view
from ttc.view.journals import JournalView
from ttc.view.recorder import Recorder

Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A beam search that has ended, and where its journal lies."""
    path = tmp_path_factory.mktemp("runs") / "search.journal"
    return path, keep(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal lies."""
    return tmp_path / "run.journal"


def rows_of(told: dict[str, Any]) -> Rows:
    return {row["id"]: row for row in told["rows"]}


def entries(path: Path) -> list[dict[str, Any]]:
    return [entry_of(line) or {} for line in path.read_bytes().splitlines()]


# The tree


def test_every_call_hangs_below_what_it_goes_on_from(searched: tuple[Path, Outcome]) -> None:
    """The same chain of calls that the branches of the outcome have."""
    path, outcome = searched
    rows = rows_of(document(path))

    for candidate in outcome.candidates:
        calls = [s.call for s in candidate.branch.lineage() if s.call is not None]
        found, row = [], rows[calls[-1]]
        while row["kind"] == "call":
            found.append(row["id"])
            row = rows[row["parent"]]
        assert (found[::-1], row["kind"]) == (calls, "prompt")


def test_what_a_search_gave_up_is_pruned_and_what_it_went_on_from_is_not(
    searched: tuple[Path, Outcome],
) -> None:
    rows = rows_of(document(searched[0]))
    parents = {row.get("parent") for row in rows.values()}

    status = Counter(row["status"] for row in rows.values())
    assert status["pruned"] > 10
    assert status["open"] > 5
    assert not any(row["status"] == "pruned" for row in rows.values() if row["id"] in parents)


def test_the_way_to_the_chosen_call_is_marked(searched: tuple[Path, Outcome]) -> None:
    path, outcome = searched
    assert outcome.candidate is not None
    way = [segment.call for segment in outcome.candidate.branch.lineage() if segment.call]

    chosen = [row for row in document(path)["rows"] if row.get("chosen")]

    assert [row["id"] for row in chosen if row["kind"] == "call"] == way
    assert sum(row["kind"] == "prompt" for row in chosen) == 1


def test_scores_are_those_that_the_verifier_gave(searched: tuple[Path, Outcome]) -> None:
    path, outcome = searched
    rows = rows_of(document(path))

    for candidate in outcome.candidates:
        row = rows[str(candidate.branch.call)]
        given = {name: score.value for name, score in candidate.scores.items()}
        assert (row["scores"], row["score"]) == (given, given["step_quality"])


def test_a_sibling_with_equal_tokens_is_a_duplicate(path: Path) -> None:
    keep(path, search(2, 2), engine=FakeEngine("The answer is 205."))

    status = Counter(row["status"] for row in document(path)["rows"])
    assert status == {"prompt": 1, "finished": 1, "duplicate": 3}


def test_a_call_that_failed_and_one_that_was_stopped_are_told_apart(path: Path) -> None:
    broken: str | EngineError = EngineError("the engine fell over")
    engine = FakeEngine([broken, *["The answer is 1."] * 9], in_order=True, concurrency=2)
    strategy = "sample(n=10, ahead=4) >> vote(stop=cannot_be_overtaken())"
    outcome = keep(path, strategy, engine=engine)

    rows = [row for row in document(path)["rows"] if row["kind"] == "call"]

    failed = [row for row in rows if row["status"] == "failed"]
    assert [row["error"] for row in failed] == ["the engine fell over"]
    cancelled = sum(row["status"] == "cancelled" for row in rows)
    assert cancelled == sum(
        r.kind == "call" and r.usage.tokens > 0 and r.usage.tokens_cancelled >= r.usage.tokens
        for r in outcome.trace
    )


# Texts


def test_the_text_of_a_call_is_told_token_by_token(searched: tuple[Path, Outcome]) -> None:
    path, outcome = searched
    assert outcome.candidate is not None
    segment = outcome.candidate.branch
    told = view(path).text(str(segment.call))

    assert told is not None
    assert told["text"] == segment.text
    assert "".join(told["pieces"]).startswith(segment.text)
    assert tuple(told["logprobs"]) == segment.logprobs


def test_a_character_of_several_tokens_stands_with_the_last_of_them(tmp_path: Path) -> None:
    run = RunView("run")
    run.texts.learn("fake", {"1": "a", "2": b"\xc3".decode(errors="surrogateescape")})
    run.texts.learn("fake", {"3": b"\xa9".decode(errors="surrogateescape")})
    run.texts.put("0.sample#0", engine="fake", token_ids=[1, 2, 3, 2])

    assert run.texts.values("0.sample#0")["pieces"] == ["a", "", "é", "\ufffd"]


def test_tokens_of_two_vocabularies_are_not_mixed_up() -> None:
    run = RunView("run")
    run.texts.learn("small", {"1": "one"})
    run.texts.learn("large", {"1": "uno"})
    for name in ("small", "large"):
        run.texts.put(name, engine=name, token_ids=[1])

    assert [run.texts.values(name)["pieces"] for name in ("small", "large")] == [["one"], ["uno"]]


def test_calls_are_found_by_their_text_in_whatever_case(searched: tuple[Path, Outcome]) -> None:
    seen = view(searched[0])

    found = seen.find("BORROW AN HOUR")

    assert found
    assert all("borrow an hour" in str(seen.text(row)) for row in found)
    assert seen.find("no such words") == []


# Spend, votes, decisions, the strategy


def test_spend_adds_up_to_the_usage_by_node_and_by_role(searched: tuple[Path, Outcome]) -> None:
    path, outcome = searched
    told = document(path)

    nodes = {node["path"]: node["spend"] for node in told["graph"]["nodes"]}
    assert sum(spend.get("tokens", 0) for spend in told["spends"]) == outcome.usage.tokens
    assert set(nodes) == {"prompt", "0.beam_search", "1.vote"}
    for role, usage in outcome.usage_by_role.items():
        spent = nodes["0.beam_search"][role]
        assert spent.get("tokens", 0) == usage.tokens
        assert spent.get("verifier_calls", 0) == usage.verifier_calls


def test_every_role_is_charged_with_what_the_outcome_says(path: Path) -> None:
    """A judge is another role than the policy, in the trace as in the ledger."""
    judge = FakeEngine("The answer is 205. I am sure: True", logprob=-0.1)
    outcome = ttc.solve(
        QUESTION,
        "sample(n=3) >> self_verify(role='judge') >> vote(weighted=True)",
        models={"policy": FakeEngine("The answer is 205."), "judge": judge},
        journal=path,
        seed=1,
    )

    spent: Counter[str] = Counter()
    for spend in document(path)["spends"]:
        spent[spend["role"]] += spend.get("tokens", 0)
    expected = {role: usage.tokens for role, usage in outcome.usage_by_role.items()}
    assert {role: n for role, n in spent.items() if n} == {r: n for r, n in expected.items() if n}
    assert expected["judge"] > 0


def test_the_vote_counts_candidates_by_their_answer(searched: tuple[Path, Outcome]) -> None:
    path, outcome = searched
    (vote,) = document(path)["votes"]

    counts = {group["answer"]: len(group["calls"]) for group in vote["groups"]}
    assert counts == Counter(candidate.answer for candidate in outcome.candidates)
    assert vote["chosen"]["answer"] == outcome.answer
    assert vote["chosen"]["confidence"] == outcome.confidence


def test_a_vote_tells_of_candidates_without_an_answer(path: Path) -> None:
    keep(path, VOTE, engine=FakeEngine(["I do not know.", "The answer is 3."]))

    (vote,) = document(path)["votes"]

    assert len(vote["without"]) + len(vote["groups"][0]["calls"]) == 8
    assert vote["without"]


def test_a_decision_is_told_with_its_rule(path: Path) -> None:
    engine = FakeEngine("The answer is 1.")
    keep(path, "sample(n=8, ahead=1) >> vote(stop=cannot_be_overtaken())", engine=engine)

    (one,) = document(path)["decisions"]

    assert (one["path"], one["rule"]) == ("1.vote", "cannot_be_overtaken")


def test_a_strategy_that_was_built_in_python_is_drawn_without_addresses(path: Path) -> None:
    verifier = ScriptedVerifier(lambda _: 0.5)
    keep(path, Sample(n=2) >> verifier >> Best(), engine=FakeEngine("The answer is 1."))

    graph = document(path)["graph"]

    assert [node["path"] for node in graph["nodes"]] == ["prompt", "0.sample", "1.verify", "2.best"]
    assert " at 0x" not in json.dumps(graph)
    assert graph["edges"][-1] == ["1.verify", "2.best"]


# While it runs


def test_what_is_new_adds_up_to_the_whole(searched: tuple[Path, Outcome], path: Path) -> None:
    """A page that asks after every line knows in the end what one knows that asks once."""
    growing, rows, spends, version = JournalView(path), {}, 0, 0
    with path.open("wb") as file:
        for line in searched[0].read_bytes().splitlines(keepends=True):
            file.write(line)
            file.flush()
            growing.refresh()
            told = growing.document(version)
            rows.update(rows_of(told))
            spends, version = spends + len(told["spends"]), told["version"]

    whole = document(searched[0])
    assert rows == rows_of(whole)
    assert spends == len(whole["spends"])


def test_half_a_line_is_read_once_it_is_whole(searched: tuple[Path, Outcome], path: Path) -> None:
    content = searched[0].read_bytes()
    path.write_bytes(content[:-10])
    growing = JournalView(path)
    growing.refresh()
    assert growing.document()["end"] is None

    path.write_bytes(content)
    growing.refresh()

    assert growing.document()["end"] == document(searched[0])["end"]


def test_a_page_that_knows_another_run_is_given_the_whole(searched: tuple[Path, Outcome]) -> None:
    """The server was started again, say, and counts from the beginning."""
    seen = view(searched[0])

    assert seen.document(10**9)["whole"]
    assert not seen.document(5)["whole"]
    assert seen.document(seen.document()["version"])["rows"] == []


def test_the_state_of_a_run_is_told(searched: tuple[Path, Outcome], path: Path) -> None:
    """`running` while a process has the journal, `unfinished` when it was killed."""
    states: list[str] = []

    class Looking(FakeEngine):
        def submit(self, request: Any, on_chunk: Any = None) -> Any:
            states.append(document(path)["state"])
            return super().submit(request, on_chunk)

    keep(path, VOTE, engine=Looking("The answer is 1."))
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-1]))

    assert set(states) == {"running"}
    assert document(path)["state"] == "unfinished"
    assert document(searched[0])["state"] == "finished"


def test_a_call_that_runs_is_there_before_its_answer(path: Path) -> None:
    keep(path, VOTE)
    lines = path.read_bytes().splitlines(keepends=True)
    first = next(i for i, e in enumerate(entries(path)) if e["is"] == "intent")
    path.write_bytes(b"".join(lines[: first + 1]))

    rows = rows_of(document(path))

    assert rows["0.sample#0"]["status"] == "running"
    assert rows[rows["0.sample#0"]["parent"]]["kind"] == "prompt"


def test_a_resumed_run_is_told_as_one_that_nobody_killed(path: Path) -> None:
    keep(path, SEARCH)
    whole, lines = document(path), path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))

    keep(path, SEARCH)

    def essence(told: dict[str, Any]) -> list[Any]:
        names = ("id", "parent", "status", "score", "excerpt", "chosen")
        return sorted([str(row.get(name)) for name in names] for row in told["rows"])

    again = document(path)
    assert essence(again) == essence(whole)
    assert again["votes"] == whole["votes"]


# Journals that are none, and runs without one


def test_an_older_journal_is_shown_without_what_it_does_not_hold(
    searched: tuple[Path, Outcome], path: Path
) -> None:
    """Without notes and words there is a tree and spend, but nothing pruned, voted or shaded."""
    kept = [e for e in entries(searched[0]) if e["is"] not in ("note", "words")]
    kept[0].pop("graph")
    for entry in kept:
        entry.pop("behind", None)
    path.write_bytes(b"".join(line_of(entry) + b"\n" for entry in kept))

    told = document(path)

    whole = document(searched[0])
    assert [row["id"] for row in told["rows"]] == [row["id"] for row in whole["rows"]]
    assert [row.get("parent") for row in told["rows"]] == [r.get("parent") for r in whole["rows"]]
    assert (told["votes"], told["end"]) == ([], whole["end"])


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"12345678 {}\n", "line 1 is damaged"), (line_of({"is": "end"}) + b"\n", "is no journal")],
)
def test_what_is_no_journal_is_refused(path: Path, content: bytes, fault: str) -> None:
    path.write_bytes(content)

    with pytest.raises(RecordError, match=fault):
        document(path)


def test_an_outcome_is_shown_without_a_journal() -> None:
    """Its candidates with their texts, its spend by role, its vote."""
    outcome = ttc.solve(QUESTION, VOTE, model=FakeEngine("The answer is 205."), seed=3)

    told = document(outcome)

    assert Counter(row["kind"] for row in told["rows"]) == {"prompt": 1, "call": 8}
    assert sum(spend.get("tokens", 0) for spend in told["spends"]) == outcome.usage.tokens
    assert len(told["votes"][0]["groups"][0]["calls"]) == 8
    assert told["end"]["answer"] == "205"
    text = view(outcome).text("0.sample#3")
    assert text is not None
    assert text["text"] == "The answer is 205."


def test_a_run_is_followed_by_its_events() -> None:
    """Candidates are voted on before the run has ended; its outcome then tells the whole."""
    problem = ttc.Problem.ask(QUESTION)
    recorder = Recorder("run", problem, VOTE, budget=Budget(tokens=900), engines={"policy": "fake"})
    votes: list[int] = []

    def watch(event: Event) -> None:
        recorder(event)
        votes.append(sum(len(g["calls"]) for v in recorder.votes.values(0) for g in v["groups"]))

    outcome = ttc.solve(problem, VOTE, model=FakeEngine("The answer is 205."), seed=3, watch=watch)
    before = recorder.document()
    recorder.finish(outcome)
    after = recorder.document(before["version"])

    assert votes[-1] == 8
    assert sum(spend["tokens"] for spend in before["spends"]) == outcome.usage.tokens
    assert after["whole"]
    assert {spend["role"] for spend in after["spends"]} == {"policy"}
    assert after["end"]["answer"] == "205"
    assert [node["path"] for node in after["graph"]["nodes"]] == ["prompt", "0.sample", "1.vote"]


def test_a_call_is_there_from_its_admission_on() -> None:
    """With its place in the tree, and before anything was spent on it."""
    problem = ttc.Problem.ask(QUESTION)
    engine = FakeEngine(["The answer is 205.", "The answer is 501."])
    recorder = Recorder("run", problem, VOTE, spell={"policy": engine.spell})
    told: list[dict[str, Any]] = []

    def watch(event: Event) -> None:
        recorder(event)
        told.append(deepcopy(recorder.document()))

    outcome = ttc.solve(problem, VOTE, model=engine, seed=3, watch=watch)
    first = next(document for document in told if document["rows"])
    prompt, call = first["rows"]
    last = {row["id"]: row["status"] for row in told[-1]["rows"] if row["kind"] == "call"}

    assert (call["id"], call["parent"], call["status"]) == ("0.sample#0", prompt["id"], "running")
    assert first["spends"] == []
    assert len(last) == outcome.usage.calls
    assert "running" not in last.values()


def test_texts_of_a_run_without_a_journal_are_told_token_by_token() -> None:
    engine = FakeEngine("The answer is 205.")
    recorder = Recorder("run", ttc.Problem.ask(QUESTION), VOTE, spell={"policy": engine.spell})
    outcome = ttc.solve(QUESTION, VOTE, model=engine, seed=3, watch=recorder)
    live = recorder.text("0.sample#0")
    recorder.finish(outcome)
    text = recorder.text("0.sample#0")

    assert text is not None
    assert text == live
    assert text["pieces"] == ["The", " answer", " is", " 205."]
    assert text["logprobs"] == (-0.5,) * 4


def test_a_document_is_json(searched: tuple[Path, Outcome]) -> None:
    told = document(searched[0])

    assert json.loads(json.dumps(told)) == told


def test_notes_are_no_part_of_the_trace(searched: tuple[Path, Outcome]) -> None:
    """A run that is kept has the trace of one that is not."""
    make: Callable[[], FakeEngine] = lambda: FakeEngine("The answer is 205.")  # noqa: E731
    kept = keep(searched[0].parent / "other.journal", search(2, 2), engine=make())
    plain = ttc.solve(QUESTION, search(2, 2), model=make(), seed=11, budget=Budget(tokens=6_000))

    assert kept.trace == plain.trace
