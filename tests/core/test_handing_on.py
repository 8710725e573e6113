"""What a scope hands on and takes several times, and what it asks for only where it is wanted."""

from collections.abc import AsyncGenerator

import pytest

from tests.core.lab import uneven
from tests.core.test_nodes import run
from ttc import Candidate
from ttc.ports import Bid, Scope
from ttc.types import Branch, Chunk


def test_pieces_of_a_call_can_be_handed_on_as_they_come() -> None:
    """Who pulls is then given the last one, with the branch, and nothing is handed on after it."""
    handed: list[Chunk] = []
    pulled: list[Chunk] = []

    async def reads(root: Candidate, scope: Scope) -> Branch | None:
        chunks = scope.stream(root.branch, index=0, max_tokens=50)
        chunks.hand_to(handed.append)
        pulled.extend([chunk async for chunk in chunks])
        stopped = scope.stream(root.branch, index=1, max_tokens=50)
        stopped.hand_to(handed.append)
        stopped.stop()
        return pulled[-1].branch

    run(reads, script="one two three four", pace=uneven(1))

    assert "".join(chunk.text for chunk in handed) == "one two three four"
    assert [chunk.text for chunk in pulled] == [""]


@pytest.mark.parametrize("ahead", [None, 1, 2, 9])
def test_an_item_can_be_taken_several_times(ahead: int | None) -> None:
    """The next one is pulled after the last time; indices go on."""
    taken: list[tuple[int, int]] = []
    pulled: list[int] = []

    async def three_times(root: Candidate, scope: Scope) -> None:
        async def items() -> AsyncGenerator[int, None]:
            for item in range(2):
                pulled.append(len(taken))
                yield item

        async def take(item: int, index: int) -> int:
            taken.append((item, index))
            return index

        given = [index async for index in scope.map(take, items(), ahead=ahead, each=3)]
        assert given == [0, 1, 2, 3, 4, 5]

    run(three_times)

    assert taken == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
    assert pulled == [0, 3]


def test_a_bid_is_reckoned_only_where_somebody_bids() -> None:
    asked: list[None] = []

    async def offers(root: Candidate, scope: Scope) -> None:
        def bid() -> Bid:
            asked.append(None)
            return 0.5, 1.0, None

        scope.offer(bid)

    run(offers)

    assert asked == []
