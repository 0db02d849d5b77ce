"""The networks of docs/coverage.md, chosen by a rule, and how their files are made.

The rule: of each module of timm's registry, and of torchvision's, the network with the fewest parameters at its default
input size. Of torchaudio, and of what is written in coverage_networks.py, all.
"""

import collections
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

EXPORTERS = ["classic", "dynamo"]
# How many samples quantising sees, and how many are compared. Networks of more than LARGE multiply-adds get few.
COUNTS = {"calibration": 16, "test": 8}
FEW = {"calibration": 8, "test": 4}
LARGE = 7e8


@dataclass
class Network:
    # Where it comes from, and the module there.
    family: str
    make: Callable
    # Of each input, without the batch.
    shapes: tuple
    parameters: int = 0

    @property
    def size(self):
        """What long ones have more of."""
        return (self.parameters + 1e6) * np.prod(self.shapes[0][1:])


def smallest(names, make):
    """Of names, the one whose network has the fewest parameters, and how many."""
    counts = {}
    for name in names:
        try:
            # Without memory for parameters, since some have billions.
            with torch.device("meta"):
                model = make(name)
        except Exception:
            # It computes with values when it is made.
            model = make(name)
        counts[name] = sum(parameter.numel() for parameter in model.parameters())
    count, name = min((count, name) for name, count in counts.items())
    return name, count


def of_timm(module):
    import timm

    # Names that begin with "test_" are miniatures for timm's own tests.
    names = [name for name in timm.list_models(module=module) if not name.startswith("test_")]
    return smallest(names, lambda name: timm.create_model(name, pretrained=False))


def timm_network(module, name, parameters):
    import timm

    shape = timm.get_pretrained_cfg(name, allow_unregistered=True).input_size
    return Network(f"timm {module}", lambda: timm.create_model(name, pretrained=False), (tuple(shape),), parameters)


def vision_modules():
    """Names by torchvision's modules. Those of `quantization` are the same networks once more, and Mask and Keypoint
    R-CNN are Faster R-CNN up to its proposals."""
    import torchvision
    from torchvision.models import _api

    modules = collections.defaultdict(list)
    for name in torchvision.models.list_models():
        module = _api.BUILTIN_MODELS[name].__module__.removeprefix("torchvision.models.")
        if not module.startswith(("quantization.", "detection.mask_rcnn", "detection.keypoint_rcnn")):
            modules[module].append(name)
    return modules


def vision_make(name):
    import torchvision

    config = {"weights": None}
    module = torchvision.models.get_model_builder(name).__module__
    if ".detection" in module or ".segmentation" in module:
        config["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        config.update(aux_logits=False, init_weights=False)
    return torchvision.models.get_model(name, **config)


class Detector(nn.Module):
    """A detector of torchvision up to its boxes and scores, before they are selected."""

    def __init__(self, model):
        super().__init__()
        self.backbone, self.head = model.backbone, model.rpn.head if hasattr(model, "rpn") else model.head

    def forward(self, x):
        features = self.backbone(x)
        return self.head([features] if isinstance(features, torch.Tensor) else list(features.values()))


def vision_network(module, name, parameters):
    import torchvision

    kind, _, base = module.rpartition(".")
    if kind == "detection":
        return Network(f"torchvision {module}", lambda: Detector(vision_make(name)), ((3, 320, 320),), parameters)
    if kind == "optical_flow":
        return Network(f"torchvision {module}", lambda: vision_make(name), ((3, 128, 128),) * 2, parameters)
    transforms = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    size = list(getattr(transforms, "crop_size", [224]))
    size = size * 2 if len(size) == 1 else size
    shape = (3, 16, *size) if kind == "video" else (3, *size)
    return Network(f"torchvision {module}", lambda: vision_make(name), (shape,), parameters)


def audio_networks():
    """torchaudio's networks, at sizes that its documentation shows."""
    import torchaudio.models as audio

    class Lengths(nn.Module):
        """Whole sequences alone, so that lengths aren't inputs."""

        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x, torch.full((x.shape[0],), x.shape[1]))[0]

    made = {
        "wav2letter": (lambda: audio.Wav2Letter(num_classes=40, input_type="mfcc", num_features=40), (40, 200)),
        "deepspeech": (lambda: audio.DeepSpeech(n_feature=80, n_hidden=512), (1, 100, 80)),
        "conformer": (lambda: Lengths(audio.Conformer(80, 4, 128, 4, 31)), (100, 80)),
        "emformer": (lambda: Lengths(audio.Emformer(80, 4, 256, 4, 16)), (96, 80)),
        "conv_tasnet": (audio.conv_tasnet_base, (1, 8000)),
        "hdemucs_low": (lambda: audio.hdemucs_low(["drums", "vocals"]), (2, 16384)),
        "wav2vec2_base": (audio.wav2vec2_base, (16000,)),
        "wavlm_base": (audio.wavlm_base, (16000,)),
        "squim_objective_base": (audio.squim_objective_base, (16000,)),
        "wavernn": (lambda: audio.WaveRNN([4, 5, 10], 512, 200, n_freq=80, n_hidden=64), ((1, 2000), (1, 80, 14))),
    }
    for name, (make, *shapes) in made.items():
        shapes = shapes[0] if isinstance(shapes[0][0], tuple) else tuple(shapes)
        yield f"torchaudio/{name}", Network(f"torchaudio {name}", make, shapes)


