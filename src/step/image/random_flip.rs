//! `image.random_flip`: mirrored or not.

use super::pixels::Orientation;
use super::rows::{Bound, Cell, Column, Kernel, Reason, Row, Selection, Takes, Target};
use super::settings::Names;
use crate::error::Result;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Purity, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub const DEFINITION: Definition = Definition {
    name: "image.random_flip",
    summary: "Mirror images with a probability, left to right or top to bottom",
    purity: Purity::Random,
    cardinality: Cardinality::OneToOne,
    reads: "images in uint8 or uint16",
    writes: "images of the same type and size",
    fails: "its columns differ in size",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Mirrors images; all columns of a row alike. Output: shape and type of the input.
///
/// Draws, always both: left to right where the first unit draw is below `horizontal`, top to bottom where the second
/// is below `vertical`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The column, or several of one size; may be left out where only one fits.
    pub column: Option<Names>,
    /// The output column for each; default: in place.
    pub to: Option<Names>,
    /// Probability of mirroring left to right.
    pub horizontal: f64,
    /// Probability of mirroring top to bottom.
    pub vertical: f64,
}

impl Default for Params {
    fn default() -> Self {
        Params { column: None, to: None, horizontal: 0.5, vertical: 0.0 }
    }
}

#[derive(Debug)]
struct RandomFlip {
    horizontal: f64,
    vertical: f64,
}

fn build(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: Params = build.params.parse()?;
    for (name, probability) in [("horizontal", params.horizontal), ("vertical", params.vertical)] {
        if !(0.0..=1.0).contains(&probability) {
            let message = format!("expected a probability from 0 to 1, found {probability}");
            return Err(build.params.span_of(name).error(message));
        }
    }
    let kernel = RandomFlip { horizontal: params.horizontal, vertical: params.vertical };
    let selection = Selection { takes: Takes::Images, column: &mut params.column, to: &mut params.to, masks: &[] };
    let bound = Bound::new(build, (&DEFINITION, 1), selection, |input| {
        let images = input.images()?;
        Ok(Target::Tensor(images.dtype(), images.dims))
    })?;
    bound.step(&params, kernel)
}

impl Kernel for RandomFlip {
    type Plan = Orientation;
    fn plan(&self, row: &Row) -> Result<Orientation, Reason> {
        row.size()?;
        let mut stream = row.stream();
        let horizontal = stream.unit() < self.horizontal;
        let vertical = stream.unit() < self.vertical;
        Ok(match (horizontal, vertical) {
            (false, false) => Orientation::Upright,
            (true, false) => Orientation::Mirrored,
            (false, true) => Orientation::Flipped,
            (true, true) => Orientation::Rotated180,
        })
    }
    fn write(
        &self,
        orientation: &Orientation,
        cell: Cell,
        _: &Column,
        out: &mut Vec<u8>,
    ) -> Result<[usize; 3], Reason> {
        let image = cell.image()?;
        Ok(match orientation {
            Orientation::Upright => image.crop(image.window(), out),
            _ => orientation.apply(image, out),
        }
        .dims())
    }
}
