//! Steps on columns of any type: select, rename, cast, filter, and label.index.

use crate::step::registry::Definition;

pub const DEFINITIONS: &[Definition] = &[];
