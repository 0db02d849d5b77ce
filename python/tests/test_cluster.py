"""Work in pieces: results as files, on threads and on a cluster's workers."""

from __future__ import annotations

import importlib
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
from pyvta import _store, _sweep

from conftest import missing


def needed(module: str) -> Any:
    """A package of tests, without which they fail in CI."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return missing(f"{module} is missing: pip install pyvta[cluster]")


def computed(folder: Path) -> list[str]:
    """Keys of the results that were computed, in order."""
    log = folder / "computed.log"
    return [line.split()[3] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = needed("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
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
    # A worker compiles with the threads that it has, not with all of the machine's.
    took = client.run(lambda: os.environ.get("RAYON_NUM_THREADS"))
    assert "1" in took.values() and set(took.values()) <= {"1", None}
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


# Two axes of the configuration, one of which has a value that no machine has, and one of the timing.
AXES: dict[str, list[float]] = {"LOG_ACC_BUFF_SIZE": [16, 17, 40], "memory_latency_cycles": [10, 50, 100]}


def test_a_sweep_is_the_table_of_the_command_line(tmp_path: Path, vta: Any) -> None:
    table = tmp_path / "table.csv"
    vary = [f"--vary={key}={','.join(map(str, values))}" for key, values in AXES.items()]
    # A point without a result is a failure there.
    with pytest.raises(subprocess.CalledProcessError) as failed:
        vta("sweep", "resnet18.C11", *vary, "-o", table)
    assert failed.value.returncode == 1
    import pandas as pd

    expected = pd.read_csv(table).drop(columns="sweep")
    found = pyvta.sweep("resnet18.C11", AXES, cache=tmp_path / "cache")
    assert list(found.columns) == list(expected.columns)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert found["error"].notna().sum() == 3


def test_what_is_there_is_not_computed_again(tmp_path: Path, client: Any) -> None:
    cache = tmp_path / "cache"
    seen: list[tuple[int, int]] = []
    told = lambda done, all: seen.append((done, all))  # noqa: E731
    first = pyvta.sweep("resnet18.C11", AXES, cache=cache, progress=told, threads=1)
    assert seen[0] == (0, 9) and seen[-1] == (9, 9) and len(computed(cache)) == 9
    again = pyvta.cluster.sweep("resnet18.C11", AXES, cache=cache, client=client)
    assert again.equals(first) and len(computed(cache)) == 9
    # More values of an axis, in another order: only those are new.
    more = {"memory_latency_cycles": [100, 10, 400], "LOG_ACC_BUFF_SIZE": [17, 16]}
    wider = pyvta.cluster.sweep("resnet18.C11", more, cache=cache, client=client)
    keys = computed(cache)
    assert len(keys) == len(set(keys)) == 9 + 2 and len(wider) == 6
    at = (wider["memory_latency_cycles"] == 10) & (wider["LOG_ACC_BUFF_SIZE"] == 16)
    assert wider[at]["cycles"].item() == first["cycles"][0]
    # Another configuration is another sweep.
    other = pyvta.sweep("resnet18.C11", AXES, config={"LOG_BLOCK": 5}, cache=cache)
    assert len(computed(cache)) == 11 + 9 and not other.equals(first)


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("configs, each", [(20, 10), (1, 200), (200, 1), (3, 7)])
def test_pieces_have_every_point_once_and_few_configurations(workers: int, configs: int, each: int) -> None:
    points = [
        _sweep._Point(board, at, {"LOG_BLOCK": str(config), "tags": str(at)}, "")
        for board in (0, 1)
        for config in range(configs)
        for at in range(each)
    ]
    pieces = list(_sweep._pieces(points, 64, workers))
    assert [point for piece in pieces for point in piece] == points
    for piece in pieces:
        assert 1 <= len(piece) <= max(1, min(64, len(points) // (5 * workers)))
        assert len({point.board for point in piece}) == 1
    # A configuration begins within a piece only where it ends there, too.
    for piece in pieces:
        found = [point.values["LOG_BLOCK"] for point in piece]
        for config in set(found[1:]) - {found[0]}:
            assert found.count(config) == each


def test_boards_are_an_axis(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('preset = "pac"\nmemory_latency_cycles = 400\n')
    boards = ["pynq", "pac", own]
    found = pyvta.sweep("resnet18.C2", {"queue_depth": [64, 512]}, boards=boards, cache=False)
    assert list(found["board"]) == ["pynq", "pynq", "pac", "pac", str(own), str(own)]
    assert found["error"].isna().all() and len(set(found["cycles"])) >= 3
    own.write_text("memory_latency = 400\n")
    with pytest.raises(pyvta.InputError, match=f"{own}: .*memory_latency"):
        pyvta.sweep("resnet18.C2", {}, boards=[own], cache=False)


def test_layers_of_a_table_are_measured_by_themselves(tmp_path: Path, vta: Any, client: Any) -> None:
    file = tmp_path / "topology.csv"
    file.write_text(
        "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"
        "Conv1, 16, 18, 3, 3, 16, 32, 1,\nConv2_DP, 8, 8, 3, 2, 16, 1, 3,\nConv1, 4, 4, 1, 1, 32, 16, 2,\n"
    )
    layers = pyvta.layers(file)
    assert [layer.name for layer in layers] == ["Conv1", "Conv2_DP", "Conv1#2"]
    assert layers[1] == pyvta.Layer("Conv2_DP", (8, 8), (3, 2), 16, 1, 3, depthwise=True)
    assert [layer.output for layer in layers] == [(14, 16), (3, 3), (3, 3)]
    layers.append(pyvta.Layer.gemm("product", 10, 40, 48))
    axes: dict[str, list[float]] = {"LOG_BLOCK": [4, 5], "bus_bytes": [8, 16]}
    done: list[int] = []
    table = pyvta.sweep(
        layers, axes, cache=tmp_path / "one", progress=lambda at, all: done.append(at)
    )
    assert list(table.columns[:3]) == ["layer", "LOG_BLOCK", "bus_bytes"] and done[-1] == 16
    assert list(table["layer"]) == [layer.name for layer in layers for _ in range(4)]
    assert [int(m) for m in table["macs"][::4]] == [layer.macs for layer in layers]
    assert table["error"].isna().all()
    # Whatever computes them, and whatever table they are in.
    there = pyvta.sweep(layers, axes, cache=tmp_path / "two", client=client)
    assert there.equals(table)
    done.clear()
    pyvta.sweep(layers[2:], axes, cache=tmp_path / "two", progress=lambda at, all: done.append(at))
    assert done == [8]
    # Without axes: the command line's table.
    vta("sweep", "--layers", file, "-o", tmp_path / "t.csv")
    rows = (tmp_path / "t.csv").read_text().splitlines()
    assert rows[0].startswith("layer,cycles,")
    whole = pyvta.sweep(layers[:3], cache=False)
    assert [row.split(",")[1] for row in rows[1:]] == [str(c) for c in whole["cycles"]]


def test_tables_of_layers_that_are_none_are_named(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    with pytest.raises(pyvta.FileError, match="t.csv"):
        pyvta.layers(file)
    file.write_text("Layer,M,N,K,\nq,1,2,\n")
    with pytest.raises(pyvta.InputError, match="t.csv:2: '' is no whole number"):
        pyvta.layers(file)
    for layer, text in [
        (pyvta.Layer("a,b", (1, 1)), "layer 'a,b': a name has 1 to 200"),
        (pyvta.Layer("a", (1, 1), (2, 1)), "layer 'a': a filter of 2x1 on an input of 1x1"),
        (pyvta.Layer("a", (1, 0)), "layer 'a': input columns: 0, not from 1 to 268435456"),
    ]:
        with pytest.raises(pyvta.InputError, match=text):
            pyvta.sweep([layer], cache=False)
    # What is too large is a row.
    large = [pyvta.Layer.gemm("large", 70_000, 1, 70_000), pyvta.Layer.gemm("small", 1, 16, 16)]
    table = pyvta.sweep(large, cache=False)
    assert "'large': the input has more than" in table["error"][0] and table["cycles"][1] > 0
    with pytest.raises(pyvta.InputError, match="there are no layers"):
        pyvta.sweep([], cache=False)


def test_axes_and_models_that_are_none_are_named() -> None:
    with pytest.raises(pyvta.UsageError, match="LOG_BLOK"):
        pyvta.sweep("demo", {"LOG_BLOK": [3]}, cache=False)
    with pytest.raises(pyvta.VtaError, match="nothing.onnx"):
        pyvta.sweep("nothing.onnx", {}, cache=False)
    with pytest.raises(pyvta.UsageError, match="boards"):
        pyvta.sweep("demo", {}, boards=["pynq"], timing="de10", cache=False)
    with pytest.raises(pyvta.UsageError, match="threads"):
        pyvta.sweep("demo", {}, threads=0, cache=False)


SWEEP = """
    import sys
    import pyvta
    from distributed import Client

    axes = {"LOG_ACC_BUFF_SIZE": [15, 16, 17], "LOG_WGT_BUFF_SIZE": [16, 17, 18], "memory_latency_cycles": [10, 50]}
    with Client(sys.argv[1]) as client:
        frame = pyvta.cluster.sweep("zoo:resnet18", axes, client=client, cache=sys.argv[2])
    frame.to_csv(sys.argv[3], index=False)
