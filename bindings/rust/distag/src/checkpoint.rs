//! Checkpoints: a directory with a safetensors file of each member, and safetensors files of others.
use crate::error::{Code, Error, Result};
use crate::ffi::{self, functions};
use crate::{Future, IntoValue, Mesh, Value};
use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

fn path(directory: &Path) -> Result<CString> {
    let text = directory.to_str().ok_or_else(|| {
        Error::new(Code::InvalidArgument, format!("the directory {directory:?} is no UTF-8: give it another name"))
    })?;
    ffi::text("the directory", text)
}

/// What is saved in a directory or a safetensors file; this process reads alone, without a mesh. The tensors in `into`,
/// a map like the one saved, get their elements in place, or stay as they are after a failure.
///
/// # Errors
/// `NotFound` (directory, entry); `Protocol` (a damaged file); a shape or dtype that differs.
///
/// ```no_run
/// let saved = distag::load_checkpoint("model.safetensors", None)?;
/// let weight: distag::Tensor = saved.entry("weight").expect("a weight").to()?;
/// # Ok::<(), distag::Error>(())
/// ```
pub fn load_checkpoint(directory: impl AsRef<Path>, into: Option<&Value>) -> Result<Value> {
    ffi::check_library()?;
    functions::checkpoint_load(None, &path(directory.as_ref())?, into.map(Value::handle), 0).map(Value::of_handle)
}

impl Mesh {
    /// Saves a map of tensors, numbers, texts and bytes, alike on all members except the parts of sharded tensors. It
    /// replaces what was saved there in one instant. Collective; None is the time of the mesh.
    ///
    /// # Errors
    /// A value that cannot be saved; `InvalidState` naming file and reason; as the mesh.
    pub fn save_checkpoint(
        &self,
        directory: impl AsRef<Path>,
        value: impl IntoValue,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let (directory, value) = (path(directory.as_ref())?, value.into_value()?);
        functions::checkpoint_save(self.handle(), &directory, value.handle(), ffi::limit(timeout))
    }

    /// The same without waiting: it saves the values of now.
    ///
    /// # Errors
    /// As [`Mesh::save_checkpoint`]; later failures are those of the future.
    pub fn save_checkpoint_async(
        &self,
        directory: impl AsRef<Path>,
        value: impl IntoValue,
        timeout: Option<Duration>,
    ) -> Result<Future<()>> {
        let (directory, value) = (path(directory.as_ref())?, value.into_value()?);
        let limit = ffi::limit(timeout);
        functions::checkpoint_save_async(self.handle(), &directory, value.handle(), limit).map(Future::of_handle)
    }

    /// As [`load_checkpoint`], by all members: each reads its parts only. Collective; None is the time of the mesh.
    ///
    /// # Errors
    /// As [`load_checkpoint`]; as the mesh.
    pub fn load_checkpoint(
        &self,
        directory: impl AsRef<Path>,
        into: Option<&Value>,
        timeout: Option<Duration>,
    ) -> Result<Value> {
        let (directory, into) = (path(directory.as_ref())?, into.map(Value::handle));
        functions::checkpoint_load(Some(self.handle()), &directory, into, ffi::limit(timeout)).map(Value::of_handle)
    }
}
