//! The splits that a folder has already, told by how its directories and files are called: `train/cat/1.jpg`,
//! `data/train-00000-of-00002.parquet`. They are kept as they are: a sample that somebody set aside for testing must not
//! land in a split for training.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// What splits are called, those to train on first.
const NAMES: [&str; 10] =
    ["train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "evaluation"];
/// Most prefixes that a condition lists.
const MAX_PREFIXES: usize = 200;

/// A split of the folder or table that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// In lower case.
    pub name: String,
    /// The expression that is true of its samples.
    pub condition: String,
    /// How many files, or rows of the table, are in it.
    pub count: u64,
}

impl Split {
    /// Whether it is one to train on.
    pub fn trains(&self) -> bool {
        self.name.starts_with("train")
    }
}

/// Where a path says in which split it is.
struct Mark {
    name: &'static str,
    /// What the keys begin with of all files that are marked here.
    prefix: String,
    /// How many of the path's components the mark takes.
    depth: usize,
}

/// The splits of these paths, relative to the folder, and for each path how many of its components say which; none where
/// fewer than two are found. `containers`: the files hold many samples each, and their names say which.
pub(super) fn of_paths<'a>(
    paths: impl Iterator<Item = &'a Path> + Clone,
    containers: bool,
) -> (Vec<Split>, Vec<Option<usize>>) {
    // What all samples lie in tells none from another.
    let shared = shared(paths.clone());
    // A directory called `test` is a split, one called `test_tube` a class, unless most samples have such a mark.
    for words in [false, true] {
        let marks: Vec<Option<Mark>> =
            paths.clone().map(|path| mark(path, shared, words, words || containers)).collect();
        let mut found: BTreeMap<usize, (BTreeSet<&str>, u64)> = BTreeMap::new();
        for mark in marks.iter().flatten() {
            let (prefixes, count) = found.entry(rank(mark.name)).or_default();
            prefixes.insert(&mark.prefix);
            *count += 1;
        }
        if found.len() < 2 || (words && marks.iter().flatten().count() * 2 <= marks.len()) {
            continue;
        }
        let mut splits: Vec<Split> = Vec::new();
        for (rank, (prefixes, count)) in &found {
            let name = NAMES[*rank];
            let begins: Vec<String> =
                prefixes.iter().map(|prefix| format!("starts_with(key, {})", literal(prefix))).collect();
            let condition = match begins.len() <= MAX_PREFIXES {
                true => begins.join(" or "),
                // By the name alone, wherever it stands.
                false if !prefixes.iter().all(|p| p.ends_with('/')) => {
                    format!("matches(key, '(?i)(^|[^a-z]){name}([^a-z]|$)')")
                }
                false if words => format!("matches(key, '(?i)(^|[^a-z]){name}([^a-z/][^/]*)?/')"),
                false => format!("matches(key, '(?i)(^|/){name}/')"),
            };
            splits.push(Split { name: name.to_owned(), condition, count: *count });
        }
        // Where the condition of one may be true of what is another's, none of it is trained on.
        let by_name = |prefixes: &BTreeSet<&str>| prefixes.len() > MAX_PREFIXES;
        let overlap = |a: &BTreeSet<&str>, b: &BTreeSet<&str>| {
            by_name(a) || by_name(b) || a.iter().any(|a| b.iter().any(|b| b.starts_with(a)))
        };
        let prefixes: Vec<&BTreeSet<&str>> = found.values().map(|(prefixes, _)| prefixes).collect();
        let apart: Vec<String> = (0..splits.len())
            .map(|index| {
                let others = (0..splits.len()).filter(|other| {
                    splits[index].trains() && !splits[*other].trains() && overlap(prefixes[index], prefixes[*other])
                });
                let others: Vec<&str> = others.map(|other| splits[other].condition.as_str()).collect();
                match others.is_empty() {
                    true => splits[index].condition.clone(),
                    false => format!("({}) and not ({})", splits[index].condition, others.join(" or ")),
                }
            })
            .collect();
        for (split, condition) in splits.iter_mut().zip(apart) {
            split.condition = condition;
        }
        return (splits, marks.iter().map(|mark| mark.as_ref().map(|m| m.depth)).collect());
    }
    (Vec::new(), Vec::new())
}

/// Directories whose names begin as splits' do, `trainset` and `TestData`, where some are to train on and some not.
pub(super) fn alike<'a>(paths: impl Iterator<Item = &'a Path> + Clone) -> BTreeSet<String> {
    let begins = |name: &str, with: &str| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    let shared = shared(paths.clone());
    let directories = paths.flat_map(|path| path.parent().into_iter().flat_map(Path::components).skip(shared));
    let mut found: BTreeSet<String> = directories.map(|name| name.as_os_str().to_string_lossy().into_owned()).collect();
    found.retain(|name| ["train", "test", "val"].iter().any(|word| begins(name, word)));
    let trains = found.iter().filter(|name| begins(name, "train")).count();
    if trains == 0 || trains == found.len() { BTreeSet::new() } else { found }
}

