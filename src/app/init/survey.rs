//! What a folder or file holds: counts by kind, sizes, classes by directory, and files that look odd.

use super::split::{self, Split};
use super::tables::{Join, Load, Table};
use crate::error::{Error, Result};
use crate::source::compression;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// What a source can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Image,
    Audio,
    Text,
    Tar,
    Parquet,
    Arrow,
    Jsonl,
    Csv,
}

const EXTENSIONS: [(Kind, &[&str]); 8] = [
    (Kind::Image, &["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"]),
    (Kind::Audio, &["wav", "flac", "mp3", "ogg"]),
    (Kind::Text, &["txt", "md", "html", "htm"]),
    (Kind::Tar, &["tar", "tar.gz", "tgz", "tar.zst", "tzst"]),
    (Kind::Parquet, &["parquet"]),
    (Kind::Arrow, &["arrow", "arrows", "ipc", "feather"]),
    (Kind::Jsonl, &["jsonl", "ndjson"]),
    (Kind::Csv, &["csv", "tsv"]),
];

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Image => "image",
            Kind::Audio => "audio",
            Kind::Text => "text",
            Kind::Tar => "tar",
            Kind::Parquet => "parquet",
            Kind::Arrow => "arrow",
            Kind::Jsonl => "jsonl",
            Kind::Csv => "csv",
        }
    }

    /// The kind of a file and its extension as written.
    fn of(name: &str) -> Option<(Kind, &str)> {
        EXTENSIONS.into_iter().find_map(|(kind, extensions)| {
            let written = |extension: &&str| {
                let begin = name.len().checked_sub(extension.len() + 1)?;
                let found = name.get(begin..)?.strip_prefix('.')?;
                (begin > 0 && found.eq_ignore_ascii_case(extension)).then_some(found)
            };
            extensions.iter().find_map(written).map(|extension| (kind, extension))
        })
    }
}

fn extensions(wanted: Kind) -> &'static [&'static str] {
    EXTENSIONS.into_iter().find(|(kind, _)| *kind == wanted).map_or(&[], |(_, names)| names)
}

/// A file that deserves a look, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Odd {
    pub path: PathBuf,
    pub reason: String,
}

/// Whether a column of this name holds class names.
pub(super) fn is_label(column: &str) -> bool {
    LABELS.contains(&column.to_ascii_lowercase().as_str())
}

/// A table beside the samples.
#[derive(Debug, Clone)]
pub struct Labels {
    pub file: PathBuf,
    pub columns: Vec<String>,
    /// `None`: no column names the files.
    pub join: Option<Join>,
}

impl Labels {
    /// The columns that samples get.
    pub fn joined(&self) -> impl Iterator<Item = &String> {
        let on = self.join.as_ref().map(|join| join.on.as_str());
        self.columns.iter().filter(move |column| Some(column.as_str()) != on)
    }
}

#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Files by kind.
    pub counts: BTreeMap<Kind, u64>,
    /// Of the files that the source will read.
    pub bytes: u64,
    pub median_bytes: u64,
    /// What the source will read.
    pub main: Option<Kind>,
    /// Its extensions as written, sorted.
    pub extensions: BTreeSet<String>,
    /// Whether any lies below the folder itself.
    pub nested: bool,
    /// Names of the directories that hold the samples, where they look like classes.
    pub classes: Vec<String>,
    /// The splits that the folder or table has already.
    pub splits: Vec<Split>,
    /// The table's column that says which; none where the names of directories and files do.
    pub split_column: Option<String>,
    /// How many files, or rows of the table, are in none of them.
    pub unsplit: u64,
    /// A table of labels that lies beside the samples.
    pub labels: Option<Labels>,
    /// How the rows of the table that was given name files.
    pub load: Option<Load>,
    /// Columns of the first Parquet, CSV or JSONL file, or the extensions of the first tar's members.
    pub columns: Vec<String>,
    /// The column among them that holds images.
    pub image: Option<String>,
    /// The column among them that holds class names.
    pub label: Option<String>,
    /// The first few odd files, and how many there are.
    pub odd: Vec<Odd>,
    pub odd_files: u64,
    /// Whether a single file was given.
    pub single: bool,
}

