"""Music, speech and files for scripts/trained; calibration and test share no recording, speaker or file."""

import bz2
import gzip
import io
import lzma
import random
import zipfile

import numpy as np


def recording(path, rate):
    """A recording as one channel at another rate."""
    import soundfile

    samples, given = soundfile.read(str(path), dtype="float32", always_2d=True)
    samples = samples.mean(1)
    if given == rate:
        return samples
    count = int(len(samples) * rate / given)
    if given > rate:
        # What the new rate can't hold goes: a mean over as many samples as become one.
        width = max(1, round(given / rate))
        samples = np.convolve(samples, np.full(width, 1 / width, np.float32), "same")
    return np.interp(np.arange(count) * given / rate, np.arange(len(samples)), samples).astype(np.float32)


def music(sources, what):
    """Ringtones: every second calibrates, the others test."""
    found = sources.files("lomiri-sounds", "ringtones/*.ogg")
    return found[::2] if what == "calibration" else found[1::2]


def speech(sources, what):
    """An English speaker calibrates; a French one and an Italian one test."""
    languages = {"calibration": ["en"], "test": ["fr", "it"]}[what]
    found = [sources.files(f"asterisk-core-sounds-{language}-wav", "*.wav") for language in languages]
    # Of each language as many, in turn.
    return [path for pair in zip(*found) for path in pair if path.stat().st_size > 40_000]


def windows(paths, rate, size, count, quietest=1e-3):
    """So many windows, in turn from all recordings, that aren't silence."""
    taken, offset = [], 0
    while len(taken) < count:
        before = len(taken)
        for path in paths:
            samples = recording(path, rate)[offset : offset + size]
            if len(samples) == size and samples.std() > quietest and len(taken) < count:
                taken.append(samples)
        if len(taken) == before:
            break
        offset += size
    return np.stack(taken)


def talk(paths, rate, size, count):
    """Windows of speech with silence of half a second to two seconds between."""
    draw = random.Random(6)
    taken, paths = [], iter(paths)
    while len(taken) < count:
        parts = []
        while sum(map(len, parts)) < size:
            parts += [np.zeros(int(rate * draw.uniform(0.5, 2)), np.float32), recording(next(paths), rate)[: rate * 2]]
        noise = np.random.default_rng(len(taken)).normal(0, 0.001, size)
        taken.append((np.concatenate(parts)[:size] + noise).astype(np.float32))
    return np.stack(taken)


# Packages whose files calibrate, and those whose files test.
FILES = {
    "calibration": ["rapidocr-onnxruntime", "scikit-image", "magika", "lomiri-wallpapers-16.04", "fonts-dejavu-core", "nudenet"],
    "test": ["scikit-learn", "ultralytics", "imgaug", "insightface", "mahotas", "lomiri-sounds", "asterisk-core-sounds-it-wav",
             "fonts-lato", "openwakeword", "captcha-whisperer", "silero-vad", "basic-pitch"],
}


def contents(sources, what, each, count):
    """Bytes of files of as many kinds as the packages have, and of archives and pictures made of some."""
    kinds = {}
    for name in FILES[what]:
        for path in sources.files(name, "*"):
            if path.suffix and path.stat().st_size >= 200:
                kinds.setdefault(path.suffix.lower(), []).append(path)
    found = []
    for suffix in sorted(kinds):
        step = max(1, len(kinds[suffix]) // each)
        found += [path.read_bytes() for path in kinds[suffix][::step][:each]]
    texts = [path.read_bytes() for path in kinds[".py"][:2]]
    pictures = [path for path in kinds.get(".jpg", []) + kinds.get(".png", [])][:2]
    found += [pack(text) for text in texts for pack in (gzip.compress, bz2.compress, lzma.compress, zipped)]
    found += [converted(path, form) for path in pictures for form in ("BMP", "GIF", "TIFF", "WEBP", "PDF", "ICO")]
    random.Random(7).shuffle(found)
    return found[:count]


def zipped(content):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as opened:
        opened.writestr("content", content)
    return out.getvalue()


def converted(path, form):
    from PIL import Image

    out = io.BytesIO()
    picture = Image.open(path).convert("RGB")
    picture.thumbnail((256, 256))
    picture.save(out, form)
    return out.getvalue()


def edges(content, size=1024, padding=256):
    """magika's input: the first and the last bytes that aren't white space."""
    first, last = content[:4096].lstrip()[:size], content[-4096:].rstrip()[-size:]
    return np.array([*first, *[padding] * (size - len(first)), *[padding] * (size - len(last)), *last], np.int32)
