//! Tensors.
use crate::error::{Code, Error, Result};
use crate::ffi::{self, functions, Handle, Handles};
use crate::{DType, Mesh};
use distag_sys::distag_tensor;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Add, Deref, Div, Mul, Neg, Sub};
use std::sync::Arc;

/// The types that elements have in Rust: `f32`, `f64`, `i64` and `bool`.
///
/// ```
/// fn largest<T: distag::Element + PartialOrd>(x: &distag::Tensor) -> distag::Result<Option<T>> {
///     Ok(x.view::<T>()?.iter().copied().reduce(|a, b| if a < b { b } else { a }))
/// }
/// assert_eq!(largest::<i64>(&distag::Tensor::copy(&[3i64, 5, 4]))?, Some(5));
/// # Ok::<(), distag::Error>(())
/// ```
pub trait Element: ffi::Element {}
impl<T: ffi::Element> Element for T {}

/// A dense array of numbers with its history. A clone is another reference to the same tensor.
///
/// Two are equal if they stand for one tensor, so they are keys of maps; [`Tensor::eq_elements`] compares elements.
///
/// ```
/// use distag::Tensor;
/// let x = Tensor::copy(&[1.0f32, 2.0, 3.0, 4.0]).reshape(&[2, 2])?;
/// assert_eq!(x.shape(), [2, 2]);
/// assert_eq!(*(&x * &x - 2.0 * &x + 1.0).view::<f32>()?, [0.0, 1.0, 4.0, 9.0]);
/// assert_eq!(*(12.0 / &x).view::<f32>()?, [12.0, 6.0, 4.0, 3.0]);
/// assert_eq!(*(1.0 - -(&x + &x)).view::<f32>()?, [3.0, 5.0, 7.0, 9.0]);
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor(Handle<distag_tensor>);

impl Tensor {
    pub(crate) fn of_handle(handle: Handle<distag_tensor>) -> Self {
        Self(handle)
    }
    pub(crate) fn handle(&self) -> &Handle<distag_tensor> {
        &self.0
    }
    pub(crate) fn into_handle(self) -> Handle<distag_tensor> {
        self.0
    }
    pub(crate) fn handles<'a>(tensors: &'a [&'a Self]) -> Handles<'a, distag_tensor> {
        Handles::new(tensors.iter().map(|each| each.handle()))
    }

    /// Copies elements into a new tensor of one dim; [`reshape`](Tensor::reshape) gives it others.
    ///
    /// # Panics
    /// Without memory; [`Tensor::try_copy`] answers an error.
    #[must_use]
    pub fn copy<T: Element>(items: &[T]) -> Self {
        Self::try_copy(items, &[items.len() as i64]).expect("a tensor of one dim needs nothing but memory")
    }

    /// Copies elements, row-major, into a new tensor of a shape.
    ///
    /// # Errors
    /// A shape of another size; no memory.
    pub fn try_copy<T: Element>(items: &[T], shape: &[i64]) -> Result<Self> {
        ffi::check_library()?;
        functions::tensor_create(ffi::bytes_of(items), T::DTYPE, shape).map(Self)
    }

    /// Moves elements into a new tensor without copying them. It is read-only: no write, no step of an optimizer.
    ///
    /// # Errors
    /// A shape of another size.
    pub fn from_vec<T: Element>(items: Vec<T>, shape: &[i64]) -> Result<Self> {
        ffi::check_library()?;
        ffi::borrow_vec(items, shape).map(Self)
    }

    /// Makes a tensor over memory that others share, without copying it. It is read-only, as [`Tensor::from_vec`] gives.
    ///
    /// # Errors
    /// A shape of another size.
    pub fn borrowed<T: Element>(items: Arc<[T]>, shape: &[i64]) -> Result<Self> {
        ffi::check_library()?;
        ffi::borrow_arc(items, shape).map(Self)
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        DType::from_raw(functions::tensor_get_dtype(&self.0))
    }

    /// The sizes of the dims.
    #[must_use]
    pub fn shape(&self) -> Vec<i64> {
        functions::tensor_get_info(&self.0).map_or_else(|_| Vec::new(), |info| ffi::items_of(info.shape, info.ndim))
    }

    /// The strides of the dims, in elements.
    #[must_use]
    pub fn strides(&self) -> Vec<i64> {
        functions::tensor_get_info(&self.0).map_or_else(|_| Vec::new(), |info| ffi::items_of(info.strides, info.ndim))
    }

    /// Whether gradients are wanted, also for results of such tensors.
    #[must_use]
    pub fn requires_grad(&self) -> bool {
        functions::tensor_get_requires_grad(&self.0) == 1
    }

    /// Asks for gradients with respect to this tensor, or not.
    ///
    /// # Errors
    /// The tensor has a history, or its dtype is not a floating one.
    pub fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        functions::tensor_set_requires_grad(&self.0, i32::from(requires_grad))
    }

