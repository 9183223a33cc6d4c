//! Pixels against Pillow's, for files of every kind made on the spot by `tests/python/pillow_images.py`.

use super::{apply, batch, files, fixed, outcomes};
use forebay::format::shard::tensor::DType;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Deserialize)]
struct Decode {
    file: String,
    params: serde_json::Value,
    dtype: Option<String>,
    shape: Option<Vec<i32>>,
    pixels: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Resize {
    from: String,
    shape: [usize; 3],
    params: serde_json::Value,
    to: Vec<i32>,
    pixels: String,
}

fn python() -> PathBuf {
    let python = match std::env::var_os("FOREBAY_TEST_PYTHON") {
        Some(python) => PathBuf::from(python),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python"),
    };
    assert!(
        python.exists(),
        "no Python with Pillow and numpy at {}; scripts/test makes one, or set FOREBAY_TEST_PYTHON",
        python.display()
    );
    python
}

/// Kinds of JPEG that Pillow doesn't write, for it to decode.
fn make_jpegs(directory: &Path) {
    use turbojpeg::{Colorspace, Compressor, Image, PixelFormat, Subsamp};
    std::fs::create_dir(directory).unwrap();
    let picture = Image::mandelbrot(101, 67, PixelFormat::RGB);
    let subsamplings =
        [("411", Subsamp::Sub4x1), ("440", Subsamp::Sub1x2), ("441", Subsamp::Sub1x4), ("420", Subsamp::Sub2x2)];
    for (name, subsampling) in subsamplings {
        for progressive in [false, true] {
            let mut compressor = Compressor::new().unwrap();
            compressor.set_subsamp(subsampling).unwrap();
            compressor.set_progressive(progressive).unwrap();
            let file = compressor.compress_to_vec(picture.as_deref()).unwrap();
            std::fs::write(directory.join(format!("{name}-{progressive}.jpg")), file).unwrap();
        }
    }
    let write = |name: &str, picture: &Image<Vec<u8>>, set: &dyn Fn(&mut Compressor)| {
        let mut compressor = Compressor::new().unwrap();
        set(&mut compressor);
        std::fs::write(directory.join(name), compressor.compress_to_vec(picture.as_deref()).unwrap()).unwrap();
    };
    write("arithmetic.jpg", &picture, &|c| c.set_arithmetic(true).unwrap());
    write("rgb.jpg", &picture, &|c| {
        c.set_subsamp(Subsamp::None).unwrap();
        c.set_colorspace(Colorspace::RGB).unwrap();
    });
    let inks = Image::mandelbrot(101, 67, PixelFormat::CMYK);
    write("cmyk.jpg", &inks, &|c| {
        c.set_subsamp(Subsamp::None).unwrap();
        c.set_colorspace(Colorspace::CMYK).unwrap();
    });
    write("ycck.jpg", &inks, &|c| {
        c.set_subsamp(Subsamp::Sub2x2).unwrap();
        c.set_colorspace(Colorspace::YCCK).unwrap();
    });
}

fn lines<T: serde::de::DeserializeOwned>(path: PathBuf) -> Vec<T> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn decoding_and_resizing_equal_pillow() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    make_jpegs(&directory.join("made"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/pillow_images.py");
    let status =
        Command::new(python()).args(["-W", "ignore"]).arg(script).arg(directory).args(["1000", "1"]).status().unwrap();
    assert!(status.success());
    let mut wrong = check_decode(directory);
    wrong.extend(check_resize(directory));
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn check_decode(directory: &Path) -> Vec<String> {
    let mut by_params: BTreeMap<String, Vec<Decode>> = BTreeMap::new();
    for case in lines::<Decode>(directory.join("decode.jsonl")) {
        by_params.entry(case.params.to_string()).or_default().push(case);
    }
    let mut wrong = Vec::new();
    let mut jpegs = 0;
    for (params, cases) in by_params {
        let contents: Vec<Vec<u8>> =
            cases.iter().map(|case| std::fs::read(directory.join(&case.file)).unwrap()).collect();
        let decoded = apply("image.decode", &params, &batch(vec![files("image", &contents)]));
        for (case, outcome) in cases.iter().zip(outcomes(&decoded, "image")) {
            let name = format!("{} {params}", case.file);
            match (outcome, &case.error) {
                (Err(reason), Some(_)) => assert!(!reason.is_empty()),
                (Err(reason), None) => wrong.push(format!("{name}: {reason}")),
                (Ok(_), Some(error)) => wrong.push(format!("{name}: decoded, where Pillow says {error}")),
                (Ok(None), None) => wrong.push(format!("{name}: null")),
                (Ok(Some((shape, bytes))), None) => {
                    let expected = std::fs::read(directory.join(case.pixels.as_ref().unwrap())).unwrap();
                    if Some(&shape) != case.shape.as_ref() {
                        wrong.push(format!("{name}: shape {shape:?}, expected {:?}", case.shape));
                    } else if bytes != expected {
                        let (most, share) = difference(&bytes, &expected);
                        wrong.push(format!("{name} {:?}: {share} of bytes differ, by at most {most}", case.dtype));
                    }
                    jpegs += u32::from(case.file.ends_with(".jpg"));
                }
            }
        }
    }
    assert!(jpegs >= 1000);
    wrong
}

fn check_resize(directory: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut bytes, mut differing) = (0, 0.0);
    for case in lines::<Resize>(directory.join("resize.jsonl")) {
        let from = std::fs::read(directory.join(&case.from)).unwrap();
        let input = batch(vec![fixed("image", DType::U8, case.shape, &[from])]);
        let (shape, pixels) = super::single(&apply("image.resize", &case.params.to_string(), &input), "image");
        assert_eq!(shape, case.to);
        let expected = std::fs::read(directory.join(&case.pixels)).unwrap();
        let (most, share) = difference(&pixels, &expected);
        // The fast resizer may round another way; everything else is Pillow's own arithmetic.
        let fast = case.params["filter"] == "bilinear" && case.to[2] != 4;
        if most > u8::from(fast) {
            wrong.push(format!("{} {}: {share} of bytes differ, by at most {most}", case.pixels, case.params));
        }
        bytes += pixels.len();
        differing += share * pixels.len() as f64;
    }
    println!("resize: {differing} of {bytes} bytes differ from Pillow's");
    wrong
}

/// The largest difference of two bytes, and the share of bytes that differ.
fn difference(a: &[u8], b: &[u8]) -> (u8, f64) {
    assert_eq!(a.len(), b.len());
    let differing = a.iter().zip(b).filter(|(a, b)| a != b).count();
    (a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0), differing as f64 / a.len() as f64)
}