"""


def test_killed_workers_and_clients_lose_only_what_is_in_flight(tmp_path: Path) -> None:
    distributed = needed("distributed")
    script = tmp_path / "sweep.py"
    script.write_text(textwrap.dedent(SWEEP))
    cache = tmp_path / "cache"

    def start(cluster: Any, out: str) -> subprocess.Popen[bytes]:
        address = cluster.scheduler_address
        arguments = [sys.executable, str(script), address, str(cache), str(tmp_path / out)]
        return subprocess.Popen(arguments)

    def wait_for(points: int) -> None:
        end = time.monotonic() + 120
        while len(computed(cache)) < points:
            assert time.monotonic() < end, "no result in two minutes"
            time.sleep(0.01)

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        running = start(cluster, "a.csv")
        # A worker dies, and then the client.
        wait_for(2)
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        wait_for(6)
        running.kill()
        running.wait()
        assert not (tmp_path / "a.csv").exists()
        again = start(cluster, "b.csv")
        assert again.wait(timeout=240) == 0
    keys = computed(cache)
    # Nothing that was finished was computed again.
    assert len(keys) == len(set(keys)) == 18
    alone = pyvta.sweep(
        "zoo:resnet18",
        {"LOG_ACC_BUFF_SIZE": [15, 16, 17], "LOG_WGT_BUFF_SIZE": [16, 17, 18], "memory_latency_cycles": [10, 50]},
        cache=False,
    )
    assert (tmp_path / "b.csv").read_text() == alone.to_csv(index=False)


def test_the_page_about_clusters_says_what_works(tmp_path: Path) -> None:
    needed("distributed")
    page = (Path(__file__).parents[2] / "docs/cluster.md").read_text()
    script = tmp_path / "page.py"
    # Every block but the one for a cluster's queue, which isn't there.
    blocks = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    script.write_text(next(block for block in blocks if "LocalCluster" in block))
    environment = os.environ | {"PYVTA_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert len(computed(tmp_path / "cache")) == 6 and "6 of 6" in done.stderr
    assert done.stdout.count("\n") == 7
