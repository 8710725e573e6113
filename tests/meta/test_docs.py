"""The pages in docs/: their examples run, and the strategies' page is complete."""

import doctest
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from tests.meta.tree import ROOT
from ttc import strategies
from ttc.benchmarks.harness.sweeps import arms_of
from ttc.graph import Node
from ttc.registry import names
from ttc.strategies.stopping import Rule
from ttc.testing import CHECK_NAMES

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
EXAMPLES = {
    page.relative_to(ROOT).as_posix(): "".join(found)
    for page in PAGES
    if (
        found := re.findall(
            r"^```pycon\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
    )
}
"""What a reader can type in Python, by page."""
STRATEGIES = "\n".join(
    page.read_text(encoding="utf-8")
    for page in (ROOT / "docs" / "strategies.md", *sorted((ROOT / "docs/strategies").glob("*.md")))
)
PARTS = ("What it does", "When it pays", "Cost", "Example", "Options", "Known limits", "Source")
CLASSES = [
    value for name in strategies.__all__ if isinstance(value := vars(strategies)[name], type)
]
NODES = [value for value in CLASSES if issubclass(value, Node)]


def _section(title: str) -> str:
    return STRATEGIES.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_of_a_page_are_true(page: str) -> None:
    """Run from top to bottom, as a reader would."""
    test = doctest.DocTestParser().get_doctest(EXAMPLES[page], {}, page, None, 0)
    told: list[str] = []

    result = doctest.DocTestRunner(verbose=False).run(test, out=told.append)

    assert "".join(told) == ""
    assert result.attempted > 2


def test_the_pages_with_examples_are_found() -> None:
    """Those of strategies and verifiers at least."""
    assert {"docs/strategies.md", "docs/verifiers.md"} <= set(EXAMPLES)


@pytest.mark.parametrize("page", PAGES[:-1], ids=lambda page: page.name)
def test_every_page_is_linked_from_above(page: Path) -> None:
    """From the README, or from the strategies' page: whoever starts there finds it."""
    above = "strategies.md" if page.parent.name == "strategies" else "../README.md"
    text = (ROOT / "docs" / above).read_text(encoding="utf-8")

    assert f"]({page.parent.name}/{page.name})" in text


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.__name__)
def test_every_node_has_a_section_in_the_fixed_order(node: type[Node]) -> None:
    """Whoever knows one section knows them all."""
    assert re.findall(r"^\*\*(.+?)\.\*\*", _section(node.__name__), re.MULTILINE) == list(PARTS)


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.__name__)
def test_every_option_of_a_node_is_explained(node: type[Node]) -> None:
    """By its name."""
    options = _section(node.__name__).partition("**Options.**")[2].partition("**Known limits.**")[0]
    assert is_dataclass(node)

    assert [f.name for f in fields(node) if f"`{f.name}`" not in options] == []


@pytest.mark.parametrize("name", names("verifiers"))
def test_every_verifier_has_a_row(name: str) -> None:
    """With its name in the text form."""
    page = (ROOT / "docs" / "verifiers.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]

    assert any(f"`{name}`" in row or f"`{name}(" in row for row in rows)


def test_every_stop_rule_is_explained() -> None:
    """In the section that they share, or on their page."""
    rules = [value for value in CLASSES if issubclass(value, Rule)]
    pages = _section("Stop rules") + (ROOT / "docs" / "stopping.md").read_text(encoding="utf-8")

    assert [rule.__name__ for rule in rules if f"`{rule.__name__}" not in pages] == []


def test_every_strategy_on_a_command_line_is_valid() -> None:
    """What the pages tell to type works, sweeps and names of strategies included."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    typed = re.findall(r'(?:ttc graph|--strategy) "([^"]+)"', text)

    assert len(typed) >= 2
    assert all(arms_of([strategy]) for strategy in typed)


def test_every_check_of_the_kit_is_explained() -> None:
    """In the order in which they run."""
    page = (ROOT / "docs" / "own.md").read_text(encoding="utf-8")

    assert tuple(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE)) == CHECK_NAMES


def test_every_node_has_a_row_in_the_table_of_all() -> None:
    """With its name in the text form, what it takes and gives, its calls and what it needs."""
    rows = [line for line in STRATEGIES.splitlines() if line.startswith("| ")]

    for node in NODES:
        found = [row for row in rows if row.startswith(f"| [{node.__name__}](")]
        assert any(row.count("|") == 6 for row in found), node.__name__
