"""Image files with the pixels that Pillow decodes from them, for tests/it/image.rs.

    pillow_images.py DIRECTORY JPEGS SEED

DIRECTORY/made/*.jpg may hold files made elsewhere; they are decoded as well. Writes DIRECTORY/decode.jsonl, one case a
line: {"file", "params" of image.decode, "dtype", "shape", "pixels" (raw, C order)} or {"file", "params", "error"}; and
DIRECTORY/resize.jsonl: {"from", "shape", "params" of image.resize, "to", "pixels"}.
"""

import io
import json
import pathlib
import random
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageDraw, ImageFile, ImageOps

assert not ImageFile.LOAD_TRUNCATED_IMAGES


def photo(rng, height, width):
    """RGB pixels with the look of a photograph: clouds of several sizes, a gradient, sharp shapes, sensor noise."""
    out = np.zeros((height, width, 3), np.float32)
    for cells in (2, 5, 16, 60):
        grid = rng.random((min(cells, height) + 1, min(cells, width) + 1, 3), np.float32)
        planes = [Image.fromarray(grid[..., c]).resize((width, height), Image.Resampling.BICUBIC) for c in range(3)]
        out += np.stack([np.asarray(p) for p in planes], -1) * (255 / (1 + cells**0.5))
    out += np.linspace(0, rng.integers(0, 80), width, dtype=np.float32)[None, :, None]
    image = Image.fromarray(np.clip(out, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(0, 6)):
        x, y = rng.integers(0, width), rng.integers(0, height)
        box = [x, y, x + rng.integers(1, width + 1), y + rng.integers(1, height + 1)]
        [draw.rectangle, draw.ellipse][rng.integers(0, 2)](box, fill=tuple(int(v) for v in rng.integers(0, 256, 3)))
    noisy = np.asarray(image).astype(np.int16) + rng.normal(0, rng.integers(1, 12), (height, width, 3)).astype(np.int16)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def file(image, format, **options):
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    data[0x010E] = "a description before the orientation"
    return data.tobytes()


def png(pixels, bits, color, interlaced=False, extra=b""):
    """A PNG file written here, for what Pillow doesn't write: `pixels` are H x W x channels of whole numbers."""
    height, width, channels = pixels.shape

    def rows(part):
        out = b""
        for row in part:
            row = row.reshape(-1)
            if bits == 16:
                body = row.astype(">u2").tobytes()
            elif bits == 8:
                body = row.astype(np.uint8).tobytes()
            else:
                planes = [(row >> b) & 1 for b in reversed(range(bits))]
                body = np.packbits(np.stack(planes, -1).reshape(-1).astype(np.uint8)).tobytes()
            out += b"\0" + body
        return out

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    adam7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    passes = adam7 if interlaced else [(0, 0, 1, 1)]
    parts = [pixels[y::dy, x::dx] for y, x, dy, dx in passes]
    data = b"".join(rows(part) for part in parts if part.size)
    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced))
    body = chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body, chunk


class Cases:
    def __init__(self, directory):
        self.directory = directory
        self.lines = open(directory / "decode.jsonl", "w")
        self.count = 0

    def add(self, name, data, mode="rgb", upright=True, expected=None, error=None, **params):
        """Asks Pillow for the pixels, unless `expected` or `error` is given."""
        self.count += 1
        path = self.directory / f"{self.count:05}-{name}"
        path.write_bytes(data)
        params = {"mode": mode, "exif": upright, **params}
        case = {"file": path.name, "params": params}
        if error is None and expected is None:
            try:
                image = Image.open(io.BytesIO(data))
                image.load()
                if upright:
                    image = ImageOps.exif_transpose(image)
                expected = np.asarray(image.convert({"rgb": "RGB", "gray": "L", "rgba": "RGBA"}[mode]))
            except Exception as e:
                error = repr(e)
        if error is not None:
            case["error"] = error
        else:
            expected = expected.reshape(*expected.shape[:2], -1)
            case |= {"dtype": expected.dtype.name, "shape": expected.shape, "pixels": path.name + ".bin"}
            (self.directory / case["pixels"]).write_bytes(expected.tobytes())
        self.lines.write(json.dumps(case) + "\n")


def jpegs(cases, rng, count):
    edges = [(1, 1), (1, 17), (17, 1), (2, 3), (7, 9), (8, 8), (16, 16), (15, 33), (500, 600), (375, 500)]
    for i in range(count):
        height, width = edges[i] if i < len(edges) else (int(rng.integers(1, 260)), int(rng.integers(1, 340)))
        image = Image.fromarray(photo(rng, height, width))
        kind = rng.choice(["color", "gray", "cmyk"], p=[0.86, 0.08, 0.06])
        options = {"quality": int(rng.integers(10, 101)), "progressive": bool(rng.random() < 0.3)}
        if kind == "gray":
            image = image.convert("L")
        elif kind == "cmyk":
            image = image.convert("CMYK")
        else:
            options["subsampling"] = int(rng.integers(0, 3))
        if rng.random() < 0.2:
            options["exif"] = exif(int(rng.integers(1, 9)))
        if rng.random() < 0.2:
            options["restart_marker_rows"] = 1
        if rng.random() < 0.3:
            options["optimize"] = True
        mode = rng.choice(["rgb", "gray", "rgba"], p=[0.7, 0.2, 0.1])
        cases.add(f"{kind}.jpg", file(image, "jpeg", **options), mode, upright=bool(rng.random() < 0.9))
    for path in sorted((cases.directory / "made").glob("*.jpg")):
        for mode in ("rgb", "gray"):
            cases.add(f"made-{path.name}", path.read_bytes(), mode)