/// Most odd files that are named.
const MAX_ODD: usize = 20;
/// Most levels of directories.
const MAX_DEPTH: usize = 64;
/// How many files are opened to see whether they can be.
const MAX_OPENED: usize = 1000;
/// Most members of a tar, and most bytes of a table's head, that are looked at.
const MAX_MEMBERS: usize = 200;
const MAX_HEAD_BYTES: u64 = 1 << 20;
/// What columns of class names and of splits are called.
const LABELS: [&str; 5] = ["label", "labels", "class", "category", "fine_label"];
const SPLITS: [&str; 4] = ["split", "subset", "partition", "set"];
/// What is odd about other names that splits may have.
const LIKE_A_SPLIT: &str =
    "is called as splits are, but the draft splits by hash: if samples for testing are in it, mend `splits:` first";

struct Sample {
    /// Relative to the folder.
    path: PathBuf,
    bytes: u64,
    kind: Kind,
    extension: String,
}

impl Survey {
    fn odd(&mut self, path: &Path, reason: impl Into<String>) {
        self.odd_files += 1;
        if self.odd.len() < MAX_ODD {
            self.odd.push(Odd { path: path.to_owned(), reason: reason.into() });
        }
    }
}

/// Looks at a folder or a single file.
pub(super) fn look(path: &Path) -> Result<Survey> {
    let failed = |e| Error::io(format!("cannot look at {}", path.display()), e);
    let metadata = fs::metadata(path).map_err(failed)?;
    let mut survey = Survey { single: !metadata.is_dir(), ..Survey::default() };
    let mut samples = Vec::new();
    if metadata.is_dir() {
        fs::read_dir(path).map_err(failed)?;
        walk(path, Path::new(""), 0, &mut survey, &mut samples);
    } else {
        let name = path.file_name().unwrap_or_default();
        file(path, Path::new(name), &metadata, &mut survey, &mut samples);
    }
    samples.sort_by(|a, b| a.path.cmp(&b.path));
    for sample in &samples {
        *survey.counts.entry(sample.kind).or_default() += 1;
    }
    let Some(main) = choose(&survey, path) else {
        let odd = survey.odd.first().map(|o| format!("; {}: {}", o.path.display(), o.reason)).unwrap_or_default();
        let known: Vec<&str> = EXTENSIONS.iter().flat_map(|(_, extensions)| *extensions).copied().collect();
        return Err(Error::invalid(format!(
            "found nothing in {} that a pipeline reads{odd}; expected files with one of the extensions {}",
            path.display(),
            known.join(", ")
        )));
    };
    survey.main = Some(main);
    let (mains, others): (Vec<Sample>, Vec<Sample>) = samples.into_iter().partition(|s| s.kind == main);
    survey.extensions = mains.iter().map(|s| s.extension.clone()).collect();
    survey.nested = mains.iter().any(|s| s.path.components().count() > 1);
    let mut sizes: Vec<u64> = mains.iter().map(|s| s.bytes).collect();
    survey.bytes = sizes.iter().sum();
    sizes.sort_unstable();
    survey.median_bytes = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    directories(&mut survey, main, &mains);
    let at = |sample: &Sample| if survey.single { path.to_owned() } else { path.join(&sample.path) };
    let labels = others.iter().find(|s| s.kind == Kind::Csv && s.path.components().count() == 1).map(at);
    let first = mains.first().map(at);
    if let Some(file) = labels.filter(|_| matches!(main, Kind::Image | Kind::Audio | Kind::Text)) {
        beside(&mut survey, file, &mains);
    }
    if let Some(first) = first {
        contents(&mut survey, main, &first);
    }
    Ok(survey)
}

/// The kind that has most files; among equals, and where a folder describes a saved dataset, the one that holds data.
fn choose(survey: &Survey, path: &Path) -> Option<Kind> {
    let saved = path.join("dataset_info.json").is_file() || path.join("dataset_dict.json").is_file();
    if saved && survey.counts.contains_key(&Kind::Arrow) {
        return Some(Kind::Arrow);
    }
    let container = |kind: &Kind| !matches!(kind, Kind::Text | Kind::Csv | Kind::Jsonl);
    let most = |wanted: &dyn Fn(&Kind) -> bool| {
        let counts = survey.counts.iter().filter(|(kind, _)| wanted(kind));
        counts.max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map(|(kind, _)| *kind)
    };
    most(&container).or_else(|| most(&|kind| *kind != Kind::Text)).or_else(|| most(&|_| true))
}

