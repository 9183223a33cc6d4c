//! Names of the objects of a store: built and parsed here only. Every name has one spelling, so that parsing what was
//! built, and building what was parsed, changes nothing. The layout is specified in `formats/store.md`.

use crate::error::{Error, Result};
use crate::format::encoding::{Container, Encoding};
use crate::id::{Digest, RecipeKey, ShardKey, SnapshotId};
use std::fmt;
use std::str::FromStr;

/// What all names of this version of the format begin with.
pub const ROOT: &str = "v1";

/// What an object of a store is; its `Display` is the object's name, with `/` between directories.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Name {
    /// Bytes that are known by their digest: a part of a shard, or a table.
    Blob { digest: Digest, container: Container },
    /// A pipeline head; `id` is the digest of the head's bytes.
    Pipeline { pipeline: PipelineName, seq: u32, id: Digest },
    /// A snapshot head.
    Snapshot { pipeline: PipelineName, seq: u32, snapshot: SnapshotId },
    /// What a stage is.
    Recipe { recipe: RecipeKey },
    /// The order head of the splits whose last deterministic stage this is.
    Order { recipe: RecipeKey, snapshot: SnapshotId },
    /// A shard's record.
    Shard { recipe: RecipeKey, encoding: Encoding, shard: ShardKey },
    /// A manifest head.
    Manifest { recipe: RecipeKey, encoding: Encoding, snapshot: SnapshotId },
    /// A report that a blob is bad.
    Report { blob: Digest },
    /// A pin; its name obeys the rules of pipelines' names.
    Pin { pin: PipelineName },
    /// What a running process uses; the id is drawn at random.
    Intent { id: Digest },
    /// What a running collection is about to remove; the id is drawn at random.
    Candidates { id: Digest },
}

impl Name {
    /// The blob that holds a table.
    pub const fn table(digest: Digest) -> Self {
        Name::Blob { digest, container: Container::Parquet }
    }
}

/// Directories to list; none ends in `/`.
pub fn blobs() -> String {
    format!("{ROOT}/blobs")
}
/// Its directories are the names of the pipelines.
pub fn pipelines() -> String {
    format!("{ROOT}/pipelines")
}
/// The heads of one pipeline; its snapshots lie in a directory below.
pub fn pipeline(name: &PipelineName) -> String {
    format!("{ROOT}/pipelines/{name}")
}
pub fn snapshots(name: &PipelineName) -> String {
    format!("{ROOT}/pipelines/{name}/snapshots")
}
/// Its directories are the recipes of which anything is stored.
pub fn stages() -> String {
    format!("{ROOT}/stages")
}
/// Its directories are `orders` and the encodings in which anything of the recipe is stored.
pub fn stage(recipe: RecipeKey) -> String {
    format!("{ROOT}/stages/{recipe}")
}
pub fn orders(recipe: RecipeKey) -> String {
    format!("{ROOT}/stages/{recipe}/orders")
}
pub fn shards(recipe: RecipeKey, encoding: Encoding) -> String {
    format!("{ROOT}/stages/{recipe}/{encoding}/shards")
}
pub fn manifests(recipe: RecipeKey, encoding: Encoding) -> String {
    format!("{ROOT}/stages/{recipe}/{encoding}/manifests")
}
pub fn reports() -> String {
    format!("{ROOT}/reports")
}
pub fn pins() -> String {
    format!("{ROOT}/pins")
}
pub fn intents() -> String {
    format!("{ROOT}/intents")
}
pub fn candidates() -> String {
    format!("{ROOT}/gc")
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Blob { digest, container } => {
                let hex = digest.to_string();
                write!(f, "{ROOT}/blobs/{}/{hex}.{container}", &hex[..2])
            }
            // Ten digits hold every u32, so that names sort as the numbers do.
            Name::Pipeline { pipeline, seq, id } => write!(f, "{ROOT}/pipelines/{pipeline}/{seq:010}-{id}.json"),
            Name::Snapshot { pipeline, seq, snapshot } => {
                write!(f, "{ROOT}/pipelines/{pipeline}/snapshots/{seq:010}-{snapshot}.json")
            }
            Name::Recipe { recipe } => write!(f, "{ROOT}/stages/{recipe}/recipe.json"),
            Name::Order { recipe, snapshot } => write!(f, "{ROOT}/stages/{recipe}/orders/{snapshot}.json"),
            Name::Shard { recipe, encoding, shard } => {
                let hex = shard.to_string();
                write!(f, "{ROOT}/stages/{recipe}/{encoding}/shards/{}/{hex}.json", &hex[..2])
            }
            Name::Manifest { recipe, encoding, snapshot } => {
                write!(f, "{ROOT}/stages/{recipe}/{encoding}/manifests/{snapshot}.json")
            }
            Name::Report { blob } => write!(f, "{ROOT}/reports/{blob}.json"),
            Name::Pin { pin } => write!(f, "{ROOT}/pins/{pin}.json"),
            Name::Intent { id } => write!(f, "{ROOT}/intents/{id}.json"),
            Name::Candidates { id } => write!(f, "{ROOT}/gc/{id}.json"),
        }
    }
}

