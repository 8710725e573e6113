"""Models of the hub: pulled whole, gone on with after an interruption, found by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.fake_hub import FakeHub, hub_  # noqa: F401 - a fixture
from ttc.engine.local.hub.models import find, hub_folder, pull
from ttc.engine.local.hub.repository import HubId, choose
from ttc.errors import ModelFileError

WEIGHTS = bytes(range(256)) * 1_200
SMALL = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{ }",
    "tokenizer.json": b"{}" * 900,
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "README.md": b"---\nlicense: mit\n---\n",
}
UNWANTED = {
    ".gitattributes": b"*",
    "pytorch_model.bin": b"pickle",
    "consolidated.safetensors": b"the same again",
    "onnx/model.onnx": b"onnx",
    "modeling.py": b"raise SystemExit",
}
SPLIT = {f"Q8/big-0000{i}-of-00003.gguf": WEIGHTS[i:] for i in (1, 2, 3)}
GGUF = {"small-q4.gguf": WEIGHTS, "small-q8.gguf": WEIGHTS[1:], **SPLIT}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_folder_is_pulled_with_what_the_model_needs(hub: FakeHub) -> None:
    """Byte for byte, and nothing else is asked for, or left."""
    wanted = {**SMALL, "model.safetensors": WEIGHTS}
    hub.add("org/toy", wanted | UNWANTED)

    path = pull("org/toy")

    assert path == find("org/toy") == find("org/toy@main")
    assert contents(path) == wanted
    assert sorted(hub.files_asked()) == sorted(wanted)
    assert list((hub_folder() / "org--toy" / ".parts").iterdir()) == []


def test_sharded_weights_come_with_their_index(hub: FakeHub) -> None:
    """All of them."""
    shards = {f"model-0000{i}-of-00002.safetensors": WEIGHTS[i:] for i in (1, 2)}
    wanted = {**SMALL, **shards, "model.safetensors.index.json": b"{}"}
    hub.add("org/toy", wanted | UNWANTED)

    assert contents(pull("org/toy")) == wanted


def test_progress_grows_and_ends_at_the_whole(hub: FakeHub) -> None:
    """In bytes, over all files together."""
    wanted = {**SMALL, "model.safetensors": WEIGHTS}
    hub.add("org/toy", wanted)
    told: list[tuple[str, int, int | None]] = []

    pull("org/toy", lambda *progress: told.append(progress))

    total = sum(map(len, wanted.values()))
    assert told[-1] == ("download", total, total)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert {(stage, whole) for stage, _, whole in told} == {("download", total)}


@pytest.mark.parametrize(
    "name", ["small-q8.gguf", "Q8/big-00001-of-00003.gguf", "big-00002-of-00003.gguf"]
)
def test_one_gguf_file_of_several_is_chosen_by_name(hub: FakeHub, name: str) -> None:
    """By its path or its name alone, and of a split one by any part; all parts come."""
    hub.add("org/toy", GGUF | SMALL)
    wanted = SPLIT if "big" in name else {"small-q8.gguf": GGUF["small-q8.gguf"]}

    path = pull(f"org/toy:{name}")

    assert path == find(f"org/toy:{name}") == find("org/toy")
    assert path.name == min(wanted).rpartition("/")[2]
    assert hub.files_asked() == sorted(wanted)
    assert contents(hub_folder() / "org--toy" / path.relative_to(hub_folder()).parts[1]) == wanted


def test_several_gguf_files_must_be_chosen_from(hub: FakeHub) -> None:
    """The message lists them, and how one is chosen; of a split one the first part."""
    hub.add("org/toy", GGUF)
    listed = r"as in `ttc pull org/toy:Q8/big-00001-of-00003\.gguf`, of Q8/big.*small-q4.*small-q8"

    with pytest.raises(ModelFileError, match=rf"org/toy holds 3 GGUF files; .*{listed}"):
        pull("org/toy")
    with pytest.raises(ModelFileError, match=rf"holds no file 'other\.gguf'; .*{listed}"):
        pull("org/toy:other.gguf")
    assert hub.files_asked() == []


def test_the_only_gguf_file_needs_no_name(hub: FakeHub) -> None:
    """Whatever else lies beside it."""
    hub.add("org/toy", {"only.gguf": WEIGHTS} | SMALL | UNWANTED)

    assert pull("org/toy").read_bytes() == WEIGHTS
    assert hub.files_asked() == ["only.gguf"]


def test_two_pulled_files_of_a_repository_must_be_told_apart(hub: FakeHub) -> None:
    """Each by its name; both stay."""
    hub.add("org/toy", GGUF)
    first, second = pull("org/toy:small-q4.gguf"), pull("org/toy:small-q8.gguf")

    assert (find("org/toy:small-q4.gguf"), find("org/toy:small-q8.gguf")) == (first, second)
    with pytest.raises(ModelFileError, match=r"one of org/toy:small-q4\.gguf, org/toy:small-q8"):
        find("org/toy")


def test_a_cut_connection_is_gone_on_with(hub: FakeHub) -> None:
    """From the byte that was reached, as long as something comes."""
    hub.add("org/toy", {"only.gguf": WEIGHTS})
    hub.cuts["only.gguf"] = [100_000, 0, 50_000]

    assert pull("org/toy").read_bytes() == WEIGHTS
    ranges = [seen.range for seen in hub.seen if seen.path == "only.gguf"]
    assert ranges == [None, "bytes=100000-", "bytes=100000-", "bytes=150000-"]
    assert hub.sent["only.gguf"] == len(WEIGHTS)


def test_a_pull_that_was_interrupted_is_gone_on_with_by_the_next(hub: FakeHub) -> None:
    """The model is not there in between."""
    hub.add("org/toy", {**SMALL, "model.safetensors": WEIGHTS})

    def interrupt(stage: str, done: int, total: int | None) -> None:
        if done > 150_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("org/toy", interrupt)
    with pytest.raises(ModelFileError, match="neither a path, nor pulled"):
        find("org/toy")
    before = len(hub.seen)

    assert (pull("org/toy") / "model.safetensors").read_bytes() == WEIGHTS
    (again,) = (seen for seen in hub.seen[before:] if not seen.path.startswith("/api/"))
    assert again.path == "model.safetensors"
    assert again.range is not None
    assert 100_000 < int(again.range.removeprefix("bytes=").rstrip("-")) < len(WEIGHTS)


def test_a_hub_without_ranges_sends_all_again(hub: FakeHub) -> None:
    """Nothing is put together wrongly."""
    hub.add("org/toy", {"only.gguf": WEIGHTS})
    hub.has_ranges = False
    hub.cuts["only.gguf"] = [100_000]

    assert pull("org/toy").read_bytes() == WEIGHTS


def test_a_second_pull_asks_for_no_file(hub: FakeHub) -> None:
    """And gives the same path."""
    hub.add("org/toy", {**SMALL, "model.safetensors": WEIGHTS})
    path = pull("org/toy")
    hub.seen.clear()

    assert pull("org/toy") == path
    assert hub.files_asked() == []


def test_what_has_changed_is_pulled_and_the_rest_is_kept(hub: FakeHub) -> None:
    """The old commit goes, since nothing names it."""
    hub.add("org/toy", {**SMALL, "model.safetensors": WEIGHTS})
    old = pull("org/toy")
    hub.seen.clear()
    hub.add("org/toy", {**SMALL, "model.safetensors": WEIGHTS, "README.md": b"new"})

    new = pull("org/toy")

    assert new == find("org/toy") != old
    assert hub.files_asked() == ["README.md"]
    assert (new / "model.safetensors").read_bytes() == WEIGHTS
    assert not old.exists()


def test_a_revision_is_pulled_and_found_by_its_name(hub: FakeHub) -> None:
    """A branch, a tag or a commit; without one `main` is meant."""
    hub.add("org/toy", {"only.gguf": WEIGHTS})
    commit = hub.add("org/toy", {"only.gguf": WEIGHTS[1:]}, "refs/pr/1")
    main, other = pull("org/toy"), pull("org/toy@refs/pr/1:only.gguf")

    assert other.read_bytes() == WEIGHTS[1:]
    assert (
        other == find("org/toy@refs/pr/1") == find(f"org/toy@{commit}") == pull(f"org/toy@{commit}")
    )
    assert main == find("org/toy") == find("org/toy:only.gguf")


def test_pulls_at_the_same_time_share_one_download(hub: FakeHub) -> None:
    """The later ones wait, and find it in place."""
    hub.add("org/toy", {"only.gguf": WEIGHTS})
    paths: list[Path] = []
    workers = [threading.Thread(target=lambda: paths.append(pull("org/toy"))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert paths == [find("org/toy")] * 3
    assert hub.sent["only.gguf"] == len(WEIGHTS)


def test_a_damaged_record_is_mended_by_the_next_pull(hub: FakeHub) -> None:
    """Until then the model is not there."""
    hub.add("org/toy", {"only.gguf": WEIGHTS})
    path = pull("org/toy")
    (record,) = (hub_folder() / "org--toy").glob("*.json")
    record.write_text("{")

    with pytest.raises(ModelFileError, match="nor pulled"):
        find("org/toy")
    assert pull("org/toy") == find("org/toy") == path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("org/name", ("org/name", None, None)),
        ("Org_1/na-me.1", ("Org_1/na-me.1", None, None)),
        ("org/name@v1", ("org/name", "v1", None)),
        ("org/name:a/b-1.gguf", ("org/name", None, "a/b-1.gguf")),
        ("org/name@refs/pr/1:b.gguf", ("org/name", "refs/pr/1", "b.gguf")),
        *((text, None) for text in ("name", "a/b/c", "../b", "a/..", "a--b/c", "a/b:c", "a/b@")),
        *(
            (text, None)
            for text in ("/a/b", "a/b.gguf", "a/" + "b" * 95, "a/b@v 1", "a/b:\n.gguf", "")
        ),
    ],
)
def test_an_id_is_read_strictly(text: str, parts: tuple[str | None, ...] | None) -> None:
    """What is none may be a path."""
    found = HubId.parse(text)

    assert (found and (found.repo, found.revision, found.file)) == parts
    assert found is None or str(found) == text


@pytest.fixture
def choice() -> Callable[..., list[str]]:
    """Chooses out of names."""
    return lambda *names: choose(HubId(repo="org/toy"), names)


def test_a_split_file_that_lacks_a_part_is_refused(choice: Callable[..., list[str]]) -> None:
    """Before anything is fetched."""
    with pytest.raises(ModelFileError, match=r"lacks a-00002-of-00002\.gguf"):
        choice("a-00001-of-00002.gguf")


@pytest.mark.parametrize(
    "name",
    [
        *("../evil.gguf", "a/../../evil.gguf", "/etc/evil.gguf", "a//evil.gguf", "./evil.gguf"),
        *("C:/evil.gguf", "C:evil.gguf", "..\\evil.gguf", "\\\\host\\evil.gguf", "a\x1b.gguf"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(hub: FakeHub, tmp_path: Path, name: str) -> None:
    """On every system, and nothing is fetched or written."""
    hub.add("org/toy", {name: WEIGHTS})

    with pytest.raises(ModelFileError, match="could lead anywhere"):
        pull("org/toy")
    assert hub.files_asked() == []
    assert not (tmp_path / "home").exists()
