"""A vote that ends early, within a budget, and the trace of what it spent.

The model is a fake one, so this needs no weights and prints the same everywhere. For a real model
run `ttc pull smollm2-135m` once and pass `model="smollm2-135m"`.
"""

import ttc
from ttc.strategies import CannotBeOvertaken, Sample, Vote
from ttc.testing import FakeEngine

QUESTION = "A farmer has 17 pens with 23 sheep each. How many sheep are there?"


def main() -> None:
    """Asks for up to eight answers, and for no more once the vote is decided."""
    model = FakeEngine(["That makes 391.", "17 * 23 = 391, so 391.", "The answer is 401."])
    strategy = Sample(n=8, max_tokens=32, ahead=1) >> Vote(stop=CannotBeOvertaken())
    budget = ttc.Budget(tokens=100, calls=8)

    outcome = ttc.solve(QUESTION, strategy, model=model, budget=budget, seed=1)

    print(f"answer: {outcome.answer} (confidence {outcome.confidence:.2f})")
    print(f"stopped by: {outcome.stopped_by}")
    for record in outcome.trace:
        print(f"  {record.path}#{record.index} {record.kind}: {record.usage.tokens} tokens")
    print(f"{outcome.usage.tokens} tokens of {budget.tokens}, {outcome.usage.calls} calls of 8")


if __name__ == "__main__":
    main()
