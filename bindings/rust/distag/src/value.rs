//! Values, which calls carry, and types of Rust as such.
use crate::call::Call;
use crate::error::{Code, Error, Result};
use crate::ffi::{self, functions, Handle, Handles, Texts};
use crate::{RRef, Tensor, ValueKind};
use distag_sys::distag_value;
use std::any::{type_name, Any};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::Arc;

/// The content of a call or an answer: it never changes once made.
///
/// ```
/// use distag::{FromValue, IntoValue};
/// let value = vec![1i64, 2, 3].into_value()?;
/// assert_eq!(Vec::<i64>::from_value(&value)?, [1, 2, 3]);
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct Value(Handle<distag_value>);

impl Value {
    pub(crate) fn of_handle(handle: Handle<distag_value>) -> Self {
        Self(handle)
    }
    pub(crate) fn handle(&self) -> &Handle<distag_value> {
        &self.0
    }
    pub(crate) fn into_handle(self) -> Handle<distag_value> {
        self.0
    }

    /// Null.
    ///
    /// # Errors
    /// No memory.
    pub fn null() -> Result<Self> {
        functions::value_create_null().map(Self)
    }

    /// A list of anything.
    ///
    /// # Errors
    /// An item that can be none, named by its path.
    pub fn list<T: IntoValue>(items: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut values = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            values.push(inner(item).map_err(|failure| failure.at(&format!("[{index}]")))?);
        }
        functions::value_create_list(&Handles::new(values.iter().map(Self::handle))).map(Self)
    }

    /// A map with texts as keys.
    ///
    /// # Errors
    /// An item that can be none, named by its path; a key twice.
    pub fn map<K: AsRef<str>, T: IntoValue>(entries: impl IntoIterator<Item = (K, T)>) -> Result<Self> {
        let (mut keys, mut values) = (Vec::<CString>::new(), Vec::new());
        for (key, item) in entries {
            keys.push(ffi::text("a key", key.as_ref())?);
            values.push(inner(item).map_err(|failure| failure.at(&format!(".{}", key.as_ref())))?);
        }
        let values = Handles::new(values.iter().map(Self::handle));
        functions::value_create_map(&Texts::new(&keys), &values).map(Self)
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        ValueKind::from_raw(functions::value_get_kind(&self.0))
    }

    /// An item of a list or a map.
    #[must_use]
    pub fn item(&self, index: usize) -> Option<Self> {
        functions::value_get_item(&self.0, index).map(Self)
    }

    /// The key of an item of a map; keys are sorted.
    #[must_use]
    pub fn key(&self, index: usize) -> Option<&str> {
        functions::value_get_key(&self.0, index)
    }

    /// An entry of a map.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<Self> {
        functions::value_get_entry(&self.0, &CString::new(key).ok()?).map(Self)
    }

    /// The value as a type of Rust.
    ///
    /// # Errors
    /// It is of another kind, or does not fit.
    pub fn to<T: FromValue>(&self) -> Result<T> {
        T::from_value(self)
    }
}

impl Value {
    fn debug<T: FromValue + fmt::Debug>(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to::<T>() {
            Ok(content) => content.fmt(f),
            Err(failure) => write!(f, "{failure:?}"),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            ValueKind::Null => f.write_str("null"),
            ValueKind::Bool => self.debug::<bool>(f),
            ValueKind::Int64 => self.debug::<i64>(f),
            ValueKind::Float64 => self.debug::<f64>(f),
            ValueKind::Text => self.debug::<String>(f),
            ValueKind::Bytes => self.debug::<Bytes>(f),
            ValueKind::Tensor => self.debug::<Tensor>(f),
            ValueKind::Rref => self.debug::<RRef>(f),
            ValueKind::List => {
                f.debug_list().entries((0..self.count()).filter_map(|index| self.item(index))).finish()
            }
            ValueKind::Map => {
                let entries = (0..self.count()).filter_map(|index| Some((self.key(index)?, self.item(index)?)));
                f.debug_map().entries(entries).finish()
            }
            kind => write!(f, "{kind:?}"),
        }
    }
}

