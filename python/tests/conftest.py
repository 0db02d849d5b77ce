"""What tests share: models, images, the command line."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import pyvta

ROOT = Path(__file__).parents[2]


def pictures(count, seed=0, shape=(3, 32, 32)):
    """Seeded noise, float32."""
    return np.random.default_rng(seed).standard_normal((count, *shape)).astype(np.float32)


def missing(text):
    """Skips a test; fails it where skipping must not go unseen."""
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="session")
def demo():
    return pyvta.InferenceSession("demo")


@pytest.fixture(scope="session")
def float_model():
    return ROOT / "models/demo/resnet20_f32.onnx"


@pytest.fixture(scope="session")
def shared():
    """The folder of recorded runs and models."""
    folder = Path(os.environ.get("VTA_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        missing(f"no test data at {folder} (set VTA_SHARED)")
    return folder


@pytest.fixture(scope="session")
def vta():
    """Runs the command line, which VTA_BIN names or target/release has."""
    binary = Path(os.environ.get("VTA_BIN", ROOT / "target/release/vta"))
    if not binary.is_file():
        missing(f"no command line at {binary} (set VTA_BIN)")

    def run(*arguments):
        arguments = [str(argument) for argument in arguments]
        return subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout

    return run
