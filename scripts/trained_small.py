"""The networks of CIFAR-10 of scripts/trained, with labels; `--small` takes the first two alone.

They lie in models/demo and ../shared/models, or where `VTA_SHARED` says.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np

import trained_measures as measures
from trained_sources import Missing

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "models/demo"
SHARED = Path(os.environ.get("VTA_SHARED", ROOT.parent / "shared")) / "models"
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]


@dataclass
class Network:
    package: str
    # What is counted, in words.
    counts: str
    measure: Callable
    # Writes the model and returns its inputs in the model's order: for "calibration" and "test" a list of arrays, each
    # a sample an entry, and perhaps "labels".
    make: Callable


def raw(images):
    return images.astype(np.float32)


def normalized(images):
    mean, std = (np.float32(values).reshape(3, 1, 1) for values in (MEAN, STD))
    return (images.astype(np.float32) / 255 - mean) / std


def enlarged(images):
    """Bilinear to 224x224, edges repeated."""
    at = np.clip((np.arange(224) + 0.5) / 7 - 0.5, 0, 31)
    low = np.floor(at).astype(int)
    share = np.zeros((224, 32), np.float32)
    np.add.at(share, (np.arange(224), low), 1 - (at - low))
    np.add.at(share, (np.arange(224), np.minimum(low + 1, 31)), at - low)
    return share @ normalized(images) @ share.T


def cifar(path, prepare, calibration, test):
    """A network of CIFAR-10, with so many training images for calibration and so many test images."""

    def make(_, model):
        if not path.exists():
            raise Missing(f"{path}: no such file (VTA_SHARED names its folder)")
        shutil.copy(path, model)
        images, tested = np.load(DEMO / "cifar10_calib128.npz")["images"], np.load(DEMO / "cifar10_test200.npz")
        given = {"calibration": images[:calibration], "test": tested["images"][:test]}
        return {**{what: [prepare(values)] for what, values in given.items()}, "labels": tested["labels"][:test]}

    def network(package):
        return Network(package, "right label", measures.labels, make)

    return network


SMALL = {
    "resnet20": cifar(DEMO / "resnet20_f32.onnx", normalized, 128, 200)("models/demo"),
    "resnet8": cifar(SHARED / "mlperf_resnet8_f32.onnx", raw, 128, 200)("MLPerf Tiny"),
}
NETS = {
    **SMALL,
    "resnet18-cifar": cifar(SHARED / "own/resnet18_cifar224_f32.onnx", enlarged, 32, 60)("trained for this project"),
    "mobilenet-v2-cifar": cifar(DEMO / "mobilenet_v2_cifar224_f16.onnx", enlarged, 32, 100)("models/demo"),
    "efficientnet-lite0-cifar": cifar(DEMO / "efficientnet_lite0_cifar224_f16.onnx", enlarged, 32, 100)("models/demo"),
}