/// An item of a list or a map; objects stay where they are.
fn inner(item: impl IntoValue) -> Result<Value> {
    let value = item.into_value()?;
    if value.kind() == ValueKind::Object {
        let message = "an object stays where it is: share it by Worker::share, and send the reference";
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(value)
}

/// What a call can carry.
///
/// ```
/// use distag::{IntoValue, Result, Tensor, Value};
/// struct Layer { weight: Tensor, steps: i64 }
/// impl IntoValue for &Layer {
///     fn into_value(self) -> Result<Value> {
///         Value::map([("weight", (&self.weight).into_value()?), ("steps", self.steps.into_value()?)])
///     }
/// }
/// let value = (&Layer { weight: Tensor::copy(&[1.0f32]), steps: 3 }).into_value()?;
/// assert_eq!(value.entry("steps").expect("an entry").to::<i64>()?, 3);
/// # Ok::<(), distag::Error>(())
/// ```
pub trait IntoValue: Sized {
    /// The value.
    ///
    /// # Errors
    /// What cannot travel, named by its path: `args[1].layers[0]`.
    fn into_value(self) -> Result<Value>;

    /// A list of such.
    ///
    /// # Errors
    /// As [`IntoValue::into_value`].
    fn list_into_value(items: Vec<Self>) -> Result<Value> {
        Value::list(items)
    }
}

/// What can be made of an answer, or of an argument.
///
/// ```
/// use distag::{FromValue, IntoValue, Result, Value};
/// struct Seconds(f64);
/// impl FromValue for Seconds {
///     fn from_value(value: &Value) -> Result<Self> {
///         f64::from_value(value).map(Self)
///     }
/// }
/// assert_eq!(2.5f64.into_value()?.to::<Seconds>()?.0, 2.5);
/// # Ok::<(), distag::Error>(())
/// ```
pub trait FromValue: Sized {
    /// Of a value.
    ///
    /// # Errors
    /// It is of another kind, or does not fit.
    fn from_value(value: &Value) -> Result<Self>;

    /// Of a list.
    ///
    /// # Errors
    /// As [`FromValue::from_value`], naming the item.
    fn list_from_value(value: &Value) -> Result<Vec<Self>> {
        items_of(value)
    }

    /// Of an argument of a call, which may be a reference to what is wanted.
    ///
    /// # Errors
    /// As [`FromValue::from_value`], naming the argument.
    fn from_argument(call: &Call, index: usize) -> Result<Self> {
        let value = call.arg(index)?;
        Self::from_value(&value).map_err(|failure| failure.at(&format!("{}: args[{index}]", call.function())))
    }
}

/// The items one by one, so that a failure names its place.
fn items_of<T: FromValue>(value: &Value) -> Result<Vec<T>> {
    expect(value, ValueKind::List)?;
    let mut items = Vec::with_capacity(value.count());
    for index in 0..value.count() {
        let item = value.item(index).ok_or_else(Error::no_handle)?;
        items.push(T::from_value(&item).map_err(|failure| failure.at(&format!("[{index}]")))?);
    }
    Ok(items)
}

fn expect(value: &Value, kind: ValueKind) -> Result<()> {
    if value.kind() == kind {
        return Ok(());
    }
    Err(Error::new(Code::InvalidArgument, format!("{kind:?} is wanted, and {:?} is there", value.kind())))
}

impl IntoValue for Value {
    fn into_value(self) -> Result<Value> {
        Ok(self)
    }
}
impl FromValue for Value {
    fn from_value(value: &Value) -> Result<Self> {
        Ok(value.clone())
    }
}
impl IntoValue for () {
    fn into_value(self) -> Result<Value> {
        Value::null()
    }
}
/// Drops whatever came.
impl FromValue for () {
    fn from_value(_: &Value) -> Result<Self> {
        Ok(())
    }
}
impl IntoValue for bool {
    fn into_value(self) -> Result<Value> {
        functions::value_create_bool(i32::from(self)).map(Value)
    }
}
impl FromValue for bool {
    fn from_value(value: &Value) -> Result<Self> {
        functions::value_get_bool(&value.0).map(|flag| flag != 0)
    }
}
impl IntoValue for i64 {
    fn into_value(self) -> Result<Value> {
        functions::value_create_int64(self).map(Value)
    }
    fn list_into_value(items: Vec<Self>) -> Result<Value> {
        functions::value_create_int64_list(&items).map(Value)
    }
}
impl FromValue for i64 {
    fn from_value(value: &Value) -> Result<Self> {
        functions::value_get_int64(&value.0)
    }
    fn list_from_value(value: &Value) -> Result<Vec<Self>> {
        ffi::copy_items(|buffer| functions::value_copy_int64s(&value.0, buffer)).or_else(|_| items_of(value))
    }
}
impl IntoValue for f64 {
    fn into_value(self) -> Result<Value> {
        functions::value_create_float64(self).map(Value)
    }
    fn list_into_value(items: Vec<Self>) -> Result<Value> {
        functions::value_create_float64_list(&items).map(Value)
    }
}
impl FromValue for f64 {
    fn from_value(value: &Value) -> Result<Self> {
        if value.kind() != ValueKind::Int64 {
            return functions::value_get_float64(&value.0);
        }
        let number = i64::from_value(value)?;
        exact(number, number as Self, "f64")
    }
    fn list_from_value(value: &Value) -> Result<Vec<Self>> {
        match ffi::copy_items(|buffer| functions::value_copy_float64s(&value.0, buffer)) {
            Ok(numbers) if numbers.iter().all(|each| (each.abs() as i64) < 1 << Self::MANTISSA_DIGITS) => Ok(numbers),
            _ => items_of(value), // integers may have lost digits, and a failure has a place
        }
    }
}

/// An integer as a float of that type, which keeps all its digits.
fn exact<T: Copy + Into<f64>>(number: i64, float: T, name: &str) -> Result<T> {
    if float.into() as i128 == i128::from(number) {
        return Ok(float);
    }
    Err(Error::new(Code::InvalidArgument, format!("{number} would lose digits as {name}: take i64")))
}
impl IntoValue for f32 {
    fn into_value(self) -> Result<Value> {
        f64::from(self).into_value()
    }
}
impl FromValue for f32 {
    fn from_value(value: &Value) -> Result<Self> {
        if value.kind() == ValueKind::Int64 {
            let number = i64::from_value(value)?;
            return exact(number, number as Self, "f32");
        }
        let number = f64::from_value(value)?;
        let narrowed = number as Self;
        if narrowed.is_infinite() && number.is_finite() {
            let message = format!("{number:e} does not fit a float of 32 bits: use f64");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        Ok(narrowed)
    }
}

macro_rules! integer {
    ($($type:ty)*) => {$(
        impl IntoValue for $type {
            fn into_value(self) -> Result<Value> {
                i64::try_from(self).map_err(|_| does_not_fit(self))?.into_value()
            }
        }
        impl FromValue for $type {
            fn from_value(value: &Value) -> Result<Self> {
                let number = i64::from_value(value)?;
                Self::try_from(number).map_err(|_| does_not_fit(number))
            }
        }
    )*};
}
integer!(i8 i16 i32 isize u8 u16 u32 u64 usize);

fn does_not_fit(number: impl fmt::Display) -> Error {
    Error::new(Code::InvalidArgument, format!("{number} does not fit the integer that is wanted: use a wider one"))
}

impl IntoValue for &str {
    fn into_value(self) -> Result<Value> {
        functions::value_create_text(&ffi::text("a text", self)?).map(Value)
    }
}
impl IntoValue for String {
    fn into_value(self) -> Result<Value> {
        self.as_str().into_value()
    }
}
impl FromValue for String {
    fn from_value(value: &Value) -> Result<Self> {
        functions::value_get_text(&value.0).map(str::to_owned)
    }
}

/// Bytes, which are no list of numbers.
///
/// ```
/// use distag::{Bytes, FromValue, IntoValue, ValueKind};
/// let value = Bytes(vec![1, 2]).into_value()?;
/// assert_eq!((value.kind(), Bytes::from_value(&value)?.0), (ValueKind::Bytes, vec![1, 2]));
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl IntoValue for Bytes {
    fn into_value(self) -> Result<Value> {
        functions::value_create_bytes(&self.0).map(Value)
    }
}
impl FromValue for Bytes {
    fn from_value(value: &Value) -> Result<Self> {
        functions::value_get_bytes(&value.0).map(|bytes| Self(bytes.to_vec()))
    }
}
impl<T: IntoValue> IntoValue for Option<T> {
    fn into_value(self) -> Result<Value> {
        self.map_or_else(Value::null, T::into_value)
    }
}
impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Result<Self> {
        if value.kind() == ValueKind::Null {
            return Ok(None);
        }
        T::from_value(value).map(Some)
    }
}
impl<T: IntoValue> IntoValue for Vec<T> {
    fn into_value(self) -> Result<Value> {
        T::list_into_value(self)
    }
}
impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: &Value) -> Result<Self> {
        T::list_from_value(value)
    }
}
impl<T: IntoValue + Clone> IntoValue for &[T] {
    fn into_value(self) -> Result<Value> {
        T::list_into_value(self.to_vec())
    }
}
impl<T: IntoValue + Clone> IntoValue for &Vec<T> {
    fn into_value(self) -> Result<Value> {
        self.as_slice().into_value()
    }
}
impl<T: IntoValue, const N: usize> IntoValue for [T; N] {
    fn into_value(self) -> Result<Value> {
        T::list_into_value(Vec::from(self))
    }
}
impl<T: IntoValue + Clone, const N: usize> IntoValue for &[T; N] {
    fn into_value(self) -> Result<Value> {
        self.as_slice().into_value()
    }
}
impl<T: FromValue, const N: usize> FromValue for [T; N] {
    fn from_value(value: &Value) -> Result<Self> {
        Self::try_from(T::list_from_value(value)?).map_err(|items| {
            let message = format!("a list of {N} is wanted, and one of {} is there", items.len());
            Error::new(Code::InvalidArgument, message)
        })
    }
}

