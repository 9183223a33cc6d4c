//! `explain` of two snapshots: which are meant, what is counted, named and bounded.

use super::*;

/// A dataset with snapshots of 24 photographs, 25 (one more) and 24 (one changed, one gone); the first two are stored.
fn three() -> (Dataset, Vec<String>) {
    let dataset = Dataset::with_photos(&PHOTOS.replace("entries: 8", "entries: 2"), 24);
    let at = dataset.path();
    let snapshot = || json(at, &["snapshot", FILE])["snapshot"].as_str().unwrap().to_owned();
    let mut ids = vec![snapshot()];
    succeed(at, &["materialize", FILE, "--stage", "resize"]);
    std::fs::write(at.join("photos/cat/new.jpg"), photo(600, 48, 64)).unwrap();
    ids.push(snapshot());
    succeed(at, &["materialize", FILE, "--stage", "resize"]);
    std::fs::write(at.join("photos/dog/0001.jpg"), photo(601, 48, 64)).unwrap();
    std::fs::remove_file(at.join("photos/cat/0000.jpg")).unwrap();
    ids.push(snapshot());
    (dataset, ids)
}

#[test]
fn two_snapshots_are_compared_by_entries_and_shards() {
    let (dataset, ids) = three();
    let at = dataset.path();
    let found = json(at, &["explain", FILE, "--from", "previous"]);
    has(&found, &["pipeline", "from", "to", "same", "added", "changed", "removed", "partitions", "stages"]);
    has(&found["from"], &["snapshot", "entries", "rows", "bytes", "partitions"]);
    has(&found["added"], &["entries", "bytes", "keys"]);
    has(&found["partitions"], &["stay", "new", "gone"]);
    has(&found["stages"][0], &["stage", "split", "recipe", "encoding", "stay", "new", "gone"]);
    has(&found["stages"][0]["stay"], &["shards", "stored", "bytes"]);
    assert_eq!((&found["from"]["snapshot"], &found["to"]["snapshot"]), (&json!(ids[1]), &json!(ids[2])));
    assert_eq!((&found["same"], &found["added"]["keys"]), (&23.into(), &json!([])));
    assert_eq!(found["changed"]["keys"], json!(["dog/0001.jpg"]));
    assert_eq!(found["removed"]["keys"], json!(["cat/0000.jpg"]));
    let bytes = std::fs::metadata(at.join("photos/dog/0001.jpg")).unwrap().len();
    assert_eq!(found["changed"]["bytes"], bytes);
    let partitions = &found["partitions"];
    assert!((1..=4).contains(&partitions["new"].as_u64().unwrap()), "{partitions}");
    let stage = &found["stages"][0];
    assert_eq!((&stage["stage"], &stage["encoding"]), (&"resize".into(), &"arrow-none".into()));
    for (kind, stored) in [("stay", true), ("new", false), ("gone", true)] {
        assert_eq!(stage[kind]["shards"], partitions[kind]);
        let expected = if stored { &stage[kind]["shards"] } else { &Value::from(0) };
        assert_eq!(&stage[kind]["stored"], expected, "{kind}");
        assert_eq!(stage[kind]["bytes"].as_u64().unwrap() > 0, stored, "{kind}");
    }

    // What is missing is computed by the next run, and nothing else is.
    let stored = json(at, &["materialize", FILE, "--stage", "resize"]);
    assert_eq!(stored["computed_shards"], partitions["new"]);
    let after = json(at, &["explain", FILE, "--from", "previous"]);
    assert_eq!(after["stages"][0]["new"]["stored"], partitions["new"]);
    let shards = ["stay", "new"].map(|kind| after["stages"][0][kind]["bytes"].as_u64().unwrap());
    assert_eq!(shards.iter().sum::<u64>(), stored["stages"][0]["bytes"].as_u64().unwrap());
}

