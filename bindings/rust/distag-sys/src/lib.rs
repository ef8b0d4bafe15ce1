//! The C interface of distag, as `distag.h` declares it; the crate `distag` is the safe one.
//!
//! All of it is generated from the header. The library is found by pkg-config, or in the folder that `DISTAG_LIB_DIR`
//! names when this is built.
#![allow(non_camel_case_types)] // the names are those of C
#![deny(missing_debug_implementations)]

#[cfg(test)]
#[rustfmt::skip]
mod layout;
#[rustfmt::skip]
mod raw;

pub use raw::*;