/// How many directories all paths begin with.
fn shared<'a>(mut paths: impl Iterator<Item = &'a Path>) -> usize {
    let directories = |path: &'a Path| path.parent().into_iter().flat_map(Path::components);
    let first: Vec<Component> = paths.next().into_iter().flat_map(directories).collect();
    paths.fold(first.len(), |most, path| {
        first[..most].iter().zip(directories(path)).take_while(|(a, b)| **a == *b).count()
    })
}

/// The splits that a column of these values names, other values aside; none where fewer than two are found.
pub(super) fn of_values<'a>(column: &str, values: impl Iterator<Item = &'a str>) -> Vec<Split> {
    let mut counts: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    for value in values {
        if let Some(rank) = NAMES.iter().position(|name| value.eq_ignore_ascii_case(name)) {
            *counts.entry((rank, value)).or_default() += 1;
        }
    }
    let ranks: Vec<usize> = counts.keys().map(|(rank, _)| *rank).collect();
    if ranks.len() < 2 || ranks.windows(2).any(|pair| pair[0] == pair[1]) {
        return Vec::new();
    }
    let split = |((rank, value), count): ((usize, &str), u64)| Split {
        name: NAMES[rank].to_owned(),
        condition: format!("`{column}` = {}", literal(value)),
        count,
    };
    counts.into_iter().map(split).collect()
}

fn rank(name: &str) -> usize {
    NAMES.iter().position(|known| *known == name).unwrap_or(NAMES.len())
}

/// The first directory, behind those that are `shared`, that is called like a split; else, with `in_names`, the first word
/// of the file's name that is. `words`: a word of a directory's name is enough.
fn mark(path: &Path, shared: usize, words: bool, in_names: bool) -> Option<Mark> {
    let parts: Vec<&str> = path
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let (file, directories) = parts.split_last()?;
    let below = |depth: usize| parts[..depth].iter().map(|part| format!("{part}/")).collect::<String>();
    let called = |name: &str| match words {
        true => word(name).map(|(known, _)| known),
        false => NAMES.into_iter().find(|known| name.eq_ignore_ascii_case(known)),
    };
    for (index, directory) in directories.iter().enumerate().skip(shared) {
        if let Some(name) = called(directory) {
            return Some(Mark { name, prefix: below(index + 1), depth: index + 1 });
        }
    }
    let (name, end) = word(file).filter(|_| in_names)?;
    // With the character behind the word, so that `train` and `training` are told apart.
    let end = end + file[end..].chars().next().map_or(0, char::len_utf8);
    Some(Mark { name, prefix: format!("{}{}", below(directories.len()), &file[..end]), depth: directories.len() })
}

/// The first word of a name that a split is called, and where it ends. Words are runs of letters.
fn word(name: &str) -> Option<(&'static str, usize)> {
    let mut begin = 0;
    for run in name.split_inclusive(|c: char| !c.is_alphabetic()) {
        let letters = run.trim_end_matches(|c: char| !c.is_alphabetic());
        if let Some(known) = NAMES.into_iter().find(|known| letters.eq_ignore_ascii_case(known)) {
            return Some((known, begin + letters.len()));
        }
        begin += run.len();
    }
    None
}

