"""Quantises trained networks by `vta` and by onnxruntime and measures their tasks; see scripts/trained.

The networks are those of trained_networks.py, or with --small the first of trained_small.py.
"""

import argparse
import importlib.metadata
import json
import logging
import re
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np

import trained_small
from coverage import command
from trained_sources import Missing, Sources

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

# The options of `vta quantize` whose results the table has.
OURS = {"default": [], "min-max": ["--method", "min-max", "--no-equalize"]}
PEERS = ["S8S8", "U8U8", "ends in float"]


def session(path, optimization="DISABLE_ALL", threads=1):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{optimization}")
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Given:
    """A network's file with its inputs, as `made` wrote them."""

    def __init__(self, folder):
        self.folder, self.model = folder, folder / "model.onnx"
        self.inputs = [(value.name, value.shape) for value in session(self.model).get_inputs()]
        labels = folder / "test.labels.npy"
        self.labels = np.load(labels) if labels.exists() else None

    def files(self, what):
        return [self.folder / f"{what}.{k}.npy" for k in range(len(self.inputs))]

    def feeds(self, what):
        """What onnxruntime takes, a sample after the other."""
        arrays = [np.load(path) for path in self.files(what)]
        for k in range(len(arrays[0])):
            yield {name: values[k].reshape(shape) for (name, shape), values in zip(self.inputs, arrays)}

    def arguments(self, option, what):
        """The same as options of `vta`."""
        files = self.files(what)
        named = files if len(files) == 1 else [f"{name}={path}" for (name, _), path in zip(self.inputs, files)]
        return [word for path in named for word in (option, path)]


def made(name, network, sources, folder):
    """Writes a network's file and inputs, unless they are there already."""
    stamp = folder / "made"
    if not stamp.exists():
        folder.mkdir(parents=True, exist_ok=True)
        written = network.make(sources, folder / "model.onnx")
        for what in ("calibration", "test"):
            for k, values in enumerate(written[what]):
                np.save(folder / f"{what}.{k}.npy", values)
        if "labels" in written:
            np.save(folder / "test.labels.npy", written["labels"])
        stamp.write_text(name)
    return Given(folder)


def sampled(values):
    """An output of one run without its batch of one."""
    return values[0] if values.ndim > 1 and values.shape[0] == 1 else values


def reference(path, given):
    """onnxruntime's outputs by their names, an entry a sample. Where int8 sums may wrap, nothing is optimised."""
    run = session(path)
    rows = [[sampled(np.asarray(values, np.float32)) for values in run.run(None, feed)] for feed in given.feeds("test")]
    return {output.name: np.stack([row[k] for row in rows]) for k, output in enumerate(run.get_outputs())}


def ours(vta, model, given, expected):
    """The outputs of `vta run`, shaped as float's."""
    out = given.folder / "out.npz"
    out.unlink(missing_ok=True)
    command([vta, "run", model, *given.arguments("--input", "test"), "--preprocess", "raw", "--allow-host", "-o", out, "--json"])
    loaded = np.load(out)
    names = {name: re.sub(r"^/", "", name).replace("..", "__") for name in expected}
    return {name: loaded[names[name]].astype(np.float32).reshape(values.shape) for name, values in expected.items()}


def cycles(vta, model, given):
    text = command([vta, "run", model, *one(given), "--preprocess", "raw", "--allow-host", "--device", "cycle", "--timing-only", "--json"])
    told = json.loads(text)
    return told.get("cycles"), told.get("host_ops", 0)


def one(given):
    """The first sample alone, as options."""
    words = []
    for k, ((name, _), path) in enumerate(zip(given.inputs, given.files("test"))):
        first = given.folder / f"one.{k}.npy"
        np.save(first, np.load(path)[:1])
        words += ["--input", first if len(given.inputs) == 1 else f"{name}={first}"]
    return words


