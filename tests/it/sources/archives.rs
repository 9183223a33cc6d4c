//! `tar`: samples, columns, compressed archives, and archives made to hurt.

use super::*;
use std::io::Write;
use tar::{Builder, EntryType, Header};

/// An archive of regular files.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *data).unwrap();
    }
    tar.into_inner().unwrap()
}

/// An archive of one member whose header is changed before its checksum is taken.
fn odd(change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_size(3);
    header.as_old_mut().name[..5].copy_from_slice(b"a.jpg");
    change(&mut header);
    header.set_cksum();
    let mut tar = Builder::new(Vec::new());
    tar.append(&header, &b"abc"[..]).unwrap();
    tar.into_inner().unwrap()
}

fn samples(range: std::ops::Range<usize>) -> Vec<u8> {
    let owned: Vec<(String, Vec<u8>)> = range
        .flat_map(|i| {
            let json = format!("{{\"label\": {{\"name\": \"n{i}\"}}, \"w\": {i}}}");
            [
                (format!("./d/{i:03}.jpg"), vec![i as u8; 600]),
                (format!("./d/{i:03}.cls"), format!("{i}\n").into_bytes()),
                (format!("./d/{i:03}.json"), json.into_bytes()),
            ]
        })
        .collect();
    archive(&owned.iter().map(|(n, d)| (n.as_str(), d.as_slice())).collect::<Vec<_>>())
}

fn place(bytes: &[u8]) -> Place {
    let place = Place::new(SourceKind::Tar, "*.tar");
    place.write("s.tar", bytes);
    place
}

#[test]
fn samples_are_entries_of_a_plain_archive() {
    let place = place(&samples(0..5));
    let listing = place.list();
    assert_eq!(keys(&listing), ["s.tar/d/000", "s.tar/d/001", "s.tar/d/002", "s.tar/d/003", "s.tar/d/004"]);
    assert_eq!(listing.entries[1].file.as_deref(), Some("s.tar"));
    let source = place.source();
    assert!(source.entries_are_samples());
    let names: Vec<_> = source.schema().unwrap().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["_key", "_error", "jpg", "cls", "json"]);
    let listed = entries(listing);
    let batch = source.read_entries(&listed, &[4, 0]).unwrap();
    assert_eq!(text(&batch, "_key"), some(&["s.tar/d/004", "s.tar/d/000"]));
    assert_eq!(integers(&batch, "cls"), [Some(4), Some(0)]);
    assert_eq!(bytes(&batch, "jpg"), [Some(vec![4; 600]), Some(vec![0; 600])]);
    assert_eq!(read(&source, &listed).unwrap().num_rows(), 5);
}

#[test]
fn columns_choose_alternatives_and_fields_of_json() {
    let mut members = samples(0..2);
    members.truncate(members.len() - 1024);
    members.extend(archive(&[("z.png", b"P"), ("z.json", b"{\"w\": 2.5}"), ("zz.json", b"{")]));
    let place = place(&members).columns(&["jpg;png", "json.label.name", "json.w"]);
    let batch = place.rows();
    assert_eq!(text(&batch, "json.label.name"), [Some("n0".into()), Some("n1".into()), None, None]);
    assert_eq!(bytes(&batch, "jpg")[2..], [Some(b"P".to_vec()), None]);
    assert_eq!(failed(&batch), [3]);
    assert_says(&place.columns(&["webp"]).list_error(), &["no column \"webp\"", "cls, jpg, json, png"]);
}

