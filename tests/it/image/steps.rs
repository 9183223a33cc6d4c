//! What each step promises: shapes, failed rows, columns, draws, refusals.

use super::*;
use half::f16;

fn ramp(height: usize, width: usize) -> Vec<u8> {
    (0..height * width * 3).map(|i| (i / 3) as u8).collect()
}

/// The first channel of each pixel.
fn first(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().step_by(3).copied().collect()
}

#[test]
fn failed_and_null_rows_keep_their_place() {
    let good = {
        let png =
            apply("image.encode", "format: png", &batch(vec![fixed("image", DType::U8, [2, 2, 3], &[ramp(2, 2)])]));
        single(&png, "image").1
    };
    let array: LargeBinaryArray =
        [Some(&good[..]), None, Some(&b"nonsense"[..]), Some(&good[..]), Some(&b""[..])].into_iter().collect();
    let mut input = batch(vec![(Field::new("image", DataType::LargeBinary, true), Arc::new(array))]);
    let mut columns = input.columns().to_vec();
    columns[1] = Arc::new(LargeStringArray::from(vec![None, None, None, Some("earlier"), None]));
    input = RecordBatch::try_new(input.schema(), columns).unwrap();
    let decoded = apply("image.decode", "", &input);
    let rows = outcomes(&decoded, "image");
    assert_eq!(rows[0], Ok(Some((vec![2, 2, 3], ramp(2, 2)))));
    assert_eq!(rows[1], Ok(None));
    assert_eq!(
        rows[2],
        Err("no image: expected JPEG, PNG, WebP, GIF, BMP or TIFF, found bytes that begin with \"nonsense\"".into())
    );
    assert_eq!(rows[3], Err("earlier".into()));
    assert_eq!(rows[4], Err("the file is empty".into()));

    let resized = apply("image.resize", "size: 4", &decoded);
    let again = outcomes(&resized, "image");
    assert_eq!(again[0].as_ref().unwrap().as_ref().unwrap().0, [4, 4, 3]);
    assert_eq!(again[1], Ok(None));
    assert_eq!(again[2..].iter().collect::<Vec<_>>(), rows[2..].iter().collect::<Vec<_>>());
    let empty = apply("image.resize", "size: 4", &decoded.slice(0, 0));
    assert_eq!((empty.num_rows(), empty.schema()), (0, resized.schema()));
}

/// A JPEG without its segments of one kind.
fn without(jpeg: &[u8], kind: u8) -> Vec<u8> {
    let (mut kept, mut at) = (jpeg[..2].to_vec(), 2);
    while jpeg[at + 1] != 0xda {
        let end = at + 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
        if jpeg[at + 1] != kind {
            kept.extend(&jpeg[at..end]);
        }
        at = end;
    }
    kept.extend(&jpeg[at..]);
    kept
}

/// Neither a header that breaks off nor tables and sizes of an earlier file are left over for the next.
#[test]
fn a_file_never_depends_on_the_one_before() {
    let jpeg = |height, width| {
        let pixels = batch(vec![fixed("image", DType::U8, [height, width, 3], &[noise(height * width * 3)])]);
        single(&apply("image.encode", "format: jpeg", &pixels), "image").1
    };
    let (small, large) = (jpeg(8, 12), jpeg(40, 33));
    let mut kinds = vec![small.clone(), large.clone(), b"\xff\xd8\xff\xd9".to_vec()];
    kinds.extend([0xc4, 0xdb, 0xc0].iter().flat_map(|kind| [without(&small, *kind), without(&large, *kind)]));
    kinds.extend((3..650).step_by(31).flat_map(|cut| [small[..cut].to_vec(), large[..cut].to_vec()]));
    let decoded = |contents: &[&Vec<u8>]| {
        let input = batch(vec![files("image", contents)]);
        // A thread of its own has met no file yet.
        let run = move || outcomes(&apply("image.decode", "{}", &input), "image");
        std::thread::spawn(run).join().unwrap()
    };
    let alone: Vec<Outcome> = kinds.iter().map(|kind| decoded(&[kind]).remove(0)).collect();
    assert!(alone[0].is_ok() && alone[1].is_ok() && alone[2].is_err());
    for before in &kinds {
        for (kind, alone) in kinds.iter().zip(&alone) {
            assert_eq!(&decoded(&[before, kind])[1], alone);
        }
    }
}

