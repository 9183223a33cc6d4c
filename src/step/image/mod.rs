//! Image steps. Images are HWC, sizes are [height, width]; uint8 unless said otherwise.

use crate::step::registry::Definition;

pub const DEFINITIONS: &[Definition] = &[];
