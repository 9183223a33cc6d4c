//! Names of the objects of a store: built and parsed here only.
