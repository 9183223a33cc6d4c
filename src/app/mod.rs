//! Level 9: what the command line and Python share.
