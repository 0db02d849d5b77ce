"""The networks of docs/coverage.md: seeded, with activations of a plausible size."""
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F

EXPORTERS = ["classic", "dynamo"]

def tv(name, **kw):
    import torchvision
    return lambda: torchvision.models.get_model(name, weights=None, **kw)

def seg(name):
    import torchvision
    class Out(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=21)
        def forward(self, x): return self.m(x)["out"]
    return Out

def timm_(name, **kw):
    def make():
        import timm
        return timm.create_model(name, pretrained=False, **kw)
    return make

class ConvBN(nn.Sequential):
    def __init__(self, i, o, k=3, s=1, act=nn.ReLU):
        super().__init__(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), act())

class UNet(nn.Module):
    def __init__(self, up):
        super().__init__()
        self.up = up
        c = [16, 32, 64]
        self.d1 = nn.Sequential(ConvBN(3, c[0]), ConvBN(c[0], c[0]))
        self.d2 = nn.Sequential(ConvBN(c[0], c[1]), ConvBN(c[1], c[1]))
        self.d3 = nn.Sequential(ConvBN(c[1], c[2]), ConvBN(c[2], c[2]))
        if up == "transposed":
            self.u2 = nn.ConvTranspose2d(c[2], c[1], 2, 2)
            self.u1 = nn.ConvTranspose2d(c[1], c[0], 2, 2)
        else:
            self.u2, self.u1 = nn.Conv2d(c[2], c[1], 1), nn.Conv2d(c[1], c[0], 1)
        self.e2 = nn.Sequential(ConvBN(2 * c[1], c[1]), ConvBN(c[1], c[1]))
        self.e1 = nn.Sequential(ConvBN(2 * c[0], c[0]), ConvBN(c[0], c[0]))
        self.out = nn.Conv2d(c[0], 4, 1)
    def grow(self, u, x):
        x = u(x)
        if self.up == "transposed": return x
        kw = {} if self.up == "nearest" else {"align_corners": False}
        return F.interpolate(x, scale_factor=2, mode=self.up, **kw)
    def forward(self, x):
        a = self.d1(x); b = self.d2(F.max_pool2d(a, 2)); c = self.d3(F.max_pool2d(b, 2))
        b = self.e2(torch.cat([self.grow(self.u2, c), b], 1))
        a = self.e1(torch.cat([self.grow(self.u1, b), a], 1))
        return self.out(a)