#[test]
fn resize_follows_the_shorter_side() {
    let images = [Some((30, 45, noise(30 * 45 * 3))), Some((45, 31, noise(45 * 31 * 3))), None];
    let resized = apply("image.resize", "shorter_side: 20", &batch(vec![ragged("image", 3, &images)]));
    let shapes: Vec<_> = outcomes(&resized, "image").into_iter().map(|o| o.unwrap().map(|(s, _)| s)).collect();
    assert_eq!(shapes, [Some(vec![20, 30, 3]), Some(vec![29, 20, 3]), None]);
    // Known before any data where the input's shape is.
    let one = batch(vec![fixed("image", DType::U8, [30, 45, 3], &[noise(30 * 45 * 3)])]);
    let step = build("image.resize", "shorter_side: 20", &one).unwrap();
    assert_eq!(*step.output_schema().field(2), fixed_field("image", DType::U8, &[20, 30, 3]).unwrap());

    let thin = batch(vec![ragged("image", 1, &[Some((1, 300, vec![7; 300]))])]);
    let failed = outcomes(&apply("image.resize", "{shorter_side: 100, max_side: 1000}", &thin), "image");
    assert_eq!(failed, [Err("[1, 300] would become [100, 30000], above max_side: 1000".into())]);
}

#[test]
fn crops_are_where_they_should_be() {
    let input = batch(vec![fixed("image", DType::U8, [5, 8, 3], &[ramp(5, 8)])]);
    let (shape, bytes) = single(&apply("image.center_crop", "size: [2, 3]", &input), "image");
    // Rows: 3 / 2 = 1.5 to 2; columns: 5 / 2 = 2.5 to 2.
    assert_eq!((shape, first(&bytes)), (vec![2, 3, 3], vec![18, 19, 20, 26, 27, 28]));

    let small = batch(vec![ragged("image", 3, &[Some((1, 4, ramp(1, 4)))])]);
    let failed = outcomes(&apply("image.center_crop", "size: [2, 3]", &small), "image");
    let reason = "the image is [1, 4], smaller than the crop of [2, 3]; pad: true extends it with zeros";
    assert_eq!(failed, [Err(reason.into())]);
    let (_, bytes) = single(&apply("image.center_crop", "{size: [4, 3], pad: true}", &small), "image");
    assert_eq!(first(&bytes), [0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0]);

    let many = batch(vec![fixed("image", DType::U8, [5, 8, 3], &vec![ramp(5, 8); 400])]);
    let mut counts = std::collections::BTreeMap::new();
    for outcome in outcomes(&apply("image.random_crop", "size: [4, 7]", &many), "image") {
        let (shape, bytes) = outcome.unwrap().unwrap();
        assert_eq!(shape, [4, 7, 3]);
        let corner = bytes[0];
        assert!(
            first(&bytes).iter().enumerate().all(|(i, v)| usize::from(*v) == usize::from(corner) + i / 7 * 8 + i % 7)
        );
        *counts.entry(corner).or_insert(0) += 1;
    }
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [0, 1, 8, 9]);
    assert!(counts.values().all(|count| (70..130).contains(count)), "{counts:?}");
}

#[test]
fn a_row_draws_the_same_in_any_batch() {
    for (step, params) in [
        ("image.random_crop", "size: [4, 7]"),
        ("image.random_flip", "vertical: 0.5"),
        ("image.random_resized_crop", "size: 6"),
    ] {
        let input = batch(vec![fixed("image", DType::U8, [9, 11, 3], &vec![noise(9 * 11 * 3); 64])]);
        let whole = outcomes(&apply(step, params, &input), "image");
        let parts: Vec<_> =
            (0..64).rev().map(|row| outcomes(&apply(step, params, &input.slice(row, 1)), "image").remove(0)).collect();
        assert_eq!(whole, parts.into_iter().rev().collect::<Vec<_>>());
        assert!(whole.iter().any(|outcome| outcome != &whole[0]), "{step} draws nothing");
        let step = build(step, params, &input).unwrap();
        assert_eq!(step.info().reads, ["image", "_key"]);
        let other = step.apply(&input, Context { epoch: 4, ..context() }).unwrap();
        assert_ne!(outcomes(&other.batch, "image"), whole);
    }
}

