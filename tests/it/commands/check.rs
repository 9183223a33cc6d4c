//! What `check` says, and which pipelines it refuses.

use super::*;

#[test]
fn check_says_what_would_happen() {
    let dataset = Dataset::with_photos(PHOTOS, 40);
    let at = dataset.path();
    std::fs::write(at.join("photos/cat/bad.jpg"), b"no image").unwrap();
    let checked = json(at, &["check", FILE]);
    let stage = |name: &str| {
        let stages = checked["stages"].as_array().unwrap();
        stages.iter().find(|s| s["stage"] == name).unwrap_or_else(|| panic!("{name} in {checked}"))
    };
    let column = |name: &str, column: &str| {
        let columns = stage(name)["columns"].as_array().unwrap();
        columns.iter().find(|c| c["name"] == column).unwrap()["type"].as_str().unwrap()
    };
    assert_eq!(column("concatenated", "image"), "bytes");
    assert_eq!(column("decode", "image"), "uint8 [?, ?, 3]");
    assert_eq!(column("random_crop", "image"), "uint8 [32, 32, 3]");
    assert_eq!((column("resize", "label"), column("index", "label")), ("text", "int64"));
    for (name, storable, purity, split) in [
        ("resize", true, "deterministic", Value::Null),
        ("random_crop", false, "random", "train".into()),
        ("center_crop", true, "deterministic", "val".into()),
    ] {
        let stage = stage(name);
        assert_eq!((&stage["storable"], &stage["purity"], &stage["split"]), (&storable.into(), &purity.into(), &split));
        assert_eq!(stage["reason"].is_null(), storable);
        assert_eq!(stage["estimated_bytes"].is_null(), !storable);
    }
    assert_eq!(stage("random_crop")["reason"], "is random: it differs in each epoch");
    assert_eq!((&checked["entries"], &checked["rows"]), (&41.into(), &41.into()));
    assert!(checked["partitions"].as_u64().unwrap() >= 5);
    assert!(checked["open_bytes"].as_u64().unwrap() > 0);
    let advice = strings(&checked["advice"]).join("\n");
    assert!(advice.contains("a batch of 256 of stage"), "{advice}");
    // What is advised is a setting that does it.
    let setting = advice.split('`').find(|part| part.starts_with("partition: {")).unwrap();
    edit(&dataset, "partition: { entries: 8, bytes: 1gb }", setting);
    assert_eq!(json(at, &["check", FILE])["partitions"], 1);
    edit(&dataset, setting, "partition: { entries: 8, bytes: 1gb }");
    assert!(!advice.contains("constant"), "{advice}");

    let text = succeed(at, &["check", FILE]);
    for words in [
        "41 entries, 41 samples",
        " partitions",
        "resize: storable, about ",
        "random_crop [train]: not storable: is random",
        "uint8 [?, ?, 3]",
        "order: 16 lanes",
        "source bytes open at a time",
        "note: ",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn a_class_sorted_tar_is_warned_of() {
    let dataset =
        Dataset::new("name: sorted\nsource: { tar: \"shards/*.tar\" }\nsteps: [ image.decode: { column: jpg } ]\n");
    let at = dataset.path();
    std::fs::create_dir(at.join("shards")).unwrap();
    // In the first writing each archive has one class; in the second each has all.
    for sorted in [true, false] {
        for class in 0..4 {
            let mut tar = tar::Builder::new(std::fs::File::create(at.join(format!("shards/{class}.tar"))).unwrap());
            for sample in 0..6 {
                let label = if sorted { class } else { sample % 4 };
                let members = [("jpg", photo(class * 6 + sample, 16, 16)), ("cls", label.to_string().into_bytes())];
                for (extension, bytes) in members {
                    let mut header = tar::Header::new_gnu();
                    header.set_size(bytes.len() as u64);
                    header.set_mode(0o644);
                    tar.append_data(&mut header, format!("{class}{sample}.{extension}"), bytes.as_slice()).unwrap();
                }
            }
            tar.finish().unwrap();
        }
        let checked = json(at, &["check", FILE]);
        let advice = strings(&checked["advice"]).join("\n");
        assert_eq!(advice.contains("cls is constant within 4 of 4 partitions"), sorted, "{advice}");
    }
}

#[test]
fn check_advises_what_helps_containers() {
    let lines = "{\"text\": \"a few words\"}\n".repeat(2500);
    let checked = |files: usize, partition: &str| {
        let dataset = Dataset::new(&format!("name: x\nsource: {{ jsonl: \"*.jsonl\" }}\n{partition}"));
        for number in 0..files {
            std::fs::write(dataset.path().join(format!("{number}.jsonl")), &lines).unwrap();
        }
        let checked = json(dataset.path(), &["check", FILE]);
        (checked["partitions"].as_u64().unwrap(), strings(&checked["advice"]).join("\n"))
    };
    // No setting joins files.
    for partition in ["", "partition: { entries: 1 }"] {
        let (partitions, advice) = checked(3, partition);
        assert_eq!(partitions, if partition.is_empty() { 3 } else { 9 });
        assert!(advice.contains("partitions never span files, of which the source has 3; files of "), "{advice}");
        assert!(!advice.contains("`partition:"), "{advice}");
    }
    assert!(!checked(1, "").1.contains("shards of stage"));
}

#[test]
fn stages_of_a_pipeline_that_cannot_be_stored_are_refused() {
    let dataset = Dataset::with_photos(PHOTOS, 8);
    let at = dataset.path();
    let text = std::fs::read_to_string(&dataset.file).unwrap();
    let line = text.lines().count() + 1;
    std::fs::write(&dataset.file, format!("{text}materialize: {{ stages: [resize, random_crop] }}\n")).unwrap();
    for command in ["check", "materialize", "snapshot"] {
        let (code, _, err) = run(at, &[command, FILE]);
        assert_eq!(code, 1);
        let place =
            format!("error: {FILE}:{line}:33: materialize.stages: stage \"random_crop\" can't be stored: it is random");
        assert!(err.contains(&place) && err.contains("The last stage that can be is \"where\""), "{err}");
    }
    // As `formats/pipeline.md` has it, `auto` is what is stored anyway.
    std::fs::write(&dataset.file, format!("{text}materialize: {{ stages: auto }}\n")).unwrap();
    assert_eq!(json(at, &["materialize", FILE])["stages"][0]["stage"], "index");
}
