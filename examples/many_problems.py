"""A cascade over many problems: a few samples where they agree, more where they do not.

One budget is for all problems together, and no outcome depends on the other problems.
"""

import ttc
from ttc.ports import Request
from ttc.strategies import Cascade, Sample, Vote
from ttc.testing import FakeEngine

QUESTIONS = ["What is 2 + 2?", "What is 17 * 23?", "What is 3 + 5?"]


def reply(request: Request) -> str:
    """The sums are easy; of the product's answers every fourth one is wrong."""
    question = request.branch.text
    if "17 * 23" not in question:
        return "It is 4." if "2 + 2" in question else "It is 8."
    return "It is 401." if request.seed % 4 == 0 else "It is 391."


def main() -> None:
    """Prints what each problem came to, and what it cost."""
    few = Sample(n=3, max_tokens=16) >> Vote()
    many = Sample(n=12, max_tokens=16) >> Vote()
    strategy = Cascade(few, many, accept=ttc.confidence(0.9))

    outcomes = ttc.solve_many(
        QUESTIONS, strategy, model=FakeEngine(reply), budget=ttc.Budget(tokens=1_500), seed=0
    )

    for question, outcome in zip(QUESTIONS, outcomes, strict=True):
        cost = f"{outcome.usage.calls} calls, {outcome.stopped_by}"
        print(f"{question} {outcome.answer} ({outcome.confidence:.2f}; {cost})")
    print(f"{sum(outcome.usage.tokens for outcome in outcomes)} tokens")


if __name__ == "__main__":
    main()