#[test]
fn image_and_mask_share_one_draw() {
    let classes: Vec<u8> = (0..90).map(|i| if i % 2 == 0 { 10 } else { 200 }).collect();
    let colours: Vec<u8> = classes.iter().flat_map(|v| [*v; 3]).collect();
    let input = || {
        batch(vec![
            fixed("image", DType::U8, [9, 10, 3], &vec![colours.clone(); 20]),
            fixed("mask", DType::U8, [9, 10, 1], &vec![classes.clone(); 20]),
        ])
    };
    for step in ["image.random_crop: {size: 4}", "image.random_flip: {vertical: 0.5}"] {
        let (step, params) = step.split_once(": ").unwrap();
        let params = params.replacen('{', "{column: [image, mask], ", 1);
        let output = apply(step, &params, &input());
        let masks = outcomes(&output, "mask");
        for (image, mask) in outcomes(&output, "image").into_iter().zip(masks) {
            assert_eq!(first(&image.unwrap().unwrap().1), mask.unwrap().unwrap().1, "{step}");
        }
    }
    let params = "{column: [image, mask], masks: [mask], size: 7}";
    for step in ["image.random_resized_crop", "image.resize"] {
        let output = apply(step, params, &input());
        let blended = outcomes(&output, "image")
            .into_iter()
            .any(|o| o.unwrap().unwrap().1.iter().any(|v| !matches!(v, 10 | 200)));
        assert!(blended);
        for mask in outcomes(&output, "mask") {
            assert!(mask.unwrap().unwrap().1.iter().all(|v| matches!(v, 10 | 200)), "{step} blends classes");
        }
    }
    let unequal = batch(vec![
        fixed("image", DType::U8, [9, 10, 3], std::slice::from_ref(&colours)),
        fixed("mask", DType::U8, [10, 9, 1], std::slice::from_ref(&classes)),
    ]);
    let output = apply("image.random_crop", "{column: [image, mask], size: 4}", &unequal);
    let reason = outcomes(&output, "mask").remove(0).unwrap_err();
    assert_eq!(reason, outcomes(&output, "image").remove(0).unwrap_err());
    assert!(reason.contains("column \"mask\" has [10, 9] pixels where \"image\" has [9, 10]"), "{reason}");
}

