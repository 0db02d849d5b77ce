"""Quantises trained networks by `vta` and by onnxruntime and measures their tasks; see scripts/trained.

The networks are those of trained_networks.py, or with --small the first of trained_small.py.
"""

import argparse
import importlib.metadata
import json
import sys
import time
from pathlib import Path

import numpy as np

import trained_small
from compared import Given, bullet, command, cosines, ends, escaped, ours, paragraph, quantize, reference
from trained_sources import Missing, Sources

# The options of `vta quantize` whose results the table has.
OURS = {
    "default": [],
    "min-max": ["--method", "min-max", "--no-equalize"],
    "AUTO": ["--keep-float", "AUTO"],
}
PEERS = ["S8S8", "U8U8", "ends in float"]


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


def cycles(vta, model, given):
    text = command([vta, "run", model, *given.arguments("--input", given.first("test")), "--preprocess", "raw", "--allow-host", "--device", "cycle", "--timing-only", "--json"])
    told = json.loads(text)
    return told.get("cycles"), told.get("host_ops", 0)


def means(expected, found):
    """The mean cosine over samples, by outputs."""
    return {name: float(cosines(values, found[name]).mean()) for name, values in expected.items()}


def measured(network, given, expected, find):
    """What one way of quantising gives: `find` returns its outputs, its seconds of quantising and more to record."""
    try:
        found, seconds, more = find()
    except Exception as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return {"failed": text.replace(f"{given.folder}/", "")[:300]}
    right, of = network.measure(expected, found, given.labels)
    return {"right": right, "of": of, "cosines": means(expected, found), "seconds": seconds, **more}


def by_us(vta, given, expected, kind):
    model = given.folder / f"{kind}.vta.onnx"

    def find():
        began = time.monotonic()
        command([vta, "quantize", given.model, *given.arguments("--calibration", "calibration"), "--preprocess", "raw", *OURS[kind], "-o", model])
        seconds = time.monotonic() - began
        found, _ = ours(vta, model, given, expected)
        counted, host = cycles(vta, model, given)
        return found, seconds, {"cycles": counted, "host_ops": host}

    return find


def by_peer(given, kind):
    model = given.folder / f"{kind.replace(' ', '-')}.onnx"

    def find():
        began = time.monotonic()
        quantize("S8S8" if kind == "ends in float" else kind, given, model, ends if kind == "ends in float" else lambda model: [])
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


def is_near(told):
    """Whether AUTO is within 1 % of float, or within its noise of that."""
    auto = told["AUTO"]
    return "failed" not in auto and score(auto) >= 0.99 * score(told["float"]) - noise(auto)


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
    near = [name for name in names if is_near(known[name])]
    whole = [name for name in near if score(known[name]["AUTO"]) >= 0.99 * score(known[name]["float"])]
    lines = [
        "# How right trained networks are",
        "",
        *paragraph(
            f"`scripts/trained` writes this page. {len(names)} networks with trained weights, as packages ship them, were quantised by "
            "`vta quantize` and by onnxruntime, with the same calibration samples. What they then do is measured on other samples: "
            f"other pictures, other fonts and sentences, other recordings and speakers. In {len(held)} of {len(names)} the default of `vta "
            "quantize` is as good as the better of onnxruntime's S8S8 and U8U8, or within one standard error of its own figure. "
            f"With `--keep-float AUTO` {len(whole)} are within 1 % of float, and {len(near)} by one standard error more."
        ),
        "| network | counts | of | float | ours, default | ours, min-max | ours, AUTO | S8S8 | U8U8 | ends in float |",
        "|---|---|---|---|---|---|---|---|---|---|",
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
        "| ours, AUTO | `vta quantize --keep-float AUTO`, run likewise |",
        "| S8S8, U8U8 | onnxruntime's `quantize_static`, QDQ, weights per channel, run by onnxruntime without optimisation |",
        "| ends in float | S8S8 with `nodes_to_exclude`: the first layer with weights, the last, and all behind it |",
        "",
        "## What it costs",
        "",
        *paragraph("Cycles of one sample on `cycle`, operators that the host computes, and seconds of quantising, on a machine that had other work, too:"),
        "| network | from | cycles | on the host | on the host, AUTO | seconds, ours | seconds, S8S8 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        row, peer = known[name]["default"], known[name]["S8S8"]
        counted = f"{row['cycles']:,}" if row.get("cycles") else ""
        seconds = [f"{r['seconds']:.1f}" if "seconds" in r else "" for r in (row, peer)]
        lines.append(f"| {name} | {origin(networks[name], sources)} | {counted} | {row.get('host_ops', '')} | {known[name]['AUTO'].get('host_ops', '')} | {seconds[0]} | {seconds[1]} |")
    lines += ["", "## What falls short", ""]
    for name in names:
        faults = [("default", verdict(known[name]))]
        faults += [(kind, known[name][kind]["failed"]) for kind in (*OURS, *PEERS) if kind != "default" and "failed" in known[name][kind]]
        lines += [line for kind, fault in faults if fault for line in bullet(f"{name}, {kind}: {escaped(fault)}")]
    return "\n".join([*lines, "", *how()])


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
        "| same neighbour | the nearest other sample by cosine is float's; where two are nearly as near, any error decides, so that 1 % can be out of reach |",
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
