//! The store through its public face: what is published is there, whole, once, for everyone, whatever happens meanwhile.

mod catalog;
mod damage;
mod data;
mod full;
mod processes;