#[test]
fn the_snapshots_that_are_meant() {
    let (dataset, ids) = three();
    let at = dataset.path();
    let pair = |arguments: &[&str]| {
        let found = json(at, &[&["explain"], arguments].concat());
        ["from", "to"].map(|side| ids.iter().position(|id| found[side]["snapshot"] == **id).unwrap())
    };
    assert_eq!(pair(&[FILE, "--from", "previous"]), [1, 2]);
    assert_eq!(pair(&[FILE, "--to", "current"]), [1, 2]);
    assert_eq!(pair(&[FILE, "--to", "previous"]), [0, 1]);
    assert_eq!(pair(&[FILE, "--to", &ids[1]]), [0, 1]);
    assert_eq!(pair(&[FILE, "--from", &ids[0]]), [0, 2]);
    assert_eq!(pair(&[FILE, "--from", "current", "--to", &ids[0]]), [2, 0]);
    assert_eq!(pair(&[FILE, "--from", "current", "--to", "current"]), [2, 2]);
    // A store has nothing else to explain.
    assert_eq!(pair(&[".forebay"]), [1, 2]);
    assert_eq!(pair(&[]), [1, 2]);

    let fails = |arguments: &[&str], expected: i32, words: &str| {
        let (code, out, err) = run(at, &[&["explain"], arguments].concat());
        assert!(code == expected && out.is_empty() && err.contains(words), "{arguments:?}: {code} {err}");
    };
    fails(&[FILE, "--to", &ids[0]], 1, "has no snapshot before");
    fails(&[FILE, "--from", &"0".repeat(64)], 1, "has no snapshot 0000");
    fails(&[FILE, "--from", "yesterday"], 2, "expected a snapshot's id of 64 hex digits, `current` or `previous`");
    fails(&[FILE, "--from", "previous", "--stage", "resize"], 2, "--stage");
    fails(&[".forebay", "--stage", "resize"], 1, "name the file");
    fails(&["nowhere"], 1, "there is no store at nowhere");
    let one = Dataset::with_photos(PHOTOS, 4);
    succeed(one.path(), &["snapshot", FILE]);
    let (code, _, err) = run(one.path(), &["explain", FILE, "--from", "previous"]);
    assert!(code == 1 && err.contains("nothing to compare it with"), "{code} {err}");
}

#[test]
fn the_first_keys_are_shown_and_the_others_counted() {
    let (dataset, ids) = three();
    let at = dataset.path();
    let text = succeed(at, &["explain", FILE, "--from", &ids[1]]);
    assert!(text.contains(&format!("from  snapshot {}  25 entries, ", ids[1])), "{text}");
    assert!(text.contains(&format!("to    snapshot {}  24 entries, ", ids[2])), "{text}");
    assert!(text.contains("1 entry changed, ") && text.contains("\n  dog/0001.jpg\n"), "{text}");
    assert!(text.contains("1 entry removed, ") && text.contains("\n  cat/0000.jpg\n"), "{text}");
    assert!(!text.contains("added") && text.contains("23 entries the same; "), "{text}");
    assert!(text.contains("\nresize (arrow-none): ") && text.contains(" (0 of "), "{text}");

    // Names that break a line don't.
    std::fs::write(at.join("photos/cat/a\nb.jpg"), photo(602, 48, 64)).unwrap();
    for number in 0..1200 {
        std::fs::hard_link(at.join("photos/cat/new.jpg"), at.join(format!("photos/cat/x{number:04}.jpg"))).unwrap();
    }
    succeed(at, &["snapshot", FILE]);
    let text = succeed(at, &["explain", FILE, "--from", "previous"]);
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.contains(" added, ")).take(7).collect();
    assert!(lines[0].starts_with("1,201 entries added, "), "{text}");
    assert_eq!(lines[1..3], ["  cat/a\\nb.jpg", "  cat/x0000.jpg"]);
    assert_eq!(lines[6], "  … and 1,196 more");
    let found = json(at, &["explain", FILE, "--from", "previous"]);
    assert_eq!((&found["added"]["entries"], strings(&found["added"]["keys"]).len()), (&1201.into(), 1000));
}
