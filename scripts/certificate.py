"""Ten layers: what they take, what they take at least, and what AccelForge's mapper finds: see scripts/certificate."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import accelforge as af
from accelforge.mapper.FFM.main import map_workload_to_arch

#: Layers of ResNet-18: input channels and side, output channels, kernel, stride, padding.
LAYERS = {
    "C2": (64, 56, 64, 3, 1, 1),
    "C3": (64, 56, 128, 1, 2, 0),
    "C4": (64, 56, 128, 3, 2, 1),
    "C5": (128, 28, 128, 3, 1, 1),
    "C6": (128, 28, 256, 1, 2, 0),
    "C7": (128, 28, 256, 3, 2, 1),
    "C8": (256, 14, 256, 3, 1, 1),
    "C9": (256, 14, 512, 1, 2, 0),
    "C10": (256, 14, 512, 3, 2, 1),
    "C11": (512, 7, 512, 3, 1, 1),
}

#: Bytes of the default configuration's scratchpads. Sums are 32 bits, and the mapper counts 8 for each value.
BUFFERS = {"input": 2**15, "weight": 2**18, "output": 2**17 // 4}
#: Bits that the bus moves in a cycle, each way; the other memories are never what decides.
BUS = 64


def memory(name: str, size: object, throughput: object, energy: int, tensors: str) -> str:
    actions = [f"{{name: {of}, energy: {energy}, throughput: {throughput}}}" for of in ("read", "write")]
    return f"""
  - !Memory
    name: {name}
    size: {size}
    leak_power: 0
    area: 0
    total_latency: max(a.n_calls / a.throughput for a in actions)
    tensors: {{{tensors}}}
    actions: [{", ".join(actions)}]"""


def machine() -> str:
    """DRAM, a scratchpad for each tensor in any order of loops, 16 by 16 multipliers. Sums don't return from DRAM."""
    nodes = [memory("DRAM", "inf", BUS, 1, "keep: All")]
    for tensor, size in BUFFERS.items():
        stays = ", no_refetch_from_above: output" if tensor == "output" else ""
        keep = f"keep: {tensor}, force_memory_hierarchy_order: False{stays}"
        nodes.append(memory(tensor.title(), 8 * size, "inf", 0, keep))
    return (
        "arch:\n  nodes:"
        + "".join(nodes)
        + """
  - !Container
    name: Lanes
    spatial:
    - {name: inputs, fanout: 16, reuse: input, min_usage: 1}
    - {name: outputs, fanout: 16, reuse: output, min_usage: 1}
  - !Compute
    name: Multiplier
    leak_power: 0
    area: 0
    actions: [{name: compute, energy: 0, throughput: 1}]
"""
    )


def workload(layer: tuple[int, ...]) -> str:
    ci, size, co, kernel, stride, pad = layer
    out = (size + 2 * pad - kernel) // stride + 1
    sides = {"p": out, "q": out, "c": ci, "m": co, "r": kernel, "s": kernel}
    space = ", ".join(f"0 <= {name} < {side}" for name, side in sides.items())
    return f"""
workload:
  bits_per_value: {{All: 8}}
  einsums:
  - einsum: "O[p, q, m] = I[c, H: p * {stride} + r, W: q * {stride} + s] * K[r, s, c, m]"
    iteration_space_shape: [{space}]
    renames: {{output: O, input: I, weight: K}}
"""


def mapped(layer: tuple[int, ...]) -> tuple[int, int]:
    """Cycles and bytes of the mapping with the fewest cycles, and of these the fewest bits of DRAM."""
    with tempfile.TemporaryDirectory(prefix="certificate-") as place:
        files = [Path(place) / name for name in ("machine.yaml", "workload.yaml")]
        for file, text in zip(files, (machine(), workload(layer)), strict=True):
            file.write_text(text)
        spec = af.Spec.from_yaml(*files)
        spec.mapper.metrics = af.mapper.Metrics.LATENCY | af.mapper.Metrics.ENERGY
        # In detail it would draw a picture, for which it needs Graphviz.
        found = map_workload_to_arch(spec, eval_in_detail=False, print_progress=False).data
    rows = found[["Total<SEP>latency", "Total<SEP>energy"]].to_numpy().tolist()
    cycles, bits = min(rows)
    return round(cycles), round(bits / 8)


def ours(vta: str, layer: tuple[int, ...]) -> dict:
    ci, size, co, kernel, stride, pad = layer
    spec = f"conv:1,{ci},{size},{size},{co},{kernel},{stride},{pad}"
    done = subprocess.run([vta, "tune", spec, "--certificate", "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{vta}: {done.stderr}")
    return json.loads(done.stdout)["layers"][0]


def main(vta: str) -> None:
    af.set_n_parallel_jobs(1)
    print("| layer | cycles | at least | gap | AccelForge | bytes | at least | AccelForge |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, layer in LAYERS.items():
        our, (cycles, moved) = ours(vta, layer), mapped(layer)
        least = our["least"]
        cells = (our["cycles"], least["cycles"], cycles, our["bytes"], least["bytes"], moved)
        texts = [f"{cell:,}" for cell in cells]
        texts.insert(2, f"{our['gap']:.1%}".replace("%", " %"))
        print(f"| {name} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
