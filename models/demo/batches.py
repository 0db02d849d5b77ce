"""Make CIFAR-10's binary batches from JPEGs.

Usage: batches.py JPEG_DIR OUT_DIR
JPEG_DIR holds {train|test}/CLASS/NUMBER.jpg, classes in CIFAR-10's order (which is the alphabet's). Writes
OUT_DIR/data_batch_1.bin and OUT_DIR/test_batch.bin: for each image its label and 3072 planar RGB bytes.
"""

import pathlib, sys, numpy as np
from PIL import Image

source, out = map(pathlib.Path, sys.argv[1:3])
for part, name in ("train", "data_batch_1.bin"), ("test", "test_batch.bin"):
    with open(out / name, "wb") as batch:
        for label, folder in enumerate(sorted(p for p in (source / part).iterdir() if p.is_dir())):
            for photo in sorted(folder.glob("*.jpg")):
                pixels = np.asarray(Image.open(photo).convert("RGB"))
                batch.write(bytes([label]) + pixels.transpose(2, 0, 1).tobytes())