#[test]
fn flips_mirror() {
    let input = batch(vec![fixed("image", DType::U8, [2, 3, 3], &[ramp(2, 3)])]);
    let flipped = |params| first(&single(&apply("image.random_flip", params, &input), "image").1);
    assert_eq!(flipped("{horizontal: 1}"), [2, 1, 0, 5, 4, 3]);
    assert_eq!(flipped("{horizontal: 0, vertical: 1}"), [3, 4, 5, 0, 1, 2]);
    assert_eq!(flipped("{horizontal: 1, vertical: 1}"), [5, 4, 3, 2, 1, 0]);
    assert_eq!(flipped("{horizontal: 0}"), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn pads_at_the_edges() {
    let input = batch(vec![ragged("image", 1, &[Some((1, 2, vec![8, 9])), Some((3, 1, vec![8, 9, 7]))])]);
    let padded = outcomes(&apply("image.pad", "{size: [2, 4], value: 5}", &input), "image");
    assert_eq!(padded[0], Ok(Some((vec![2, 4, 1], vec![5, 8, 9, 5, 5, 5, 5, 5]))));
    let reason = "the image is [3, 1], larger than the size of [2, 4]; resize or crop it first";
    assert_eq!(padded[1], Err(reason.into()));
    let padded = outcomes(&apply("image.pad", "{size: [2, 4], position: top_left}", &input), "image");
    assert_eq!(padded[0], Ok(Some((vec![2, 4, 1], vec![8, 9, 0, 0, 0, 0, 0, 0]))));
    let padded = outcomes(&apply("image.pad", "padding: [1, 0, 0, 2]", &input), "image");
    assert_eq!(padded[0], Ok(Some((vec![2, 4, 1], vec![0, 0, 0, 0, 8, 9, 0, 0]))));

    let colour = batch(vec![fixed("image", DType::U8, [1, 1, 3], &[vec![7, 8, 9]])]);
    let (shape, bytes) = single(&apply("image.pad", "{padding: [0, 1, 0, 0], value: [1, 2, 3]}", &colour), "image");
    assert_eq!((shape, bytes), (vec![1, 2, 3], vec![1, 2, 3, 7, 8, 9]));
    let deep = batch(vec![fixed("image", DType::U16, [1, 1, 1], &[vec![7, 0]])]);
    let (_, bytes) = single(&apply("image.pad", "{padding: [0, 1, 0, 0], value: 513}", &deep), "image");
    assert_eq!(bytes, [1, 2, 7, 0]);
}

#[test]
fn normalize_scales_first() {
    let pixels = vec![0, 51, 255, 10, 128, 200];
    let input = batch(vec![fixed("image", DType::U8, [1, 2, 3], std::slice::from_ref(&pixels))]);
    let params = "{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}";
    let (shape, bytes) = single(&apply("image.normalize", params, &input), "image");
    assert_eq!(shape, [1, 2, 3]);
    let (mean, std) = ([0.485f32, 0.456, 0.406], [0.229f32, 0.224, 0.225]);
    let expected: Vec<f32> =
        pixels.iter().enumerate().map(|(i, v)| (f32::from(*v) / 255.0 - mean[i % 3]) / std[i % 3]).collect();
    let found: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v)).collect();
    assert_eq!(found, expected);
    let (shape, bytes) = single(&apply("image.normalize", "{dtype: float16, layout: chw}", &input), "image");
    assert_eq!(shape, [3, 1, 2]);
    let found: Vec<f16> = bytes.as_chunks::<2>().0.iter().map(|v| f16::from_le_bytes(*v)).collect();
    assert_eq!(found, [0, 10, 51, 128, 255, 200].map(|v: u8| f16::from_f32(f32::from(v) / 255.0)));

    let deep = batch(vec![fixed("image", DType::U16, [1, 1, 1], &[vec![0x34, 0x12]])]);
    let (_, bytes) = single(&apply("image.normalize", "mean: 0.5", &deep), "image");
    assert_eq!(bytes, (f32::from(0x1234u16) / 65535.0 - 0.5).to_le_bytes());
    // Ragged in, ragged out.
    let input = batch(vec![ragged("image", 3, &[Some((1, 2, pixels)), None])]);
    let output = apply("image.normalize", "layout: chw", &input);
    assert_eq!(*output.schema().field(2), variable_field("image", DType::F32, &[Some(3), None, None]).unwrap());
    assert_eq!(outcomes(&output, "image")[1], Ok(None));
}

#[test]
fn encoded_images_decode_again() {
    let pixels = noise(13 * 17 * 3);
    let input = batch(vec![fixed("image", DType::U8, [13, 17, 3], std::slice::from_ref(&pixels))]);
    for params in ["format: png", "{format: webp, lossless: true}"] {
        let decoded = apply("image.decode", "", &apply("image.encode", params, &input));
        assert_eq!(single(&decoded, "image"), (vec![13, 17, 3], pixels.clone()), "{params}");
    }
    for params in
        ["format: jpeg", "{format: jpeg, quality: 100, subsampling: \"4:4:4\"}", "{format: webp, quality: 90}"]
    {
        let (shape, found) = single(&apply("image.decode", "", &apply("image.encode", params, &input)), "image");
        assert_eq!(shape, [13, 17, 3]);
        assert_ne!(found, pixels, "{params} is lossy");
    }
    let deep = batch(vec![fixed("image", DType::U16, [5, 4, 4], &[noise(160)])]);
    let again = apply("image.decode", "{mode: rgba, bits: 16}", &apply("image.encode", "format: png", &deep));
    assert_eq!(single(&again, "image"), (vec![5, 4, 4], noise(160)));
    let gray = batch(vec![fixed("image", DType::U8, [5, 4, 1], &[noise(20)])]);
    for params in ["format: png", "{format: webp, lossless: true}"] {
        let again = apply("image.decode", "mode: gray", &apply("image.encode", params, &gray));
        assert_eq!(single(&again, "image").1, noise(20), "{params}");
    }
}

