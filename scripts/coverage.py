"""Quantises networks by `vta` and by onnxruntime and compares both with float, output by output; see scripts/coverage.

The networks are those of coverage_rule.py, or with --small those of coverage_small.py. Of each, an exporter writes a
folder with `model.onnx` and its samples.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import queue
import signal
import sys
import time
from pathlib import Path

import numpy as np

import coverage_page
from compared import Given, command, cosines, one_thread, ours, quantize, reference, session

# onnxruntime's int8 that ours is measured by, and what else CI quantises.
PEERS = ["S8S8", "U8U8"]
SMALL = ["symmetric", "default", "uint8"]
# An output that differs less than this between samples is a constant: its cosine says nothing.
VARIES = 0.01
EXPORTERS = ["classic", "dynamo"]
# What takes long to load: processes begin with it.
LOADED = ["coverage_rule", "timm", "torchvision", "torchaudio.models", "onnxscript", "torch._dynamo", "torch.export", "onnxruntime.quantization"]
# A Concat of more parts isn't taken apart.
MOST_PARTS = 64


def parts(model, expected):
    """The outputs and, where a last Concat makes one, its inputs: a label, the output's name, and a function that takes
    an array of samples to its values."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    makers = {name: node for node in graph.node for name in node.output}
    found = []
    for output, values in expected.items():
        found.append((output, output, lambda array: array))
        name, places = output, list(range(values.ndim))
        while name in makers and makers[name].op_type in ("Identity", "Transpose"):
            node = makers[name]
            if node.op_type == "Transpose":
                order = next((list(a.ints) for a in node.attribute if a.name == "perm"), places[::-1])
                # Of each dimension of its input, where that is in the output.
                places = [places[order.index(k)] for k in range(len(order))] if len(order) == len(places) else []
            name = node.input[0]
        node = makers.get(name)
        if node is None or node.op_type != "Concat" or not 2 <= len(node.input) <= MOST_PARTS:
            continue
        # A batch of one was taken off the first dimension; an entry of `expected` is a sample.
        axis = node.attribute[0].i % values.ndim
        sizes = widths(model, node.input, axis)
        place = places[axis] if axis < len(places) else 0
        if place == 0 or sizes is None or sum(sizes) != values.shape[place]:
            continue
        ends = np.cumsum([0, *sizes])
        for label, begin, end in zip(node.input, ends, ends[1:]):
            found.append((f"{label} of {output}", output, lambda array, at=place, s=slice(begin, end): array[(slice(None),) * at + (s,)]))
    return found


def widths(model, names, axis):
    """How wide values are on an axis, by one run that returns them; nothing where that can't be told."""
    import onnx

    given, loaded = Given(model.parent), onnx.load(str(model))
    for name in names:
        loaded.graph.output.append(onnx.ValueInfoProto(name=name))
    path = model.with_suffix(".parts.onnx")
    onnx.save(loaded, str(path))
    try:
        return [value.shape[axis] for value in session(path).run(list(names), next(given.feeds("test")))]
    except Exception:
        return None
    finally:
        path.unlink()


def by_parts(taken, expected, found):
    """The least and the mean cosine of each part."""
    told = {}
    for label, output, part in taken:
        values = cosines(part(expected[output]), part(found[output]))
        told[label] = [float(values.min()), float(values.mean())]
    return told


def variation(values):
    """How far samples are from their mean, of their length."""
    rows = values.reshape(len(values), -1).astype(np.float64)
    return float(np.linalg.norm(rows - rows.mean(0)) / max(np.linalg.norm(rows), 1e-300))


def reason(error, given):
    text = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return text.replace(f"{given.folder}/", "")[:400]


