//! The shape of the code, checked: file heads, the direction of module edges, and what only one module may do.

use std::path::{Path, PathBuf};

/// Modules and their levels; a module uses only modules of a lower level, and `error`.
const LEVELS: &[(&str, u32)] = &[
    ("error", 0),
    ("id", 0),
    ("format", 1),
    ("io", 2),
    ("spec", 2),
    ("step", 3),
    ("source", 3),
    ("plan", 4),
    ("store", 5),
    ("engine", 6),
    ("materialize", 7),
    ("reader", 7),
    ("profile", 8),
    ("serve", 8),
    ("app", 9),
    ("cli", 10),
];

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root, &mut found);
    found.sort();
    assert!(found.len() > 20);
    found
        .into_iter()
        .map(|p| (p.strip_prefix(&root).unwrap().to_owned(), std::fs::read_to_string(&p).unwrap()))
        .collect()
}

fn module(path: &Path) -> String {
    path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

fn is_test(path: &Path) -> bool {
    path.iter().any(|part| part == "tests.rs" || part == "tests")
}

/// The file without its `#[cfg(test)] mod tests { .. }`, which by convention stands last, and without comments.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..end].lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_file_says_what_lives_in_it() {
    for (path, text) in sources() {
        assert!(text.starts_with("//! "), "{} must begin with a //! paragraph", path.display());
    }
}

#[test]
fn modules_use_lower_levels_only() {
    let level = |name: &str| LEVELS.iter().find(|(n, _)| *n == name).map(|(_, l)| *l);
    for (path, text) in sources() {
        if matches!(module(&path).as_str(), "lib" | "main") || is_test(&path) {
            continue;
        }
        let own = module(&path);
        let own_level = level(&own).unwrap_or_else(|| panic!("{} belongs to no level", path.display()));
        for edge in code(&text).split("crate::").skip(1) {
            let used: String = edge.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if used == own || used == "error" {
                continue;
            }
            let used_level = level(&used).unwrap_or_else(|| panic!("{}: crate::{used} is no module", path.display()));
            assert!(
                used_level < own_level,
                "{}: {own} (level {own_level}) uses {used} (level {used_level})",
                path.display()
            );
        }
    }
}

#[test]
fn only_the_command_line_prints_exits_and_reads_the_environment() {
    for (path, text) in sources() {
        if matches!(module(&path).as_str(), "cli" | "main") || is_test(&path) {
            continue;
        }
        for word in ["println!", "eprintln!", "print!(", "std::env", "env::var", "process::exit"] {
            assert!(!code(&text).contains(word), "{} contains {word}", path.display());
        }
        if module(&path) != "io" {
            assert!(!code(&text).contains("object_store::"), "{} names object_store", path.display());
        }
    }
}
