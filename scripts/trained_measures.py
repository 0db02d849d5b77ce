"""What each network is for, as a number: (right, of), from outputs of the float network and of a quantised one.

A measure takes the two, each an array a sample by the output's name, and the labels, where there are some.
"""

import numpy as np


def softmax(values):
    e = np.exp(values - values.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def classes(expected, found, _):
    """Samples with the same largest score as in float."""
    (a,), (b,) = expected.values(), found.values()
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    return int((a.argmax(1) == b.argmax(1)).sum()), len(a)


def labels(_, found, known):
    """Samples whose largest score is at their label."""
    (b,) = found.values()
    return int((b.reshape(len(b), -1).argmax(1) == known).sum()), len(b)


def near(bound):
    """Samples with no score farther from float than a bound."""

    def measure(expected, found, _):
        (a,), (b,) = expected.values(), found.values()
        return int((np.abs(a - b).reshape(len(a), -1).max(1) <= bound).sum()), len(a)

    return measure


def ctc(scores, blank):
    """The indices that a CTC network reads: of each sample's steps, without repeats and blanks."""
    best = scores.argmax(-1)
    return [tuple(v for k, v in enumerate(row) if v != blank and (k == 0 or v != row[k - 1])) for row in best]


def texts(blank):
    """Samples that read the same as in float, from the scores of classes by steps."""

    def measure(expected, found, _):
        scores = [next(iter(outputs.values())) for outputs in (expected, found)]
        read = [ctc(values.reshape(len(values), -1, values.shape[-1]), blank) for values in scores]
        return sum(a == b for a, b in zip(*read)), len(read[0])

    return measure


def mask(bound):
    """The sum over samples of the intersection of what is above a bound through the union."""

    def measure(expected, found, _):
        (a,), (b,) = expected.values(), found.values()
        return overlaps(a > bound, b > bound), len(a)

    return measure


def overlaps(a, b):
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    union = (a | b).sum(1)
    return float(np.where(union == 0, 1.0, (a & b).sum(1) / np.maximum(union, 1)).sum())


def notes(output, bound):
    """As `mask`, of one output: the frames and pitches that sound."""

    def measure(expected, found, _):
        return overlaps(expected[output] > bound, found[output] > bound), len(found[output])

    return measure


def pitches(expected, found, _):
    """Frames within two steps of 20 cents of float's pitch, of those where float is sure of one."""
    (a,), (b,) = expected.values(), found.values()
    sure = a.max(-1) > 0.5
    return int((np.abs(a.argmax(-1) - b.argmax(-1)) <= 2)[sure].sum()), int(sure.sum())


def neighbours(expected, found, _):
    """Samples whose nearest other sample by cosine is the same as in float."""

    def nearest(values):
        values = values.reshape(len(values), -1)
        values = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
        likeness = values @ values.T
        np.fill_diagonal(likeness, -2)
        return likeness.argmax(1)

    (a,), (b,) = expected.values(), found.values()
    return int((nearest(a) == nearest(b)).sum()), len(a)


def decided(output, bound):
    """Windows on the same side of a bound as in float."""

    def measure(expected, found, _):
        a, b = expected[output].ravel() > bound, found[output].ravel() > bound
        return int((a == b).sum()), len(a)

    return measure


def overlap(a, b):
    """The intersection of each box with each other through the union; a box is left, top, right, bottom."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = np.prod(np.clip(high - low, 0, None), -1)
    areas = [np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), -1) for boxes in (a, b)]
    return inter / np.maximum(areas[0][:, None] + areas[1][None] - inter, 1e-9)


def kept(boxes, scores, least, overlapping=0.5):
    """Boxes with a class and a score of at least `least`, less those that overlap a better one of their class."""
    kinds, best = scores.argmax(1), scores.max(1)
    order = [k for k in np.argsort(-best, kind="stable") if best[k] >= least][:300]
    taken = []
    for k in order:
        same = [t for t in taken if kinds[t] == kinds[k]]
        if not same or overlap(boxes[[k]], boxes[same]).max() < overlapping:
            taken.append(k)
    return [(boxes[k], kinds[k]) for k in taken]


def matched(a, b):
    """Boxes of two lists that match in class and by half of their area, through the number of all."""
    free, pairs = list(b), 0
    for box, kind in a:
        fits = [k for k, (other, of) in enumerate(free) if of == kind and overlap(box[None], other[None])[0, 0] >= 0.5]
        if fits:
            free.pop(fits[0])
            pairs += 1
    return pairs, len(a) + len(b) - pairs


def boxes(decode, least):
    """Boxes of all samples that match float's, through the number of different boxes."""

    def measure(expected, found, _):
        pairs = union = 0
        for k in range(len(next(iter(expected.values())))):
            one = [kept(*decode({name: values[k] for name, values in outputs.items()}), least) for outputs in (expected, found)]
            both, all_ = matched(*one)
            pairs, union = pairs + both, union + all_
        return pairs, union

    return measure


def yolov8(outputs):
    """Boxes and scores of YOLOv8's output: centre, size and scores by anchors."""
    (values,) = outputs.values()
    values = values.T
    centre, half = values[:, :2], values[:, 2:4] / 2
    return np.concatenate([centre - half, centre + half], 1), values[:, 4:]


def yolox(size):
    def decode(outputs):
        (values,) = outputs.values()
        cells = []
        for stride in (8, 16, 32):
            y, x = np.mgrid[: size // stride, : size // stride]
            cells.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], 1))
        x, y, stride = np.concatenate(cells).T.astype(np.float32)
        centre = (values[:, :2] + np.stack([x, y], 1)) * stride[:, None]
        half = np.exp(np.minimum(values[:, 2:4], 20)) * stride[:, None] / 2
        return np.concatenate([centre - half, centre + half], 1), values[:, 4:5] * values[:, 5:]

    return decode


def picodet(height, width):
    """Boxes and scores of PP-PicoDet: scores of four strides, then distributions of the distances to four sides."""

    def decode(outputs):
        values = list(outputs.values())
        scores, sides = values[: len(values) // 2], values[len(values) // 2 :]
        boxes = []
        for stride, distribution in zip((8, 16, 32, 64), sides):
            y, x = np.mgrid[: -(-height // stride), : -(-width // stride)]
            centre = (np.stack([x.ravel(), y.ravel()] * 2, 1) + 0.5) * stride
            bins = softmax(distribution.reshape(len(distribution), 4, -1))
            far = (bins * np.arange(bins.shape[-1])).sum(-1) * stride
            boxes.append(centre + far * [-1, -1, 1, 1])
        return np.concatenate(boxes), np.concatenate(scores)

    return decode
