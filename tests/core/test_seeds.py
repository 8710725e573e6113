"""Seeds of calls: a hash of what they are, which recorded runs and caches rest on."""

import hashlib
import json

from hypothesis import given
from hypothesis import strategies as st

from ttc.journal import derive_seed


@given(st.integers(), st.text(), st.integers() | st.text())
def test_a_seed_is_a_hash_of_run_path_and_index_as_json(
    run: int, path: str, index: int | str
) -> None:
    """However they are spelled: with quotes, line ends, or letters of any script."""
    text = json.dumps([run, path, index]).encode()
    whole = hashlib.blake2b(text, digest_size=8).digest()

    assert derive_seed(run, path, index) == int.from_bytes(whole, "big")
