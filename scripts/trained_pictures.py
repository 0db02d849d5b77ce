"""Photographs, pages and lines of text for scripts/trained; calibration and test share no picture, font or sentence."""

import io
import pydoc_data.topics
import random
import re

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# Photographs of wallpapers calibrate; those of image libraries test.
LOMIRI = ["Bridge_by_Sander_Klootwijk", "Dragonfly_by_Bolly", "Picture_0B_by_freespace", "Picture_1A_by_freespace",
          "Wine_by_Jakkub_Mede", "aitzgorri_by_Aitzol_Berasategi", "free_by_Peter_Nerlich", "greentock_by_Peter_Nerlich",
          "life_by_Aitzol_Berasategi", "picosdeeuropa_by_Aitzol_Berasategi", "seeding_by_Clements_Engelhardt",
          "sunset_by_Aitzol_Berasategi"]
MATE = ["Aqua", "Blinds", "Dune", "FreshFlower", "Garden", "GreenMeadow", "LadyBird", "RainDrops", "Storm", "TwoWings",
        "Wood", "YellowFlower"]
CALIBRATION = [*(("lomiri-wallpapers-16.04", f"{name}.jpg") for name in LOMIRI), *(("mate-backgrounds", f"{name}.jpg") for name in MATE)]
SKIMAGE = ["astronaut.png", "brick.png", "camera.png", "chelsea.png", "coffee.png", "coins.png", "grass.png", "gravel.png",
           "hubble_deep_field.jpg", "ihc.png", "moon.png", "motorcycle_left.png", "page.png", "retina.jpg", "rocket.jpg"]
TEST = [*(("scikit-image", name) for name in SKIMAGE), ("scikit-learn", "china.jpg"), ("scikit-learn", "flower.jpg"),
        ("ultralytics", "bus.jpg"), ("ultralytics", "zidane.jpg"), ("imgaug", "quokka.jpg"), ("mahotas", "lena.jpg"),
        ("mahotas", "luispedro.jpg"), ("insightface", "t1.jpg"), ("insightface", "mask_white.jpg")]
# Pictures with people: those of one package calibrate, those of the others test.
PEOPLE_CALIBRATION = [("insightface", f"{name}") for name in ("t1.jpg", "mask_white.jpg", "mask_blue.jpg", "mask_black.jpg",
                                                             "mask_green.jpg", "Tom_Hanks_54745.png")]
PEOPLE_TEST = [("scikit-image", "astronaut.png"), ("scikit-image", "camera.png"), ("ultralytics", "bus.jpg"),
               ("ultralytics", "zidane.jpg"), ("mahotas", "lena.jpg"), ("mahotas", "luispedro.jpg")]
FONTS_CALIBRATION = ["fonts-dejavu-core", "fonts-freefont-ttf"]
FONTS_TEST = ["fonts-lato", "fonts-liberation"]


def photo(sources, name):
    return Image.open(sources.file(*name)).convert("RGB")


def crops(sources, names, count, size):
    """Of each photograph so many crops of 0.6 of its shorter side, in turn from nine places."""
    for name in names:
        picture = photo(sources, name)
        side = int(0.6 * min(picture.size))
        for k in range(count):
            place = k * 9 // count
            left, top = (picture.width - side) * (place % 3) // 2, (picture.height - side) * (place // 3) // 2
            yield picture.crop((left, top, left + side, top + side)).resize((size, size), Image.BILINEAR)


def padded(picture, size, colour=0):
    """A picture that is as large as fits, in the upper left corner."""
    ratio = size / max(picture.size)
    whole = Image.new("RGB", (size, size), (colour,) * 3)
    whole.paste(picture.resize([max(1, int(side * ratio)) for side in picture.size], Image.BILINEAR), (0, 0))
    return whole


def planes(pictures, mean, std, bgr=False):
    """Pictures as N, C, H, W: values of 0 to 255, less `mean`, through `std`."""
    stack = np.stack([np.asarray(picture, np.float32) for picture in pictures])
    stack = (stack[..., ::-1] if bgr else stack) - np.float32(mean)
    return np.ascontiguousarray((stack / np.float32(std)).transpose(0, 3, 1, 2), np.float32)


IMAGENET = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
HALF = ([127.5] * 3, [127.5] * 3)


def sentences():
    """Sentences of Python's own documentation, shuffled from a seed: the first half calibrates, the second tests."""
    text = " ".join(" ".join(pydoc_data.topics.topics.values()).split())
    found = [s for s in re.findall(r"[A-Z][A-Za-z0-9 ,()'-]{12,80}[.]", text) if len(s.split()) > 3]
    found = list(dict.fromkeys(found))
    random.Random(1).shuffle(found)
    half = len(found) // 2
    return {"calibration": found[:half], "test": found[half:]}