class DCGAN(nn.Module):
    def __init__(self):
        super().__init__()
        def up(i, o, k, s, p): return nn.Sequential(nn.ConvTranspose2d(i, o, k, s, p, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.m = nn.Sequential(up(100, 256, 4, 1, 0), up(256, 128, 4, 2, 1), up(128, 64, 4, 2, 1), up(64, 32, 4, 2, 1),
                               nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
    def forward(self, z): return self.m(z)

class PreAct(nn.Module):
    class Block(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.b1, self.c1 = nn.BatchNorm2d(i), nn.Conv2d(i, o, 3, s, 1, bias=False)
            self.b2, self.c2 = nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False)
            self.s = nn.Conv2d(i, o, 1, s, bias=False) if s > 1 or i != o else None
        def forward(self, x):
            y = F.relu(self.b1(x)); r = self.s(y) if self.s else x
            return self.c2(F.relu(self.b2(self.c1(y)))) + r
    def __init__(self):
        super().__init__()
        B = self.Block
        self.m = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), B(32, 32, 1), B(32, 64, 2), B(64, 128, 2), nn.BatchNorm2d(128), nn.ReLU(),
                               nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    def forward(self, x): return self.m(x)

class Yolo(nn.Module):
    """Leaky ReLUs, up-sampling, concatenation, two scales of boxes."""
    def __init__(self):
        super().__init__()
        L = lambda: nn.LeakyReLU(0.1)
        C = lambda i, o, k=3, s=1: ConvBN(i, o, k, s, L)
        self.a = nn.Sequential(C(3, 16), nn.MaxPool2d(2), C(16, 32), nn.MaxPool2d(2), C(32, 64), nn.MaxPool2d(2), C(64, 128))
        self.b = nn.Sequential(nn.MaxPool2d(2), C(128, 256), C(256, 128, 1))
        self.up, self.c = C(128, 64, 1), C(192, 128)
        self.o1, self.o2 = nn.Conv2d(128, 255, 1), nn.Conv2d(128, 255, 1)
    def forward(self, x):
        a = self.a(x); b = self.b(a)
        c = self.c(torch.cat([F.interpolate(self.up(b), scale_factor=2, mode="nearest"), a], 1))
        return self.o1(b), self.o2(c)

class Ssd(nn.Module):
    """Boxes and classes of three scales in one list."""
    def __init__(self, classes=21, anchors=4):
        super().__init__()
        self.k = classes
        self.f = nn.ModuleList([nn.Sequential(ConvBN(3, 32, 3, 2), ConvBN(32, 64, 3, 2), ConvBN(64, 64)), ConvBN(64, 128, 3, 2), ConvBN(128, 128, 3, 2)])
        self.l = nn.ModuleList([nn.Conv2d(c, anchors * 4, 3, 1, 1) for c in (64, 128, 128)])
        self.c = nn.ModuleList([nn.Conv2d(c, anchors * classes, 3, 1, 1) for c in (64, 128, 128)])
    def forward(self, x):
        boxes, scores = [], []
        for f, l, c in zip(self.f, self.l, self.c):
            x = f(x)
            boxes.append(l(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
            scores.append(c(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.k))
        return torch.cat(boxes, 1), F.softmax(torch.cat(scores, 1), -1)

class Espcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.Sequential(nn.Conv2d(1, 64, 5, 1, 2), nn.ReLU(), nn.Conv2d(64, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3))
    def forward(self, x): return self.m(x)

def mlp(): return nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
def autoencoder():
    return nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 16), nn.Linear(16, 32 * 49), nn.ReLU(),
                         nn.Unflatten(1, (32, 7, 7)), nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 3, 2, 1, 1), nn.Sigmoid())
def conv1d():
    C = lambda i, o, k, s, d=1: nn.Sequential(nn.Conv1d(i, o, k, s, d * (k // 2), dilation=d, bias=False), nn.BatchNorm1d(o), nn.ReLU())
    return nn.Sequential(C(1, 16, 9, 2), nn.MaxPool1d(2), C(16, 32, 5, 1), C(32, 32, 3, 1, 2), C(32, 64, 3, 2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 5))

I = (3, 224, 224)
NETS = {
    "mlp": (mlp, (40,)), "conv1d": (conv1d, (1, 512)), "autoencoder": (autoencoder, (1, 28, 28)), "espcn": (Espcn, (1, 48, 48)),
    "unet_transposed": (lambda: UNet("transposed"), (3, 64, 64)), "unet_nearest": (lambda: UNet("nearest"), (3, 64, 64)), "unet_bilinear": (lambda: UNet("bilinear"), (3, 64, 64)),
    "dcgan": (DCGAN, (100, 1, 1)), "preact": (PreAct, (3, 32, 32)), "yolo": (Yolo, (3, 128, 128)), "ssd": (Ssd, (3, 128, 128)),
    "squeezenet1_1": (tv("squeezenet1_1"), I), "mobilenet_v2": (tv("mobilenet_v2"), I), "mobilenet_v3_small": (tv("mobilenet_v3_small"), I), "mobilenet_v3_large": (tv("mobilenet_v3_large"), I),
    "shufflenet_v2": (tv("shufflenet_v2_x1_0"), I), "mnasnet1_0": (tv("mnasnet1_0"), I), "efficientnet_b0": (tv("efficientnet_b0"), I),
    "regnet_x_400mf": (tv("regnet_x_400mf"), I), "regnet_y_400mf": (tv("regnet_y_400mf"), I), "resnet18": (tv("resnet18"), I),
    "googlenet": (tv("googlenet", aux_logits=False, init_weights=False), I), "densenet121": (tv("densenet121"), I), "resnet50": (tv("resnet50"), I), "resnext50": (tv("resnext50_32x4d"), I),
    "wide_resnet50_2": (tv("wide_resnet50_2"), I), "inception_v3": (tv("inception_v3", aux_logits=False, init_weights=False), (3, 299, 299)), "alexnet": (tv("alexnet"), I), "vgg11_bn": (tv("vgg11_bn"), I),
    "convnext_tiny": (tv("convnext_tiny"), I), "vit_tiny": (timm_("vit_tiny_patch16_224"), I), "swin_t": (tv("swin_t"), I),
    "fcn_resnet50": (seg("fcn_resnet50"), (3, 128, 128)), "deeplabv3_mobilenet_v3_large": (seg("deeplabv3_mobilenet_v3_large"), (3, 128, 128)),
}

def images(shape, count, seed):
    """Smooth noise and fine noise, as photos have both."""
    g = torch.Generator().manual_seed(seed)
    if len(shape) == 3 and min(shape[1:]) > 8:
        c, h, w = shape
        coarse = torch.randn(count, c, max(2, h // 16), max(2, w // 16), generator=g)
        return F.interpolate(coarse, size=(h, w), mode="bicubic", align_corners=False) + 0.1 * torch.randn(count, *shape, generator=g)
    return torch.randn(count, *shape, generator=g)

def build(name):
    """The network, in evaluation mode, its statistics taken over a few images."""
    make, shape = NETS[name]
    torch.manual_seed(1)
    model = make()
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if norms:
        for m in norms: m.momentum = None
        model.train()
        for m in model.modules():
            if isinstance(m, nn.Dropout): m.eval()
        with torch.no_grad():
            for k in range(2): model(images(shape, 8, 100 + k))
    return model.eval(), shape

def export(name, folder, counts):
    """The network's files of both exporters, and arrays of images by their files' names in `counts`, if they aren't there."""
    if (folder / "dynamo.onnx").exists(): return
    torch.set_num_threads(1)
    model, shape = build(name)
    for (what, count), seed in zip(counts.items(), (9, 8)):
        np.save(folder / f"{what}.npy", images(shape, count, seed).numpy())
    example = images(shape, 1, 7)
    options = dict(input_names=["input"], verbose=False)
    with torch.no_grad():
        torch.onnx.export(model, (example,), str(folder / "classic.onnx"), dynamo=False, opset_version=17, **options)
        torch.onnx.export(model, (example,), str(folder / "dynamo.onnx"), dynamo=True, **options)

def bounds(name, exporter): return {}