fn entries<T: FromValue, M: FromIterator<(String, T)>>(value: &Value) -> Result<M> {
    expect(value, ValueKind::Map)?;
    let entry = |index| {
        let key = value.key(index).unwrap_or_default().to_owned();
        let item = value.item(index).ok_or_else(Error::no_handle)?;
        let item = T::from_value(&item).map_err(|failure| failure.at(&format!(".{key}")))?;
        Ok((key, item))
    };
    (0..value.count()).map(entry).collect()
}

impl<K: AsRef<str>, T: IntoValue, S> IntoValue for HashMap<K, T, S> {
    fn into_value(self) -> Result<Value> {
        Value::map(self)
    }
}
impl<K: AsRef<str>, T: IntoValue + Clone, S> IntoValue for &HashMap<K, T, S> {
    fn into_value(self) -> Result<Value> {
        Value::map(self.iter().map(|(key, item)| (key.as_ref(), item.clone())))
    }
}
impl<T: FromValue, S: BuildHasher + Default> FromValue for HashMap<String, T, S> {
    fn from_value(value: &Value) -> Result<Self> {
        entries(value)
    }
}
impl<K: AsRef<str>, T: IntoValue> IntoValue for BTreeMap<K, T> {
    fn into_value(self) -> Result<Value> {
        Value::map(self)
    }
}
impl<K: AsRef<str>, T: IntoValue + Clone> IntoValue for &BTreeMap<K, T> {
    fn into_value(self) -> Result<Value> {
        Value::map(self.iter().map(|(key, item)| (key.as_ref(), item.clone())))
    }
}
impl<T: FromValue> FromValue for BTreeMap<String, T> {
    fn from_value(value: &Value) -> Result<Self> {
        entries(value)
    }
}