/// Accepts exactly the names that `Display` builds.
impl FromStr for Name {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let name = match parts.as_slice() {
            [ROOT, rest @ ..] => parse(rest),
            _ => None,
        };
        // Building it again refuses every other spelling: a wrong `<hh>`, a short number, a sign.
        name.filter(|name| name.to_string() == text).ok_or_else(|| {
            Error::invalid(format!(
                "expected the name of an object of a store, such as v1/reports/<digest>.json, found {text:?}"
            ))
        })
    }
}

fn parse(parts: &[&str]) -> Option<Name> {
    Some(match parts {
        ["blobs", _, file] => {
            let (digest, extension) = file.split_once('.')?;
            Name::Blob { digest: digest.parse().ok()?, container: extension.parse().ok()? }
        }
        ["pipelines", pipeline, file] => {
            let (seq, id) = stem(file)?.split_once('-')?;
            Name::Pipeline { pipeline: pipeline.parse().ok()?, seq: seq.parse().ok()?, id: id.parse().ok()? }
        }
        ["pipelines", pipeline, "snapshots", file] => {
            let (seq, snapshot) = stem(file)?.split_once('-')?;
            Name::Snapshot {
                pipeline: pipeline.parse().ok()?,
                seq: seq.parse().ok()?,
                snapshot: snapshot.parse().ok()?,
            }
        }
        ["stages", recipe, "recipe.json"] => Name::Recipe { recipe: recipe.parse().ok()? },
        ["stages", recipe, "orders", file] => {
            Name::Order { recipe: recipe.parse().ok()?, snapshot: stem(file)?.parse().ok()? }
        }
        ["stages", recipe, encoding, "shards", _, file] => Name::Shard {
            recipe: recipe.parse().ok()?,
            encoding: encoding.parse().ok()?,
            shard: stem(file)?.parse().ok()?,
        },
        ["stages", recipe, encoding, "manifests", file] => Name::Manifest {
            recipe: recipe.parse().ok()?,
            encoding: encoding.parse().ok()?,
            snapshot: stem(file)?.parse().ok()?,
        },
        ["reports", file] => Name::Report { blob: stem(file)?.parse().ok()? },
        ["pins", file] => Name::Pin { pin: stem(file)?.parse().ok()? },
        ["intents", file] => Name::Intent { id: stem(file)?.parse().ok()? },
        ["gc", file] => Name::Candidates { id: stem(file)?.parse().ok()? },
        _ => return None,
    })
}

fn stem(file: &str) -> Option<&str> {
    file.strip_suffix(".json")
}

/// The name of a pipeline, safe as the name of a directory everywhere: 1 to 100 of the letters `A` to `Z` and `a` to
/// `z`, digits, `.`, `_` and `-`, the first not a dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineName(String);

impl PipelineName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PipelineName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let problem = if text.is_empty() {
            "it is empty".to_owned()
        } else if text.len() > 100 {
            format!("it has {} bytes", text.len())
        } else if text.starts_with('.') {
            "it begins with a dot".to_owned()
        } else if let Some(other) = text.chars().find(|c| !u8::try_from(*c).is_ok_and(allowed)) {
            format!("it contains {other:?}")
        } else {
            return Ok(PipelineName(text.to_owned()));
        };
        let shown: String = text.chars().take(100).collect();
        Err(Error::invalid(format!(
            "{shown:?} can't name a pipeline: {problem}; expected at most 100 letters (a-z, A-Z), digits, '.', '_' or '-', the \
             first not a dot"
        )))
    }
}

