//! `explain` of two snapshots: which are meant, what is counted, named and bounded.

use super::*;
use crate::store::data;
use forebay::format::entry::Entry;
use forebay::format::table::Entries;

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

/// A snapshot of so many entries, a thousand in a partition; every `odd`-th has another key.
fn publish(store: &forebay::store::Store, count: u64, odd: u64, listed_ms: i64) {
    let first = data::entries(1).entries.remove(0);
    let key = |i: u64| if i.is_multiple_of(odd) { format!("{i:07}-{odd}.jpg") } else { format!("{i:07}.jpg") };
    let entry = |i: u64| Entry { key: key(i), partition: (i / 1000) as u32, ..first.clone() };
    let entries = Entries { entries: (0..count).map(entry).collect(), carried: None };
    let snapshot = forebay::plan::key::snapshot_id(&entries);
    let head = data::snapshot_head(1, listed_ms);
    store.put_snapshot(forebay::format::head::SnapshotHead { snapshot, entries: count, ..head }, &entries).unwrap();
}

#[test]
fn entries_are_compared_in_little_memory_however_many_there_are() {
    let (keep, store) = data::fresh();
    store.put_pipeline(&data::pipeline_head("name: photos\n")).unwrap();
    publish(&store, 400_000, 100_000, 1);
    publish(&store, 400_000, 200_000, 2);
    // Held as entries the tables would take some 70 MB each, besides what any process takes.
    let command = format!("ulimit -v 140000; exec {} explain store --json --jobs 1", env!("CARGO_BIN_EXE_forebay"));
    let output = Command::new("sh").args(["-c", &command]).current_dir(keep.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = parse(std::str::from_utf8(&output.stdout).unwrap());
    assert_eq!((&found["same"], &found["changed"]["entries"]), (&399_996.into(), &0.into()));
    assert_eq!(
        strings(&found["added"]["keys"]),
        ["0000000-200000.jpg", "0100000.jpg", "0200000-200000.jpg", "0300000.jpg"]
    );
    assert_eq!(found["removed"]["entries"], 4);
    assert_eq!(found["partitions"], json!({ "stay": 396, "new": 4, "gone": 4 }));
}
