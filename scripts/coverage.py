"""Runs the networks of coverage_networks.py through `vta` and onnxruntime; see scripts/coverage."""

import argparse
import concurrent.futures
import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

IMAGES = 8
CALIBRATION = 8
QUANTIZATIONS = ["vta", "symmetric", "default", "uint8"]
EXPORTERS = ["classic", "dynamo"]
SMALL = ["mlp", "espcn", "preact", "unet_nearest", "yolo"]
# The longest that one command may take, in seconds.
LIMIT = 3600


def export(name, folder):
    """The network's files of both exporters, its calibration and test images."""
    import torch

    import coverage_networks as networks

    torch.set_num_threads(1)
    model, shape = networks.build(name)
    np.save(folder / "calibration.npy", networks.images(shape, CALIBRATION, 9).numpy())
    np.save(folder / "images.npy", networks.images(shape, IMAGES, 8).numpy())
    example = networks.images(shape, 1, 7)
    options = dict(input_names=["input"], verbose=False)
    with torch.no_grad():
        torch.onnx.export(model, (example,), str(folder / "classic.onnx"), dynamo=False, opset_version=17, **options)
        torch.onnx.export(model, (example,), str(folder / "dynamo.onnx"), dynamo=True, **options)


def session(path):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def reference(path, images):
    """All outputs of onnxruntime, each flattened, a row an image."""
    run = session(path)
    name = run.get_inputs()[0].name
    rows = [run.run(None, {name: images[k : k + 1]}) for k in range(len(images))]
    return np.stack([np.concatenate([np.asarray(o, np.float64).ravel() for o in row]) for row in rows])


