"""The built-in tools: programs, sums, files and passages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.lab import called
from ttc.tools import Calculator, Python, Tool, named_tool
from ttc.tools.folder import Folder, folder_tools
from ttc.tools.retrieval import retrieval_tool

if sys.platform != "linux":
    pytest.skip("the jail needs Linux", allow_module_level=True)


def told(tool: Any, *arguments: dict[str, Any], **more: Any) -> list[str]:
    """What calls of a tool come to."""
    return [result.text for result in called(*((tool, one) for one in arguments), **more)]


def test_built_in_tools_have_names() -> None:
    assert isinstance(named_tool("python"), Tool)
    assert named_tool("calculator") == Calculator()
    with pytest.raises(ValueError, match="no tool is called 'pliers'"):
        named_tool("pliers")


def test_python_tells_output_and_the_last_value() -> None:
    """And of a program that fails why; with or without a fence."""
    code = ["print('a')\n1 + 1", "```python\nx = 3\n```", "x", "1 / 0", "while True: pass"]
    texts = told(Python(time_limit=1.0), *({"code": one} for one in code))

    assert texts[:2] == ["a\n2", "(it printed nothing)"]
    assert "NameError" in texts[2]
    assert "ZeroDivisionError" in texts[3]
    assert texts[4] == "[it took too long]"


def test_python_keeps_the_variables_of_the_branch_s_own_cells() -> None:
    """Earlier cells run again, silently, those that failed as well."""
    earlier = [{"code": "import random\nx = [random.random()]\nprint(x)"}, {"code": "1 / 0"}]

    first, second = told(Python(), {"code": "x"}, {"code": "x.append(1); len(x)"}, earlier=earlier)
    (again,) = told(Python(), {"code": "x"}, earlier=earlier)

    assert first == again
    assert second == "2"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(3 + 4) * 12 / 5", "16.8 (exactly 84/5)"),
        ("2**10", "1024"),
        ("sqrt(2)^2", "2"),
        ("sin(pi/6)", "0.5 (exactly 1/2)"),
    ],
)
def test_the_calculator_computes(expression: str, value: str) -> None:
    assert told(Calculator(), {"expression": expression}) == [value]


@pytest.mark.parametrize(
    "expression", ["__import__('os').getpid()", "x + 1", "1 / 0", "9^9^9^9", "", "a" * 501]
)
def test_the_calculator_refuses_what_is_no_sum(expression: str) -> None:
    """And computes nothing without end."""
    (result,) = called((Calculator(), {"expression": expression}))  # type: ignore[arg-type]

    assert result.status == "error"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with links that lead out of it."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "root-other").mkdir()
    (tmp_path / "root-other" / "k").write_text("secret")
    (root / "ok.txt").write_text("fine\nsecond line")
    (root / "link").symlink_to("/etc")
    (root / "linked.txt").symlink_to(tmp_path / "root-other" / "k")
    (root / "dangling").symlink_to(tmp_path / "new")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize(
    "path",
    ["../root-other/k", "a/../../x", "/etc/hostname", "link", "link/hostname", "linked.txt", "",
     "ok\0.txt", "~/.x", "sub", ".", "pipe", "..", "ok.txt/"],
)  # fmt: skip
def test_no_path_leaves_the_folder(root: Path, path: str) -> None:
    """TL-01: every one is refused, in the same words."""
    with pytest.raises(PermissionError, match="is no file in the folder"):
        Folder(root).read(path)


@pytest.mark.parametrize("path", ["sub/../ok.txt", "./ok.txt", "ok.txt", "sub//../ok.txt"])
def test_paths_in_the_folder_are_read(root: Path, path: str) -> None:
    """TL-01."""
    assert Folder(root).read(path).startswith("fine")


def test_writes_follow_no_link(root: Path, tmp_path: Path) -> None:
    """TL-01: nothing is made outside; folders inside are."""
    folder = Folder(root)
    for path in ("dangling", "link/x", "../new", "linked.txt", "sub/../../new"):
        with pytest.raises(PermissionError):
            folder.write(path, "x")
    folder.write("newdir/f", "text")
    folder.write("~/.x", "a literal name")

    assert (root / "newdir" / "f").read_text() == "text"
    assert (root / "~" / ".x").exists()
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "root-other" / "k").read_text() == "secret"


def test_folder_tools_read_list_and_search(root: Path) -> None:
    """Links are left out, and a pattern that never ends is ended."""
    read, names, find, write = folder_tools(root, writes=True)

    assert told(names, {}) == ["ok.txt"]
    assert told(read, {"path": "linked.txt"}) == [
        "PermissionError: 'linked.txt' is no file in the folder"
    ]
    assert told(find, {"pattern": "^sec.*"}) == ["ok.txt:2: second line"]
    assert [t.effect for t in (read, names, find, write)] == ["pure"] * 3 + ["irreversible"]
    assert len(folder_tools(root)) == 3


def test_retrieval_finds_passages() -> None:
    """The best first; where no word fits, none."""
    pytest.importorskip("bm25s")
    corpus = {
        "cats": "A cat sleeps most of the day.",
        "dogs": "A dog barks at night.",
        "sums": "Seventeen times twenty-three is 391.",
    }
    search = retrieval_tool(corpus, k=1)

    assert told(search, {"query": "when does a dog bark? dog"}) == ["[dogs]\nA dog barks at night."]
    assert told(search, {"query": "zebra"}, {"query": "the"}) == ["nothing was found"] * 2
    assert not called((search, {"query": "cat"}))[0].is_trusted
    with pytest.raises(ValueError, match="no passage"):
        retrieval_tool({"a": " "})


def test_a_folder_s_paragraphs_are_a_corpus(root: Path) -> None:
    pytest.importorskip("bm25s")
    (root / "sub" / "notes.md").write_text("About cats.\n\nAbout whales and seas.")

    (text,) = told(retrieval_tool(root, k=1), {"query": "whales"})

    assert text == "[sub/notes.md#2]\nAbout whales and seas."
