"""Answers: how one is read out of a text, what kind it is of, and when two of them are the same.

`extract_answer` reads a model's text, `answer_key` groups what it found, and `compare` decides more
than keys can. All of them read only: nothing that a model wrote is ever evaluated, and the work is
bounded by the length of the text.
"""

from ttc.answers.classes import Classes
from ttc.answers.equality import Rules, Verdict, compare
from ttc.answers.extraction import extract_answer
from ttc.answers.keys import answer_key
from ttc.answers.kinds import Answer
from ttc.answers.parser import parse_answer

__all__ = [
    "Answer",
    "Classes",
    "Rules",
    "Verdict",
    "answer_key",
    "compare",
    "extract_answer",
    "parse_answer",
]
