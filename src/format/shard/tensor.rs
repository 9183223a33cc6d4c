//! Tensor columns: the canonical Arrow extension types, and their binary form in Parquet.