def measured(vta, folder, kinds, all_run, known):
    """A row: what float's outputs are like, and by each way of quantising what onnxruntime makes of the file, and `vta`
    of its own or, where `all_run`, of all and on `cycle`, too. Ways that are known aren't taken again."""
    given, row = Given(folder), {}
    try:
        expected = reference(given.model, given)
    except Exception as error:
        return {"exporter": f"onnxruntime doesn't run the file: {reason(error, given)}"}
    if not all(np.isfinite(values).all() for values in expected.values()):
        return {"failed": "float outputs aren't all finite"}
    taken = parts(given.model, expected)
    row["varies"] = {label: variation(part(expected[output])) for label, output, part in taken}
    for kind in ["vta", *PEERS, *kinds]:
        began = time.monotonic()
        if kind in known:
            row[kind] = known[kind]
            continue
        row[kind] = file = {}
        path = folder / f"{kind}.onnx"
        try:
            if kind == "vta":
                told = command([vta, "quantize", given.model, *given.arguments("--calibration", "calibration"), "--preprocess", "raw", "-o", path, "--json"])
                told = json.loads(told)
                file["warnings"] = told["warnings"]
            else:
                quantize(kind, given, path, kept=True)
        except Exception as error:
            file["failed"] = f"quantize: {reason(error, given)}"
            continue
        try:
            peer = reference(path, given)
            file["peer"] = by_parts(taken, expected, peer)
        except Exception as error:
            # A file of ours that nobody else reads is still run.
            peer, file["unread"] = None, reason(error, given)
        file["quantized_s"] = time.monotonic() - began
        if kind != "vta" and not all_run:
            continue
        try:
            found, report = ours(vta, path, given, expected, more=("--threads", "1"))
            file["ours"] = by_parts(taken, expected, found)
            file["host_ops"] = report.get("host_ops", 0)
            if peer is not None:
                file["between"] = by_parts(taken, peer, found)
            if all_run:
                one = {name: values[:1] for name, values in expected.items()}
                same, _ = ours(vta, path, given, one, given.first("test"), ("--device", "cycle"))
                file["cycle_equal"] = all((same[name][0] == found[name][0]).all() for name in same)
        except Exception as error:
            file["failed"] = reason(error, given)
        file["run_s"] = time.monotonic() - began
    return row


def loaded(folder):
    """A row of an exporter's file, which has nothing yet, or why the file is none."""
    try:
        session(folder / "model.onnx")
    except Exception as error:
        return {"exporter": f"onnxruntime doesn't load the file: {error}".replace(f"{folder}/", "")[:300]}
    return {}


def network(source, name, vta, folder, listed, known):
    """The rows of a network, by exporters; they are also kept in its folder as they come. `known` has rows of
    another `vta`, of which onnxruntime's part still holds."""
    source = importlib.import_module(source)
    folder.mkdir(parents=True, exist_ok=True)
    failed, rows, small = source.export(listed[name], folder), {}, source.__name__ == "coverage_small"
    for exporter in source.EXPORTERS:
        began = time.monotonic()
        rows[exporter] = row = {"exporter": failed[exporter]} if exporter in failed else loaded(folder / exporter)
        if "exporter" not in row:
            peers = {kind: file for kind, file in known.get(exporter, {}).items() if kind in PEERS}
            try:
                row |= measured(vta, folder / exporter, SMALL if small else [], small, peers)
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:400]
            row |= source.bounds(name, exporter) if small else {}
        row["seconds"] = time.monotonic() - began
        (folder / "rows.json").write_text(json.dumps(rows))
    return rows


def packages():
    """The packages that make networks and results, with their versions."""
    versions = {}
    for name in ("torch", "torchvision", "torchaudio", "timm", "onnx", "onnxscript", "onnxruntime"):
        try:
            versions[name] = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def alone(name, arguments, cpus, known):
    """What a process of its own does for a network, on some CPUs."""
    os.setsid()
    os.sched_setaffinity(0, cpus)
    into = arguments.folder / name
    with open(into / "log", "w") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    one_thread()
    source = "coverage_rule"
    network(source, name, arguments.vta, into, importlib.import_module(source).networks(arguments.folder), known)


def apart(name, arguments, limit, cpus, known):
    """The rows of a network, made by a process of its own, since exporters may hang or take all memory."""
    into = arguments.folder / name / "rows.json"
    into.parent.mkdir(parents=True, exist_ok=True)
    into.unlink(missing_ok=True)
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=alone, args=(name, arguments, cpus, known))
    process.start()
    process.join(max(limit, 1))
    fault = {"failed": f"the process ended with status {process.exitcode}"}
    if process.exitcode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        fault = {"slow": round(limit)}
    if not arguments.keep:
        for path in into.parent.glob("*/*.onnx*"):
            path.unlink()
    rows = json.loads(into.read_text()) if into.exists() else {}
    return {exporter: rows.get(exporter, fault) for exporter in EXPORTERS}


def done(network, stamp):
    return all(network.get(key) == value for key, value in stamp.items()) and not any("slow" in row for row in network["rows"].values())


