//! Encoded images: containers, EXIF and pixels.

use super::{CONTEXT, Run, Target, files, step};
use arrow::array::{Array, ArrayRef, LargeBinaryArray, LargeStringArray, RecordBatch};
use std::sync::Arc;

pub const TARGETS: &[Target] = &[Target {
    name: "images",
    corpus: || files("tests/data/images", &[".jpg", ".png", ".webp", ".gif", ".bmp", ".tiff"]),
    tokens: &[
        "\u{0}\u{0}",
        "Exif\0\0",
        "MM\0*",
        "II*\0",
        "II+\0",
        "IHDR",
        "IDAT",
        "eXIf",
        "acTL",
        "fcTL",
        "VP8X",
        "VP8L",
        "VP8 ",
        "ALPH",
        "ANIM",
        "ANMF",
        "EXIF",
        "RIFF",
        "GIF89a",
        "BM",
        "Adobe",
    ],
    open: images,
}];

fn images() -> Run {
    let batch = |bytes: &[u8]| {
        let columns: [(&str, ArrayRef, bool); 3] = [
            ("_key", Arc::new(LargeStringArray::from(vec!["a"])), false),
            ("_error", Arc::new(LargeStringArray::new_null(1)), true),
            ("image", Arc::new(LargeBinaryArray::from_iter([Some(bytes)])), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    let schema = batch(b"").schema();
    let build = |params| step("image.decode", params, &schema).unwrap();
    let modes = [
        build("{mode: rgb, max_pixels: 1000000}"),
        build("{mode: rgba, bits: 16, max_pixels: 1000000}"),
        build("{mode: gray, exif: false, max_pixels: 1000000}"),
    ];
    Box::new(move |bytes| {
        let output = modes[bytes.len() % modes.len()].apply(&batch(bytes), CONTEXT).unwrap().batch;
        let (error, image) = (output.column(1), output.column(2));
        assert!(error.is_null(0) != image.is_null(0), "pixels or a reason");
    })
}
