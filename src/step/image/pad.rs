//! `image.pad`: images extended at their edges.

use super::pixels::{Depth, Image, Shape, Window, check_bytes};
use super::rows::{Bound, Cell, Column, Kernel, Reason, Row, Selection, Takes};
use super::settings::{MAX_SIDE, Names, PerChannel, Size, one_or_list};
use crate::error::Result;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Purity, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

pub const DEFINITION: Definition = Definition {
    name: "image.pad",
    summary: "Extend images to a size, or by a number of pixels at each edge",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "images in uint8 or uint16",
    writes: "images of the same type: all of one size with `size`, larger by the edges with `padding`",
    fails: "the image is larger than `size`, or its columns differ in size",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Extends images to `size` (fixed output; a larger image fails) or by `padding` (ragged where the input is).
/// Output: `[height, width, channels]` of the input's type.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The column, or several of one size; may be left out where only one fits.
    pub column: Option<Names>,
    /// The output column for each; default: in place.
    pub to: Option<Names>,
    /// Those of the columns that hold classes: extended with `mask_value`.
    pub masks: Vec<String>,
    /// `[height, width]` in pixels, or one number for a square.
    pub size: Option<Size>,
    /// Pixels at the edges: `[top, left, bottom, right]`, or one number for all.
    pub padding: Option<Edges>,
    /// Where the image lies within `size`.
    pub position: Position,
    /// What the new pixels hold: one number, or one for each channel; 0 to 255, for uint16 to 65,535.
    pub value: PerChannel,
    /// What the new pixels of masks hold; 0 to 255, for uint16 to 65,535.
    pub mask_value: u16,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            column: None,
            to: None,
            masks: Vec::new(),
            size: None,
            padding: None,
            position: Position::Center,
            value: PerChannel::all(0.0),
            mask_value: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// An odd pixel goes to the bottom and right.
    Center,
    TopLeft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "EdgesForm", into = "[u32; 4]")]
pub struct Edges {
    top: usize,
    left: usize,
    bottom: usize,
    right: usize,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum EdgesForm {
    All(u32),
    Each([u32; 4]),
}

impl<'de> Deserialize<'de> for EdgesForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_or_list(deserializer, "[top, left, bottom, right], or one number for all", EdgesForm::All, |edges| {
            Some(EdgesForm::Each(edges.try_into().ok()?))
        })
    }
}

impl TryFrom<EdgesForm> for Edges {
    type Error = String;
    fn try_from(form: EdgesForm) -> Result<Self, String> {
        let edges = match form {
            EdgesForm::All(pixels) => [pixels; 4],
            EdgesForm::Each(edges) => edges,
        };
        if let Some(pixels) = edges.into_iter().find(|pixels| *pixels > MAX_SIDE) {
            return Err(format!("expected at most {MAX_SIDE} pixels at an edge, found {pixels}"));
        }
        let [top, left, bottom, right] = edges.map(|pixels| pixels as usize);
        Ok(Edges { top, left, bottom, right })
    }
}

impl From<Edges> for [u32; 4] {
    fn from(edges: Edges) -> Self {
        [edges.top, edges.left, edges.bottom, edges.right].map(|pixels| pixels as u32)
    }
}

#[derive(Debug)]
struct Pad {
    by: By,
    value: PerChannel,
    mask_value: PerChannel,
}

#[derive(Debug, Clone, Copy)]
enum By {
    Size(Size, Position),
    Edges(Edges),
}

fn build(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: Params = build.params.parse()?;
    let by = match (params.size, params.padding) {
        (Some(size), None) => By::Size(size, params.position),
        (None, Some(edges)) => By::Edges(edges),
        _ => return Err(build.span.error("expected either size: [HEIGHT, WIDTH] or padding: PIXELS")),
    };
    let kernel = Pad { by, value: params.value.clone(), mask_value: PerChannel::all(params.mask_value.into()) };
    let selection =
        Selection { takes: Takes::Images, column: &mut params.column, to: &mut params.to, masks: &params.masks };
    let bound = Bound::new(build, (&DEFINITION, 1), selection, |input| {
        let images = input.images()?;
        let value = if input.mask { &kernel.mask_value } else { &kernel.value };
        let at = |message| build.params.span_of(if input.mask { "mask_value" } else { "value" }).error(message);
        if let Some(channels) = images.dims[2] {
            pixel(value, channels, images.depth).map_err(at)?;
        }
        let [height, width, _] = images.dims;
        Ok(match by {
            By::Size(size, _) => images.sized(Some(size.height), Some(size.width)),
            By::Edges(e) => images.sized(height.map(|h| h + e.top + e.bottom), width.map(|w| w + e.left + e.right)),
        })
    })?;
    bound.step(&params, kernel)
}

/// A pixel's bytes.
fn pixel(value: &PerChannel, channels: usize, depth: Depth) -> Result<Vec<u8>, Reason> {
    let most = match depth {
        Depth::Eight => f64::from(u8::MAX),
        Depth::Sixteen => f64::from(u16::MAX),
    };
    let mut bytes = Vec::new();
    for value in value.of(channels)? {
        if value.fract() != 0.0 || !(0.0..=most).contains(&value) {
            return Err(format!("expected whole numbers from 0 to {most}, found {value}"));
        }
        bytes.extend_from_slice(&(value as u16).to_le_bytes()[..depth.bytes()]);
    }
    Ok(bytes)
}

impl Kernel for Pad {
    type Plan = ();
    fn plan(&self, row: &Row) -> Result<(), Reason> {
        row.size().map(|_| ())
    }
    fn write(&self, _: &(), cell: Cell, column: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason> {
        let image = cell.image()?;
        let Shape { height, width, channels } = image.shape;
        let (size, top, left) = match self.by {
            By::Edges(e) => ([height + e.top + e.bottom, width + e.left + e.right], e.top, e.left),
            By::Size(size, _) if height > size.height || width > size.width => {
                return Err(format!(
                    "the image is [{height}, {width}], larger than the size of [{}, {}]; resize or crop it first",
                    size.height, size.width
                ));
            }
            By::Size(size, Position::TopLeft) => ([size.height, size.width], 0, 0),
            By::Size(size, Position::Center) => {
                ([size.height, size.width], (size.height - height) / 2, (size.width - width) / 2)
            }
        };
        let value = if column.mask { &self.mask_value } else { &self.value };
        let pixel = pixel(value, channels, image.depth)?;
        extend(image, size, Window { top, left, height, width }, &pixel, out).map(Shape::dims)
    }
}

/// Appends an image of `[height, width]` filled with `pixel`, in which the image itself lies at `window`.
pub fn extend(
    image: Image,
    [height, width]: [usize; 2],
    window: Window,
    pixel: &[u8],
    out: &mut Vec<u8>,
) -> Result<Shape, Reason> {
    check_bytes(height, width, pixel.len())?;
    let fill = |pixels: usize, out: &mut Vec<u8>| match pixel {
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => {
            out.resize(out.len() + pixels * pixel.len(), *first);
        }
        _ => (0..pixels).for_each(|_| out.extend_from_slice(pixel)),
    };
    out.reserve(height * width * pixel.len());
    fill(window.top * width, out);
    for row in image.rows(image.window()) {
        fill(window.left, out);
        out.extend_from_slice(row);
        fill(width - window.left - window.width, out);
    }
    fill((height - window.top - window.height) * width, out);
    Ok(Shape { height, width, channels: image.shape.channels })
}
