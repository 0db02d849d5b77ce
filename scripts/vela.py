"""What Arm's Vela estimates for networks, for NPUs of 256 multiply-adds a cycle: see scripts/vela."""

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

#: The machines, with Vela's own default of memory and clock for each.
MACHINES = ("ethos-u55-256", "ethos-u85-256")
BIN = Path(sys.executable).parent
#: Where onnx2tf looks for images before it would fetch some.
IMAGES = "calibration_image_sample_data_20x128x128x3_float32.npy"


def run(folder: Path, *command: object) -> None:
    # onnx2tf calls other tools.
    env = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command[0]}: {(done.stdout + done.stderr)[-2000:]}")


def quantised(model: Path, folder: Path) -> Path:
    """An int8 file of TFLite, per channel."""
    if model.suffix == ".tflite":
        return model
    noise = np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32)
    np.save(folder / IMAGES, noise)
    types = ("-oiqt", "-qt", "per-channel", "-iqd", "int8", "-oqd", "int8")
    run(folder, BIN / "onnx2tf", "-i", model, "-o", folder, "-n", *types)
    return folder / f"{model.stem}_full_integer_quant.tflite"


def estimate(model: Path, machine: str, folder: Path) -> dict[str, str]:
    """The line of Vela's summary."""
    run(folder, BIN / "vela", model, "--accelerator-config", machine, "--optimise", "Performance", "--output-dir", machine)
    [summary] = (folder / machine).glob("*_summary_*.csv")
    with summary.open() as lines:
        [row] = csv.DictReader(lines)
    return row


def main(models: list[str]) -> None:
    if not models:
        sys.exit("usage: scripts/vela MODEL.tflite|MODEL.onnx ..")
    print("| network | multiply-adds | machine | cycles | NPU | SRAM | DRAM or flash | clock | ms | system, memory |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|---|")
    for name in models:
        with tempfile.TemporaryDirectory(prefix="vela-") as place:
            model = quantised(Path(name).absolute(), Path(place))
            for machine in MACHINES:
                row = estimate(model, machine, Path(place))
                total, npu, sram = (int(float(row[f"cycles_{of}"])) for of in ("total", "npu", "sram_access"))
                outside = sum(int(float(row[f"cycles_{of}_access"])) for of in ("dram", "off_chip_flash"))
                clock, ms = float(row["core_clock"]) / 1e6, float(row["inference_time"]) * 1e3
                cells = (
                    Path(name).stem, f"{int(row['nn_macs']):,}", machine, f"{total:,}", f"{npu:,}", f"{sram:,}",
                    f"{outside:,}", f"{clock:.0f} MHz", f"{ms:.2f}", f"{row['system_config']}, {row['memory_mode']}",
                )  # fmt: skip
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