def ends(model):
    """The nodes of the first layer with weights, and those of the last with all behind it."""
    weighted = [k for k, node in enumerate(model.graph.node) if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")]
    return [model.graph.node[weighted[0]].name, *(node.name for node in model.graph.node[weighted[-1] :])]


def quantize(kind, given, target):
    """onnxruntime's static quantisation with weights per channel."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rows = given.feeds("calibration")

        def get_next(self):
            return next(self.rows, None)

    prepared = given.folder / "prepared.onnx"
    model = onnx.load(str(given.model))
    # DequantizeLinear has an axis from there on.
    if max(opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")) < 13:
        model = onnx.version_converter.convert_version(model, 13)
    onnx.save(model, str(prepared))
    quant_pre_process(str(prepared), str(prepared), skip_symbolic_shape=True)
    model = onnx.load(str(prepared))
    for k, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{k}"
    onnx.save(model, str(prepared))
    form = QuantType.QUInt8 if kind == "U8U8" else QuantType.QInt8
    exclude = ends(model) if kind == "ends in float" else []
    quantize_static(str(prepared), str(target), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=form, weight_type=form, nodes_to_exclude=exclude)
    prepared.unlink()


def cosines(expected, found):
    """The mean cosine over samples, by outputs."""
    told = {}
    for name, values in expected.items():
        a, b = (v.reshape(len(v), -1).astype(np.float64) for v in (values, found[name]))
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        told[name] = float(np.where(norms == 0, 1.0, (a * b).sum(1) / np.maximum(norms, 1e-300)).mean())
    return told


def measured(network, given, expected, find):
    """What one way of quantising gives: `find` returns its outputs, its seconds of quantising and more to record."""
    try:
        found, seconds, more = find()
    except Exception as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return {"failed": text.replace(f"{given.folder}/", "")[:300]}
    right, of = network.measure(expected, found, given.labels)
    return {"right": right, "of": of, "cosines": cosines(expected, found), "seconds": seconds, **more}


def by_us(vta, given, expected, kind):
    model = given.folder / f"{kind}.vta.onnx"

    def find():
        began = time.monotonic()
        command([vta, "quantize", given.model, *given.arguments("--calibration", "calibration"), "--preprocess", "raw", *OURS[kind], "-o", model])
        seconds = time.monotonic() - began
        found = ours(vta, model, given, expected)
        counted, host = cycles(vta, model, given)
        return found, seconds, {"cycles": counted, "host_ops": host}

    return find


def by_peer(given, kind):
    model = given.folder / f"{kind.replace(' ', '-')}.onnx"

    def find():
        began = time.monotonic()
        quantize(kind, given, model)
        seconds = time.monotonic() - began
        return reference(model, given), seconds, {}

    return find


def rows(vta, name, network, sources, folder):
    """All ways of quantising a network, by their names."""
    given = made(name, network, sources, folder)
    expected = reference(given.model, given)
    right, of = network.measure(expected, expected, given.labels)
    told = {"float": {"right": right, "of": of}}
    for kind in OURS:
        told[kind] = measured(network, given, expected, by_us(vta, given, expected, kind))
    for kind in PEERS:
        told[kind] = measured(network, given, expected, by_peer(given, kind))
    for kind, row in told.items():
        worst = f", cosine {min(row['cosines'].values()):.4f}" if "cosines" in row else ""
        print(f"{name}, {kind}:", row.get("failed") or f"{row['right']:g} of {row['of']}{worst}", flush=True)
    return told


def score(row):
    return row["right"] / row["of"] if row["of"] else 1.0


def noise(row):
    """The standard error of a share of so many samples."""
    share = min(max(score(row), 0.5 / max(row["of"], 1)), 1 - 0.5 / max(row["of"], 1))
    return (share * (1 - share) / max(row["of"], 1)) ** 0.5


def verdict(told):
    """What keeps our default from being as good as the best of onnxruntime's S8S8 and U8U8 within its noise."""
    if "failed" in told["default"]:
        return told["default"]["failed"]
    peers = [told[kind] for kind in ("S8S8", "U8U8") if "failed" not in told[kind]]
    best = max(map(score, peers), default=0)
    if score(told["default"]) < best - noise(told["default"]):
        return f"{best - score(told['default']):.3f} below onnxruntime"
    return ""


def paragraph(text):
    return [*textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False), ""]


