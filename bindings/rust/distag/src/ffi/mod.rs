//! The only module with unsafe code: handles that count, texts and slices for C, and the functions over them.
mod callbacks;
mod data;
#[allow(dead_code)] // a function of the header is here before the crate needs it
#[rustfmt::skip]
pub mod functions;
mod live;
mod options;
mod raw;

pub use callbacks::*;
pub use data::*;
pub use live::Owner;
pub use options::*;

use crate::error::{Code, Error, Result};
use distag_sys as sys;
use std::ffi::{c_void, CStr, CString};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::raw::c_char;
use std::ptr::{addr_of_mut, NonNull};

/// A handle that C counts.
pub trait Counted: Sized {
    const RETAIN: unsafe extern "C" fn(*mut Self);
    const RELEASE: unsafe extern "C" fn(*mut Self);
}

/// One reference to a handle of C.
#[repr(transparent)]
pub struct Handle<T: Counted>(NonNull<T>);

// All counted handles are thread-safe or immutable: the header says so of each.
unsafe impl<T: Counted> Send for Handle<T> {}
unsafe impl<T: Counted> Sync for Handle<T> {}

impl<T: Counted> Handle<T> {
    /// Takes over a reference; None for NULL.
    pub unsafe fn owned(raw: *mut T) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// Adds a reference to a handle that is lent; None for NULL.
    pub unsafe fn lent(raw: *mut T) -> Option<Self> {
        let pointer = NonNull::new(raw)?;
        T::RETAIN(raw);
        Some(Self(pointer))
    }

    pub fn get(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Gives the reference away.
    pub fn into_raw(self) -> *mut T {
        let raw = self.get();
        std::mem::forget(self);
        raw
    }
}

impl<T: Counted> Clone for Handle<T> {
    fn clone(&self) -> Self {
        unsafe { T::RETAIN(self.get()) };
        Self(self.0)
    }
}

impl<T: Counted> Drop for Handle<T> {
    fn drop(&mut self) {
        unsafe { T::RELEASE(self.get()) }
    }
}

/// A handle that is lent to one callback, on its thread.
pub struct Lent<'a, T>(NonNull<T>, PhantomData<(&'a T, *const ())>);

impl<T> Lent<'_, T> {
    /// The handle has to live as long as what is made here.
    unsafe fn new(raw: NonNull<T>) -> Self {
        Self(raw, PhantomData)
    }

    pub fn get(&self) -> *mut T {
        self.0.as_ptr()
    }
}

/// A handle that is lent for as long as a reference to what holds it, and no longer.
pub fn shorten<T>(lent: Lent<'_, T>) -> Lent<'static, T> {
    Lent(lent.0, PhantomData)
}

pub const FOREVER: i64 = sys::DISTAG_FOREVER;

/// A time for C; one that is too long for it is for ever.
pub fn nanoseconds(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(FOREVER)
}

/// A limit for C, where 0 says that there is none or a default: no time at all is the shortest one.
pub fn limit(time: Option<std::time::Duration>) -> i64 {
    time.map_or(0, |each| match nanoseconds(each) {
        0 => 1,
        given => given,
    })
}

/// A limit for C, in a place that takes no "for ever": the longest stands for it, and the shortest for no time at all.
pub fn finite_limit(time: std::time::Duration) -> i64 {
    const LONGEST: i64 = i64::MAX / 4;
    i64::try_from(time.as_nanos()).unwrap_or(LONGEST).clamp(1, LONGEST)
}

/// An array of handles for C, which lives as long as they do.
pub struct Handles<'a, T: Counted>(Vec<*mut T>, PhantomData<&'a Handle<T>>);

impl<'a, T: Counted + 'a> Handles<'a, T> {
    pub fn new(handles: impl IntoIterator<Item = &'a Handle<T>>) -> Self {
        Self(handles.into_iter().map(Handle::get).collect(), PhantomData)
    }

    /// None becomes NULL.
    pub fn of_options(handles: impl IntoIterator<Item = Option<&'a Handle<T>>>) -> Self {
        let raw = handles.into_iter().map(|each| each.map_or(std::ptr::null_mut(), Handle::get));
        Self(raw.collect(), PhantomData)
    }

    pub fn as_ptr(&self) -> *const *mut T {
        self.0.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// An array of texts for C.
pub struct Texts<'a>(Vec<*const c_char>, PhantomData<&'a CStr>);

