//! The C interface of distag, as `distag.h` declares it; the crate `distag` is the safe one.
//!
//! Nearly all of it is generated from the header. The library is found by pkg-config, or in the folder that
//! `DISTAG_LIB_DIR` names when this is built; the feature `static` links `libdistag.a`. With the feature `load` nothing
//! is linked: [`check_library`] and each function take the library at run time.
#![allow(non_camel_case_types)] // the names are those of C
#![deny(missing_debug_implementations)]

#[cfg(test)]
#[rustfmt::skip]
mod layout;
mod library;
#[rustfmt::skip]
mod raw;

pub use library::check_library;
pub use raw::*;
