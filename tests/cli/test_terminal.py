"""What the commands say reaches the terminal as text and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ttc.cli.terminal import bars, complain, note, say, show, status, table

HOSTILE = "a\x1b[2J\x07\x9b31mb"


@pytest.mark.parametrize(
    "tell",
    [
        say,
        note,
        complain,
        lambda text: show(table((text, "b"), [("1", text)])),
    ],
    ids=["say", "note", "complain", "show"],
)
def test_no_text_steers_the_terminal(
    tell: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A name in a file is as much of others' making as what a model writes."""
    tell(HOSTILE)

    said = "".join(capsys.readouterr())
    assert not set(said) & set("\x1b\x07\x9b")
    assert "a\N{REPLACEMENT CHARACTER}[2J" in said


@pytest.mark.parametrize("text", ["[red]a", "[/b] a"])
def test_a_heading_in_brackets_is_no_style(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown as it is."""
    show(table((text, "b"), [("1", "2")]))

    assert capsys.readouterr().out.startswith(text)


def test_progress_of_a_stage_in_brackets_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not end the command."""
    monkeypatch.setattr("ttc.cli.terminal.is_live", lambda: True)

    with bars() as update:
        update("[/b] fetching", 1, 2)
    with status("[/b] reading") as tell:
        tell("[/b] done")
