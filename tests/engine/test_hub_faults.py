"""What a hub can do wrong: one sentence each, and nothing is left half done."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fake_hub import FakeHub, Refusal, hub_  # noqa: F401 - a fixture
from ttc.engine.local.hub.models import find, pull
from ttc.errors import ModelFileError

TOKEN = "hf_secret"
WEIGHTS = bytes(range(256)) * 1_200


@pytest.fixture(name="toy")
def toy_(hub: FakeHub) -> FakeHub:
    """A hub with one model."""
    hub.add("org/toy", {"only.gguf": WEIGHTS})
    return hub


def check_absent() -> None:
    """No model is found."""
    with pytest.raises(ModelFileError, match="neither a path, nor pulled; none has been pulled"):
        find("org/toy")


@pytest.mark.parametrize(
    ("refusal", "token", "message"),
    [
        (Refusal(401), None, r"no repository 'org/toy' \(401\); .* set HF_TOKEN"),
        (Refusal(401), TOKEN, r"refuses org/toy to this HF_TOKEN \(401\)"),
        (Refusal(401, "RepoNotFound"), None, r"no repository 'org/toy' \(401\)"),
        (Refusal(403), TOKEN, r"refuses org/toy to this HF_TOKEN \(403\)"),
        (Refusal(404, "RepoNotFound"), None, r"no repository 'org/toy' \(404\); check the spell"),
        (Refusal(403, "GatedRepo"), None, r"org/toy is gated: accept its conditions .* HF_TOKEN"),
        (Refusal(429), None, r"answers 429 for org/toy; pull again later"),
        (Refusal(503), None, r"answers 503 for org/toy; pull again later"),
    ],
)
def test_a_refusal_says_what_to_do(
    toy: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
    token: str | None,
    message: str,
) -> None:
    """Of the repository or of a file alone; a token is never told."""
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    for refused in ("org/toy", "only.gguf"):
        toy.refusals = {refused: refusal}
        with pytest.raises(ModelFileError, match=message) as caught:
            pull("org/toy")
        assert TOKEN not in str(caught.value)
        assert toy.address not in str(caught.value)
    check_absent()


def test_a_token_is_sent_with_every_request(toy: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that holds now, not at import."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    pull("org/toy")

    assert [seen.token for seen in toy.seen] == [f"Bearer {TOKEN}"] * 2


def test_nothing_is_sent_that_is_not_needed(toy: FakeHub) -> None:
    """One request for the list of files and one for each of them, without a token."""
    pull("org/toy")

    assert [(seen.path, seen.token) for seen in toy.seen] == [
        ("/api/models/org/toy/revision/main", None),
        ("only.gguf", None),
    ]


def test_an_unknown_revision_is_told(toy: FakeHub) -> None:
    """By its name."""
    with pytest.raises(ModelFileError, match="org/toy has no revision 'v9'; name a branch, a tag"):
        pull("org/toy@v9")


def test_no_network_is_one_sentence(toy: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to check."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(ModelFileError, match=r"cannot be reached \(Connect.*HF_ENDPOINT"):
        pull("org/toy")
    assert toy.seen == []


def test_a_connection_that_stays_cut_ends_the_pull(toy: FakeHub) -> None:
    """After a few tries without a byte; the next pull goes on."""
    toy.cuts["only.gguf"] = [10_000, *[0] * 9]

    with pytest.raises(ModelFileError, match=r"cannot be reached .* then pull again to go on"):
        pull("org/toy")
    assert len(toy.files_asked()) == 5
    check_absent()
    toy.cuts.clear()
    pull("org/toy")
    assert toy.sent["only.gguf"] == len(WEIGHTS)


@pytest.mark.parametrize("variable", ["TTC_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_nothing_is_asked_and_what_is_there_is_given(
    toy: FakeHub, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """The message names the setting."""
    path = pull("org/toy")
    toy.seen.clear()
    monkeypatch.setenv(variable, "1")

    assert pull("org/toy") == find("org/toy") == path
    with pytest.raises(ModelFileError, match=rf"org/other .* offline \(environment {variable}\)"):
        pull("org/other")
    with pytest.raises(ModelFileError, match=rf"smollm2-135m .*\(environment {variable}\)"):
        pull("smollm2-135m")
    assert toy.seen == []


def test_a_library_that_was_told_to_stay_offline_is_named(
    toy: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads its setting when it is imported."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(ModelFileError, match="told to stay offline; unset HF_HUB_OFFLINE"):
        pull("org/toy")
    assert toy.seen == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"pytorch_model.bin": b""}, r"as pickles alone \(pytorch_model\.bin\)"),
        ({"model.safetensors": b""}, r"holds no config\.json"),
        ({}, r"holds neither a GGUF file nor model\.safetensors"),
    ],
)
def test_a_repository_without_usable_weights_is_refused(
    hub: FakeHub,
    files: dict[str, bytes],
    message: str,
) -> None:
    """Without a request for any file."""
    config = {} if "model.safetensors" in files else {"config.json": b"{}"}
    hub.add("org/toy", config | files)

    with pytest.raises(ModelFileError, match=message):
        pull("org/toy")
    assert hub.files_asked() == []


@pytest.mark.parametrize("name", ["only.gguf", "config.json"])
def test_content_that_is_not_what_was_promised_is_refused(
    hub: FakeHub,
    name: str,
) -> None:
    """Large files by their SHA-256, small ones by git's digest; nothing of it is kept."""
    files = (
        {"only.gguf": WEIGHTS}
        if name == "only.gguf"
        else {"config.json": b"{}", "model.safetensors": b"w"}
    )
    commit = hub.add("org/toy", files)
    promised = hub.info("org/toy", "main")
    hub.info = lambda repo, revision: promised  # type: ignore[method-assign]
    hub.revisions["org/toy", commit][name] = bytes(len(files[name]))

    with pytest.raises(ModelFileError, match=f"{name} of org/toy came damaged; pull it again"):
        pull("org/toy")
    check_absent()


@pytest.mark.parametrize(
    ("lies", "message"),
    [
        ({"size": 10}, r"only\.gguf is longer than the hub says"),
        ({"size": None}, "does not tell size and digest"),
        ({"lfs": {"sha256": "../x", "size": 1, "pointerSize": 1}}, "does not tell size and digest"),
        ({"lfs": None, "blobId": None}, "does not tell size and digest"),
        ({"rfilename": None}, "is no model"),
        ({"lfs": [1]}, "cannot be understood"),
    ],
)
def test_a_hub_that_lies_is_refused(toy: FakeHub, lies: dict[str, Any], message: str) -> None:
    """Nothing that it says is believed."""
    toy.lies = lies

    with pytest.raises(ModelFileError, match=message):
        pull("org/toy")
    check_absent()


def test_a_full_disk_is_told_before_anything_is_fetched(
    toy: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both sizes."""
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)

    with pytest.raises(ModelFileError, match=r"307,200 bytes .* 1,000 are free .* TTC_HOME"):
        pull("org/toy")
    assert toy.files_asked() == []


def test_a_disk_that_fills_up_leaves_no_model(
    toy: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the system's."""

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr("ttc.engine.local.hub.client.place", full)

    with pytest.raises(OSError, match="No space left"):
        pull("org/toy")
    check_absent()