def damaged_jpegs(cases, rng):
    image = Image.fromarray(photo(rng, 120, 160))
    for progressive in (False, True):
        whole = file(image, "jpeg", progressive=progressive)
        cases.add("trailing.jpg", whole + b"and more")
        for share in (0.02, 0.2, 0.6, 0.97):
            cases.add("cut.jpg", whole[: int(len(whole) * share)])
        cases.add("without-end.jpg", whole[:-2])
        scan = whole.index(b"\xff\xda") + 40
        for at in range(scan, len(whole) - 2, len(whole) // 9):
            damaged = bytearray(whole)
            damaged[at] ^= 0x55
            if damaged[at] != 0xFF and damaged[at - 1] != 0xFF:
                cases.add("damaged.jpg", bytes(damaged))
        stuffed = whole.replace(b"\xff\xdb", b"\0\0\0\xff\xdb", 1)
        cases.add("garbage-before-marker.jpg", stuffed)
    cases.add("png-named.jpg", file(image, "png"))
    cases.add("jpeg-named.png", file(image, "jpeg"))
    cases.add("empty.jpg", b"", error="empty")
    cases.add("text.jpg", b"<html>not found</html>", error="no image")


def pngs(cases, rng):
    for height, width in [(1, 1), (3, 5), (33, 65)]:
        rgb = Image.fromarray(photo(rng, height, width))
        rgba = rgb.copy()
        rgba.putalpha(Image.fromarray(rng.integers(0, 256, (height, width), np.uint8)))
        palette = rgb.quantize(20)
        images = {"1": rgb.convert("1"), "L": rgb.convert("L"), "LA": rgba.convert("LA"), "P": palette, "RGB": rgb}
        for mode in ("rgb", "gray", "rgba"):
            for name, image in (images | {"RGBA": rgba}).items():
                cases.add(f"{name}.png", file(image, "png"), mode)
            cases.add("P-transparent.png", file(palette, "png", transparency=3), mode)
            cases.add("P-alphas.png", file(palette, "png", transparency=bytes(range(0, 200, 10))), mode)
            cases.add("oriented.png", file(rgb, "png", exif=exif(6)), mode)
        for bits in (1, 2, 4):
            gray = rng.integers(0, 2**bits, (height, width, 1))
            for interlaced in (False, True):
                cases.add(f"gray{bits}.png", png(gray, bits, 0, interlaced)[0])
        for interlaced in (False, True):
            cases.add("interlaced.png", png(np.asarray(rgb), 8, 2, interlaced)[0])
            deep = rng.integers(0, 65536, (height, width, 4))
            for color, channels in ((2, 3), (6, 4)):
                data = png(deep[..., :channels], 16, color, interlaced)[0]
                cases.add("deep.png", data, "rgb")
                cases.add("deep.png", data, "rgba")
                cases.add("deep16.png", data, "rgb", expected=deep[..., :3].astype("<u2"), bits=16)
            gray = png(deep[..., :1], 16, 0, interlaced)[0]
            # Pillow clips 16-bit gray at 255; the high byte is what the other layouts have.
            cases.add("deep-gray.png", gray, "gray", expected=(deep[..., :1] >> 8).astype(np.uint8))
            cases.add("deep-gray16.png", gray, "gray", expected=deep[..., :1].astype("<u2"), bits=16)
        eight = np.asarray(rgb).astype("<u2") * 257
        cases.add("eight-as-16.png", file(rgb, "png"), "rgb", expected=eight.astype("<u2"), bits=16)
        cases.add("animated.png", file(rgb, "png", save_all=True, append_images=[rgb.rotate(180)]))
    whole = file(rgb, "png")
    _, chunk = png(np.zeros((1, 1, 1), int), 8, 0)
    cases.add("trailing.png", whole + b"more")
    cases.add("cut.png", whole[: len(whole) // 2])
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    cases.add("damaged.png", bytes(damaged), error="checksum")
    for side in (20_000, 13_000):
        head = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
        bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
        cases.add("bomb.png", bomb, error="bomb")


def others(cases, rng):
    for height, width in [(1, 1), (5, 3), (47, 90)]:
        rgb = Image.fromarray(photo(rng, height, width))
        rgba = rgb.copy()
        rgba.putalpha(Image.fromarray(rng.integers(0, 256, (height, width), np.uint8)))
        palette, gray = rgb.quantize(30), rgb.convert("L")
        for mode in ("rgb", "gray", "rgba"):
            cases.add("palette.gif", file(palette, "gif"), mode)
            cases.add("gray.gif", file(gray, "gif"), mode)
            cases.add("plain.gif", file(palette, "gif", interlace=0), mode)
            frames = {"save_all": True, "append_images": [palette.rotate(180)], "duration": 50}
            cases.add("animated.gif", file(palette, "gif", **frames), mode)
            for name, image in {"1": rgb.convert("1"), "L": gray, "P": palette, "RGB": rgb}.items():
                cases.add(f"{name}.bmp", file(image, "bmp"), mode)
                if name != "P":
                    for compression in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
                        cases.add(f"{name}-{compression}.tiff", file(image, "tiff", compression=compression), mode)
            cases.add("RGBA.tiff", file(rgba, "tiff"), mode)
            for quality in (10, 75, 100):
                cases.add("lossy.webp", file(rgb, "webp", quality=quality), mode)
                cases.add("alpha.webp", file(rgba, "webp", quality=quality), mode)
            cases.add("lossless.webp", file(rgb, "webp", lossless=True), mode)
            cases.add("lossless-alpha.webp", file(rgba, "webp", lossless=True, exact=True), mode)
            for options in ({"lossless": True}, {"quality": 60}):
                for first in (rgb, rgba):
                    frames = {"save_all": True, "append_images": [first.rotate(180)], "duration": 50}
                    cases.add("animated.webp", file(first, "webp", **frames, **options), mode)
        for orientation in range(1, 9):
            cases.add("oriented.webp", file(rgb, "webp", exif=exif(orientation)))
            cases.add("oriented.webp", file(rgb, "webp", exif=exif(orientation)), upright=False)
            tags = {274: orientation}
            cases.add("oriented.tiff", file(rgb, "tiff", tiffinfo=tags))
        deep = Image.fromarray(rng.integers(0, 65536, (height, width), np.uint16))
        expected = np.asarray(deep)[..., None]
        cases.add("deep.tiff", file(deep, "tiff"), "gray", expected=expected, bits=16)
        cases.add("deep.tiff", file(deep, "tiff"), "gray", expected=(expected >> 8).astype(np.uint8))
    for name, options in {"gif": {}, "webp": {}, "bmp": {}, "tiff": {}}.items():
        whole = file(palette if name == "gif" else rgb, name, **options)
        cases.add(f"cut.{name}", whole[: len(whole) // 2], error="cut short")
        cases.add(f"trailing.{name}", whole + b"more")
    cases.add("cmyk.tiff", file(rgb.convert("CMYK"), "tiff"), error="refused by name")
    cases.add("palette.tiff", file(palette, "tiff"), error="refused by name")
    cases.add("jpeg.tiff", file(rgb, "tiff", compression="jpeg"), error="refused by name")
    head = struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, 20_000, 20_000, 1, 24, 0, 0, 0, 0, 0, 0)
    cases.add("bomb.bmp", b"BM" + head[: 12 + 40], error="bomb")
    cases.add("bomb.gif", b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b"\x3b", error="bomb")


def resizes(directory, rng):
    filters = {
        "nearest": Image.Resampling.NEAREST,
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "lanczos": Image.Resampling.LANCZOS,
    }
    with open(directory / "resize.jsonl", "w") as lines:
        for i in range(120):
            height, width = int(rng.integers(1, 300)), int(rng.integers(1, 300))
            mode = ["RGB", "RGB", "L", "RGBA"][i % 4]
            image = Image.fromarray(photo(rng, height, width)).convert(mode)
            if mode == "RGBA":
                # Blending divides by alpha; where that is nearly 0 a level of it is worth many levels of colour.
                image.putalpha(Image.fromarray(rng.integers(64, 256, (height, width), np.uint8)))
            (directory / f"resize-{i}.bin").write_bytes(np.asarray(image).tobytes())
            for name, resample in filters.items():
                to = [int(rng.integers(1, 300)), int(rng.integers(1, 300))]
                expected = np.asarray(image.resize((to[1], to[0]), resample))
                (directory / f"resize-{i}-{name}.bin").write_bytes(expected.tobytes())
                case = {
                    "from": f"resize-{i}.bin",
                    "shape": [height, width, len(mode)],
                    "params": {"size": to, "filter": name},
                    "to": [*to, len(mode)],
                    "pixels": f"resize-{i}-{name}.bin",
                }
                lines.write(json.dumps(case) + "\n")


def main():
    directory, count, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    random.seed(seed)
    rng = np.random.default_rng(seed)
    cases = Cases(directory)
    jpegs(cases, rng, count)
    damaged_jpegs(cases, rng)
    pngs(cases, rng)
    others(cases, rng)
    cases.lines.close()
    resizes(directory, rng)


main()