    /// The same tensor, with gradients.
    ///
    /// # Errors
    /// As [`Tensor::set_requires_grad`].
    pub fn with_grad(self) -> Result<Self> {
        self.set_requires_grad(true)?;
        Ok(self)
    }

    fn expect<T: Element>(&self) -> Result<()> {
        let wanted = DType::from_raw(T::DTYPE);
        if self.dtype() == wanted {
            return Ok(());
        }
        let message = format!("the tensor is {:?}, not {wanted:?}: cast it, or ask for its own type", self.dtype());
        Err(Error::new(Code::InvalidArgument, message))
    }

    /// The elements of this moment, row-major: without a copy where the tensor is contiguous. Later writes do not show.
    ///
    /// # Errors
    /// Another dtype; the elements are not on this worker.
    pub fn view<T: Element>(&self) -> Result<View<T>> {
        self.expect::<T>()?;
        let info = functions::tensor_get_info(&self.0)?;
        let is_contiguous = info.flags & distag_sys::DISTAG_TENSOR_CONTIGUOUS != 0;
        if is_contiguous && T::DTYPE != distag_sys::DISTAG_BOOL {
            return Ok(View(Memory::Lent(ffi::Elements::of(&self.0)?)));
        }
        Ok(View(Memory::Copied(self.to_vec()?)))
    }

