"""What a call from Python costs beside the command line's compute.

The command line runs many images, one after the other on one thread, once few and once many of them: the
difference, for each image, is its compute without loading and printing, but with reading it from the file. A call of
`InferenceSession.run` takes one of as many images, or all of them, so that their difference is what a call costs. All are
repeated in turns, and medians compared. Run it on a machine that does nothing else:

    cargo build --release -p vta && scripts/python --wheel
    pip install target/python/wheels/*.whl onnx
    python python/benches/overhead.py --vta target/release/vta
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import pyvta

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import onnx_bytes, pictures


def tiny():
    """A convolution and a dense layer of 3x8x8."""
    random = np.random.default_rng(5)
    constants = {
        "w": random.standard_normal((16, 3, 3, 3)).astype(np.float32) / 5,
        "v": random.standard_normal((16, 5)).astype(np.float32) / 4,
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("GlobalAveragePool", ["r"], ["p"], {}),
        ("Flatten", ["p"], ["f"], {}),
        ("MatMul", ["f", "v"], ["y"], {}),
    ]
    model = onnx_bytes(nodes, {"x": ("f", ["n", 3, 8, 8])}, {"y": ("f", ["n", 5])}, constants)
    return pyvta.quantize(model, pictures(16, shape=(3, 8, 8)))


def command_line_us(vta, model, folder, shape, counts):
    """Microseconds of one more image."""
    walls = []
    for count in counts:
        path = folder / f"x{count}.npy"
        if not path.exists():
            np.save(path, pictures(count, shape=shape))
        command = [vta, "run", str(model), "--input", str(path), "--threads", "1", "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        walls.append(json.loads(done.stdout)["wall_ms"])
    return (walls[1] - walls[0]) * 1e3 / (counts[1] - counts[0])


def python_us(session, images):
    """Microseconds of an image: each in a call of its own, and all in one."""
    [name] = [taken.name for taken in session.get_inputs()]
    begin = time.perf_counter()
    for at in range(len(images)):
        session.run(None, {name: images[at : at + 1]})
    middle = time.perf_counter()
    session.run(None, {name: images})
    end = time.perf_counter()
    return (middle - begin) * 1e6 / len(images), (end - middle) * 1e6 / len(images)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--vta", default="target/release/vta")
    arguments.add_argument("--rounds", type=int, default=9)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny().save(folder / "tiny.onnx")
        print("| network | command line, us an image | Python, many in a call | one in a call | a call costs |")
        print("|---|---|---|---|---|")
        for title, model, shape, counts in [
            ("3x8x8, two layers", folder / "tiny.onnx", (3, 8, 8), (500, 4500)),
            ("demo (ResNet-20)", "demo", (3, 32, 32), (50, 450)),
            ("zoo:resnet18", "zoo:resnet18", (3, 224, 224), (3, 23)),
        ]:
            session = pyvta.InferenceSession(model, threads=1)
            images = pictures(counts[1] - counts[0], shape=shape)
            python_us(session, images)
            rows = []
            for _ in range(given.rounds):
                of_cli = command_line_us(given.vta, model, folder, shape, counts)
                rows.append((of_cli, *python_us(session, images)))
            (folder / f"x{counts[0]}.npy").unlink()
            (folder / f"x{counts[1]}.npy").unlink()
            of_cli, one, many = (statistics.median(column) for column in zip(*rows, strict=True))
            # Of each round, since the machine's speed changes from one to the next.
            more = statistics.median(row[1] - row[2] for row in rows)
            print(f"| {title} | {of_cli:.0f} | {many:.0f} | {one:.0f} | {more:.0f} us, {more / many:.1%} |")


if __name__ == "__main__":
    main()
