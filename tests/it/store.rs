//! The store through its public face: what is published is there, whole, once, for everyone, whatever happens meanwhile.

mod catalog;
mod damage;
pub mod data;
pub mod full;
mod processes;