    /// Copies all elements, row-major.
    ///
    /// # Errors
    /// As [`Tensor::view`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.expect::<T>()?;
        if T::DTYPE == distag_sys::DISTAG_BOOL {
            // A bool of Rust is 0 or 1: the bytes are made such.
            let numbers = ffi::copy_elements::<i64>(self.cast(DType::Int64)?.handle())?;
            return Tensor::try_copy(&numbers, &[numbers.len() as i64])?
                .cast(DType::Bool)
                .and_then(|bools| ffi::copy_elements(bools.handle()));
        }
        ffi::copy_elements(&self.0)
    }

    /// A tensor with the values of this moment and no history, which no write to the other one changes.
    ///
    /// # Errors
    /// No memory.
    pub fn snapshot(&self) -> Result<Self> {
        functions::tensor_create_snapshot(&self.0).map(Self)
    }

    /// Sets the values in place, unrecorded.
    ///
    /// # Errors
    /// Another dtype or size; the tensor has a history or borrows its memory.
    pub fn write<T: Element>(&self, items: &[T]) -> Result<()> {
        self.expect::<T>()?;
        functions::tensor_write(&self.0, ffi::bytes_of(items))
    }

    /// Sets the values in place, unrecorded, to those of another tensor, cast and broadcast.
    ///
    /// # Errors
    /// As [`Tensor::write`].
    pub fn assign(&self, source: &Self) -> Result<()> {
        functions::tensor_assign(&self.0, &source.0)
    }

    /// Adds `scale * source` to the values in place, unrecorded.
    ///
    /// # Errors
    /// As [`Tensor::write`].
    pub fn add_scaled(&self, source: &Self, scale: f64) -> Result<()> {
        functions::tensor_add_scaled(&self.0, &source.0, scale)
    }

    /// Has a hook see the whole gradient of this tensor in a pass, and answer another one, or None to leave it. Add it
    /// before the tensor is used. Answers the id for [`Tensor::remove_hook`].
    ///
    /// # Errors
    /// The tensor requires no gradient.
    pub fn add_hook<F>(&self, hook: F) -> Result<u64>
    where
        F: Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    {
        let hook = move |gradient| Ok(hook(&Tensor(gradient))?.map(Tensor::into_handle));
        ffi::tensor_add_hook(&self.0, Box::new(hook))
    }

    /// Removes a hook.
    ///
    /// # Errors
    /// No hook has the id.
    pub fn remove_hook(&self, hook_id: u64) -> Result<()> {
        functions::tensor_remove_hook(&self.0, hook_id)
    }

    /// The mesh over which it is sharded.
    #[must_use]
    pub fn mesh(&self) -> Option<Mesh> {
        functions::tensor_get_mesh(&self.0).map(Mesh::of_handle)
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}
impl Eq for Tensor {}
impl Hash for Tensor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor {} {:?} {:?}", self.id(), self.dtype(), self.shape())
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $op:ident, $scalar:expr, $of_scalar:expr) => {
        operator!(pair $trait, $method, $op, &Tensor, &Tensor);
        operator!(pair $trait, $method, $op, &Tensor, Tensor);
        operator!(pair $trait, $method, $op, Tensor, &Tensor);
        operator!(pair $trait, $method, $op, Tensor, Tensor);
        operator!(number $trait, $method, &Tensor, f64, $scalar);
        operator!(number $trait, $method, Tensor, f64, $scalar);
        operator!(number $trait, $method, f64, &Tensor, $of_scalar);
        operator!(number $trait, $method, f64, Tensor, $of_scalar);
    };
    (pair $trait:ident, $method:ident, $op:ident, $left:ty, $right:ty) => {
        /// Panics where the shapes or dtypes do not fit; the method answers an error instead.
        impl $trait<$right> for $left {
            type Output = Tensor;
            fn $method(self, other: $right) -> Tensor {
                made(crate::ops::$op(self.borrow(), other.borrow()))
            }
        }
    };
    (number $trait:ident, $method:ident, $left:ty, $right:ty, $apply:expr) => {
        /// Panics where the number does not fit the dtype; the method answers an error instead.
        impl $trait<$right> for $left {
            type Output = Tensor;
            fn $method(self, other: $right) -> Tensor {
                made($apply(self.borrow(), other.borrow()))
            }
        }
    };
}
operator!(Add, add, add, |x: &Tensor, n: &f64| x.add_scalar(*n), |n: &f64, x: &Tensor| x.add_scalar(*n));
operator!(Sub, sub, sub, |x: &Tensor, n: &f64| x.add_scalar(-*n), |n: &f64, x: &Tensor| x.neg()?.add_scalar(*n));
operator!(Mul, mul, mul, |x: &Tensor, n: &f64| x.mul_scalar(*n), |n: &f64, x: &Tensor| x.mul_scalar(*n));
operator!(Div, div, div, |x: &Tensor, n: &f64| x.div(&x.alike(*n)?), |n: &f64, x: &Tensor| Tensor::div(
    &x.alike(*n)?,
    x
));

impl Tensor {
    /// A number as a tensor of the same dtype.
    fn alike(&self, number: f64) -> Result<Self> {
        Self::try_copy(&[number], &[])?.cast(self.dtype())
    }
}

fn made(result: Result<Tensor>) -> Tensor {
    result.unwrap_or_else(|failure| panic!("{failure}"))
}

/// Panics without memory; the method answers an error instead.
impl Neg for &Tensor {
    type Output = Tensor;
    fn neg(self) -> Tensor {
        made(crate::ops::neg(self))
    }
}
/// Panics without memory; the method answers an error instead.
impl Neg for Tensor {
    type Output = Tensor;
    fn neg(self) -> Tensor {
        made(crate::ops::neg(&self))
    }
}

/// The elements of a tensor at one moment, as a slice. It holds them: the tensor may be written or dropped.
///
/// ```
/// let x = distag::Tensor::copy(&[1.0f32, 2.0]);
/// let view = x.view::<f32>()?;
/// x.write(&[7.0f32, 8.0])?;
/// assert_eq!((view.iter().sum::<f32>(), x.view::<f32>()?[0]), (3.0, 7.0));
/// # Ok::<(), distag::Error>(())
/// ```
pub struct View<T: Element>(Memory<T>);

enum Memory<T> {
    Lent(ffi::Elements<T>),
    Copied(Vec<T>),
}

impl<T: Element> Deref for View<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.0 {
            Memory::Lent(elements) => elements.as_slice(),
            Memory::Copied(items) => items,
        }
    }
}
impl<T: Element + fmt::Debug> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