impl IntoValue for &Tensor {
    fn into_value(self) -> Result<Value> {
        functions::tensor_as_value(self.handle()).map(Value).ok_or_else(Error::no_handle)
    }
}
impl IntoValue for Tensor {
    fn into_value(self) -> Result<Value> {
        (&self).into_value()
    }
}
impl FromValue for Tensor {
    fn from_value(value: &Value) -> Result<Self> {
        functions::value_get_tensor(&value.0).map(Self::of_handle)
    }
    fn from_argument(call: &Call, index: usize) -> Result<Self> {
        functions::invocation_get_tensor(call.handle(), index).map(Self::of_handle)
    }
}
impl IntoValue for &RRef {
    fn into_value(self) -> Result<Value> {
        functions::rref_as_value(self.handle()).map(Value).ok_or_else(Error::no_handle)
    }
}
impl IntoValue for RRef {
    fn into_value(self) -> Result<Value> {
        (&self).into_value()
    }
}
impl FromValue for RRef {
    fn from_value(value: &Value) -> Result<Self> {
        functions::value_get_rref(&value.0).map(Self::of_handle)
    }
}

/// Something of yours (a model, an environment) that stays on its worker: functions reach it through a reference.
///
/// It is shared, as an `Arc` is: what changes is behind a `Mutex` or an atomic.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// use distag::{Error, Object};
/// use std::sync::Mutex;
/// worker.register("make", || Ok::<_, Error>(Object::new(Mutex::new(0i64))))?;
/// worker.register("count", |counter: Object<Mutex<i64>>| {
///     let mut count = counter.lock().unwrap();
///     *count += 1;
///     Ok::<_, Error>(*count)
/// })?;
/// let counter = worker.remote("w", "make", ())?;
/// worker.call::<i64>("w", "count", (&counter,))?;
/// assert_eq!(worker.call::<i64>("w", "count", (&counter,))?, 2);
/// # Ok::<(), distag::Error>(())
/// ```
pub struct Object<T>(Arc<T>);

