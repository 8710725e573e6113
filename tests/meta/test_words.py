"""What is written: sources, and nothing that only makes sense on one machine."""

import ast
import re
from pathlib import Path

import pytest

from tests.meta.tree import ROOT, Source, library

NO_ALGORITHM = {
    "ttc.strategies": "it lists names",
    "ttc.strategies.calls": "it makes the calls of those that cite",
    "ttc.strategies.greedy": "the baseline has no inventor",
    "ttc.strategies.agent": "it lists names",
    "ttc.strategies.agent.trajectory": "it keeps count for the agent that cites",
    "ttc.strategies.named": "it names graphs",
    "ttc.strategies.stopping_limits": "they compare what was spent with a limit",
    "ttc.strategies.tally": "it counts votes for the rules that cite",
    "ttc.strategies.tree": "it lists names",
    "ttc.strategies.tree.layers": "it draws layers for the searches that cite",
    "ttc.strategies.tree.nodes": "it counts for the searches that cite",
    "ttc.strategies.tree.open_nodes": "it counts for the searches that cite",
    "ttc.strategies.tree.policy": "it says what a search is",
    "ttc.strategies.tree.search": "it is what is around a policy",
    "ttc.strategies.verify": "it lets a verifier score",
    "ttc.verifiers": "it lists names",
    "ttc.verifiers.endpoint": "it asks a service of the user's",
    "ttc.verifiers.recorded": "it gives back what another verifier said",
}
"""Modules of strategies and verifiers that need no source, each with its reason."""

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
]
FOLDER = re.compile(r"(?<![\w.~/-])/(root|home|work|tmp|Users|opt|mnt|data|srv)(/|\b)|\b[A-Z]:\\\\")
HOSTS = re.compile(
    r"pypi\.org|pythonhosted|download\.pytorch|npmjs|huggingface\.co|anaconda|ghcr\.io|docker\.io"
)


def _algorithms() -> list[Source]:
    return [source for source in library() if source.room in ("strategies", "verifiers")]


def test_every_algorithm_cites_its_source() -> None:
    """An arXiv number, or names and a year."""
    cites = re.compile(r"Source:.*?(arXiv:? ?\d{4}\.\d{4,5}|\b(19|20)\d\d\b)", re.DOTALL)
    uncited = {s.module for s in _algorithms() if not cites.search(s.docstrings)}

    assert sorted(uncited - set(NO_ALGORITHM)) == []
    assert sorted(set(NO_ALGORITHM) - uncited) == [], "take these off the list"


def test_the_library_prints_nothing() -> None:
    """It logs; only the command line talks, and through its console."""
    prints = [
        f"{source.path}:{node.lineno}"
        for source in library()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]

    assert prints == []


def test_whoever_logs_does_so_by_a_safe_logger() -> None:
    """Texts of others forge no line; the server's own lines are JSON, without any text."""
    own = {"ttc.safe_text", "ttc.serve.logs", "ttc.cli.serve", "ttc.benchmarks.perf.soak"}
    loggers = [
        f"{source.path}:{node.lineno}"
        for source in library()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger")
        if source.module not in own
    ]

    assert loggers == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_no_folder_of_one_machine_and_no_registry(page: Path) -> None:
    """Whoever reads it has another machine."""
    text = page.read_text(encoding="utf-8")

    assert [match.group() for match in FOLDER.finditer(text)] == []
    assert [match.group() for match in HOSTS.finditer(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """Links into the repository are relative, and what they name exists."""
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]

    assert [link for link in local if not (page.parent / link).exists()] == []