def quantize(kind, source, target, calibration):
    """onnxruntime's static quantisation, in one of three ways."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rows = iter([{"input": calibration[k : k + 1]} for k in range(len(calibration))])

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
    quantize_static(str(prepared), str(target), Reader(), **options)


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


def one(vta, folder, exporter, kind, expected):
    """A row of the table for a file and a quantisation."""
    model, q = folder / f"{exporter}.onnx", folder / f"{exporter}.{kind}.onnx"
    row = {"exporter": exporter, "quantisation": kind}
    images = np.load(folder / "images.npy")
    try:
        if kind == "vta":
            command([vta, "quantize", model, "--calibration", folder / "calibration.npy", "--preprocess", "raw", "-o", q])
        else:
            quantize(kind, model, q, np.load(folder / "calibration.npy"))
    except Exception as error:
        return {**row, "failed": f"quantize: {error}"[:300]}
    try:
        peer = reference(q, images)
    except Exception as error:
        return {**row, "failed": f"onnxruntime: {error}"[:300]}
    try:
        told, ours = run(vta, q, folder / "images.npy", folder, "sim")
        np.save(folder / "one.npy", images[:1])
        cycle, same = run(vta, q, folder / "one.npy", folder, "cycle")
    except Exception as error:
        return {**row, "failed": str(error)[:300]}
    if ours.shape != peer.shape:
        return {**row, "failed": f"{ours.shape[1]} values of outputs, onnxruntime gives {peer.shape[1]}"}
    return {
        **row,
        "host_ops": told.get("host_ops", 0),
        "layers": told.get("layers_count", len(told.get("layers", []))),
        "cycles": cycle.get("cycles"),
        "cycle_equal": bool((same[0] == ours[0]).all()),
        "ours_to_float": cosine(ours, expected),
        "peer_to_float": cosine(peer, expected),
        "ours_to_peer": cosine(ours, peer),
    }


def verdict(row):
    """What keeps a row from the bounds that docs/coverage.md states; nothing where it holds them."""
    if "failed" in row:
        return row["failed"]
    faults = []
    if not row["cycle_equal"]:
        faults.append("cycle gives other values than sim")
    if row["ours_to_float"] < row["peer_to_float"] - 0.005:
        faults.append("farther from float than onnxruntime")
    if row["peer_to_float"] >= 0.99 and row["ours_to_peer"] < 0.99:
        faults.append("below 0.99 to onnxruntime")
    return ", ".join(faults)


def network(vta, name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "dynamo.onnx").exists():
        export(name, folder)
    rows = []
    for exporter in EXPORTERS:
        expected = reference(folder / f"{exporter}.onnx", np.load(folder / "images.npy"))
        for kind in QUANTIZATIONS:
            row = one(vta, folder, exporter, kind, expected)
            rows.append({"network": name, **row})
            print(name, exporter, kind, verdict(row) or "ok", {k: v for k, v in row.items() if k not in ("exporter", "quantisation", "failed")}, flush=True)
    return rows


def table(rows, versions):
    lines = [
        "# Which networks run",
        "",
        "Made by `scripts/coverage`: seeded networks (random weights; BatchNormalization has statistics of 16 images) exported",
        "by both exporters of PyTorch, quantised by `vta quantize` and three ways of onnxruntime",
        f"({versions}),",
        f"run on `sim` (on `cycle`, too: the same values) on {IMAGES} images. Cosines are the smallest over these images: to the",
        "float network (ours, and onnxruntime without graph optimisation on the same file), and of ours to onnxruntime's.",
        "Random weights amplify a step of a deep network more than trained ones do. *Host* is how many operators the host",
        "computes.",
        "",
        "| network | quantisation | exporter | host | cycles | ours to float | onnxruntime to float | ours to onnxruntime | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        fault = verdict(row).replace("|", "/").replace("\n", " ")
        head = f"| {row['network']} | {row['quantisation']} | {row['exporter']} |"
        if "failed" in row:
            lines.append(f"{head} | | | | | {fault} |")
            continue
        cycles = f"{row['cycles']:,}" if row["cycles"] else ""
        figures = " | ".join(f"{row[k]:.4f}" for k in ("ours_to_float", "peer_to_float", "ours_to_peer"))
        lines.append(f"{head} {row['host_ops']} | {cycles} | {figures} | {fault} |")
    held = sum(not verdict(row) for row in rows)
    gaps = [row["ours_to_float"] - row["peer_to_float"] for row in rows if "failed" not in row]
    lines += ["", f"{held} of {len(rows)} rows hold the bounds: at least as near to float as onnxruntime less 0.005, and at",
              "least 0.99 to onnxruntime wherever that is at least 0.99 to float. Where a network amplifies steps, one more or",
              f"less somewhere moves it either way: {sum(gap < -0.005 for gap in gaps)} rows are farther from float than onnxruntime by more than 0.005,",
              f"{sum(gap > 0.005 for gap in gaps)} nearer ([exactness.md](exactness.md)).", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vta", required=True, help="the program")
    parser.add_argument("--folder", default="target/coverage/networks", help="where files are kept")
    parser.add_argument("--output", default="docs/coverage.md")
    parser.add_argument("--only", default="", help="names of networks, with commas between")
    parser.add_argument("--jobs", type=int, default=1, help="how many networks at once; each may take 6 GiB")
    parser.add_argument("--small", action="store_true", help="CI's list; fails where a bound isn't held")
    arguments = parser.parse_args()
    vta, folder = Path(arguments.vta).resolve(), Path(arguments.folder)
    import onnx
    import onnxruntime
    import timm
    import torch
    import torchvision

    import coverage_networks

    names = SMALL if arguments.small else [n for n in arguments.only.split(",") if n] or list(coverage_networks.NETS)
    unknown = [n for n in names if n not in coverage_networks.NETS]
    if unknown:
        sys.exit(f"scripts/coverage: no network {unknown[0]} (there are {', '.join(coverage_networks.NETS)})")
    kept = folder / "rows.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs) as pool:
        started = {pool.submit(network, vta, name, folder / name): name for name in names}
        for done in concurrent.futures.as_completed(started):
            known[started[done]] = done.result()
            kept.write_text(json.dumps(known, indent=1))
    rows = [row for name in names for row in known[name]]
    held = sum(not verdict(row) for row in rows)
    print(f"{held} passed, {len(rows) - held} failed")
    if arguments.small:
        sys.exit(held != len(rows))
    modules = (torch, torchvision, timm, onnx, onnxruntime)
    versions = ", ".join(f"{m.__name__} {m.__version__.split('+')[0]}" for m in modules)
    everything = [row for name in coverage_networks.NETS for row in known.get(name, [])]
    Path(arguments.output).write_text(table(everything, versions))


if __name__ == "__main__":
    main()