impl fmt::Display for PipelineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::encoding::Codec;
    use proptest::prelude::*;

    fn names() -> impl Strategy<Value = Name> {
        let encoding = prop_oneof![
            Just(Encoding::new(Container::Arrow, Codec::None).unwrap()),
            (1..=22).prop_map(|n| Encoding::new(Container::Parquet, Codec::Zstd(n)).unwrap()),
            (0..=9u32).prop_map(|n| Encoding::new(Container::Parquet, Codec::Gzip(n)).unwrap()),
        ];
        let container = prop_oneof![Just(Container::Arrow), Just(Container::Parquet)];
        let pipeline = "[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}";
        (any::<([u8; 32], [u8; 32], u32)>(), encoding, container, pipeline, 0..11).prop_map(
            |((a, b, seq), encoding, container, pipeline, kind)| {
                let pipeline = pipeline.parse().unwrap();
                let (recipe, snapshot) = (RecipeKey::from_bytes(a), SnapshotId::from_bytes(b));
                match kind {
                    0 => Name::Blob { digest: Digest::from_bytes(a), container },
                    1 => Name::Pipeline { pipeline, seq, id: Digest::from_bytes(a) },
                    2 => Name::Snapshot { pipeline, seq, snapshot },
                    3 => Name::Recipe { recipe },
                    4 => Name::Order { recipe, snapshot },
                    5 => Name::Shard { recipe, encoding, shard: ShardKey::from_bytes(b) },
                    6 => Name::Manifest { recipe, encoding, snapshot },
                    7 => Name::Pin { pin: pipeline },
                    8 => Name::Intent { id: Digest::from_bytes(a) },
                    9 => Name::Candidates { id: Digest::from_bytes(a) },
                    _ => Name::Report { blob: Digest::from_bytes(a) },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn names_round_trip(name in names()) {
            prop_assert_eq!(name.to_string().parse::<Name>().unwrap(), name);
        }

        #[test]
        fn one_changed_byte_is_another_name_or_none(name in names(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = name.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(text) = String::from_utf8(bytes)
                && let Ok(parsed) = text.parse::<Name>()
            {
                prop_assert_eq!(parsed.to_string(), text);
            }
        }

        #[test]
        fn names_sort_as_their_numbers(a in any::<u32>(), b in any::<u32>()) {
            let name = |seq| Name::Pipeline { pipeline: "p".parse().unwrap(), seq, id: Digest::of(b"") }.to_string();
            prop_assert_eq!(name(a).cmp(&name(b)), a.cmp(&b));
        }
    }

    #[test]
    fn every_spelling_is_pinned() {
        let hex = "ab".repeat(32);
        for name in [
            format!("v1/blobs/ab/{hex}.parquet"),
            format!("v1/blobs/ab/{hex}.arrow"),
            format!("v1/pipelines/photos/0000000001-{hex}.json"),
            format!("v1/pipelines/photos/snapshots/4294967295-{hex}.json"),
            format!("v1/stages/{hex}/recipe.json"),
            format!("v1/stages/{hex}/orders/{hex}.json"),
            format!("v1/stages/{hex}/parquet-zstd-3/shards/ab/{hex}.json"),
            format!("v1/stages/{hex}/arrow-none/manifests/{hex}.json"),
            format!("v1/reports/{hex}.json"),
            "v1/pins/release-2.1.json".to_owned(),
            format!("v1/intents/{hex}.json"),
            format!("v1/gc/{hex}.json"),
        ] {
            assert_eq!(name.parse::<Name>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        let hex = "ab".repeat(32);
        let upper = hex.to_uppercase();
        for name in [
            String::new(),
            "..".into(),
            "v1/../v1".into(),
            format!("/v1/reports/{hex}.json"),
            format!("v1//reports/{hex}.json"),
            format!("v1/reports/{hex}.json/"),
            format!("v2/reports/{hex}.json"),
            format!("v1/reports/{upper}.json"),
            format!("v1/reports/{}.json", &hex[1..]),
            format!("v1/reports/{hex}0.json"),
            format!("v1/reports/{hex}.json.tmp"),
            format!("v1/reports/../reports/{hex}.json"),
            format!("v1/blobs/AB/{hex}.arrow"),
            format!("v1/blobs/ac/{hex}.arrow"),
            format!("v1/blobs/../{hex}.arrow"),
            format!("v1/blobs/ab/{hex}.orc"),
            format!("v1/pipelines/../0000000001-{hex}.json"),
            format!("v1/pipelines/photos/1-{hex}.json"),
            format!("v1/pipelines/photos/+000000001-{hex}.json"),
            format!("v1/pipelines/photos/4294967296-{hex}.json"),
            format!("v1/stages/{hex}/arrow-none/shards/ac/{hex}.json"),
            format!("v1/stages/{hex}/arrow-zstd-03/manifests/{hex}.json"),
            format!("v1/stages/{hex}/arrow-none/shards/{hex}.json"),
            "v1/pins/../pins.json".to_owned(),
            "v1/pins/.hidden.json".to_owned(),
            "v1/pins/.json".to_owned(),
            "v1/intents/mine.json".to_owned(),
        ] {
            assert!(name.parse::<Name>().is_err(), "{name}");
        }
    }

    #[test]
    fn pipeline_names_say_what_is_wrong() {
        let error = |name: &str| name.parse::<PipelineName>().unwrap_err().to_string();
        assert!("photos-2.1_a".parse::<PipelineName>().is_ok() && "x".repeat(100).parse::<PipelineName>().is_ok());
        assert!(error("").contains("it is empty"));
        assert!(error("..").contains("it begins with a dot"));
        assert!(error("a/b").contains("it contains '/'"));
        assert!(error("a\\b").contains(r"it contains '\\'"));
        assert!(error("fotos é").contains("it contains ' '"));
        assert!(error("é").contains("it contains 'é'"));
        assert!(error(&"x".repeat(101)).contains("it has 101 bytes"));
    }
}