def bullet(text):
    return textwrap.wrap(f"- {text}", 110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def cell(row, of):
    """A row's task, of how many where that isn't float's number, and the least cosine of its outputs."""
    if "failed" in row:
        return "refused"
    right = f"{row['right']}" if isinstance(row["right"], int) else f"{row['right']:.2f}"
    share = right if row["of"] == of else f"{right} of {row['of']}"
    return share + (f" ({min(row['cosines'].values()):.3f})" if "cosines" in row else "")


def table(networks, known, sources):
    names = [name for name in networks if name in known]
    held = [name for name in names if not verdict(known[name])]
    lines = [
        "# How right trained networks are",
        "",
        *paragraph(
            f"`scripts/trained` writes this page. {len(names)} networks with trained weights, as packages ship them, were quantised by "
            "`vta quantize` and by onnxruntime, with the same calibration samples. What they then do is measured on other samples: "
            f"other pictures, other fonts and sentences, other recordings and speakers. In {len(held)} of {len(names)} the default of `vta "
            "quantize` is as good as the better of onnxruntime's S8S8 and U8U8, or within one standard error of its own figure."
        ),
        "| network | counts | of | float | ours, default | ours, min-max | S8S8 | U8U8 | ends in float |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        told = known[name]
        float_ = told["float"]
        cells = [cell(told[kind], float_["of"]) for kind in (*OURS, *PEERS)]
        lines.append(f"| {name} | {networks[name].counts} | {float_['of']} | {cell(float_, float_['of'])} | " + " | ".join(cells) + " |")
    lines += [
        "",
        *paragraph(
            "The number in parentheses is the cosine to the float network: of each output the mean over the samples, of several outputs the "
            "least. `refused` stands where a file was not made or not run; the reasons are below."
        ),
        "| column | has |",
        "|---|---|",
        "| ours, default | `vta quantize` without options, run by `vta run` on `sim` with `--allow-host` |",
        "| ours, min-max | `vta quantize --method min-max --no-equalize`, run likewise |",
        "| S8S8, U8U8 | onnxruntime's `quantize_static`, QDQ, weights per channel, run by onnxruntime without optimisation |",
        "| ends in float | S8S8 with `nodes_to_exclude`: the first layer with weights, the last, and all behind it |",
        "",
        "## What it costs",
        "",
        *paragraph("Cycles of one sample on `cycle`, operators that the host computes, and seconds of quantising, on a machine that had other work, too:"),
        "| network | from | cycles | on the host | seconds, ours | seconds, S8S8 |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        row, peer = known[name]["default"], known[name]["S8S8"]
        counted = f"{row['cycles']:,}" if row.get("cycles") else ""
        seconds = [f"{r['seconds']:.1f}" if "seconds" in r else "" for r in (row, peer)]
        lines.append(f"| {name} | {origin(networks[name], sources)} | {counted} | {row.get('host_ops', '')} | {seconds[0]} | {seconds[1]} |")
    lines += ["", "## What falls short", ""]
    for name in names:
        faults = [("default", verdict(known[name]))]
        faults += [(kind, known[name][kind]["failed"]) for kind in (*OURS, *PEERS) if kind != "default" and "failed" in known[name][kind]]
        lines += [line for kind, fault in faults if fault for line in bullet(f"{name}, {kind}: {escaped(fault)}")]
    return "\n".join([*lines, "", *how()])


def escaped(text):
    return text.replace("|", "/").replace("<", "&lt;")


def origin(network, sources):
    return sources.version(network.package) if network.package in sources.listed else network.package


def how():
    versions = ", ".join(f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in ("onnx", "onnxruntime"))
    return [
        "## Samples",
        "",
        "- **Photographs** for calibration are wallpapers of Debian; those for tests are pictures of image libraries.",
        *bullet("**Lines and pages of text** are drawn from Python's own documentation. Calibration and test have other "
                "sentences, fonts and grounds."),
        "- **Captchas** are drawn by the package `captcha`, with these fonts.",
        "- **Sounds** are ringtones, and speech of three speakers: one calibrates, the others test.",
        "- **Files** for magika are those of packages; no package has files of both.",
        "- **CIFAR-10** has training images for calibration, test images with their labels for tests.",
        "",
        "| counts | means |",
        "|---|---|",
        "| same class, direction, .. | the largest score is where float's is |",
        "| right label | the largest score is at the image's label |",
        "| same text | the network reads what the float network reads, every character |",
        "| IoU | the intersection of what is above a bound through the union, summed over samples |",
        "| boxes matched | boxes of the same class that overlap by half, of all different boxes of either |",
        "| same neighbour | the nearest other sample by cosine is float's |",
        "",
        *paragraph(f"Packages: {versions}."),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vta", required=True, help="the program")
    parser.add_argument("--folder", help="where files are kept (default: in target/trained)")
    parser.add_argument("--output", default="docs/accuracy.md")
    parser.add_argument("--only", default="", help="names of networks, with commas between")
    parser.add_argument("--make", action="store_true", help="write networks and samples, and quantise nothing")
    parser.add_argument("--small", action="store_true", help="CI's list; fails where onnxruntime is better than ours")
    arguments = parser.parse_args()
    folder = Path(arguments.folder or "target/trained").resolve()
    sources = Sources(folder)
    networks = trained_small.SMALL if arguments.small else __import__("trained_networks").NETS
    names = [name for name in arguments.only.split(",") if name] or list(networks)
    unknown = [name for name in names if name not in networks]
    if unknown:
        sys.exit(f"scripts/trained: no network {unknown[0]} (there are {', '.join(networks)})")
    kept = folder / ("small.json" if arguments.small else "rows.json")
    known = json.loads(kept.read_text()) if kept.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            if arguments.make:
                made(name, networks[name], sources, folder / "networks" / name)
                continue
            known[name] = rows(Path(arguments.vta).resolve(), name, networks[name], sources, folder / "networks" / name)
        except Missing as error:
            print(f"SKIPPED scripts/trained, no network was measured: {error}", file=sys.stderr)
            sys.exit(3)
        kept.write_text(json.dumps(known, indent=1))
    if arguments.make:
        return
    failed = [name for name in names if verdict(known[name])]
    for name in failed:
        print(f"{'failed' if arguments.small else 'short'}: {name}: {verdict(known[name])}", file=sys.stderr)
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    if arguments.small:
        sys.exit(bool(failed))
    Path(arguments.output).write_text(table(networks, known, sources))


if __name__ == "__main__":
    main()