/// A text in the language of expressions.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(paths: &[&str], containers: bool, expect: &[(&str, &str, u64)]) {
        let (splits, depths) = of_paths(paths.iter().map(Path::new), containers);
        let found: Vec<_> = splits.iter().map(|s| (s.name.as_str(), s.condition.as_str(), s.count)).collect();
        assert_eq!(found, expect, "{paths:?}");
        assert_eq!(depths.len(), if expect.is_empty() { 0 } else { paths.len() });
    }

    #[test]
    fn directories_and_names_of_files_say_which() {
        check(
            &["train/cat/1.jpg", "Val/cat/2.jpg", "test/cat/3.jpg", "train/cat/4.jpg"],
            false,
            &[
                ("train", "starts_with(key, 'train/')", 2),
                ("val", "starts_with(key, 'Val/')", 1),
                ("test", "starts_with(key, 'test/')", 1),
            ],
        );
        check(
            &["a/b/train/1.jpg", "it's/train/2.jpg", "a/b/test/3.jpg"],
            false,
            &[
                ("train", "starts_with(key, 'a/b/train/') or starts_with(key, 'it''s/train/')", 2),
                ("test", "starts_with(key, 'a/b/test/')", 1),
            ],
        );
        check(
            &["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/validation-0.parquet"],
            true,
            &[
                ("train", "starts_with(key, 'data/train-')", 2),
                ("validation", "starts_with(key, 'data/validation-')", 1),
            ],
        );
        check(
            &["cc3m-train-0000.tar", "cc3m-val-0000.tar"],
            true,
            &[("train", "starts_with(key, 'cc3m-train-')", 1), ("val", "starts_with(key, 'cc3m-val-')", 1)],
        );
        // Files that are in neither stay outside.
        check(
            &["test.csv", "extra.csv", "training.csv"],
            true,
            &[("training", "starts_with(key, 'training.')", 1), ("test", "starts_with(key, 'test.')", 1)],
        );
        // Words of names count where they are on every sample.
        check(
            &["train2017/1.jpg", "val2017/2.jpg"],
            false,
            &[("train", "starts_with(key, 'train2017/')", 1), ("val", "starts_with(key, 'val2017/')", 1)],
        );
        check(
            &["train_1.jpg", "test_1.jpg"],
            false,
            &[("train", "starts_with(key, 'train_')", 1), ("test", "starts_with(key, 'test_')", 1)],
        );
    }

    #[test]
    fn classes_are_no_splits() {
        check(&["bus/1.jpg", "car/1.jpg", "train/1.jpg"], false, &[]);
        check(&["train_station/1.jpg", "test_tube/1.jpg", "cat/1.jpg", "dog/1.jpg"], false, &[]);
        check(&["trainer/1.jpg", "tester/1.jpg"], false, &[]);
        check(&["train-0.parquet", "train-1.parquet"], true, &[]);
    }

    #[test]
    fn what_is_set_aside_stays_out_of_training() {
        // Beside most samples with a mark, others stay outside.
        check(
            &["train2017/1.jpg", "train2017/2.jpg", "test2017/3.jpg", "unlabeled2017/4.jpg"],
            false,
            &[("train", "starts_with(key, 'train2017/')", 2), ("test", "starts_with(key, 'test2017/')", 1)],
        );
        // What all samples lie in is no mark.
        check(
            &["training/train/a/1.jpg", "training/val/a/2.jpg"],
            false,
            &[("train", "starts_with(key, 'training/train/')", 1), ("val", "starts_with(key, 'training/val/')", 1)],
        );
        // One prefix may begin with another.
        check(
            &["train-0.tar", "train-more/test/0.tar"],
            true,
            &[
                ("train", "(starts_with(key, 'train-')) and not (starts_with(key, 'train-more/test/'))", 1),
                ("test", "starts_with(key, 'train-more/test/')", 1),
            ],
        );
    }

    #[test]
    fn splits_in_very_many_directories_go_by_their_names() {
        let paths: Vec<String> = (0..600).map(|n| format!("p{}/{}/1.jpg", n / 2, ["train", "test"][n % 2])).collect();
        let (splits, _) = of_paths(paths.iter().map(Path::new), false);
        assert_eq!(splits.iter().map(|s| s.count).collect::<Vec<_>>(), [300, 300]);
        let patterns = ["(?i)(^|/)train/", "(?i)(^|/)test/"];
        let [train, test] = patterns.map(|pattern| format!("matches(key, '{pattern}')"));
        // A class may be called like a split.
        assert_eq!(splits[0].condition, format!("({train}) and not ({test})"));
        assert_eq!(splits[1].condition, test);
        for (pattern, count) in patterns.into_iter().zip([0, 1]) {
            let pattern = regex::Regex::new(pattern).unwrap();
            let found: Vec<bool> = paths.iter().map(|path| pattern.is_match(path)).collect();
            assert_eq!(found, (0..600).map(|n| n % 2 == count).collect::<Vec<_>>());
            assert!(!pattern.is_match("p1/trainer/1.jpg") && !pattern.is_match("contest/1.jpg"));
        }
    }

    #[test]
    fn a_column_may_say_which() {
        let found = of_values("split", ["train", "test", "train"].into_iter());
        let found: Vec<_> = found.iter().map(|s| (s.name.as_str(), s.condition.as_str(), s.count)).collect();
        assert_eq!(found, [("train", "`split` = 'train'", 2), ("test", "`split` = 'test'", 1)]);
        let found = of_values("split", ["train", "extra", "", "test"].into_iter());
        assert_eq!(found.iter().map(|s| s.count).collect::<Vec<_>>(), [1, 1]);
        assert!(of_values("split", ["train", "other"].into_iter()).is_empty());
        assert!(of_values("split", ["train", "Train", "test"].into_iter()).is_empty());
        assert!(of_values("split", ["train"].into_iter()).is_empty());
    }
}
