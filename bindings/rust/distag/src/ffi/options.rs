//! Structs of options for C, which live no longer than what they point to.
use super::{Handles, Lent};
use crate::causes;
use crate::error::Error;
use distag_sys as sys;
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::ptr::null;

pub struct Options<'a, S> {
    raw: S,
    life: PhantomData<&'a ()>,
}

impl<'a, S> Options<'a, S> {
    /// All that `raw` points to has to outlive 'a.
    pub(super) fn of(raw: S) -> Self {
        Self { raw, life: PhantomData }
    }

    pub fn get(&self) -> *const S {
        &self.raw
    }
}

pub fn call_options<'a>(
    timeout_ns: i64,
    within: Option<&'a Lent<'_, sys::distag_invocation>>,
    label: Option<&'a CStr>,
) -> Options<'a, sys::distag_call_options> {
    let mut raw = sys::distag_call_options::new();
    raw.timeout_ns = timeout_ns;
    raw.within = within.map_or(std::ptr::null_mut(), Lent::get);
    raw.label = label.map_or(null(), CStr::as_ptr);
    Options::of(raw)
}

pub fn backward_options<'a>(
    mut raw: sys::distag_backward_options,
    seeds: &'a Handles<'_, sys::distag_tensor>,
    remote_roots: &'a Handles<'_, sys::distag_rref>,
) -> Options<'a, sys::distag_backward_options> {
    raw.seeds = if seeds.len() == 0 { null() } else { seeds.as_ptr() };
    raw.remote_roots = if remote_roots.len() == 0 { null() } else { remote_roots.as_ptr() };
    raw.remote_root_count = remote_roots.len();
    Options::of(raw)
}

pub fn trace_options(
    mut raw: sys::distag_trace_options,
    folder: Option<&CStr>,
) -> Options<'_, sys::distag_trace_options> {
    raw.folder = folder.map_or(null(), CStr::as_ptr);
    Options::of(raw)
}

pub fn picture_options(
    mut raw: sys::distag_picture_options,
    label: Option<&CStr>,
) -> Options<'_, sys::distag_picture_options> {
    raw.label = label.map_or(null(), CStr::as_ptr);
    Options::of(raw)
}

/// Writes a failure for C, and answers its status.
pub(super) fn fill_error(raw: &mut sys::distag_error, failure: &Error) -> sys::distag_status {
    let text = CString::new(failure.to_string().replace('\0', "\u{fffd}")).unwrap_or_default();
    let status = unsafe { sys::distag_error_set(raw, failure.code().to_raw(), text.as_ptr()) };
    raw.origin_rank = failure.origin_rank().unwrap_or(-1);
    raw.flags = if failure.may_have_run() { sys::DISTAG_ERROR_MAY_HAVE_RUN } else { 0 };
    status
}

/// The failure that a deferred reply of a worker answers with.
pub fn error_options(failure: &Error, worker: &str) -> Options<'static, sys::distag_error> {
    let mut raw = sys::distag_error::new();
    fill_error(&mut raw, failure);
    keep_source(worker, &raw, failure);
    Options::of(raw)
}

/// Keeps what is behind a failure that C was told, for callers in this process.
pub(super) fn keep_source(worker: &str, raw: &sys::distag_error, failure: &Error) {
    if let Some(source) = failure.source_here() {
        causes::keep(worker, &super::text_of(&raw.message), source);
    }
}

pub fn collective_options(raw: sys::distag_collective_options) -> Options<'static, sys::distag_collective_options> {
    Options::of(raw)
}
