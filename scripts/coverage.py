"""Runs networks through `vta` and onnxruntime; see scripts/coverage.

The networks are those of coverage_networks.py, or of coverage_small.py: NETS has their names, EXPORTERS the names of the
files that `export` writes of each, beside its images, and `bounds` what a row must hold beside the bounds of all: at most
`host_most` operators on the host, at least `least_to_peer` to onnxruntime however near that is to float.
"""

import argparse
import concurrent.futures
import contextlib
import importlib
import importlib.metadata
import json
import logging
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

IMAGES = 8
# How many arrays a file of images holds.
COUNTS = {"calibration": 8, "images": IMAGES}
QUANTIZATIONS = ["vta", "symmetric", "default", "uint8"]
# So often inputs are moved to measure the spread of a row that misses a bound.
MOVED = 24
# What is printed of a row.
FIGURES = ["host_ops", "layers", "cycles", "ours_to_float", "peer_to_float", "ours_to_peer"]
# The longest that one command may take, in seconds.
LIMIT = 3600


def given(folder, exporter, what):
    """The images of an exporter's file, or those that all exporters' files have."""
    own = folder / f"{exporter}.{what}.npy"
    return own if own.exists() else folder / f"{what}.npy"


def session(path, optimization="DISABLE_ALL"):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{optimization}")
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def reference(path, images, optimization="DISABLE_ALL"):
    """All outputs of onnxruntime, each flattened, a row an image."""
    run = session(path, optimization)
    name = run.get_inputs()[0].name
    rows = [run.run(None, {name: images[k : k + 1]}) for k in range(len(images))]
    return np.stack([np.concatenate([np.asarray(o, np.float64).ravel() for o in row]) for row in rows])


def quantize(kind, source, target, calibration):
    """onnxruntime's static quantisation, in one of three ways."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    name = session(source).get_inputs()[0].name

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rows = iter([{name: calibration[k : k + 1]} for k in range(len(calibration))])

        def get_next(self):
            return next(self.rows, None)

    # Preparing wants weights in the file itself.
    whole, prepared = target.with_suffix(".whole.onnx"), target.with_suffix(".prepared.onnx")
    onnx.save(onnx.load(str(source)), str(whole))
    quant_pre_process(str(whole), str(prepared), skip_symbolic_shape=True)
    whole.unlink()
    int8, uint8 = QuantType.QInt8, QuantType.QUInt8
    options = {
        "symmetric": dict(
            per_channel=True,
            activation_type=int8,
            weight_type=int8,
            extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
        ),
        "default": {},
        "uint8": dict(activation_type=uint8, weight_type=uint8),
    }[kind]
    # Weights lie beside the quantised model where they do beside the model.
    beside = {"use_external_data_format": Path(f"{source}.data").exists()}
    Path(f"{target}.data").unlink(missing_ok=True)
    quantize_static(str(prepared), str(target), Reader(), **options, **beside)


def command(arguments):
    """A command's output; its last line of errors is raised."""
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise RuntimeError(lines[-1].replace("error: ", ""))
    return done.stdout


def outputs(path, model):
    """What `vta run` wrote, a row an image, in the order of the model's outputs."""
    loaded = np.load(path)
    names = [output.name.lstrip("/").replace("..", "__") for output in session(model).get_outputs()]
    return np.concatenate([loaded[name].reshape(len(loaded[name]), -1).astype(np.float64) for name in names], 1)