impl<'a> Texts<'a> {
    pub fn new(texts: &'a [CString]) -> Self {
        Self(texts.iter().map(|each| each.as_ptr()).collect(), PhantomData)
    }

    pub fn as_ptr(&self) -> *const *const c_char {
        self.0.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A text for C. One with NUL inside would be another text there.
pub fn text(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| {
        let message = format!("{what}: the text has a NUL character inside; leave it out, or send bytes");
        Error::new(Code::InvalidArgument, message)
    })
}

/// Calls a function that may fail, and turns its failure into an error.
fn check(call: impl FnOnce(*mut sys::distag_error) -> sys::distag_status) -> Result<()> {
    let mut place = MaybeUninit::<sys::distag_error>::uninit();
    let err = place.as_mut_ptr();
    unsafe {
        // C writes all of it before a failure, and reads no more than this.
        addr_of_mut!((*err).struct_size).write(std::mem::size_of::<sys::distag_error>() as u32);
        addr_of_mut!((*err).code).write(0);
        addr_of_mut!((*err).origin_rank).write(-1);
        addr_of_mut!((*err).flags).write(0);
        addr_of_mut!((*err).message).cast::<c_char>().write(0);
    }
    match call(err) {
        0 => Ok(()),
        status => Err(unsafe { error_of(status, &*err) }),
    }
}

#[cold]
unsafe fn error_of(status: sys::distag_status, err: &sys::distag_error) -> Error {
    let message = CStr::from_ptr(err.message.as_ptr()).to_string_lossy().into_owned();
    let may_have_run = err.flags & sys::DISTAG_ERROR_MAY_HAVE_RUN != 0;
    Error::from_parts(Code::from_raw(status), err.origin_rank, may_have_run, message)
}

/// A text that C lends for as long as the caller says.
unsafe fn lent_text<'a>(text: *const c_char) -> Option<&'a str> {
    let text = NonNull::new(text as *mut c_char)?;
    CStr::from_ptr(text.as_ptr()).to_str().ok()
}

/// Bytes that C lends likewise.
unsafe fn lent_bytes<'a>(data: *const c_void, size: usize) -> &'a [u8] {
    match NonNull::new(data as *mut u8) {
        Some(data) => std::slice::from_raw_parts(data.as_ptr(), size),
        None => &[],
    }
}

/// A text that a function copies into a buffer, giving its whole length.
pub fn copy_text(copy: impl Fn(&mut [c_char]) -> Result<usize>) -> Result<String> {
    let mut buffer = Vec::new();
    loop {
        let size = copy(&mut buffer)?;
        if size < buffer.len() {
            let bytes = buffer[..size].iter().map(|&each| each as u8).collect::<Vec<_>>();
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        buffer.resize(size + size / 8 + 1, 0);
    }
}

/// Numbers that a function copies into a buffer, giving how many there are.
pub fn copy_items<T: Clone + Default>(copy: impl Fn(&mut [T]) -> Result<usize>) -> Result<Vec<T>> {
    let mut buffer = Vec::new();
    loop {
        let count = copy(&mut buffer)?;
        if count <= buffer.len() {
            buffer.truncate(count);
            return Ok(buffer);
        }
        buffer.resize(count, T::default());
    }
}

/// A text in a fixed array of C.
pub fn text_of(chars: &[c_char]) -> String {
    let bytes = chars.iter().take_while(|&&each| each != 0).map(|&each| each as u8).collect::<Vec<_>>();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Refuses a library that does not fit.
pub fn check_library() -> Result<()> {
    sys::check_library().map_err(|refusal| Error::new(Code::Unsupported, refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_not_older() {
        check_library().unwrap();
    }
}