def fonts(sources, names):
    # Fonts of mathematics and symbols have no letters.
    found = [path for name in names for path in sources.files(name, "*.ttf")]
    return [path for path in found if not re.search("Math|Mono.*Oblique|Hairline|Thin|Symbol", path.name)]


class Writer:
    """Draws text over crops of photographs, with fonts, sizes, colours and tilts from a seed."""

    def __init__(self, sources, what):
        self.random = random.Random({"calibration": 2, "test": 3}[what])
        self.sentences = sentences()[what]
        self.fonts = fonts(sources, FONTS_CALIBRATION if what == "calibration" else FONTS_TEST)
        self.photos = [photo(sources, name) for name in (CALIBRATION if what == "calibration" else TEST)[::3]]

    def font(self, size):
        return ImageFont.truetype(str(self.random.choice(self.fonts)), size)

    def ground(self, size):
        """Paper, or a faint piece of a photograph, and a colour that is read on it."""
        dark = self.random.random() < 0.25
        base = [self.random.randint(0, 70) if dark else self.random.randint(190, 255) for _ in range(3)]
        ground = Image.new("RGB", size, tuple(base))
        if self.random.random() < 0.5:
            picture = self.random.choice(self.photos)
            ground = Image.blend(ground, picture.resize(size), 0.25)
        ink = [self.random.randint(200, 255) if dark else self.random.randint(0, 70) for _ in range(3)]
        return ground, tuple(ink)

    def words(self, longest):
        words = self.random.choice(self.sentences).split()
        start = self.random.randrange(len(words))
        text = words[start]
        for word in words[start + 1 :]:
            if len(text) + 1 + len(word) > longest:
                break
            text += f" {word}"
        return text

    def line(self, height, longest=22):
        """A line of text and its picture, `height` high."""
        text, font = self.words(longest), self.font(40)
        left, top, right, bottom = font.getbbox(text)
        size = (right - left + 16, bottom - top + 14)
        ground, ink = self.ground(size)
        ImageDraw.Draw(ground).text((8 - left, 7 - top), text, font=font, fill=ink)
        ground = ground.rotate(self.random.uniform(-1.5, 1.5), Image.BILINEAR, fillcolor=ground.getpixel((0, 0)))
        noise = np.random.default_rng(self.random.randrange(2**32)).normal(0, self.random.uniform(0, 8), (size[1], size[0], 3))
        ground = Image.fromarray(np.clip(np.asarray(ground) + noise, 0, 255).astype(np.uint8))
        return text, ground.resize((max(1, round(ground.width * height / ground.height)), height), Image.BILINEAR)

    def page(self, size):
        """A page with a title, paragraphs in one or two columns, and a photograph."""
        width, height = size
        ground, ink = self.ground(size)
        draw = ImageDraw.Draw(ground)
        margin, body = width // 14, self.random.randint(width // 40, width // 26)
        draw.text((margin, margin // 2), self.words(26), font=self.font(2 * body), fill=ink)
        columns = self.random.choice([1, 2])
        across = (width - margin * (columns + 1)) // columns
        for column in range(columns):
            left, top, font = margin + column * (across + margin), margin + 3 * body, self.font(body)
            shown = self.random.random() < 0.7
            pictured = top + self.random.randint(0, height // 3) if shown else height
            while top < height - margin:
                if top >= pictured:
                    picture = self.random.choice(self.photos).resize((across, across * 2 // 3))
                    ground.paste(picture, (left, top))
                    top, pictured = top + across * 2 // 3 + body, height
                draw.text((left, top), self.words(int(across / body * 1.7)), font=font, fill=ink)
                top += int(1.5 * body) + (body if self.random.random() < 0.15 else 0)
        return ground

    def sign(self, size):
        """A photograph with a few words over it."""
        ground = self.random.choice(self.photos).resize(size)
        draw = ImageDraw.Draw(ground)
        for k in range(3):
            ink = tuple(self.random.choice([0, 255]) for _ in range(3))
            place = (self.random.randint(10, size[0] // 3), size[1] * k // 3 + self.random.randint(10, size[1] // 6))
            draw.text(place, self.words(12), font=self.font(size[0] // self.random.randint(12, 22)), fill=ink, stroke_width=1, stroke_fill=ink)
        return ground


def captchas(sources, what, count, alphabet, length):
    """Texts and their pictures by the package `captcha`, in fonts of Debian."""
    from captcha.image import ImageCaptcha

    seed = {"calibration": 4, "test": 5}[what]
    chosen = fonts(sources, FONTS_CALIBRATION if what == "calibration" else FONTS_TEST)
    random.seed(seed)
    draw = ImageCaptcha(160, 60, fonts=[str(path) for path in chosen])
    texts = ["".join(random.choice(alphabet) for _ in range(length)) for _ in range(count)]
    return texts, [Image.open(io.BytesIO(draw.generate(text).getvalue())).convert("RGB") for text in texts]