#[test]
fn appending_keeps_samples_and_a_swap_is_a_conflict() {
    for stat in [false, true] {
        let mut place = place(&samples(0..3));
        if stat {
            place = place.stat();
        }
        let before = place.list();
        let source = place.source();
        assert_eq!(read(&source, &entries(before.clone())).unwrap().num_rows(), 3);
        place.write("s.tar", samples(0..4));
        let after = place.list();
        assert_eq!(keys(&after)[..3], keys(&before)[..]);
        if stat {
            assert_conflict(read(&source, &entries(before)).unwrap_err(), "s.tar");
        } else {
            assert_eq!(after.entries[..3], before.entries[..]);
            place.write("s.tar", samples(1..4));
            assert_conflict(read(&source, &entries(before)).unwrap_err(), "s.tar");
        }
    }
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn a_compressed_archive_is_one_entry() {
    let raw = samples(0..5);
    for (name, packed) in [("s.tar.gz", gz(&raw)), ("s.tar.zst", zstd::encode_all(raw.as_slice(), 3).unwrap())] {
        let mut place = place(&raw);
        place.write(name, &packed);
        let plain = place.rows();
        place.spec.patterns = vec![name.to_owned()];
        let listing = place.list();
        assert_eq!((keys(&listing), listing.entries[0].rows), (vec![name], 5));
        let source = place.source();
        assert!(!source.entries_are_samples());
        assert_eq!(source.locate(&listing.entries, &format!("{name}/d/003")), Some(0));
        let batch = place.rows();
        assert_eq!(text(&batch, "_key")[3], Some(format!("{name}/d/003")));
        for column in 2..batch.num_columns() {
            assert_eq!(batch.column(column), plain.column(column));
        }
        // Both kinds together: the plain one's samples, then the stream, in the order of the listing.
        place.spec.patterns = vec!["s.tar*".to_owned()];
        let rows = place.rows();
        assert_eq!(rows.num_rows(), 10);
        assert_eq!(text(&rows, "_key")[5], Some(format!("{name}/d/000")));
        place.spec.patterns = vec![name.to_owned()];
        let listed = entries(listing);
        place.write(name, gz(&samples(1..6)));
        assert_conflict(read(&source, &listed).unwrap_err(), name);
        for cut in [3, 20, packed.len() / 2, packed.len() - 1] {
            place.write(name, &packed[..cut]);
            assert_eq!(place.list_error().kind(), Kind::Invalid, "cut at {cut}");
        }
    }
    let mut place = place(&gz(&raw));
    assert_says(&place.list_error(), &["s.tar", "compressed with gzip", "name it .tar.gz"]);
    place.spec.patterns = vec!["x.tar.gz".to_owned()];
    place.write("x.tar.gz", &raw);
    assert_says(&place.list_error(), &["neither gzip nor zstd"]);
}

#[test]
fn long_names_and_pax_headers() {
    let long = format!("{}/x.jpg", "d".repeat(300));
    let mut bytes = archive(&[("a.jpg", b"1"), (&long, b"2")]);
    bytes.truncate(bytes.len() - 1024);
    let path = format!("{}/y.jpg", "ü".repeat(200));
    let record = |key: &str, value: &str| {
        let body = key.len() + value.len() + 3;
        let length = (body + (body + 3).to_string().len()).to_string();
        format!("{length} {key}={value}\n")
    };
    let records = record("path", &path) + &record("size", "3");
    let mut pax = Header::new_ustar();
    pax.set_entry_type(EntryType::XHeader);
    pax.set_size(records.len() as u64);
    pax.set_cksum();
    let mut tar = Builder::new(Vec::new());
    tar.append(&pax, records.as_bytes()).unwrap();
    bytes.extend(tar.into_inner().unwrap().split_last_chunk::<1024>().unwrap().0);
    bytes.extend(odd(|_| ()));
    let place = place(&bytes);
    let listing = place.list();
    let expect = ["s.tar/a".to_owned(), format!("s.tar/{}/x", "d".repeat(300)), format!("s.tar/{}/y", "ü".repeat(200))];
    assert_eq!(keys(&listing), expect);
    assert_eq!(bytes_of(&place), [b"1".to_vec(), b"2".to_vec(), b"abc".to_vec()]);
}

fn bytes_of(place: &Place) -> Vec<Vec<u8>> {
    bytes(&place.rows(), "jpg").into_iter().flatten().collect()
}

#[test]
fn hostile_archives_are_refused_by_name() {
    let check = |bytes: Vec<u8>, words: &[&str]| {
        let error = place(&bytes).list_error();
        assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
        assert_says(&error, words);
        assert_says(&error, &["s.tar"]);
    };
    check(odd(|h| h.as_old_mut().name[..6].copy_from_slice(b"/a.jpg")), &["absolute or leads outside"]);
    check(odd(|h| h.as_old_mut().name[..8].copy_from_slice(b"../a.jpg")), &["\"../a.jpg\"", "leads outside"]);
    check(odd(|h| h.as_old_mut().name[..5].copy_from_slice(b"\xe9.jpg")), &["not UTF-8"]);
    check(odd(|h| h.set_entry_type(EntryType::GNUSparse)), &["sparse"]);
    check(odd(|h| h.set_entry_type(EntryType::Link)), &["hard link", "--hard-dereference"]);
    check(odd(|h| h.set_size(1 << 60)), &["truncated"]);
    check(odd(|h| h.as_old_mut().size = [0xff; 12]), &["size that is no number"]);
    check(odd(|h| h.as_old_mut().size = *b"99999999999\0"), &["size that is no number"]);
    check(vec![7; 4096], &["is no tar header"]);
    check(
        archive(&[("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3")]),
        &["\"a\"", "next to each other", "--sort=name"],
    );
    check(archive(&[("a.jpg", b"1"), ("a.jpg", b"2")]), &["\"a\"", "two members .jpg"]);
    check([archive(&[("a.jpg", b"1")]), archive(&[("b.jpg", b"1")])].concat(), &["behind the end", "joined"]);
}

#[test]
fn directories_links_and_files_without_extension_are_passed_over() {
    let mut tar = Builder::new(Vec::new());
    let mut add = |name: &str, kind: EntryType, data: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        if kind == EntryType::Symlink {
            header.set_link_name("a.jpg").unwrap();
        }
        tar.append_data(&mut header, name, data).unwrap();
    };
    add("d/", EntryType::Directory, b"");
    add("d/a.jpg", EntryType::Regular, b"1");
    add("link.jpg", EntryType::Symlink, b"");
    add("README", EntryType::Regular, b"read me");
    add("d/._a.jpg", EntryType::Regular, b"junk");
    add("d/b.jpg", EntryType::Regular, b"");
    let place = place(&tar.into_inner().unwrap());
    assert_eq!(keys(&place.list()), ["s.tar/d/a", "s.tar/d/b"]);
    assert_eq!(bytes_of(&place), [b"1".to_vec(), b"".to_vec()]);
}

