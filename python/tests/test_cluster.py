"""Work in pieces: results as files, on threads and on a cluster's workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyvta
from pyvta import _store

pytest.importorskip("pandas")


def computed(folder: Path) -> list[str]:
    """Keys of the results that were computed, in order."""
    log = folder / "computed.log"
    return [line.split()[3] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_store_gives_whole_results_only(tmp_path: Path) -> None:
    store = _store.Store(tmp_path / "results")
    name = _store.key("test", {"a": 1})
    assert len(name) == 64 and name != _store.key("test", {"a": 2}) != _store.key("other", {"a": 2})
    assert store.get(name) is None
    store.put(name, {"cycles": 3})
    store.put(name, {"cycles": 3}, computed=False)
    assert store.get(name) == {"cycles": 3}
    assert computed(store.folder) == [name]
    [file] = [path for path in store.folder.rglob("*.json")]
    for torn in (b"", b'{"cycles": ', b"[1]", b"\xff"):
        file.write_bytes(torn)
        assert store.get(name) is None
    assert [path.name for path in store.folder.rglob(".*")] == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(pyvta.FileError, match="file"):
        _store.Store(file / "below")


def test_tuning_in_pieces_is_what_the_command_line_tunes(tmp_path: Path, client: Any) -> None:
    cache = tmp_path / "cache"
    small = {"LOG_WGT_BUFF_SIZE": 15}
    tuned = pyvta.cluster.tune("demo", config=small, candidates=3, cache=cache)
    assert tuned.cycles <= tuned.untuned_cycles
    assert tuned.measured == len(computed(cache)) > 2
    # Everything is known now, by a client, too.
    again = pyvta.cluster.tune("demo", config=small, candidates=3, cache=cache, client=client)
    assert again.measured == 0 and again.text == tuned.text
    elsewhere = pyvta.cluster.tune(
        "demo", config=small, candidates=3, cache=tmp_path / "other", client=client
    )
    assert elsewhere.text == tuned.text and elsewhere.measured == tuned.measured
    # And it is what a session takes.
    tuned.save(tmp_path / "tiles.json")
    assert json.loads((tmp_path / "tiles.json").read_text())["machines"]
    session = pyvta.InferenceSession("demo", config=small, tiles=tmp_path / "tiles.json")
    assert session.get_inputs()[0].name == "input"
    with pytest.raises(pyvta.UsageError, match="candidates"):
        pyvta.cluster.tune("demo", candidates=0, cache=False)
    with pytest.raises(pyvta.FileError, match="nowhere"):
        tuned.save(tmp_path / "nowhere" / "tiles.json")


def test_an_evaluation_counts_what_a_session_gives(tmp_path: Path, client: Any) -> None:
    rng = np.random.default_rng(1)
    images = rng.normal(size=(37, 3, 32, 32)).astype(np.float32)
    [logits] = pyvta.InferenceSession("demo").run(None, {"input": images})
    right = logits.argmax(axis=1)
    labels = right.copy()
    labels[:5] = (labels[:5] + 1) % 10
    seen: list[tuple[int, int]] = []
    told = lambda done, all: seen.append((done, all))  # noqa: E731
    cache = tmp_path / "cache"
    found = pyvta.cluster.evaluate("demo", (images, labels), shard=8, cache=cache, progress=told)
    assert (found.predictions == right).all()
    assert (found.images, found.correct, found.accuracy) == (37, 32, 32 / 37)
    assert seen[0] == (0, 5) and seen[-1] == (5, 5)
    np.savez(tmp_path / "set.npz", images=images, labels=labels)
    # A client shares the shards that are there; other shards it runs.
    shared = pyvta.cluster.evaluate(
        "demo", tmp_path / "set.npz", shard=8, cache=cache, client=client
    )
    assert (shared.predictions == right).all() and len(computed(cache)) == 5
    cut = pyvta.cluster.evaluate("demo", (images, labels), shard=10, cache=cache, client=client)
    assert (cut.predictions == right).all() and len(computed(cache)) == 9
    assert "32 of 37" in repr(cut)


def test_a_shard_that_fails_is_told_and_the_others_count(tmp_path: Path, client: Any) -> None:
    images = np.zeros((6, 3, 32, 32), np.float32)
    images[3] = np.nan
    labels = np.zeros(6, np.int64)
    found = pyvta.cluster.evaluate("demo", (images, labels), shard=2, cache=False, client=client)
    assert list(found.errors) == [2] and "InputError" in found.errors[2]
    assert found.images == 4 and (found.predictions[2:4] == -1).all()
    with pytest.raises(pyvta.InputError):
        pyvta.cluster.evaluate("demo", (images, labels), shard=2, cache=False)


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        ((np.zeros((2, 3, 32, 32)), np.zeros(3, int)), "2 images, but 3 labels"),
        ((np.zeros((2, 3, 32, 32)), np.zeros(2)), "whole numbers"),
        ((np.zeros(1),), "not 1 arrays"),
    ],
)
def test_data_sets_that_are_none_are_refused(dataset: Any, text: str) -> None:
    with pytest.raises(pyvta.InputError, match=text):
        pyvta.cluster.evaluate("demo", dataset, cache=False)


def test_files_that_are_no_data_sets_are_named(tmp_path: Path) -> None:
    with pytest.raises(pyvta.FileError, match="missing"):
        pyvta.cluster.evaluate("demo", tmp_path / "missing.npz", cache=False)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(pyvta.InputError, match="images"):
        pyvta.cluster.evaluate("demo", tmp_path / "other.npz", cache=False)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(pyvta.InputError, match="text"):
        pyvta.cluster.evaluate("demo", tmp_path / "text.npz", cache=False)