def networks(folder):
    """All by their names. The rule takes minutes, so that its choice is kept in a folder."""
    import timm
    import torchvision

    import coverage_networks

    kept = Path(folder) / "smallest.json"
    versions = [timm.__version__, torchvision.__version__.split("+")[0]]
    chosen = json.loads(kept.read_text()) if kept.exists() else {}
    if chosen.get("versions") != versions:
        chosen = {
            "versions": versions,
            "timm": {module: of_timm(module) for module in timm.list_modules()},
            "torchvision": {module: smallest(names, vision_make) for module, names in vision_modules().items()},
        }
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(chosen, indent=1))
    found = {f"timm/{name}": timm_network(module, name, count) for module, (name, count) in chosen["timm"].items()}
    found |= {f"torchvision/{name}": vision_network(module, name, count) for module, (name, count) in chosen["torchvision"].items()}
    found |= dict(audio_networks())
    for name, (make, *shapes) in coverage_networks.NETS.items():
        found[f"written/{name}"] = Network("written for this page", make, tuple(shapes))
    return found


def samples(shape, count, seed, grain=16):
    """Smooth noise and fine noise, as photographs and sounds have both, each sample with a contrast of its own."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size):
        return torch.randn(count, *size, generator=generator)

    rest = min(len(shape) - 1, 3) if len(shape) > 1 else 1
    channels, sizes = shape[:-rest], shape[len(shape) - rest :]
    fine = draw(*shape)
    if max(sizes) <= 8:
        return fine
    coarse = draw(int(np.prod(channels)), *(max(2, size // grain) if size > 8 else size for size in sizes))
    mode = ["linear", "bicubic", "trilinear"][rest - 1]
    smooth = F.interpolate(coarse, size=sizes, mode=mode, align_corners=False).reshape(count, *shape)
    contrast = (0.4 * draw(*[1] * len(shape))).exp()
    return contrast * (smooth + 0.1 * fine)


class Plain(nn.Module):
    """A network whose outputs are tensors in a row, whatever structure they have."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        found = []

        def walk(value):
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif isinstance(value, dict):
                list(map(walk, value.values()))
            elif isinstance(value, (list, tuple)):
                list(map(walk, value))

        walk(self.model(*inputs))
        return found[0] if len(found) == 1 else tuple(found)


def enliven(model):
    """Draws weights that training would move far from where they begin: of a layer that is zero, of a norm that is zero,
    and small scales of a branch. Otherwise such layers add nothing that int8 could lose."""
    generator = torch.Generator().manual_seed(3)
    for name, value in model.named_parameters():
        if name.endswith("bias") or value.numel() < 2 or not value.is_floating_point() or value.min() != value.max():
            continue
        if value.ndim > 1 and value.shape.numel() > max(value.shape) and value.max() == 0:
            value.copy_(torch.randn(value.shape, generator=generator) / value[0].numel() ** 0.5)
        elif value.shape.numel() == max(value.shape) and abs(value.max()) < 0.2:
            value.copy_(0.2 + 0.6 * torch.rand(value.shape, generator=generator))


def even(model, inputs):
    """Scales the weights of layers whose results are far smaller or larger than 1, so that no part fades away, and counts
    the multiply-adds of a sample."""
    products = []

    def hook(layer, given, found):
        # Of a transposed convolution those of its inputs; of others, of its outputs.
        places = given[0] if getattr(layer, "transposed", False) else found
        products.append(layer.weight.numel() * places.numel() / layer.weight.shape[0] / len(inputs[0]))
        bias = 0 if layer.bias is None else layer.bias.reshape(-1, *[1] * (found.ndim - 2 if isinstance(layer, convolutions) else 0))
        size = (found - bias).std()
        if 0.5 < size < 2 or not 0 < size < float("inf"):
            return found
        layer.weight /= size
        return (found - bias) / size + bias

    convolutions = nn.modules.conv._ConvNd
    layers = [layer for layer in model.modules() if isinstance(layer, (convolutions, nn.Linear))]
    hooks = [layer.register_forward_hook(hook) for layer in layers]
    model(*inputs)
    for hooked in hooks:
        hooked.remove()
    return sum(products)


@torch.no_grad()
def build(network):
    """The network, in evaluation mode, its statistics taken over a few images, and its multiply-adds."""
    torch.manual_seed(1)
    model = Plain(network.make()).eval()
    enliven(model)
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.momentum = None
        norm.train()
    few = [tuple(samples(shape, 8, 100 + k) for shape in network.shapes) for k in range(2)]
    products = even(model, few[0])
    for norm in norms:
        norm.reset_running_stats()
    for inputs in few if norms else []:
        model(*inputs)
    return model.eval(), products


def export(network, folder):
    """Writes a folder for each exporter with the network's file and its samples, and says which failed and why."""
    torch.set_num_threads(1)
    failed = {}
    made = functools.cache(lambda: build(network))
    for exporter in EXPORTERS:
        into = folder / exporter
        if (into / "made").exists():
            continue
        into.mkdir(parents=True, exist_ok=True)
        inputs = tuple(samples(shape, 1, 7) for shape in network.shapes)
        names = [f"input{k or ''}" for k in range(len(inputs))]
        options = {"dynamo": True} if exporter == "dynamo" else {"dynamo": False, "opset_version": 17}
        try:
            with torch.no_grad():
                torch.onnx.export(made()[0], inputs, str(into / "model.onnx"), input_names=names, verbose=False, **options)
        except Exception as error:
            while error.__cause__:
                error = error.__cause__
            failed[exporter] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            continue
        counts = FEW if made()[1] > LARGE else COUNTS
        # Other samples, of finer grain, are compared.
        for what, seed, grain in (("calibration", 9, 16), ("test", 8, 10)):
            for k, shape in enumerate(network.shapes):
                np.save(into / f"{what}.{k}.npy", samples(shape, counts[what], seed + 100 * k, grain).numpy())
        (into / "made").touch()
    return failed