fn walk(root: &Path, below: &Path, depth: usize, survey: &mut Survey, samples: &mut Vec<Sample>) {
    let directory = root.join(below);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) => return survey.odd(below, format!("can't be listed: {error}")),
    };
    let mut names: Vec<_> = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => names.push(entry.file_name()),
            Err(error) => survey.odd(below, format!("can't be listed: {error}")),
        }
    }
    names.sort();
    for name in names {
        let (relative, path) = (below.join(&name), directory.join(&name));
        if name.to_string_lossy().starts_with('.') {
            survey.odd(&relative, "hidden, so left out");
            continue;
        }
        let link = path.is_symlink();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() && link => survey.odd(&relative, "a link to a directory, not followed"),
            Ok(metadata) if metadata.is_dir() && depth >= MAX_DEPTH => survey.odd(&relative, "too deep"),
            Ok(metadata) if metadata.is_dir() => walk(root, &relative, depth + 1, survey, samples),
            Ok(metadata) => file(&path, &relative, &metadata, survey, samples),
            Err(error) => survey.odd(&relative, format!("can't be looked at: {error}")),
        }
    }
}

fn file(path: &Path, relative: &Path, metadata: &Metadata, survey: &mut Survey, samples: &mut Vec<Sample>) {
    let Some(name) = relative.file_name().and_then(|n| n.to_str()) else {
        return survey.odd(relative, "its name is not UTF-8");
    };
    if !metadata.is_file() {
        return survey.odd(relative, "neither a file nor a directory");
    }
    let Some((kind, extension)) = Kind::of(name) else {
        // What tools leave beside the data is no surprise.
        if !name.ends_with(".json") && !name.starts_with("README") && !name.starts_with("LICENSE") {
            let advice = compression::by_name(name).filter(|(plain, _)| Kind::of(plain).is_some());
            let advice = advice.and_then(|_| compression::advice(name));
            survey.odd(relative, advice.unwrap_or_else(|| "an extension that no source reads".to_owned()));
        }
        return;
    };
    if metadata.len() == 0 {
        survey.odd(relative, "empty");
    } else if samples.len() < MAX_OPENED
        && let Err(error) = File::open(path)
    {
        survey.odd(relative, format!("can't be opened: {error}"));
    }
    let extension = extension.to_owned();
    samples.push(Sample { path: relative.to_owned(), bytes: metadata.len(), kind, extension });
}

/// Which directories are splits and which are classes.
fn directories(survey: &mut Survey, main: Kind, samples: &[Sample]) {
    let containers = !matches!(main, Kind::Image | Kind::Audio | Kind::Text);
    let mut depths = Vec::new();
    if !survey.single {
        let paths = samples.iter().map(|s| s.path.as_path());
        (survey.splits, depths) = split::of_paths(paths.clone(), containers);
        if survey.splits.is_empty() {
            for name in split::alike(paths) {
                survey.odd(Path::new(&name), LIKE_A_SPLIT);
            }
        }
    }
    survey.unsplit = depths.iter().filter(|depth| depth.is_none()).count() as u64;
    // The directories of samples, below those of splits; what is in no split has no say.
    let depths = depths.iter().copied().chain(std::iter::repeat(Some(0)));
    let parents: Vec<Option<String>> = samples
        .iter()
        .zip(depths)
        .filter_map(|(sample, depth)| {
            let directories = sample.path.parent().into_iter().flat_map(Path::components).skip(depth?);
            Some(directories.last().map(|name| name.as_os_str().to_string_lossy().into_owned()))
        })
        .collect();
    let classes: BTreeSet<&String> = parents.iter().flatten().collect();
    if classes.len() >= 2 && parents.iter().all(Option::is_some) {
        survey.classes = classes.into_iter().cloned().collect();
    }
}

/// Looks into the table that lies beside files.
fn beside(survey: &mut Survey, file: PathBuf, samples: &[Sample]) {
    let Some(table) = Table::read(&file) else { return };
    let keys: Vec<String> = samples.iter().map(|s| s.path.to_string_lossy().into_owned()).collect();
    let join = table.join(keys.iter().map(String::as_str));
    if survey.splits.is_empty() && join.as_ref().is_some_and(|join| join.complete) {
        column_of_splits(survey, &table);
        // The table is joined then, and its own label with it.
        if survey.split_column.is_some() && table.columns.iter().any(|column| is_label(column)) {
            survey.classes.clear();
        }
    }
    if table.columns.len() > 1 {
        survey.labels = Some(Labels { file, columns: table.columns, join });
    }
}

