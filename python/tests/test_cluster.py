"""Work in pieces: results as files, on threads and on a cluster's workers."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyvta
from pyvta import _source, _store, _sweep

from conftest import ROOT, missing


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
    whole = file.read_bytes()
    for torn in (b"", b'{"cycles": ', b"[1]", b"\xff", b'{"cycles":3}', whole.replace(b"3", b"7", 1)):
        assert torn != whole
        file.write_bytes(torn)
        with pytest.warns(pyvta.VtaWarning, match=f"{name}.json: not as it was written"):
            assert store.get(name) is None
        assert not store.has(name)
    # Under the name of another result it isn't that one's.
    target = store._path(_store.key("test", {"a": 2}))
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(whole)
    with pytest.warns(pyvta.VtaWarning, match="not as it was written"):
        assert store.get(_store.key("test", {"a": 2})) is None
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

    expected = pd.read_csv(table).drop(columns=["sweep", "check"])
    found = pyvta.sweep("resnet18.C11", AXES, cache=tmp_path / "cache")
    assert list(found.columns) == list(expected.columns)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert found["error"].notna().sum() == 3


def test_axes_may_be_switches_and_names(tmp_path: Path, vta: Any) -> None:
    pd = needed("pandas")
    axes = {"EXTENSIONS": ["none", "REQUANT+MOV"], "preset": ["own", "de10"], "store_ahead": [False, True]}
    vary = ["--vary=EXTENSIONS=none,REQUANT+MOV", "--vary=preset=own,de10", "--vary=store_ahead=false,true"]
    vta("sweep", "resnet18.C11", *vary, "-o", tmp_path / "table.csv")
    expected = pd.read_csv(tmp_path / "table.csv").drop(columns=["sweep", "check"])
    found = pyvta.sweep("resnet18.C11", axes, cache=False)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert found["store_ahead"].tolist() == [False, True] * 4 and found["cycles"].nunique() > 4
    with pytest.raises(pyvta.UsageError, match="there is no pac; there are pynq, de10, own"):
        pyvta.sweep("resnet18.C11", {"preset": ["pac"]}, cache=False)


def test_an_exploration_is_that_of_the_command_line(tmp_path: Path, vta: Any, client: Any) -> None:
    layers = ["conv:1,16,7,7,32,3,1,1", "gemm:8,16,16"]
    told: list[tuple[int, int]] = []
    found = pyvta.explore(
        layers, area=2.2, points=24, cache=tmp_path / "here", progress=lambda *at: told.append(at)
    )
    assert told[-1][0] == told[-1][1] == 48 and told == sorted(told)
    walk = ["--area=2.2", "--points=24", "--json", "-o", tmp_path / "t.csv"]
    front = json.loads(vta("explore", *layers, *walk))["front"]
    expected = [row.pop("point") | row for row in front]
    assert found.to_dict("records") == expected
    there = pyvta.cluster.explore(layers, area=2.2, points=24, cache=tmp_path / "there", client=client)
    assert there.equals(found)
    # What is there isn't computed again, and another seed finds other machines.
    count = len(computed(tmp_path / "there"))
    again = pyvta.explore(layers, area=2.2, points=24, cache=tmp_path / "there", threads=1)
    assert again.equals(found) and len(computed(tmp_path / "there")) == count
    with pytest.raises(pyvta.UsageError, match="`area` 0.01: no machine that was tried is so small"):
        pyvta.explore("gemm:8,16,16", area=0.01, cache=False)
    with pytest.raises(pyvta.UsageError, match="`objective` speed: there are cycles, energy"):
        pyvta.explore("gemm:8,16,16", objective="speed", cache=False)


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
        _sweep.Point(board, at, {"LOG_BLOCK": str(config), "tags": str(at)})
        for board in (0, 1)
        for config in range(configs)
        for at in range(each)
    ]
    pieces = _sweep.pieces(points, list(range(len(points))), 64, workers)
    assert [at for piece in pieces for at in piece] == list(range(len(points)))
    for piece in pieces:
        assert 1 <= len(piece) <= max(1, min(64, len(points) // (5 * workers)))
        assert len({points[at].board for at in piece}) == 1
    # A configuration begins within a piece only where it ends there, too.
    for piece in pieces:
        found = [points[at].values["LOG_BLOCK"] for at in piece]
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
        while len(computed(cache)) < points:
            assert running.poll() is None, "the sweep has ended"
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


def other_build(folder: Path) -> dict[str, str]:
    """The environment of a process that has a package of other code, whose sweeps take 7 cycles."""
    package = Path(pyvta.__file__).parent
    shutil.copytree(package, folder / "pyvta", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for compiled in package.glob("*.so"):
        (folder / "pyvta" / compiled.name).symlink_to(compiled.resolve())
    code = folder / "pyvta/_sweep.py"
    text = code.read_text()
    measured = "return _opened(specs[board]).measure(index)"
    assert text.count(measured) == 1
    code.write_text(text.replace(measured, measured + " | {'cycles': 7}"))
    return os.environ | {"PYTHONPATH": str(folder)}


def run_in(environment: dict[str, str], script: str, *arguments: Path) -> str:
    """What a script prints in such a process."""
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    folder = environment["PYTHONPATH"]
    done = subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@contextlib.contextmanager
def worker_of(environment: dict[str, str], address: str) -> Iterator[None]:
    arguments = ["-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    folder = environment["PYTHONPATH"]
    process = subprocess.Popen([sys.executable, *arguments], env=environment, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def test_workers_of_another_build_are_refused(tmp_path: Path) -> None:
    distributed = needed("distributed")
    environment = other_build(tmp_path / "other")
    theirs, ours = run_in(environment, "from pyvta import _store; print(_store.build())"), _store.build()
    assert theirs != ours and theirs.split("-")[0] == ours.split("-")[0] == pyvta.__version__
    axes: dict[str, list[float]] = {"bus_bytes": [8, 16]}
    cache = tmp_path / "cache"
    text = re.escape(f"has another build of pyvta ({theirs}) than the client ({ours})")

    def refused(client: Any) -> None:
        with pytest.raises(pyvta.UsageError, match=rf"worker tcp://\S+ {text}"):
            pyvta.sweep("resnet18.C2", axes, client=client, cache=cache)

    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
        ThreadPoolExecutor() as pool,
    ):
        # The worker comes when the sweep waits for one already, and then it is there from the start.
        waiting = pool.submit(refused, client)
        with worker_of(environment, cluster.scheduler_address):
            waiting.result(timeout=240)
            refused(client)
            with pytest.raises(pyvta.UsageError, match=text):
                pyvta.cluster.tune("resnet18.C2", client=client, cache=cache)
            with pytest.raises(pyvta.UsageError, match=text):
                pyvta.cluster.evaluate("demo", (np.zeros((1, 3, 32, 32)), [0]), client=client, cache=cache)
    assert computed(cache) == []
    # A process of that build keeps its results apart.
    script = "import sys, pyvta; pyvta.sweep('resnet18.C2', {'bus_bytes': [8, 16]}, cache=sys.argv[1])"
    run_in(environment, script, cache)
    assert len(computed(cache)) == 2
    found = pyvta.sweep("resnet18.C2", axes, cache=cache)
    assert len(computed(cache)) == 4
    assert found.equals(pyvta.sweep("resnet18.C2", axes, cache=False)) and (found["cycles"] > 7).all()


def test_workers_that_know_nothing_of_builds_are_refused(tmp_path: Path) -> None:
    distributed = needed("distributed")
    environment = other_build(tmp_path)
    code = tmp_path / "pyvta/_store.py"
    code.write_text(code.read_text().replace("def build(", "def version("))
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
        worker_of(environment, cluster.scheduler_address),
    ):
        client.wait_for_workers(1)
        with pytest.raises(pyvta.UsageError, match=r"another build of pyvta \(.*AttributeError.*build"):
            pyvta.sweep("resnet18.C2", {}, client=client, cache=False)


def test_code_that_was_replaced_under_a_process_is_named(tmp_path: Path) -> None:
    environment = other_build(tmp_path)
    script = """
        import pathlib, pyvta
        from pyvta import _store
        path = pathlib.Path(_store.__file__).with_name("_tune.py")
        path.write_text(path.read_text() + "# another build")
        try:
            _store.build()
        except pyvta.FileError as error:
            print(error)
    """
    assert "_tune.py: it was replaced after this process loaded it" in run_in(environment, script)


def test_options_that_are_files_count_by_their_content(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where workers aren't.
    monkeypatch.chdir(tmp_path)
    pair = np.random.default_rng(2).normal(size=(4, 3, 32, 32)).astype(np.float32), [0, 1, 2, 3]
    file = Path("c.json")
    for given in (client, None):
        file.write_text('{"LOG_BLOCK": 4}')
        found = pyvta.cluster.evaluate("demo", pair, config="c.json", client=given, cache="cache")
        assert found.images == 4 and not found.errors
        file.write_text('{"LOG_BLOCK": 99}')
        with pytest.raises(pyvta.InputError, match="LOG_BLOCK is 99"):
            pyvta.cluster.evaluate("demo", pair, config="c.json", client=given, cache="cache")
        with pytest.raises(pyvta.InputError, match="LOG_BLOCK is 99"):
            pyvta.sweep("resnet18.C2", {}, config=file, client=given, cache="cache")
    file.write_text('{"LOG_ACC_BUFF_SIZE": 15}')
    own = {"LOG_ACC_BUFF_SIZE": np.int64(15)}
    Path("b.toml").write_text('preset = "pac"\n')
    table = pyvta.sweep("resnet18.C2", {}, config="c.json", boards=["b.toml"], client=client, cache=False)
    assert table["cycles"].equals(pyvta.sweep("resnet18.C2", {}, config=own, boards=["pac"], cache=False)["cycles"])
    tuned = pyvta.cluster.tune("resnet18.C2", config="c.json", candidates=2, client=client, cache=False)
    assert tuned.text == pyvta.cluster.tune("resnet18.C2", config=own, candidates=2, cache=False).text
    for name in ("config", "placement", "tiles"):
        with pytest.raises(pyvta.FileError, match="nowhere.x"):
            pyvta.cluster.evaluate("demo", pair, client=client, cache=False, **{name: "nowhere.x"})


def test_weights_beside_a_model_belong_to_it(tmp_path: Path, tiny: Any) -> None:
    onnx = needed("onnx")
    path = tmp_path / "m.onnx"
    (tmp_path / "weights").mkdir()
    model = onnx.load_from_string(tiny.to_onnx())
    onnx.save(model, path, save_as_external_data=True, location="weights/w.bin", size_threshold=16)
    (tmp_path / "other.bin").write_bytes(b"location")
    source = _source.Source.of_model(path)
    assert [name for name, _ in source.files] == ["m.onnx", "weights/w.bin"]
    # Where the file isn't any more it is the same network.
    expected = pyvta.sweep(tiny, {}, cache=False)
    path.rename(tmp_path / "n.onnx")
    place = tmp_path / "place"
    place.mkdir()
    assert pyvta.sweep(source.path(lambda: place), {}, cache=False).equals(expected)
    (tmp_path / "weights/w.bin").write_bytes(source.files[1][1][::-1])
    assert _source.Source.of_model(tmp_path / "n.onnx").facts[2] != source.facts[2]


def test_what_quantize_gives_and_protos_are_models(tiny: Any, client: Any) -> None:
    onnx = needed("onnx")
    proto = onnx.load_from_string(tiny.to_onnx())
    axes: dict[str, list[float]] = {"bus_bytes": [8, 16]}
    expected = pyvta.sweep(tiny.to_onnx(), axes, cache=False)
    assert expected["error"].isna().all()
    for model in (tiny, proto):
        assert pyvta.sweep(model, axes, cache=False).equals(expected)
        tuned = pyvta.cluster.tune(model, candidates=2, cache=False)
        assert tuned.text == pyvta.cluster.tune(tiny.to_onnx(), candidates=2, client=client, cache=False).text
    for wrong in (None, 3, [3], pyvta.Layer("a", (4, 4))):
        with pytest.raises(TypeError, match="a model is|layers are"):
            pyvta.sweep(wrong, cache=False)


def test_numbers_of_numpy_are_numbers(client: Any) -> None:
    one = pyvta.sweep(
        "resnet18.C2",
        {"clock_mhz": np.linspace(100, 200, 2), "LOG_ACC_BUFF_SIZE": np.arange(16, 18), "tags": (np.uint8(4),)},
        config={"LOG_BLOCK": np.int64(4)},
        cache=False,
    )
    axes: dict[str, list[float]] = {"clock_mhz": [100.0, 200.0], "LOG_ACC_BUFF_SIZE": [16, 17], "tags": [4]}
    assert one.equals(pyvta.sweep("resnet18.C2", axes, client=client, cache=False))
    # Cycles are those of any clock, the time isn't.
    np.testing.assert_allclose(one["pass_ms"], one["cycles"] / one["clock_mhz"] / 1e3)
    assert one["cycles"][0] == one["cycles"][2] and one["pass_ms"][0] == 2 * one["pass_ms"][2]
    size: Any = np.int64(4)
    layer = pyvta.Layer("a", (size, 4), channels=size * 4, filters=size * 4)
    assert pyvta.sweep([layer], client=client)["macs"][0] == 16 * 16 * 16
    assert pyvta.sweep("gemm:8,16,16", "tags=1,2", cache=False).equals(
        pyvta.sweep("gemm:8,16,16", {"tags": [1, 2]}, cache=False)
    )
    some: dict[str, Any] = {"candidates": np.int8(2), "threads": np.int64(1)}
    assert pyvta.cluster.tune("resnet18.C2", cache=False, **some).measured == 1
    pair = np.zeros((1, 3, 32, 32)), [0]
    found = pyvta.cluster.evaluate("demo", pair, config={"LOG_BLOCK": size}, threads=size, shard=size, cache=False)
    assert found.images == 1


def test_boards_of_other_clocks_have_their_time(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('preset = "pynq"\nclock_mhz = 250.0\n')
    table = pyvta.sweep("resnet18.C2", boards=["pynq", own], cache=False)
    assert table["cycles"][0] == table["cycles"][1]
    assert table["pass_ms"][0] / table["pass_ms"][1] == pytest.approx(2.5)


def test_whole_numbers_stay_whole_beside_an_error() -> None:
    good = pyvta.sweep("resnet18.C2", {"bus_bytes": [8]}, cache=False)
    assert str(good["cycles"].dtype) == str(good["macs"].dtype) == "int64"
    table = pyvta.sweep("resnet18.C2", {"bus_bytes": [8, 12]}, cache=False)
    for name in ("cycles", "images", "bound_cycles", "macs", "dram_bytes"):
        assert str(table[name].dtype) == "Int64"
        assert table[name][0] == good[name][0] and table[name].isna()[1]
    assert table["pass_ms"].dtype == table["energy_uj"].dtype == np.float64
    assert f",{good['cycles'][0]}," in table.to_csv()
    failed = pyvta.sweep("resnet18.C2", {"LOG_BLOCK": [-1, 99]}, cache=False)
    assert failed["cycles"].isna().all() and "LOG_BLOCK=-1: not a whole number" in failed["error"][0]


def test_arguments_that_make_no_sense_are_named() -> None:
    pair = np.zeros((1, 3, 32, 32)), [0]
    calls: dict[str, Any] = {
        "sweep": lambda **given: pyvta.sweep("resnet18.C2", {}, cache=False, **given),
        "tune": lambda **given: pyvta.cluster.tune("resnet18.C2", cache=False, **given),
        "evaluate": lambda **given: pyvta.cluster.evaluate("demo", pair, cache=False, **given),
    }
    for call in calls.values():
        with pytest.raises(TypeError, match="`client` is a distributed.Client.*, not 3"):
            call(client=3)
        with pytest.raises(pyvta.UsageError, match="`threads` .*-1"):
            call(threads=-1)
        with pytest.raises(TypeError, match="`config` is a path"):
            call(config=3)
    with pytest.raises(pyvta.UsageError, match="`candidates` must be at least 1, not -1"):
        calls["tune"](candidates=-1)
    with pytest.raises(TypeError, match="`shard` is a whole number, not 1.5"):
        calls["evaluate"](shard=1.5)
    with pytest.raises(pyvta.UsageError, match="`timing_only` computes no outputs"):
        calls["evaluate"](device="cycle", timing_only=True)
    values: Any
    for values, text in [(4, "4 is no sequence"), ([None], "None is no number"), (np.array(4), "no sequence")]:
        with pytest.raises(pyvta.UsageError, match=text):
            pyvta.sweep("resnet18.C2", {"LOG_BLOCK": values}, cache=False)
    with pytest.raises(pyvta.InputError, match="layer 'a': input is .*-1"):
        pyvta.sweep([pyvta.Layer("a", (-1, 4))], cache=False)


def test_an_error_of_the_model_is_raised_on_a_cluster_too(float_model: Path, client: Any) -> None:
    pair = np.zeros((4, 3, 32, 32), np.float32), [0, 1, 2, 3]
    with pytest.raises(pyvta.FloatModelError, match="resnet20_f32"):
        pyvta.cluster.evaluate(float_model, pair, shard=1, client=client, cache=False)
    with pytest.raises(TypeError, match="devise"):
        pyvta.cluster.evaluate("demo", pair, shard=1, client=client, cache=False, devise="sim")


def test_a_worker_that_cannot_write_computes_all_the_same(tmp_path: Path) -> None:
    distributed = needed("distributed")

    def no_files() -> None:
        import resource

        # Whatever this process writes to a file is refused by the system, whoever runs it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    cache, axes = tmp_path / "cache", {"bus_bytes": [8, 16, 32]}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(no_files)
        with pytest.warns(pyvta.VtaWarning, match="a worker can't write it") as warned:
            found = pyvta.sweep("resnet18.C2", axes, client=client, cache=cache)
            end = time.monotonic() + 60
            while not warned and time.monotonic() < end:
                time.sleep(0.01)
        assert found["error"].isna().all() and len(warned) == 1
    # The client has kept them.
    seen: list[int] = []
    again = pyvta.sweep("resnet18.C2", axes, cache=cache, progress=lambda done, all: seen.append(done))
    assert again.equals(found) and seen == [3]
    assert found.equals(pyvta.sweep("resnet18.C2", axes, cache=False))


def test_pixels_are_preprocessed_as_the_model_says(client: Any) -> None:
    file = ROOT / "models/demo/cifar10_test200.npz"
    with np.load(file) as opened:
        data = dict(opened)
    mean = np.array([0.4914, 0.4822, 0.4465], np.float32)[:, None, None]
    std = np.array([0.2470, 0.2435, 0.2616], np.float32)[:, None, None]
    pixels = data["images"]
    assert pixels.dtype == np.uint8
    real = (pixels.astype(np.float32) * np.float32(1 / 255) - mean) / std
    expected = pyvta.cluster.evaluate("demo", (real, data["labels"]), cache=False)
    assert expected.accuracy > 0.85
    found = pyvta.cluster.evaluate("demo", file, client=client, cache=False)
    assert (found.predictions == expected.predictions).all()
    session = pyvta.InferenceSession("demo")
    np.testing.assert_array_equal(session.preprocess(pixels), real)
    np.testing.assert_array_equal(session.preprocess(pixels[:1], "raw"), pixels[:1])
    # Pictures of another size are fitted to the network's.
    assert session.preprocess(np.repeat(pixels[:2], 2, axis=3)).shape == (2, 3, 32, 32)
    for wrong in (pixels[0], pixels.astype(np.float32), pixels[:, :, :0]):
        with pytest.raises(pyvta.InputError, match="pictures|pixels"):
            session.preprocess(wrong)
    with pytest.raises(pyvta.InputError, match="0 to 255"):
        pyvta.cluster.evaluate("demo", (data["images"].astype(int) + 1, data["labels"]), cache=False)
    with pytest.raises(pyvta.UsageError, match="`preprocess`"):
        pyvta.cluster.evaluate("demo", (real, data["labels"]), preprocess="raw", cache=False)
