from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.bench import Bench, as_nobody, interpreter_of_nobody, prepare_refusal, spawning
from ttc.errors import SandboxError

if sys.platform != "linux":
    pytest.skip("the jail needs Linux", allow_module_level=True)


def _bench(**changes: Any) -> Iterator[Bench]:
    bench = Bench(popen=spawning(**changes))
    try:
        bench.run(bench.sandbox.ready())
        yield bench
    except SandboxError as error:
        pytest.skip(f"no jail holds here: {error}")
    finally:
        bench.close()


def _user(name: str) -> dict[str, Any]:
    if name == "root":
        if os.geteuid() != 0:
            pytest.skip("these tests do not run as root")
        return {}
    return {**as_nobody(), "python": interpreter_of_nobody()}


@pytest.fixture(scope="module", params=["root", "user"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A sandbox at the best level, whose zygote runs as root, and as an ordinary user."""
    yield from _bench(**_user(request.param))


@pytest.fixture(scope="module")
def full(bench: Bench) -> Bench:
    """As `bench`, at level full."""
    if bench.run(bench.sandbox.ready()).level != "full":
        pytest.skip("this machine refuses namespaces, so level full cannot be tested")
    return bench


@pytest.fixture(scope="module", params=["root", "user"])
def restricted(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A sandbox where namespaces are refused."""
    yield from _bench(preexec_fn=prepare_refusal, **_user(request.param))
