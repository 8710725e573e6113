"""Answers: how one is read out of a text, and when two of them are the same.

`extract_answer` reads a model's text and `answer_key` groups what it found. Both read only: nothing
that a model wrote is ever evaluated, and the work is linear in the length of the text.
"""

from ttc.answers.extraction import extract_answer
from ttc.answers.keys import answer_key

__all__ = ["answer_key", "extract_answer"]
