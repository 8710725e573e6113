from __future__ import annotations

import pytest

from ttc.sandbox.extraction import Completion, extract_program

PROMPT = (
    'from typing import List\ndef twice(xs: List[int]) -> List[int]:\n    """Double each item."""\n'
)
BODY = "    return [2*x for x in xs]"
FENCED = "```python\ndef twice(xs):\n    return [2*x for x in xs]\n```"
INDENTED = "\n".join("    " + line for line in FENCED.splitlines())


def twice(text: str, prompt: str = PROMPT) -> object:
    program = extract_program(Completion(text=text, prompt=prompt, entry_point="twice"))
    names: dict[str, object] = {}
    exec(program + "\nassert List\nresult = twice([1, 3])", names)
    return names["result"]


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        FENCED,
        f"Here it is:\n{INDENTED}\nUse it so:\n```python\nprint(twice([1]))\n```\n",
        "    return double(xs)\n\ndef double(xs):\n    return [2*x for x in xs]\n",
        "    # note\n    if False:\n        print('x')\n    return [2*x for x in xs]\n",
        BODY + "\n\nThis doubles each item, since it's what was asked.\n",
        BODY + "\n```\nDone.",
        f"```\n{PROMPT}{BODY}\n```",
        f"```python\n{BODY}\n```",
        FENCED.removesuffix("\n```"),
        "```python\ndef double(x):\n    return 2*x\n```\nand\n"
        "```python\ndef twice(xs):\n    return [double(x) for x in xs]\n```",
        "def twice(xs):\n    return [2*x for x in xs]\n\nAs simple as that.",
        "~~~py\ndef twice(xs):\n    return [2*x for x in xs]\n~~~",
    ],
)
def test_prompt_fence_and_completion_make_a_program(text: str) -> None:
    """SB-13 (a) to (e), and more of the kind."""
    assert twice(text) == [2, 6]


def test_the_last_definition_of_several_counts() -> None:
    first = "```python\ndef twice(xs):\n    return xs\n```"
    assert twice(f"{first}\nNo, rather:\n{FENCED}") == [2, 6]


@pytest.mark.parametrize("text", ["return [2*x for x in xs]", "I do not know.", ""])
def test_what_is_no_body_is_not_made_one(text: str) -> None:
    """SB-13 (f): nothing is indented anew."""
    with pytest.raises((SyntaxError, AssertionError)):
        assert twice(text) == [2, 6]


def test_a_script_is_its_last_block_or_the_whole_text() -> None:
    script = "```python\nprint(int(input()) * 2)\n```"
    assert extract_program(Completion(text=f"So:\n{script}")) == "print(int(input()) * 2)\n"
    assert extract_program(Completion(text="print(1)")) == "print(1)"
    other = "```text\nnot code\n```"
    assert extract_program(Completion(text=f"{script}\n{other}")) == "print(int(input()) * 2)\n"