/// Looks into the first file of a container or table.
fn contents(survey: &mut Survey, main: Kind, file: &Path) {
    let columns = match main {
        Kind::Tar => tar_extensions(file),
        Kind::Csv => table(survey, file),
        Kind::Jsonl => json_columns(file),
        Kind::Parquet => parquet_columns(file),
        Kind::Arrow => arrow_columns(file),
        Kind::Image | Kind::Audio | Kind::Text => return,
    };
    let Some(columns) = columns else {
        return survey.odd(file, format!("can't be read as {}", main.name()));
    };
    let find = |names: &[&str]| columns.iter().find(|c| names.contains(&c.to_ascii_lowercase().as_str())).cloned();
    survey.image = match main {
        Kind::Tar => find(extensions(Kind::Image)),
        Kind::Parquet | Kind::Arrow => find(&["image", "img", "picture", "photo"]),
        _ => None,
    };
    survey.label = columns.iter().find(|column| is_label(column)).cloned();
    if survey.splits.is_empty()
        && main != Kind::Tar
        && let Some(column) = find(&SPLITS)
    {
        survey.odd(file, format!("its column {column:?} {LIKE_A_SPLIT}"));
    }
    survey.columns = columns;
}

fn head(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(MAX_HEAD_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The columns of a table, the files that its rows name, and the splits that they are in.
fn table(survey: &mut Survey, file: &Path) -> Option<Vec<String>> {
    let table = Table::read(file)?;
    if survey.single {
        // A path of one part has the empty one as its parent.
        let directory = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        survey.load = table.load(directory, extensions(Kind::Image));
        column_of_splits(survey, &table);
    }
    Some(table.columns)
}

/// The splits that a column of the table names.
fn column_of_splits(survey: &mut Survey, table: &Table) {
    let named = |column: &&String| SPLITS.contains(&column.to_ascii_lowercase().as_str());
    let Some((index, column)) = table.columns.iter().enumerate().find(|(_, column)| named(column)) else { return };
    survey.splits = split::of_values(column, table.values(index));
    if !survey.splits.is_empty() {
        survey.split_column = Some(column.clone());
        survey.unsplit = table.rows.len() as u64 - survey.splits.iter().map(|split| split.count).sum::<u64>();
    }
}

fn json_columns(file: &Path) -> Option<Vec<String>> {
    let bytes = head(file)?;
    let line = bytes.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty())?;
    match serde_json::from_slice(line).ok()? {
        serde_json::Value::Object(fields) => Some(fields.into_iter().map(|(name, _)| name).collect()),
        _ => None,
    }
}

fn parquet_columns(file: &Path) -> Option<Vec<String>> {
    let file = File::open(file).ok()?;
    let builder = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).ok()?;
    Some(builder.schema().fields().iter().map(|f| f.name().clone()).collect())
}

fn arrow_columns(file: &Path) -> Option<Vec<String>> {
    let names = |schema: arrow::datatypes::SchemaRef| schema.fields().iter().map(|f| f.name().clone()).collect();
    let open = || File::open(file).ok().map(BufReader::new);
    if let Ok(reader) = arrow::ipc::reader::FileReader::try_new(open()?, None) {
        return Some(names(reader.schema()));
    }
    arrow::ipc::reader::StreamReader::try_new(open()?, None).ok().map(|reader| names(reader.schema()))
}

/// What the first members are called after their first dot.
fn tar_extensions(file: &Path) -> Option<Vec<String>> {
    let opened = File::open(file).ok()?;
    let name = file.file_name()?.to_str()?.to_ascii_lowercase();
    let plain: Box<dyn Read> = if name.ends_with("gz") {
        Box::new(flate2::read::MultiGzDecoder::new(opened))
    } else if name.ends_with("zst") {
        Box::new(zstd::Decoder::new(opened).ok()?)
    } else {
        Box::new(opened)
    };
    let mut archive = tar::Archive::new(plain);
    let mut found: Vec<String> = Vec::new();
    for entry in archive.entries().ok()?.take(MAX_MEMBERS) {
        let entry = entry.ok()?;
        let path = entry.path().ok()?.into_owned();
        let Some((_, extension)) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.split_once('.')) else {
            continue;
        };
        let extension = extension.to_ascii_lowercase();
        if entry.header().entry_type().is_file() && !found.contains(&extension) {
            found.push(extension);
        }
    }
    (!found.is_empty()).then_some(found)
}
