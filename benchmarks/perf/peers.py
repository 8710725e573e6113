"""The searches of treequest and its_hub on the fake model, for `policies.py`.

It runs in an environment of its own that has both packages, and imports nothing of ttc. `_inplace`
is treequest without the copy of its state that it makes of itself before each step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import time
from typing import Any

from fake_tree import KINDS, FakeTree, Key

PARTICLES, STEPS, ENDED = 16, 8, "<end>"


def treequest_search(
    name: str, nodes: int, seed: int, kind: str, until_solved: bool
) -> dict[str, Any]:
    """Steps of one of treequest's algorithms; a step is an ask, a draw and a tell."""
    import numpy
    import treequest

    random.seed(seed)
    numpy.random.seed(seed)  # noqa: NPY002 - they draw from the global generators
    algorithm = treequest.StandardMCTS() if "mcts" in name else treequest.ABMCTSA()
    tree, drawing = FakeTree(seed, kind), 0

    def draw(parent: Key | None) -> tuple[Key, float]:
        nonlocal drawing
        start = time.thread_time_ns()
        key = tree.child(parent or ())
        drawing = time.thread_time_ns() - start
        return key, told(tree, key)

    state, steps = algorithm.init_tree(), []
    for _ in range(nodes):
        start = time.thread_time_ns()
        state = algorithm.step(state, {"draw": draw}, inplace=name.endswith("_inplace"))
        steps.append(time.thread_time_ns() - start - drawing)
        if until_solved and tree.solved_after:
            break
    return {"asks": steps, "tells": [], "solved_after": tree.solved_after}


def told(tree: FakeTree, key: Key) -> float:
    """The score of a node; the middle where there is none, since both need one."""
    score = tree.score(key)
    return 0.5 if score is None else score


def its_hub_search(
    name: str, nodes: int, seed: int, kind: str, until_solved: bool
) -> dict[str, Any]:
    """Particle filters one after the other, until so many steps have been drawn."""
    from its_hub.api import AbstractLanguageModel, AbstractProcessRewardModel
    from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
    from its_hub.core.lms.step_generation import StepGeneration

    tree = FakeTree(seed, kind)
    keys: dict[str, Key] = {"": ()}
    drawing = 0

    def draw(text: str) -> str:
        nonlocal drawing
        start = time.thread_time_ns()
        key = tree.child(keys[text])
        step = f"step {key[-1]}{ENDED if tree.has_ended(key) else ''}"
        keys[f"{text}\n{step}" if text else step] = key
        drawing += time.thread_time_ns() - start
        return step

    class Model(AbstractLanguageModel):  # type: ignore[misc]
        async def agenerate(self, messages: Any, stop: Any = None, **options: Any) -> Any:
            def one(conversation: Any) -> dict[str, str]:
                last = conversation[-1]
                text = last.content if last.role == "assistant" else ""
                return {"role": "assistant", "content": draw(text.strip())}

            if messages and isinstance(messages[0], list):
                return [one(conversation) for conversation in messages]
            return one(messages)

    class Rewards(AbstractProcessRewardModel):  # type: ignore[misc]
        async def ascore(self, prompt: Any, steps: Any, **options: Any) -> Any:
            many = isinstance(steps, list) and (not steps or isinstance(steps[0], str))
            texts = steps if many else [steps]
            scores = [told(tree, keys[text.strip()]) for text in texts]
            return scores if many else scores[0]

        def score(self, prompt: Any, steps: Any, **options: Any) -> Any:
            raise NotImplementedError

    random.seed(seed)
    model, rewards = Model(), Rewards()
    start = time.thread_time_ns()
    while tree.num_drawn < nodes and not (until_solved and tree.solved_after):
        stepping = StepGeneration(step_token="\n", max_steps=STEPS, stop_token=ENDED)
        asyncio.run(ParticleFiltering(stepping, rewards).ainfer(model, "problem", PARTICLES))
    took = time.thread_time_ns() - start - drawing
    return {"asks": [took], "tells": [], "solved_after": tree.solved_after}


def main() -> None:
    """Prints what one search took, or how many draws some problems took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--seeds", type=int)
    arguments = parser.parse_args()
    search = its_hub_search if arguments.one.startswith("its_hub") else treequest_search
    if arguments.seeds:
        solved = {
            kind: [
                search(arguments.one, arguments.nodes, seed, kind, True)["solved_after"]
                for seed in range(arguments.seeds)
            ]
            for kind in KINDS
        }
        print(json.dumps({"solved_after": solved}))
        return
    search(arguments.one, 20, 0, "plain", False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    run = search(arguments.one, arguments.nodes, 0, "plain", False)
    run["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    print(json.dumps(run))


if __name__ == "__main__":
    main()