impl<T: Any + Send + Sync> Object<T> {
    /// An object.
    pub fn new(content: T) -> Self {
        Self(Arc::new(content))
    }

    /// The type as C compares it.
    fn type_text() -> CString {
        CString::new(format!("Rust {}", type_name::<T>())).unwrap_or_default()
    }

    fn of_any(object: ffi::AnyObject) -> Result<Self> {
        object.downcast::<T>().map(Self).map_err(|_| {
            let message = format!("an object of another {} is there: build both with one version", type_name::<T>());
            Error::new(Code::InvalidArgument, message)
        })
    }
}
impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
impl<T> Deref for Object<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
impl<T: fmt::Debug> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl<T: Any + Send + Sync> IntoValue for Object<T> {
    fn into_value(self) -> Result<Value> {
        ffi::value_create_object(&Self::type_text(), self.0).map(Value)
    }
}
impl<T: Any + Send + Sync> FromValue for Object<T> {
    fn from_value(value: &Value) -> Result<Self> {
        Self::of_any(ffi::value_get_object(&value.0, &Self::type_text())?)
    }
    fn from_argument(call: &Call, index: usize) -> Result<Self> {
        Self::of_any(ffi::invocation_get_object(call.handle(), index, &Self::type_text())?)
    }
}

/// The arguments of a call: a tuple of up to six, or a `Vec<Value>`.
///
/// ```
/// use distag::{IntoArgs, Tensor};
/// let args = (&Tensor::copy(&[1.0f32]), 2, "three", vec![4i64]).into_args()?;
/// assert_eq!((args.len(), args[1].to::<i64>()?), (4, 2));
/// # Ok::<(), distag::Error>(())
/// ```
pub trait IntoArgs {
    /// The values.
    ///
    /// # Errors
    /// What cannot travel, named by its path.
    fn into_args(self) -> Result<Vec<Value>>;
}
impl IntoArgs for Vec<Value> {
    fn into_args(self) -> Result<Vec<Value>> {
        Ok(self)
    }
}
impl IntoArgs for () {
    fn into_args(self) -> Result<Vec<Value>> {
        Ok(Vec::new())
    }
}

macro_rules! arguments {
    ($($type:ident $index:tt),*) => {
        impl<$($type: IntoValue),*> IntoArgs for ($($type,)*) {
            fn into_args(self) -> Result<Vec<Value>> {
                Ok(vec![$(self.$index.into_value().map_err(|failure| failure.at(concat!("args[", $index, "]")))?),*])
            }
        }
    };
}
arguments!(A 0);
arguments!(A 0, B 1);
arguments!(A 0, B 1, C 2);
arguments!(A 0, B 1, C 2, D 3);
arguments!(A 0, B 1, C 2, D 3, E 4);
arguments!(A 0, B 1, C 2, D 3, E 4, F 5);
