"""The networks of docs/coverage.md that are written in plain PyTorch: forms that registries of networks don't have."""
import torch, torch.nn as nn, torch.nn.functional as F

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

class WhisperEncoder(nn.Module):
    """Two convolutions of a spectrogram, positions that are constants, and blocks of attention."""
    class Block(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads, self.n1, self.n2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
            self.q, self.k, self.v, self.o = nn.Linear(d, d), nn.Linear(d, d, bias=False), nn.Linear(d, d), nn.Linear(d, d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        def forward(self, x):
            y = self.n1(x)
            q, k, v = (m(y).view(*y.shape[:2], self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
            scale = q.shape[-1] ** -0.25
            w = F.softmax((q * scale) @ (k * scale).transpose(2, 3), -1)
            x = x + self.o((w @ v).transpose(1, 2).flatten(2))
            return x + self.mlp(self.n2(x))
    def __init__(self, mels=80, frames=300, d=192, heads=3, layers=4):
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(mels, d, 3, 1, 1), nn.Conv1d(d, d, 3, 2, 1)
        rate = torch.exp(-torch.arange(d // 2) * (9.21 / (d // 2 - 1)))
        turn = torch.arange(frames // 2)[:, None] * rate
        self.register_buffer("positions", torch.cat([turn.sin(), turn.cos()], 1))
        self.blocks, self.norm = nn.Sequential(*(self.Block(d, heads) for _ in range(layers))), nn.LayerNorm(d)
    def forward(self, x):
        x = F.gelu(self.c2(F.gelu(self.c1(x)))).transpose(1, 2)
        return self.norm(self.blocks(x + self.positions))

class QuartzNet(nn.Module):
    """Separable convolutions of a spectrogram with residual blocks, a text's scores at the end."""
    def __init__(self, mels=64, d=128, k=11, blocks=4, letters=29):
        super().__init__()
        def part(i, o, k, s=1): return nn.Sequential(nn.Conv1d(i, i, k, s, k // 2, groups=i, bias=False), nn.Conv1d(i, o, 1, bias=False), nn.BatchNorm1d(o))
        self.first, self.last = nn.Sequential(part(mels, d, k, 2), nn.ReLU()), nn.Conv1d(d, letters, 1)
        self.blocks = nn.ModuleList(nn.Sequential(part(d, d, k + 2 * b), nn.ReLU(), part(d, d, k + 2 * b)) for b in range(blocks))
        self.sides = nn.ModuleList(nn.Sequential(nn.Conv1d(d, d, 1, bias=False), nn.BatchNorm1d(d)) for _ in range(blocks))
    def forward(self, x):
        x = self.first(x)
        for block, side in zip(self.blocks, self.sides): x = F.relu(block(x) + side(x))
        return F.log_softmax(self.last(x).transpose(1, 2), -1)

class XVector(nn.Module):
    """Dilated convolutions of a spectrogram, and the mean and the deviation over time."""
    def __init__(self, mels=40, d=128):
        super().__init__()
        def part(i, o, k, dilation): return nn.Sequential(nn.Conv1d(i, o, k, dilation=dilation), nn.ReLU(), nn.BatchNorm1d(o))
        self.frames = nn.Sequential(part(mels, d, 5, 1), part(d, d, 3, 2), part(d, d, 3, 3), part(d, 2 * d, 1, 1))
        self.embed = nn.Sequential(nn.Linear(4 * d, d), nn.ReLU(), nn.Linear(d, d))
    def forward(self, x):
        x = self.frames(x)
        return self.embed(torch.cat([x.mean(2), (x.var(2) + 1e-5).sqrt()], 1))

class Keywords(nn.Module):
    """A depthwise separable network for words in a spectrogram, as those of microcontrollers."""
    def __init__(self, d=64, words=12):
        super().__init__()
        pairs = [nn.Sequential(nn.Conv2d(d, d, 3, 1, 1, groups=d, bias=False), nn.BatchNorm2d(d), nn.ReLU(), ConvBN(d, d, 1)) for _ in range(4)]
        self.m = nn.Sequential(nn.Conv2d(1, d, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(d), nn.ReLU(), *pairs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(d, words))
    def forward(self, x): return self.m(x)

class Crnn(nn.Module):
    """Convolutions of a line of text, and a recurrent layer over its columns in both directions."""
    def __init__(self, d=64, letters=37):
        super().__init__()
        self.planes = nn.Sequential(ConvBN(1, 32), nn.MaxPool2d(2), ConvBN(32, d), nn.MaxPool2d((2, 1)), ConvBN(d, d), nn.MaxPool2d((8, 1)))
        self.rows, self.last = nn.LSTM(d, d, bidirectional=True, batch_first=True), nn.Linear(2 * d, letters)
    def forward(self, x): return self.last(self.rows(self.planes(x).squeeze(2).transpose(1, 2))[0])

NETS = {
    "mlp": (mlp, (40,)), "conv1d": (conv1d, (1, 512)), "autoencoder": (autoencoder, (1, 28, 28)), "espcn": (Espcn, (1, 48, 48)),
    "unet_transposed": (lambda: UNet("transposed"), (3, 64, 64)), "unet_nearest": (lambda: UNet("nearest"), (3, 64, 64)), "unet_bilinear": (lambda: UNet("bilinear"), (3, 64, 64)),
    "dcgan": (DCGAN, (100, 1, 1)), "preact": (PreAct, (3, 32, 32)), "yolo": (Yolo, (3, 128, 128)), "ssd": (Ssd, (3, 128, 128)),
    "whisper_encoder": (WhisperEncoder, (80, 300)), "quartznet": (QuartzNet, (64, 200)), "xvector": (XVector, (40, 200)),
    "keywords": (Keywords, (1, 49, 10)), "crnn": (Crnn, (1, 32, 128)),
}
