//! Any op by its name, with all its attributes.
use crate::error::Result;
use crate::ffi::{self, functions, Handles};
use crate::{DType, IntoValue, Tensor, Value};

/// An attribute of an op.
///
/// ```
/// use distag::{apply, Attribute, DType, Tensor};
/// let x = Tensor::copy(&[1.5f32, 2.5]);
/// let cast = apply("cast", &[Some(&x)], &[("dtype", Attribute::DType(DType::Int64))], 1)?;
/// assert_eq!(*cast[0].view::<i64>()?, [1, 2]);
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Attribute<'a> {
    /// `int64`
    Int(i64),
    /// `float64`
    Float(f64),
    /// `bool`
    Bool(bool),
    /// `text`
    Text(&'a str),
    /// `int64[]`
    Ints(&'a [i64]),
    /// `dtype`
    DType(DType),
}

impl IntoValue for Attribute<'_> {
    fn into_value(self) -> Result<Value> {
        match self {
            Self::Int(number) => number.into_value(),
            Self::Float(number) => number.into_value(),
            Self::Bool(flag) => flag.into_value(),
            Self::Text(text) => text.into_value(),
            Self::Ints(numbers) => numbers.into_value(),
            Self::DType(DType::Other(number)) => i64::from(number).into_value(),
            Self::DType(dtype) => format!("{dtype:?}").to_lowercase().into_value(),
        }
    }
}

/// Runs an op by its name; an input may be None where the signature of the op says so.
///
/// ```
/// use distag::{Attribute, Tensor};
/// let x = Tensor::copy(&[1.0f32, 2.0, 3.0, 4.0]).reshape(&[2, 2])?;
/// let sums = distag::apply("sum", &[Some(&x)], &[("dims", Attribute::Ints(&[0]))], 1)?;
/// assert_eq!(*sums[0].view::<f32>()?, [4.0, 6.0]);
/// # Ok::<(), distag::Error>(())
/// ```
///
/// # Errors
/// No such op or attribute; shapes and dtypes that do not fit.
pub fn apply(
    op: &str,
    inputs: &[Option<&Tensor>],
    attributes: &[(&str, Attribute<'_>)],
    outputs: usize,
) -> Result<Vec<Tensor>> {
    ffi::check_library()?;
    let op = ffi::text("op", op)?;
    let inputs = Handles::of_options(inputs.iter().map(|each| each.map(Tensor::handle)));
    let attributes = Value::map(attributes.iter().map(|&(name, each)| (name, each)))?;
    let found = functions::apply(&op, &inputs, Some(attributes.handle()), 0, outputs)?;
    Ok(found.into_iter().flatten().map(Tensor::of_handle).collect())
}

pub(crate) fn many(
    op: &str,
    inputs: &[Option<&Tensor>],
    attributes: &[(&str, Attribute<'_>)],
    outputs: usize,
) -> Result<Vec<Tensor>> {
    apply(op, inputs, attributes, outputs)
}

pub(crate) fn one(op: &str, inputs: &[Option<&Tensor>], attributes: &[(&str, Attribute<'_>)]) -> Result<Tensor> {
    let mut found = apply(op, inputs, attributes, 1)?;
    found.pop().ok_or_else(crate::Error::no_handle)
}