def cosine(a, b):
    """The smallest cosine over images."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(np.min(np.where(norms == 0, 1.0, (a * b).sum(1) / np.maximum(norms, 1e-300))))


def run(vta, model, images, folder, device, more=()):
    out = folder / "out.npz"
    out.unlink(missing_ok=True)
    text = command([vta, "run", model, "--input", images, "--preprocess", "raw", "--allow-host",
                    "--device", device, "--threads", "1", "-o", out, "--json", *more])
    return json.loads(text), outputs(out, model)


def one(vta, folder, exporter, kind, expected, spread):
    """A row of the table for a file and a quantisation; `spread` is how often inputs are moved where the row holds."""
    model, q = folder / f"{exporter}.onnx", folder / f"{exporter}.{kind}.onnx"
    row = {"exporter": exporter, "quantisation": kind}
    calibration, tested = given(folder, exporter, "calibration"), given(folder, exporter, "images")
    images = np.load(tested)
    try:
        if kind == "vta":
            command([vta, "quantize", model, "--calibration", calibration, "--preprocess", "raw", "-o", q])
        else:
            quantize(kind, model, q, np.load(calibration))
    except Exception as error:
        return {**row, "failed": f"quantize: {error}"[:300]}
    try:
        peer = reference(q, images)
    except Exception as error:
        return {**row, "failed": f"onnxruntime: {error}"[:300]}
    try:
        told, ours = run(vta, q, tested, folder, "sim")
        np.save(folder / "one.npy", images[:1])
        cycle, same = run(vta, q, folder / "one.npy", folder, "cycle")
    except Exception as error:
        return {**row, "failed": str(error)[:300]}
    if ours.shape != peer.shape:
        return {**row, "failed": f"{ours.shape[1]} values of outputs, onnxruntime gives {peer.shape[1]}"}
    row = {
        **row,
        "packages": packages(),
        "host_ops": told.get("host_ops", 0),
        "layers": told.get("layers_count", len(told.get("layers", []))),
        "cycles": cycle.get("cycles"),
        "cycle_equal": bool((same[0] == ours[0]).all()),
        "ours_to_float": cosine(ours, expected),
        "peer_to_float": cosine(peer, expected),
        "ours_to_peer": cosine(ours, peer),
    }
    times = MOVED if farther(row) else spread
    if times:
        row["spread"] = spreads(vta, q, images, folder, expected, times)
    return row


def spreads(vta, q, images, folder, expected, times):
    """Cosines to float of onnxruntime with all its optimisation, and of both on inputs that moved so many times.

    They move by at most 1e-5 of themselves, so that of 10,000 int8 values one or two become a neighbour.
    """
    optimized = cosine(reference(q, images, "ENABLE_ALL"), expected)
    changes = [np.random.default_rng(seed).uniform(-1e-5, 1e-5, images.shape) for seed in range(times)]
    moved = np.concatenate([images * (1 + change) for change in changes]).astype(np.float32)
    np.save(folder / "moved.npy", moved)
    found = {"peer": reference(q, moved), "ours": run(vta, q, folder / "moved.npy", folder, "sim")[1]}
    return {"optimized": optimized, **{who: [cosine(part, expected) for part in np.split(found[who], times)] for who in found}}


def farther(row):
    # Not a number is far, too.
    return not row["ours_to_float"] >= row["peer_to_float"] - 0.005


def peer_runs(row):
    """The cosines to float of all runs of onnxruntime."""
    spread = row.get("spread")
    return [row["peer_to_float"], *([spread["optimized"], *spread["peer"]] if spread else [])]


def verdict(row):
    """What keeps a row from the bounds that docs/coverage.md states; nothing where it holds them."""
    if "failed" in row:
        return row["failed"]
    faults = []
    if not row["cycle_equal"]:
        faults.append("cycle gives other values than sim")
    if farther(row):
        gap, peer = row["peer_to_float"] - row["ours_to_float"], peer_runs(row)
        itself = f", whose own runs are {max(peer) - min(peer):.4f} apart" if len(peer) > 1 else ""
        faults.append(f"farther from float than onnxruntime by {gap:.4f}{itself}")
    least = row.get("least_to_peer", 0.99 if row["peer_to_float"] >= 0.99 else -1)
    if not row["ours_to_peer"] >= least:
        faults.append(f"below {least} to onnxruntime")
    if row["host_ops"] > row.get("host_most", row["host_ops"]):
        faults.append(f"{row['host_ops']} operators on the host, more than {row['host_most']}")
    return ", ".join(faults)


def network(vta, source, name, folder, spread):
    """The rows of a network of the module `source`."""
    source = importlib.import_module(source)
    folder.mkdir(parents=True, exist_ok=True)
    source.export(name, folder, COUNTS)
    rows = []
    for exporter in source.EXPORTERS:
        expected = reference(folder / f"{exporter}.onnx", np.load(given(folder, exporter, "images")))
        for kind in QUANTIZATIONS:
            row = {"network": name, **source.bounds(name, exporter), **one(vta, folder, exporter, kind, expected, spread)}
            rows.append(row)
            print(f"{name}, {exporter}, {kind}:", verdict(row) or "ok", *(f"{k} {row[k]:.6g}" for k in FIGURES if k in row), flush=True)
    return rows


def packages():
    """The packages that make networks and results, with their versions."""
    versions = {}
    for name in ("torch", "torchvision", "timm", "onnx", "onnxruntime"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name).split("+")[0]
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def origin(rows):
    """Which packages made the rows: those of most networks, then the others with their networks."""
    networks = {}
    for row in rows:
        if "failed" not in row:
            networks.setdefault(row.get("packages", "not recorded"), {})[row["network"]] = None
    if not networks:
        return "none ran"
    most, *others = sorted(networks, key=lambda made: -len(networks[made]))
    return "; ".join([most, *(f"{made} for {', '.join(networks[made])}" for made in others)])


def paragraph(text):
    return [*textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False), ""]


def table(rows):
    held = sum(not verdict(row) for row in rows)
    gaps = [row["ours_to_float"] - row["peer_to_float"] for row in rows if "failed" not in row]
    lines = [
        "# Which networks run",
        "",
        *paragraph(f"`scripts/coverage` writes this page. {held} of {len(rows)} rows hold both bounds:"),
        "- The cosine to the float network is at most 0.005 below onnxruntime's on the same file.",
        "- The cosine to onnxruntime is at least 0.99 wherever onnxruntime's to the float network is.",
        "",
        *paragraph(
            "Some networks amplify a step of one value, which moves their cosines either way: "
            f"{sum(gap < -0.005 for gap in gaps)} rows are farther from float than onnxruntime by more than 0.005, "
            f"{sum(gap > 0.005 for gap in gaps)} nearer ([Exactness](exactness.md))."
        ),
        "## Networks",
        "",
        *paragraph("The most operators on the host, the range of cycles, and the least cosines over the rows of each network:"),
        "| network | host | cycles | ours to float | onnxruntime to float |",
        "|---|---|---|---|---|",
        *summary(rows),
        "",
        "## How they ran",
        "",
        *paragraph(
            "The networks have random weights from a seed; BatchNormalization has the statistics of 16 images. Both exporters of "
            "PyTorch wrote them. `vta quantize` and three ways of onnxruntime quantised them. They ran on `sim` with "
            f"{IMAGES} images, and on `cycle`, with the same values. Packages: {origin(rows)}."
        ),
        "| column | has |",
        "|---|---|",
        "| host | how many operators the host computes |",
        "| cycles | the cycles of an image on the device `cycle` |",
        "| ours to float | the cosine of `vta` to the float network, the smallest over the images |",
        "| onnxruntime to float | that of onnxruntime, without graph optimisation, on the same file |",
        "| ours to onnxruntime | that of `vta` to onnxruntime |",
        "",
        "## All rows",
        "",
        "| network | quantisation | exporter | host | cycles | ours to float | onnxruntime to float | ours to onnxruntime | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        fault = verdict(row).replace("|", "/").replace("\n", " ")
        if "failed" in row:
            lines.append(f"{head(row)} | | | | | {fault} |")
            continue
        cycles = f"{row['cycles']:,}" if row["cycles"] else ""
        figures = " | ".join(f"{row[k]:.4f}" for k in ("ours_to_float", "peer_to_float", "ours_to_peer"))
        lines.append(f"{head(row)} {row['host_ops']} | {cycles} | {figures} | {fault} |")
    return "\n".join([*lines, "", *spread_table([row for row in rows if "spread" in row])])


def summary(rows):
    """A line for each network, over the rows that ran."""
    networks = {}
    for row in rows:
        networks.setdefault(row["network"], []).extend([] if "failed" in row else [row])
    for name, ran in networks.items():
        cycles = sorted(row["cycles"] for row in ran if row["cycles"])
        times = " to ".join(f"{count:,}" for count in dict.fromkeys([*cycles[:1], *cycles[-1:]]))
        least = [f"{min(row[key] for row in ran):.4f}" if ran else "" for key in ("ours_to_float", "peer_to_float")]
        yield f"| {name} | {max((row['host_ops'] for row in ran), default='')} | {times} | {least[0]} | {least[1]} |"


def head(row):
    return f"| {row['network']} | {row['quantisation']} | {row['exporter']} |"


def spread_table(rows):
    """How far runs of onnxruntime on one file are from each other, and ours; nothing without rows."""
    if not rows:
        return []
    lines = [
        "## onnxruntime against itself",
        "",
        *paragraph(
            "Random weights amplify a step of one value to many steps in the next layers, more than trained ones do. So "
            "onnxruntime itself gives other cosines to float for the same file, in two cases: with all its graph optimisation, "
            "and when inputs move at random by at most a hundred-thousandth of themselves. One or two of 10,000 int8 values of "
            "the input then become a neighbour."
        ),
        *paragraph(
            "*Runs* are the least and the greatest cosine of these runs and of the table's run. *Means* are over the moved inputs, "
            f"the same ones for both. Rows that are farther from float by more than 0.005 have {MOVED} of these; others have as "
            "many as `scripts/coverage --spread 8 --only NAME,..` asks for."
        ),
        "| network | quantisation | exporter | inputs | ours less onnxruntime | onnxruntime's runs | our runs | onnxruntime's mean | our mean |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        gap = f"{row['ours_to_float'] - row['peer_to_float']:+.4f}"
        runs = [peer_runs(row), [row["ours_to_float"], *row["spread"]["ours"]]]
        figures = [f"{min(r):.4f} to {max(r):.4f}" for r in runs] + [f"{np.mean(row['spread'][who]):.4f}" for who in ("peer", "ours")]
        lines.append(f"{head(row)} {len(row['spread']['ours'])} | {gap} | " + " | ".join(figures) + " |")
    wide = [max(peer_runs(row)) - min(peer_runs(row)) for row in rows]
    missed = [row for row in rows if farther(row)]
    within = sum(row["ours_to_float"] >= min(peer_runs(row)) for row in missed)
    means = [np.mean(row["spread"]["ours"]) - np.mean(row["spread"]["peer"]) for row in rows]
    text = (
        f"Runs of onnxruntime are up to {max(wide):.4f} apart, and by more than 0.005 in {sum(w > 0.005 for w in wide)} of these {len(rows)} rows. "
        f"Of the {len(missed)} rows that are farther from float by more than 0.005, {within} are nearer than some run of onnxruntime. "
        f"In the mean of all these rows ours are {abs(np.mean(means)):.4f} {'farther' if np.mean(means) < 0 else 'nearer'} "
        f"(standard error {np.std(means, ddof=min(1, len(rows) - 1)) / len(rows) ** 0.5:.4f})."
    )
    return lines + ["", *paragraph(text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vta", required=True, help="the program")
    parser.add_argument("--folder", help="where files are kept (default: in target/coverage)")
    parser.add_argument("--output", default="docs/coverage.md")
    parser.add_argument("--only", default="", help="names of networks, with commas between")
    parser.add_argument("--jobs", type=int, help="how many networks at once; each may take 6 GiB (default: 1)")
    parser.add_argument("--spread", type=int, default=0, metavar="TIMES",
                        help="compare onnxruntime with itself on so many inputs in every row, not only in rows that miss")
    parser.add_argument("--small", action="store_true", help="CI's list; fails where a bound isn't held")
    parser.add_argument("--onnx-tests", action="store_true", help="with --small: write docs/onnx-tests.md anew")
    arguments = parser.parse_args()
    vta = Path(arguments.vta).resolve()
    source = "coverage_small" if arguments.small else "coverage_networks"
    folder = Path(arguments.folder or ("target/coverage/small" if arguments.small else "target/coverage/networks"))
    there = list(importlib.import_module(source).NETS)
    names = [n for n in arguments.only.split(",") if n] or there
    unknown = [n for n in names if n not in there]
    if unknown:
        sys.exit(f"scripts/coverage: no network {unknown[0]} (there are {', '.join(there)})")
    kept = folder / "rows.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    jobs = arguments.jobs or (os.cpu_count() if arguments.small else 1)
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        started = {pool.submit(network, vta, source, name, folder / name, arguments.spread): name for name in names}
        for done in concurrent.futures.as_completed(started):
            known[started[done]] = done.result()
            kept.write_text(json.dumps(known, indent=1))
    rows = [row for name in names for row in known[name]]
    held = sum(not verdict(row) for row in rows)
    failed = [f"{row['network']}, {row['exporter']}, {row['quantisation']}: {verdict(row)}" for row in rows if verdict(row)]
    if arguments.small and not arguments.only:
        written, wrong = importlib.import_module("coverage_written").check(vta, folder / "written")
        held, failed = held + written, failed + wrong
    print(f"{held} passed, {len(failed)} failed")
    if arguments.small:
        if not arguments.only:
            failed += importlib.import_module("coverage_operators").failures(vta, folder / "operators")
            models = [path for name in names for path in sorted((folder / name).glob("*.onnx")) if "default" in path.name or path.name.count(".") == 1]
            failed += importlib.import_module("coverage_cut").failures(vta, models, folder / "cut")
            failed += importlib.import_module("coverage_onnx").failures(vta, arguments.onnx_tests)
        for line in failed:
            print(f"failed: {line}", file=sys.stderr)
        sys.exit(bool(failed))
    Path(arguments.output).write_text(table([row for name in there for row in known.get(name, [])]))


if __name__ == "__main__":
    main()