#[test]
fn columns_are_found_named_and_added() {
    let photo = noise(12);
    let input = batch(vec![
        files("mask_png", &[b"x"]),
        files("image", &[b"x"]),
        fixed("thumb", DType::U8, [2, 2, 3], std::slice::from_ref(&photo)),
    ]);
    let decoded = build("image.decode", "", &input).unwrap();
    assert_eq!(
        (decoded.info().reads.as_slice(), decoded.info().writes.as_slice()),
        (&["image".to_owned()][..], &["image".to_owned()][..])
    );
    let named = build("image.decode", "{column: image, to: image, mode: rgb}", &input).unwrap();
    assert_eq!(decoded.info().params, named.info().params);
    let added = apply("image.resize", "{size: 2, to: small}", &input);
    assert_eq!(added.schema().field(5).name(), "small");
    assert_eq!(added.column_by_name("thumb"), input.column_by_name("thumb"));
    assert_eq!(single(&added, "small").1, photo);
}

#[test]
fn what_can_not_be_is_refused_at_its_place() {
    let check = |step: &str, params: &str, input: &RecordBatch, expect: &str| {
        let error = build(step, params, input).unwrap_err().chain();
        assert!(error.contains(expect), "{step} {params}\n  said     {error}\n  expected {expect}");
    };
    let photo = batch(vec![fixed("image", DType::U8, [2, 2, 3], &[noise(12)]), files("file", &[b""])]);
    let two = batch(vec![files("left", &[b""]), files("right", &[b""])]);
    check("image.decode", "{exfi: false}", &photo, "exif");
    check("image.decode", "{mode: cmyk}", &photo, "rgb");
    check("image.decode", "{bits: 12}", &photo, "expected 8 or 16, found 12");
    check("image.decode", "", &two, "several columns fit: left, right; say which with column:");
    check("image.decode", "column: imge", &photo, "there is no column \"imge\"");
    check("image.decode", "column: image", &photo, "expected a column of encoded images");
    check("image.resize", "{size: 4}", &two, "no column fits");
    check("image.resize", "", &photo, "expected either shorter_side: PIXELS or size: [HEIGHT, WIDTH]");
    check("image.resize", "{size: [4, 0]}", &photo, "1:8: size: expected a width from 1 to 65535 pixels, found 0");
    check("image.resize", "{size: [4, big]}", &photo, "1:12: size: expected an integer, found \"big\"");
    check(
        "image.resize",
        "{size: [4, 4, 4]}",
        &photo,
        "1:8: size: expected [height, width], or one number for a square",
    );
    check("image.pad", "{padding: [1, 2.5, 3, 4]}", &photo, "1:15: padding: expected an integer, found 2.5");
    check("image.normalize", "{mean: [0.5, x]}", &photo, "1:14: mean: expected a number, found \"x\"");
    check(
        "image.normalize",
        "{mean: [0.5, 1]}",
        &photo,
        "test.yaml:1:8: mean: 2 values are given for 3 channels; expected 1 or 3",
    );
    check("image.resize", "{size: big}", &photo, "expected [height, width], or one number for a square");
    check("image.resize", "{size: 4, masks: [mask]}", &photo, "expected masks to be among the columns");
    check("image.resize", "{size: 4, to: file}", &photo, "there is a column \"file\" already");
    check("image.random_crop", "", &photo, "size");
    check("image.random_flip", "{horizontal: 1.5}", &photo, "expected a probability from 0 to 1, found 1.5");
    check("image.random_resized_crop", "{size: 2, scale: [1, 0.5]}", &photo, "expected [low, high]");
    check("image.pad", "{size: 2, padding: 1}", &photo, "expected either size");
    check("image.pad", "{size: 2, value: 256}", &photo, "expected whole numbers from 0 to 255, found 256");
    check("image.normalize", "{mean: [0.5, 0.5]}", &photo, "2 values are given for 3 channels");
    check("image.normalize", "{std: 0}", &photo, "expected finite numbers other than 0");
    check("image.encode", "{format: png, quality: 3}", &photo, "means nothing for this format");
    check("image.encode", "{format: jpeg, quality: 0}", &photo, "expected 1 to 100, found 0");
    let alpha = batch(vec![fixed("image", DType::U8, [1, 1, 4], &[noise(4)])]);
    let four = "test.yaml:1:10: format: JPEG holds images of 1 or 3 channels, found 4";
    check("image.encode", "{format: jpeg}", &alpha, four);
    let deep = batch(vec![fixed("image", DType::U16, [1, 1, 3], &[noise(6)])]);
    for format in ["jpeg", "webp"] {
        check("image.encode", &format!("{{format: {format}}}"), &deep, "test.yaml:1:10: format: ");
    }
    let floats = batch(vec![fixed("image", DType::F32, [1, 1, 3], &[noise(12)])]);
    check(
        "image.resize",
        "{column: image, size: 2}",
        &floats,
        "is float32 tensors of shape [1, 1, 3]; expected a column of images",
    );
}

