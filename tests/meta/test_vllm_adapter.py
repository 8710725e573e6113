"""The vLLM adapter is the one that has kept the contract on vLLM itself."""

from __future__ import annotations

import json

from tests.vllm.recorded import RECORD, sources


def test_the_adapter_has_passed_its_tests_as_it_is() -> None:
    """They need vLLM, which no gate installs: who changes the adapter runs `make test-vllm`."""
    passed = json.loads(RECORD.read_text(encoding="utf-8"))
    now = sources()
    changed = [path for path in now if passed["sources"].get(path) != now[path]]

    assert changed == [], "run `make test-vllm VLLM_MODEL=PATH`, and commit tests/vllm/passed.json"
    assert now.keys() == passed["sources"].keys()
    assert passed["tests"] > 0
