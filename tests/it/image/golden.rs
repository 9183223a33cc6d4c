//! The output of every step on files that never change, pinned by digest. A line that changes without the step's version
//! rising means that equal keys stand for unequal values.

use super::*;
use std::fmt::Write;

const DECODE: [&str; 4] = ["{}", "{mode: gray}", "{mode: rgba, exif: false}", "{bits: 16}"];
const STEPS: [(&str, &str); 22] = [
    ("image.resize", "{shorter_side: 24}"),
    ("image.resize", "{shorter_side: 24, filter: bicubic}"),
    ("image.resize", "{size: [100, 70], filter: lanczos}"),
    ("image.resize", "{size: [30, 31], filter: nearest}"),
    ("image.center_crop", "{size: [20, 15]}"),
    ("image.center_crop", "{size: [101, 20], pad: true}"),
    ("image.random_crop", "{size: 24}"),
    ("image.random_resized_crop", "{size: 24}"),
    ("image.random_resized_crop", "{size: [9, 40], scale: [0.2, 0.4], ratio: [0.3, 3], filter: bicubic}"),
    ("image.random_flip", "{}"),
    ("image.random_flip", "{horizontal: 0.2, vertical: 0.9}"),
    ("image.pad", "{size: 101, value: 114}"),
    ("image.pad", "{padding: [1, 2, 3, 4], position: top_left}"),
    ("image.normalize", "{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}"),
    ("image.normalize", "{dtype: float16, layout: chw}"),
    ("image.encode", "{format: jpeg}"),
    ("image.encode", "{format: jpeg, quality: 75, subsampling: \"4:4:4\"}"),
    ("image.encode", "{format: jpeg, quality: 50, subsampling: \"4:2:2\"}"),
    ("image.encode", "{format: png}"),
    ("image.encode", "{format: webp}"),
    ("image.encode", "{format: webp, quality: 30}"),
    ("image.encode", "{format: webp, lossless: true}"),
];

/// Of a row's dimensions (int32, little-endian) and bytes.
fn digest(hasher: &mut blake3::Hasher, outcome: &Outcome) {
    let (shape, bytes) = outcome.as_ref().unwrap().as_ref().unwrap();
    for side in shape {
        hasher.update(&side.to_le_bytes());
    }
    hasher.update(bytes);
}

#[test]
fn outputs_never_change_within_a_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/images");
    let mut names: Vec<String> =
        std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "golden.txt");
    names.sort();
    let contents: Vec<Vec<u8>> = names.iter().map(|name| std::fs::read(root.join(name)).unwrap()).collect();
    let input = batch(vec![files("image", &contents)]);
    let mut lines = String::new();
    for params in DECODE {
        let version = build("image.decode", params, &input).unwrap().info().version;
        for (name, outcome) in names.iter().zip(outcomes(&apply("image.decode", params, &input), "image")) {
            let mut hasher = blake3::Hasher::new();
            digest(&mut hasher, &outcome);
            writeln!(lines, "{} image.decode v{version} {params} {name}", hasher.finalize()).unwrap();
        }
    }
    let decoded = apply("image.decode", "{}", &input);
    for (step, params) in STEPS {
        let version = build(step, params, &decoded).unwrap().info().version;
        let mut hasher = blake3::Hasher::new();
        outcomes(&apply(step, params, &decoded), "image").iter().for_each(|outcome| digest(&mut hasher, outcome));
        writeln!(lines, "{} {step} v{version} {params}", hasher.finalize()).unwrap();
    }
    let golden = root.join("golden.txt");
    if std::fs::read_to_string(&golden).unwrap_or_default() != lines {
        let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden.txt");
        std::fs::write(&found, lines).unwrap();
        panic!(
            "outputs differ from {}; the found ones are in {}. If a change is meant, raise the step's version and copy it",
            golden.display(),
            found.display()
        );
    }
}