def everything(arguments, source, listed, names):
    """Runs networks, as many at once as there are jobs, and keeps their rows as they come."""
    kept = Path(arguments.rows or arguments.folder / "rows.json")
    known = json.loads(kept.read_text()) if kept.exists() else {}
    made_by = hashlib.sha256(arguments.vta.read_bytes()).hexdigest()[:16]
    stamp = {"vta": made_by, "packages": packages()}
    todo = [name for name in names if not done(known.get(name, {}), stamp)]
    # Those that took longest begin first.
    todo.sort(key=lambda name: -known.get(name, {}).get("seconds", listed[name].size))
    ends = time.monotonic() + arguments.time
    there, jobs, free = sorted(os.sched_getaffinity(0)), arguments.jobs or os.cpu_count(), queue.Queue()
    for k in range(jobs):
        free.put(there[k % len(there) :: jobs])

    def work(name):
        began = time.monotonic()
        left = ends - began
        if left < 5:
            return None
        cpus = free.get()
        before = known.get(name, {})
        rows = apart(name, arguments, min(arguments.limit, left), cpus, before["rows"] if before.get("packages") == stamp["packages"] else {})
        free.put(cpus)
        # What the end of time cut short is neither slow nor measured.
        if left < arguments.limit and any("slow" in row for row in rows.values()):
            return None
        return {"family": listed[name].family, **stamp, "when": round(time.time()), "seconds": time.monotonic() - began, "rows": rows}

    multiprocessing.set_forkserver_preload(LOADED)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        started = {pool.submit(work, name): name for name in todo}
        for future in concurrent.futures.as_completed(started):
            if future.result() is None:
                continue
            name = started[future]
            known[name] = future.result()
            for exporter, row in known[name]["rows"].items():
                print(f"{name}, {exporter}:", coverage_page.line(row), f"{known[name]['seconds']:.0f} s", flush=True)
            whole = kept.with_suffix(".new")
            whole.write_text(json.dumps(known, indent=1))
            whole.replace(kept)
    return {name: known[name] for name in names if name in known}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vta", required=True, type=Path, help="the program")
    parser.add_argument("--folder", type=Path, help="where files are kept (default: in target/coverage)")
    parser.add_argument("--rows", type=Path, help="the file of rows (default: in that folder); rows of the same program stay as they are")
    parser.add_argument("--output", default="docs/coverage.md")
    parser.add_argument("--only", default="", help="names of networks, or parts of them, with commas between")
    parser.add_argument("--jobs", type=int, help="how many networks at once (default: as many as there are CPUs)")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a network may take")
    parser.add_argument("--time", type=float, default=float("inf"), help="seconds after which everything is stopped")
    parser.add_argument("--keep", action="store_true", help="keep the files of networks")
    parser.add_argument("--page", action="store_true", help="only write the page, from the rows that there are")
    parser.add_argument("--small", action="store_true", help="CI's list; fails where a bound isn't held")
    parser.add_argument("--onnx-tests", action="store_true", help="with --small: write docs/onnx-tests.md anew")
    arguments = parser.parse_args()
    arguments.vta = arguments.vta.resolve()
    arguments.folder = (arguments.folder or Path("target/coverage") / ("small" if arguments.small else "networks")).resolve()
    source = importlib.import_module("coverage_small" if arguments.small else "coverage_rule")
    listed = source.networks(arguments.folder)
    wanted = [part for part in arguments.only.split(",") if part]
    names = [name for name in listed if not wanted or any(part in name for part in wanted)]
    if not names:
        sys.exit(f"scripts/coverage: no network is named like {arguments.only} (there are {', '.join(listed)})")
    if arguments.small:
        sys.exit(bool(small(arguments, source, listed, names)))
    if arguments.page:
        arguments.time = 0
    known = everything(arguments, source, listed, names)
    Path(arguments.output).write_text(coverage_page.page(known, listed))


def small(arguments, source, listed, names):
    """What is wrong in CI's list, line by line."""
    held, failed = 0, []
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        started = {name: pool.submit(network, source.__name__, name, arguments.vta, arguments.folder / name, listed, {}) for name in names}
        for name, done in started.items():
            for exporter, row in done.result().items():
                faults = coverage_page.faults(row)
                held += not faults
                failed += [f"{name}, {exporter}: {fault}" for fault in faults]
                print(f"{name}, {exporter}:", coverage_page.line(row), flush=True)
    if not arguments.only:
        written, wrong = importlib.import_module("coverage_written").check(arguments.vta, arguments.folder / "written")
        held, failed = held + written, failed + wrong
    print(f"{held} passed, {len(failed)} failed")
    if not arguments.only:
        failed += importlib.import_module("coverage_operators").failures(arguments.vta, arguments.folder / "operators")
        models = [path for name in names for path in sorted((arguments.folder / name).glob("*/*.onnx")) if path.stem in ("model", "default")]
        failed += importlib.import_module("coverage_cut").failures(arguments.vta, models, arguments.folder / "cut")
        failed += importlib.import_module("coverage_onnx").failures(arguments.vta, arguments.onnx_tests)
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    main()
