//! Image steps. Images are HWC, sizes are [height, width]; uint8 unless said otherwise. A step's file holds its
//! parameters and kernel; `rows` binds and runs them, `pixels`, `convert` and the decoders know no Arrow.

mod container;
mod convert;
mod convolve;
pub mod crop;
pub mod decode;
pub mod encode;
mod jpeg;
pub mod normalize;
pub mod pad;
pub mod pixels;
pub mod random_flip;
pub mod random_resized_crop;
mod raster;
pub mod resize;
mod rows;
pub mod settings;

use crate::step::registry::Definition;

pub const DEFINITIONS: &[Definition] = &[
    decode::DEFINITION,
    resize::DEFINITION,
    crop::CENTER,
    crop::RANDOM,
    random_resized_crop::DEFINITION,
    random_flip::DEFINITION,
    pad::DEFINITION,
    normalize::DEFINITION,
    encode::DEFINITION,
];
