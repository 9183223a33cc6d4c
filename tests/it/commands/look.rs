//! Looking at samples: `read --key`, `--random` and `--save`.

use super::*;

#[test]
fn samples_can_be_looked_at() {
    let dataset = Dataset::with_photos(PHOTOS, 30);
    let at = dataset.path();
    succeed(at, &["materialize", FILE]);
    let train = ["read", FILE, "--split", "train"];
    let read = |more: &[&str]| json(at, &[&train[..], more].concat());

    let count = read(&["--count"])["rows"].as_u64().unwrap();
    let all = read(&["--limit", "1000"]);
    let rows = all.as_array().unwrap();
    assert_eq!(rows.len() as u64, count);
    assert_eq!(succeed(at, &[&train[..], &["--count"]].concat()).trim(), count.to_string());
    let val = json(at, &["read", FILE, "--split", "val", "--count"]);
    assert_eq!(count + val["rows"].as_u64().unwrap(), 30);
    // Another epoch or seed has another order of the same samples.
    for other in [&["--epoch", "1"], &["--seed", "1"]] {
        let other = read(&[&["--limit", "1000"], &other[..]].concat());
        assert_ne!(other, all);
        let keys =
            |rows: &Value| rows.as_array().unwrap().iter().map(|r| r["_key"].to_string()).collect::<BTreeSet<_>>();
        assert_eq!(keys(&other), keys(&all));
    }
    assert_eq!(rows[0]["image"], "uint8 [32, 32, 3]");
    assert_eq!(rows[0]["_error"], Value::Null);
    assert_eq!(
        read(&["--stage", "index", "--limit", "1"])[0]["image"].as_str().unwrap().split(' ').next(),
        Some("uint8")
    );

    // One sample at every stage, and as files.
    let key = rows[0]["_key"].as_str().unwrap();
    let traced = read(&["--key", key, "--save", "look"]);
    assert_eq!(traced[0]["key"], key);
    let stages = traced[0]["stages"].as_array().unwrap();
    let names: Vec<&str> = stages.iter().map(|s| s["stage"].as_str().unwrap()).collect();
    assert_eq!(names, ["concatenated", "decode", "resize", "index", "where", "random_crop"]);
    assert_eq!(stages[5]["rows"][0], rows[0], "what is traced is what is read");
    let saved: Vec<&str> = stages.iter().flat_map(|s| strings(&s["files"])).collect();
    assert_eq!(saved.len(), at.join("look").read_dir().unwrap().count());
    let source = std::fs::read(at.join("photos").join(key)).unwrap();
    let first = saved.iter().find(|f| f.ends_with(".0-concatenated.image.jpg")).unwrap();
    assert_eq!(std::fs::read(at.join(first)).unwrap(), source);
    let last = saved.iter().find(|f| f.ends_with(".5-random_crop.image.png")).unwrap();
    let picture = image::load_from_memory(&std::fs::read(at.join(last)).unwrap()).unwrap();
    assert_eq!((picture.width(), picture.height()), (32, 32));

    let random = read(&["--random", "4"]);
    let keys: BTreeSet<&str> = random.as_array().unwrap().iter().map(|s| s["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 4);
    assert_eq!(random, read(&["--random", "4"]));
    assert_ne!(random, read(&["--random", "4", "--seed", "9"]));
    // Samples of the split alone, each once.
    let random = read(&["--random", "100"]);
    let keys: BTreeSet<&str> = random.as_array().unwrap().iter().map(|s| s["key"].as_str().unwrap()).collect();
    assert_eq!((keys.len() as u64, random.as_array().unwrap().len() as u64), (count, count));
    assert!(random.as_array().unwrap().iter().all(|sample| sample["dropped"].is_null()));
    assert_eq!(read(&["--random", "0"]), json!([]));
    assert_eq!(read(&["--limit", "0"]), json!([]));
    assert_eq!(read(&["--limit", "2", "--batch-size", "18446744073709551615"]).as_array().unwrap().len(), 2);

    // A sample that isn't in the split: which condition says so, and where it is.
    let traced = json(at, &["read", FILE, "--split", "val", "--key", key]);
    let condition = "((hash(key) % 5) = 0)";
    let dropped = json!({ "stage": "where", "condition": condition, "kept_by_splits": ["train"] });
    assert_eq!(traced[0]["dropped"], dropped);
    assert_eq!(traced[0]["stages"].as_array().unwrap().len(), 4);
    let text = succeed(at, &["read", FILE, "--split", "val", "--key", key]);
    let told = format!("  where         dropped: {condition} isn't true of it; it is in split train\n");
    assert!(text.ends_with(&told), "{text}");
}

#[test]
fn samples_of_like_names_are_saved_side_by_side() {
    let dataset = Dataset::new("name: x\nsource: { files: \"photos/**/*.jpg\" }\nsteps: [ image.decode ]\n");
    let at = dataset.path();
    let keys = ["a/b.jpg", "a_b.jpg", "A_b.jpg", "a+b.jpg", "a/b.jpg.0-concatenated.image.jpg"];
    std::fs::create_dir_all(at.join("photos/a")).unwrap();
    for (number, key) in keys.iter().enumerate() {
        std::fs::write(at.join("photos").join(key), photo(number, 16, 16 + number)).unwrap();
    }
    let mut names = BTreeSet::new();
    for (number, key) in keys.iter().enumerate() {
        for _ in 0..2 {
            let traced = json(at, &["read", FILE, "--key", key, "--save", "look"]);
            let files = traced[0]["stages"].as_array().unwrap().iter().flat_map(|s| strings(&s["files"]));
            names.extend(files.map(str::to_lowercase));
        }
        assert_eq!((names.len(), at.join("look").read_dir().unwrap().count()), (2 * number + 2, 2 * number + 2));
    }
    assert!(names.contains("look/a+b.jpg.0-concatenated.image.jpg"), "{names:?}");
    // All at once they are the same files.
    let random = json(at, &["read", FILE, "--random", "9", "--save", "look"]);
    assert_eq!((random.as_array().unwrap().len(), at.join("look").read_dir().unwrap().count()), (5, names.len()));
}
