"""Makes the files of tests/data/images, once: `make_image_fixtures.py DIRECTORY`. Another Pillow may write other bytes,
so the files are kept, not made anew."""

import io
import pathlib
import sys

import numpy as np
from PIL import Image

out = pathlib.Path(sys.argv[1])
y, x = np.mgrid[0:48, 0:64]
noise = np.random.default_rng(1).integers(0, 24, (48, 64, 3))
rgb = np.stack([x * 3, y * 4, (x * y) % 230], -1) + noise
rgb[10:30, 20:40] = [250, 40, 10]
rgb = Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8))
rgba = rgb.copy()
rgba.putalpha(Image.fromarray(((x + y) * 2 % 256).astype(np.uint8)))
exif = Image.Exif()
exif[0x0112] = 6

rgb.save(out / "420.jpg", quality=85, subsampling=2)
rgb.save(out / "422-progressive.jpg", quality=60, subsampling=1, progressive=True)
rgb.save(out / "444-oriented.jpg", quality=95, subsampling=0, exif=exif)
rgb.convert("L").save(out / "gray.jpg", quality=80)
rgb.convert("CMYK").save(out / "cmyk.jpg", quality=80)
rgb.save(out / "rgb.png")
rgba.save(out / "rgba.png")
rgb.quantize(16).save(out / "palette.png")
Image.fromarray((x * 1000 + y * 37).astype(np.uint16)).save(out / "gray16.png")
rgb.save(out / "lossy.webp", quality=70)
rgba.save(out / "alpha.webp", quality=70)
rgb.quantize(16).save(out / "animated.gif", save_all=True, append_images=[rgb.rotate(180).quantize(16)])
rgb.crop((0, 0, 33, 40)).save(out / "rgb.bmp")
rgb.save(out / "deflate.tiff", compression="tiff_adobe_deflate")
