//! What parameters of several image steps are made of: column names, sizes, and how many may be given.

use schemars::JsonSchema;
use serde::de::{self, IntoDeserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// The longest side that a size may name.
pub const MAX_SIDE: u32 = 65_535;

/// One column's name, or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "NamesForm", into = "Vec<String>")]
pub struct Names(Vec<String>);

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a column's name or a list of names")]
enum NamesForm {
    One(String),
    Several(Vec<String>),
}

impl Names {
    pub fn new(names: Vec<String>) -> Self {
        Names(names)
    }
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

impl TryFrom<NamesForm> for Names {
    type Error = String;
    fn try_from(form: NamesForm) -> Result<Self, String> {
        let names = match form {
            NamesForm::One(name) => vec![name],
            NamesForm::Several(names) => names,
        };
        if names.is_empty() {
            return Err("expected at least one column".into());
        }
        match names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            Some((_, twice)) => Err(format!("column {twice:?} stands twice")),
            None => Ok(Names(names)),
        }
    }
}

impl From<Names> for Vec<String> {
    fn from(names: Names) -> Self {
        names.0
    }
}

/// `[height, width]` in pixels; one number for a square.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "SizeForm", into = "[u32; 2]")]
pub struct Size {
    pub height: usize,
    pub width: usize,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum SizeForm {
    Square(u32),
    Sides([u32; 2]),
}

impl<'de> Deserialize<'de> for SizeForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_or_list(deserializer, "[height, width], or one number for a square", SizeForm::Square, |sides| {
            Some(SizeForm::Sides(sides.try_into().ok()?))
        })
    }
}

/// One value or a list of them; unlike with an untagged enum, what is wrong with an item is said at its place.
pub fn one_or_list<'de, D: Deserializer<'de>, T: Deserialize<'de>, F>(
    deserializer: D,
    expected: &'static str,
    one: fn(T) -> F,
    list: fn(Vec<T>) -> Option<F>,
) -> Result<F, D::Error> {
    struct Form<T, F> {
        expected: &'static str,
        one: fn(T) -> F,
        list: fn(Vec<T>) -> Option<F>,
    }
    impl<T, F> Form<T, F> {
        fn wrong<E: de::Error>(&self, found: Unexpected) -> E {
            E::invalid_type(found, &self.expected)
        }
    }
    impl<'de, T: Deserialize<'de>, F> Visitor<'de> for Form<T, F> {
        type Value = F;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(self.expected)
        }
        fn visit_i64<E: de::Error>(self, value: i64) -> Result<F, E> {
            let read: Result<T, E> = T::deserialize(value.into_deserializer());
            read.map(self.one).map_err(|_| self.wrong(Unexpected::Signed(value)))
        }
        fn visit_f64<E: de::Error>(self, value: f64) -> Result<F, E> {
            let read: Result<T, E> = T::deserialize(value.into_deserializer());
            read.map(self.one).map_err(|_| self.wrong(Unexpected::Float(value)))
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<F, A::Error> {
            let mut read = Vec::new();
            while let Some(item) = items.next_element()? {
                read.push(item);
            }
            let count = read.len();
            (self.list)(read).ok_or_else(|| de::Error::invalid_length(count, &self.expected))
        }
    }
    deserializer.deserialize_any(Form { expected, one, list })
}

impl TryFrom<SizeForm> for Size {
    type Error = String;
    fn try_from(form: SizeForm) -> Result<Self, String> {
        let sides = match form {
            SizeForm::Square(side) => [side; 2],
            SizeForm::Sides(sides) => sides,
        };
        for (name, side) in ["height", "width"].into_iter().zip(sides) {
            if !(1..=MAX_SIDE).contains(&side) {
                return Err(format!("expected a {name} from 1 to {MAX_SIDE} pixels, found {side}"));
            }
        }
        Ok(Size { height: sides[0] as usize, width: sides[1] as usize })
    }
}

impl From<Size> for [u32; 2] {
    fn from(size: Size) -> Self {
        [size.height as u32, size.width as u32]
    }
}

/// One number for all channels, or one for each.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(from = "PerChannelForm", into = "Vec<f64>")]
pub struct PerChannel(Vec<f64>);

#[derive(JsonSchema)]
#[schemars(untagged)]
enum PerChannelForm {
    All(f64),
    Each(Vec<f64>),
}

impl<'de> Deserialize<'de> for PerChannelForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_or_list(deserializer, "a number, or a list of one for each channel", PerChannelForm::All, |values| {
            Some(PerChannelForm::Each(values))
        })
    }
}

impl PerChannel {
    pub fn all(value: f64) -> Self {
        PerChannel(vec![value])
    }
    pub fn values(&self) -> &[f64] {
        &self.0
    }
    /// The value of each of `channels` channels, or what is wrong.
    pub fn of(&self, channels: usize) -> Result<Vec<f64>, String> {
        match self.0.as_slice() {
            [value] => Ok(vec![*value; channels]),
            values if values.len() == channels => Ok(values.to_vec()),
            values => {
                let expected = match channels {
                    1 => "1 channel; expected 1".to_owned(),
                    _ => format!("{channels} channels; expected 1 or {channels}"),
                };
                Err(format!("{} values are given for {expected}", values.len()))
            }
        }
    }
}

impl From<PerChannelForm> for PerChannel {
    fn from(form: PerChannelForm) -> Self {
        match form {
            PerChannelForm::All(value) => PerChannel(vec![value]),
            PerChannelForm::Each(values) => PerChannel(values),
        }
    }
}

impl From<PerChannel> for Vec<f64> {
    fn from(values: PerChannel) -> Self {
        values.0
    }
}
