//! Distributed autograd: workers call each other's functions, and one backward pass runs through all processes that took
//! part.
//!
//! ```
//! use distag::{Result, Tensor, Worker};
//! use std::time::Duration;
//!
//! # fn main() -> Result<()> {
//! let mut workers = Vec::new();
//! for rank in 0..2 {
//!     let worker = Worker::builder().rank(rank).world_size(2).rendezvous("inproc://crate").build()?;
//!     worker.register("square", |x: Tensor| x.mul(&x))?;
//!     workers.push(worker);
//! }
//! let starts = workers.iter().map(|each| each.start_async(Duration::from_secs(5)));
//! distag::wait_all(starts.collect::<Result<Vec<_>>>()?)?;
//!
//! let x = Tensor::copy(&[1.0f32, 2.0, 3.0]).with_grad()?;
//! let context = workers[0].context()?;
//! let square: Tensor = context.call("worker1", "square", (&x,))?; // computed there
//! context.backward(&[&square.sum()?])?; // through both workers
//! assert_eq!(*context.gradient(&x)?.view::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Handles are references: a clone is cheap and stands for the same thing, and all but [`Call`] go to any thread. The
//! last reference ends a thing. Errors are [`Error`], whose code says how to go on.
//!
//! `unsafe` is in one module; `panic = "abort"` works, but a panic in a function then ends the process.
#![deny(missing_debug_implementations, missing_docs, unsafe_code)]

mod apply;
mod call;
#[allow(missing_docs, missing_debug_implementations)]
mod causes;
mod checkpoint;
mod context;
mod custom;
#[rustfmt::skip]
mod enums;
mod environment;
mod error;
#[allow(missing_debug_implementations, missing_docs, unsafe_code)]
mod ffi;
mod future;
#[rustfmt::skip]
mod getters;
mod mesh;
#[rustfmt::skip]
pub mod ops;
mod optimizer;
mod picture;
mod rref;
mod spawned;
mod tensor;
mod trace;
mod value;
mod worker;

pub use apply::{apply, Attribute};
pub use call::{Call, Handler, Reply, WithCall};
pub use checkpoint::load_checkpoint;
pub use context::{Backward, Context, Gradients};
pub use custom::{apply_custom, CustomOp};
pub use enums::*;
pub use environment::Environment;
pub use error::{Class, Error, Result};
pub use future::{wait_all, Future};
pub use mesh::{Collective, Mesh};
pub use optimizer::Optimizer;
pub use picture::{visualize_sharding, Picture};
pub use rref::RRef;
pub use spawned::{AsyncHandler, Task};
pub use tensor::{Element, Tensor, View};
pub use trace::{Span, Trace};
pub use value::{Bytes, FromValue, IntoArgs, IntoValue, Object, Value};
pub use worker::{create_keys, Member, Request, Worker, WorkerBuilder};

/// The C interface, for what this crate does not have.
pub use distag_sys as sys;

/// The version of the library that is loaded.
///
/// ```
/// assert!(distag::version().starts_with("0."));
/// ```
#[must_use]
pub fn version() -> &'static str {
    ffi::functions::get_version().unwrap_or_default()
}

/// The handles of this process that are not released yet.
///
/// ```
/// let before = distag::handle_count();
/// let x = distag::Tensor::copy(&[1.0f32]);
/// assert_eq!(distag::handle_count(), before + 1);
/// ```
#[must_use]
pub fn handle_count() -> u64 {
    ffi::functions::get_handle_count()
}

/// The same in JSON, by kind; with `DISTAG_VALIDATE=1` in the environment each of them.
///
/// ```
/// let _x = distag::Tensor::copy(&[1.0f32]);
/// assert!(distag::handle_report()?.contains("tensor"));
/// # Ok::<(), distag::Error>(())
/// ```
///
/// # Errors
/// No memory.
pub fn handle_report() -> Result<String> {
    ffi::copy_text(ffi::functions::copy_handle_report)
}