#[test]
fn an_archive_cut_anywhere_is_an_error_that_names_the_offset() {
    let whole = samples(0..2);
    let end = whole.len() - 1024;
    for cut in (0..=end).step_by(256).chain([1, end - 1]) {
        let error = place(&whole[..cut]).list_error();
        assert_says(&error, &["truncated", "byte"]);
    }
    // Random damage never panics, whatever it is taken for.
    let mut state = 1u64;
    for _ in 0..300 {
        let mut bad = whole.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % bad.len();
            bad[at] ^= (state >> 20) as u8;
        }
        let place = place(&bad);
        let source = place.source();
        if let Ok(listing) = list(&source) {
            let _ = read(&source, &entries(listing));
        }
    }
}

#[test]
fn types_come_from_the_first_samples_and_others_fail_alone() {
    let place = place(&archive(&[
        ("a.cls", b"1"),
        ("a.txt", "\u{feff}ä".as_bytes()),
        ("a.seg.png", b"s"),
        ("b.cls", b"2"),
        ("b.txt", b"b"),
    ]));
    place.write("t.tar", archive(&[("c.cls", b"dog"), ("d.txt", b"\xe9")]));
    let batch = place.rows();
    assert_eq!(integers(&batch, "cls"), [Some(1), Some(2), None, None]);
    assert_eq!(text(&batch, "txt"), [Some("ä".into()), Some("b".into()), None, None]);
    assert_eq!(bytes(&batch, "seg.png")[0], Some(b"s".to_vec()));
    assert_eq!(failed(&batch), [2, 3]);
}

/// A member that claims to hold so many zeros, and holds them.
fn zeros(out: &mut impl Write, name: &str, bytes: u64) {
    let mut header = Header::new_gnu();
    header.set_path(name).unwrap();
    header.set_size(bytes);
    header.set_cksum();
    out.write_all(header.as_bytes()).unwrap();
    let piece = vec![0; 1 << 20];
    let mut left = bytes.next_multiple_of(512);
    while left > 0 {
        let now = left.min(piece.len() as u64);
        out.write_all(&piece[..now as usize]).unwrap();
        left -= now;
    }
}

#[test]
fn what_is_too_large_to_hold_is_refused_by_name_and_size() {
    let small = |members: &[(&str, u64)]| {
        let mut out = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        members.iter().for_each(|(name, bytes)| zeros(&mut out, name, *bytes));
        out.write_all(&[0; 1024]).unwrap();
        out.finish().unwrap()
    };
    // Only the header is there: nothing is asked for before it is believed.
    let mut cut = Vec::new();
    zeros(&mut cut, "d/b.jpg", 0);
    let mut header = Header::new_gnu();
    header.set_path("d/b.seg.png").unwrap();
    header.set_size(2 << 30);
    header.set_cksum();
    cut.extend(header.as_bytes());
    let mut place = Place::new(SourceKind::Tar, "s.tar.gz");
    place.write("s.tar.gz", gz(&cut));
    let words = ["s.tar.gz", "\"d/b\"", "byte 512", "holds 2.1 GB", "at most 1.1 GB", "member .seg.png"];
    assert_says(&place.list_error(), &words);
    // Plain ones alike, whose length is known.
    place.spec.patterns = vec!["s.tar".to_owned()];
    let file = std::fs::File::create(place.path("s.tar")).unwrap();
    (&file).write_all(&cut).unwrap();
    file.set_len(3 << 30).unwrap();
    assert_says(&place.list_error(), &["s.tar: sample \"d/b\"", "holds 2.1 GB"]);
    // Members that are nobody's may be of any size.
    place.spec.patterns = vec!["n.tar.zst".to_owned()];
    place.write("n.tar.zst", small(&[("README", (1 << 30) + 1), ("a.jpg", 5)]));
    assert_eq!(bytes_of(&place), [vec![0; 5]]);
    let source = place.source();
    let listing = list(&source).unwrap();
    assert_eq!(source.unpacked_bytes(&listing.entries[0]), 512 + (1 << 30) + 512 + 1024);
    assert!(listing.entries[0].bytes < 1 << 20);
}

#[test]
fn a_file_too_large_to_hold_fails_alone() {
    let place = Place::new(SourceKind::Files, "*.jpg");
    place.write("a.jpg", b"a");
    std::fs::File::create(place.path("b.jpg")).unwrap().set_len((1 << 30) + 1).unwrap();
    let batch = place.stat().rows();
    assert_eq!((bytes(&batch, "image"), failed(&batch)), (vec![Some(b"a".to_vec()), None], vec![1]));
    assert_eq!(text(&batch, "_error")[1].as_deref(), Some("holds 1.1 GB, and a sample is at most 1.1 GB"));
}