/// Sizes that would take gigabytes are refused before memory is asked for.
#[test]
fn what_would_be_too_large_is_refused() {
    let thin = batch(vec![ragged("image", 3, &[Some((60_000, 1, vec![7; 180_000]))])]);
    let fails = |step: &str, params: &str, expected: &str| {
        let found = outcomes(&apply(step, params, &thin), "image").remove(0).unwrap_err();
        assert_eq!(found, expected, "{step} {params}");
    };
    let most = "are more than 1 GiB, the most of an image";
    let long = format!("[6000000, 100] pixels of 3 bytes {most}");
    fails("image.resize", "{shorter_side: 100, max_side: 60000000}", &long);
    let path = format!("on the way from [60000, 1] to [10, 6000]: [60000, 6000] pixels of 3 bytes {most}");
    fails("image.resize", "size: [10, 6000]", &format!("{path}; crop the image, or use another filter"));
    let other = single(&apply("image.resize", "{size: [10, 6000], filter: bicubic}", &thin), "image");
    assert_eq!(other, (vec![10, 6000, 3], vec![7; 180_000]));
    fails("image.pad", "padding: [0, 6000, 0, 0]", &format!("[60000, 6001] pixels of 3 bytes {most}"));
    let pad = "{size: [1, 6000], pad: true}";
    fails("image.center_crop", pad, &format!("[60000, 6000] pixels of 3 bytes {most}"));

    let known = batch(vec![fixed("image", DType::U8, [2, 2, 3], &[vec![7; 12]])]);
    for (step, params, column) in [
        ("image.resize", "{size: [65535, 65535]}", 8),
        ("image.pad", "{size: [65535, 65535]}", 8),
        ("image.center_crop", "{size: 65535}", 8),
        ("image.random_crop", "{size: [65535, 65535]}", 8),
        ("image.random_resized_crop", "{size: [65535, 65535]}", 8),
        ("image.pad", "{padding: 60000}", 1),
        ("image.resize", "{shorter_side: 60000, max_side: 65535}", 1),
    ] {
        let found = build(step, params, &known).unwrap_err();
        let message = found.message();
        assert!(message.starts_with(&format!("test.yaml:1:{column}: ")) && message.contains(most), "{step}: {message}");
    }
    // Many of what fits alone are computed fewer at a time.
    let many = batch(vec![fixed("image", DType::U8, [2, 2, 3], &vec![vec![7; 12]; 64])]);
    let step = build("image.pad", "size: [8000, 8000]", &many).unwrap();
    assert_eq!(step.apply(&many, context()).unwrap_err().kind(), forebay::error::Kind::Invalid);
    assert_eq!(step.apply(&many.slice(0, 1), context()).unwrap().batch.num_rows(), 1);
}
