//! Elements of tensors as slices.
use super::{check, functions, Handle};
use crate::error::{Code, Error, Result};
use distag_sys as sys;
use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

type Tensor = Handle<sys::distag_tensor>;

/// A type that elements of tensors have.
pub trait Element: Copy + Default + Send + Sync + 'static {
    const DTYPE: sys::distag_dtype;
}
impl Element for f32 {
    const DTYPE: sys::distag_dtype = sys::DISTAG_FLOAT32;
}
impl Element for f64 {
    const DTYPE: sys::distag_dtype = sys::DISTAG_FLOAT64;
}
impl Element for i64 {
    const DTYPE: sys::distag_dtype = sys::DISTAG_INT64;
}
impl Element for bool {
    const DTYPE: sys::distag_dtype = sys::DISTAG_BOOL;
}

/// The bytes of elements.
pub fn bytes_of<T: Element>(items: &[T]) -> &[u8] {
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), std::mem::size_of_val(items)) }
}

/// All elements, row-major. The dtype has been compared.
pub fn copy_elements<T: Element>(tensor: &Tensor) -> Result<Vec<T>> {
    let size = functions::tensor_get_size(tensor);
    let mut items = vec![T::default(); size / size_of::<T>()];
    let bytes = unsafe { std::slice::from_raw_parts_mut(items.as_mut_ptr().cast::<u8>(), size) };
    functions::tensor_copy_data(tensor, bytes)?;
    Ok(items)
}

/// The elements of a snapshot, which are not written while it is held.
pub struct Elements<T> {
    _snapshot: Tensor,
    first: NonNull<T>,
    count: usize,
}

// The elements are never written.
unsafe impl<T: Element> Send for Elements<T> {}
unsafe impl<T: Element> Sync for Elements<T> {}

impl<T: Element> Elements<T> {
    /// Takes a snapshot of a contiguous tensor of the dtype of T.
    pub fn of(tensor: &Tensor) -> Result<Self> {
        let snapshot = functions::tensor_create_snapshot(tensor)?;
        let count = functions::tensor_get_count(&snapshot);
        let data = unsafe { sys::distag_tensor_get_data(snapshot.get()) };
        let first = match NonNull::new(data as *mut T) {
            Some(first) => first,
            None if count == 0 => NonNull::dangling(),
            None => return Err(Error::new(Code::InvalidState, "the elements are not here: gather the tensor first")),
        };
        Ok(Self { _snapshot: snapshot, first, count })
    }

    pub fn as_slice(&self) -> &[T] {
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

unsafe extern "C" fn drop_owner<O>(user_data: *mut c_void) {
    super::callbacks::drop_guarded(Box::from_raw(user_data.cast::<O>()));
}

/// A tensor over memory of an owner, which is dropped once no tensor, graph or message needs it.
fn borrow<T: Element, O: Send + Sync>(owner: O, items: *const T, count: usize, shape: &[i64]) -> Result<Tensor> {
    let (data, size) = (items.cast::<c_void>(), count * size_of::<T>());
    let user_data = Box::into_raw(Box::new(owner)).cast();
    let mut tensor = null_mut();
    let (shape, ndim, destroy) = (shape.as_ptr(), shape.len(), Some(drop_owner::<O> as _));
    check(|err| unsafe {
        let strides = null();
        sys::distag_tensor_create_borrowed(
            data,
            size,
            T::DTYPE,
            shape,
            strides,
            ndim,
            user_data,
            destroy,
            &mut tensor,
            err,
        )
    })?;
    unsafe { Handle::owned(tensor) }.ok_or_else(Error::no_handle)
}

pub fn borrow_vec<T: Element>(items: Vec<T>, shape: &[i64]) -> Result<Tensor> {
    let (memory, count) = (items.as_ptr(), items.len());
    borrow(items, memory, count, shape)
}

pub fn borrow_arc<T: Element>(items: Arc<[T]>, shape: &[i64]) -> Result<Tensor> {
    let (memory, count) = (items.as_ptr(), items.len());
    borrow(items, memory, count, shape)
}

/// The items of an array of a struct that C fills, which lives as long as its handle.
pub fn items_of<T: Clone>(items: *const T, count: usize) -> Vec<T> {
    if items.is_null() {
        return Vec::new();
    }
    unsafe { std::slice::from_raw_parts(items, count) }.to_vec()
}
