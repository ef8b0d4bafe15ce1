//! Code of the host that C calls. Each trampoline catches panics; a box of it is the user data, which destroy drops.
use super::raw::called_worker;
use super::{check, fill_error, keep_source, Counted, Handle, Handles, Lent, Options, Texts};
use crate::causes::OPS;
use crate::error::{Code, Error, Result};
use distag_sys as sys;
use std::any::Any;
use std::ffi::{c_void, CStr, CString};
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{null, null_mut, NonNull};

type Tensor = Handle<sys::distag_tensor>;
type Future = Handle<sys::distag_future>;
type Value = Handle<sys::distag_value>;

pub type Function = Box<dyn Fn(Lent<'_, sys::distag_invocation>) -> Result<()> + Send + Sync>;
pub type Continuation = Box<dyn FnOnce(Future) -> Result<Value> + Send>;
pub type Notice = Box<dyn FnOnce() + Send>;
pub type Hook = Box<dyn Fn(Tensor) -> Result<Option<Tensor>> + Send + Sync>;
pub type LogSink = Box<dyn Fn(i32, &str) + Send + Sync>;
pub type MemberCallback = Box<dyn Fn(&sys::distag_member) + Send + Sync>;
/// An object of the host, behind a value.
pub type AnyObject = std::sync::Arc<dyn Any + Send + Sync>;

/// A custom op as C sees it.
pub trait RawOp: Send + Sync {
    fn forward(&self, inputs: Vec<Tensor>) -> Result<Vec<Tensor>>;
    fn backward(&self, gradients: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>>;
}

/// What a worker calls of its own accord.
#[derive(Default)]
pub struct WorkerHooks {
    pub on_log: Option<LogSink>,
    pub on_member: Option<MemberCallback>,
}

impl Drop for WorkerHooks {
    /// Each by itself: a second panic while the first one unwinds would end the process.
    fn drop(&mut self) {
        drop_guarded(self.on_log.take());
        drop_guarded(self.on_member.take());
    }
}

/// Runs code of a user; a panic becomes an error.
pub fn guard<T>(code: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|payload| Err(error_of_panic(payload)))
}

/// Drops what a user gave; a panic in it ends there.
pub fn drop_guarded<T>(item: T) {
    let _ = guard(|| {
        drop(item);
        Ok(())
    });
}

fn error_of_panic(payload: Box<dyn Any + Send>) -> Error {
    let text = payload.downcast_ref::<&str>().map(|each| (*each).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let message = format!("panic: {}", text.as_deref().unwrap_or("(what was thrown is no text)"));
    // What was thrown may panic when it is dropped; that is thrown again, and again: it is left alone.
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(next);
    }
    Error::new(Code::User(sys::DISTAG_E_USER), message)
}

/// Writes the failure of a callback for C, and answers its status.
unsafe fn report(err: *mut sys::distag_error, code: impl FnOnce() -> Result<()>) -> sys::distag_status {
    report_of(|| Some(OPS.to_owned()), err, code)
}

/// The same for a function of a worker, whose name is asked for after a failure.
unsafe fn report_of(
    worker: impl FnOnce() -> Option<String>,
    err: *mut sys::distag_error,
    code: impl FnOnce() -> Result<()>,
) -> sys::distag_status {
    match guard(code) {
        Ok(()) => 0,
        Err(failure) => {
            let status = err.as_mut().map_or(failure.code().to_raw(), |err| fill_error(err, &failure));
            if let (Some(worker), Some(err)) = (worker(), err.as_ref()) {
                keep_source(&worker, err, &failure);
            }
            drop_guarded(failure); // what is behind it is of the user
            status
        }
    }
}

unsafe extern "C" fn drop_box<T>(user_data: *mut c_void) {
    drop_guarded(Box::from_raw(user_data.cast::<T>()));
}

fn boxed<T>(item: T) -> *mut c_void {
    Box::into_raw(Box::new(item)).cast()
}

unsafe fn all_lent<T: Counted>(handles: *const *mut T, count: usize) -> Vec<Option<Handle<T>>> {
    (0..count).map(|index| Handle::lent(*handles.add(index))).collect()
}

// ---- functions ----

unsafe extern "C" fn call_function(
    user_data: *mut c_void,
    invocation: *mut sys::distag_invocation,
    err: *mut sys::distag_error,
) -> sys::distag_status {
    let function = &*user_data.cast::<Function>();
    let lent = || NonNull::new(invocation).map(|each| Lent::new(each));
    report_of(|| called_worker(&lent()?), err, || function(lent().ok_or_else(Error::no_handle)?))
}

pub fn worker_register(
    worker: &Handle<sys::distag_worker>,
    name: &CStr,
    function: Function,
    callers: Option<&Texts<'_>>,
) -> Result<()> {
    let mut options = sys::distag_function_options::new();
    options.callers = callers.map_or(null(), Texts::as_ptr);
    options.caller_count = callers.map_or(0, Texts::len);
    let (call, destroy) = (Some(call_function as _), Some(drop_box::<Function> as _));
    check(|err| unsafe {
        sys::distag_worker_register(worker.get(), name.as_ptr(), call, boxed(function), destroy, &options, err)
    })
}

// ---- futures ----

unsafe extern "C" fn call_notice(user_data: *mut c_void, _future: *mut sys::distag_future) {
    let notice = &mut *user_data.cast::<Option<Notice>>();
    let _ = guard(|| {
        if let Some(notice) = notice.take() {
            notice();
        }
        Ok(())
    });
}

pub fn future_on_done(future: &Future, notice: Notice) -> Result<()> {
    let (call, destroy) = (Some(call_notice as _), Some(drop_box::<Option<Notice>> as _));
    check(|err| unsafe { sys::distag_future_on_done(future.get(), call, boxed(Some(notice)), destroy, err) })
}

unsafe extern "C" fn call_continuation(
    user_data: *mut c_void,
    future: *mut sys::distag_future,
    out_value: *mut *mut sys::distag_value,
    err: *mut sys::distag_error,
) -> sys::distag_status {
    let continuation = &mut *user_data.cast::<Option<Continuation>>();
    report(err, || {
        let continuation = continuation.take().ok_or_else(Error::no_handle)?;
        *out_value = continuation(Handle::lent(future).ok_or_else(Error::no_handle)?)?.into_raw();
        Ok(())
    })
}

pub fn future_then(future: &Future, continuation: Continuation) -> Result<Future> {
    let (call, destroy) = (Some(call_continuation as _), Some(drop_box::<Option<Continuation>> as _));
    let mut next = null_mut();
    let user_data = boxed(Some(continuation));
    check(|err| unsafe { sys::distag_future_then(future.get(), call, user_data, destroy, &mut next, err) })?;
    unsafe { Handle::owned(next) }.ok_or_else(Error::no_handle)
}

// ---- gradients: hooks and custom ops ----

unsafe extern "C" fn call_hook(
    user_data: *mut c_void,
    gradient: *mut sys::distag_tensor,
    out_gradient: *mut *mut sys::distag_tensor,
    err: *mut sys::distag_error,
) -> sys::distag_status {
    let hook = &*user_data.cast::<Hook>();
    report(err, || {
        if let Some(other) = hook(Handle::lent(gradient).ok_or_else(Error::no_handle)?)? {
            *out_gradient = other.into_raw();
        }
        Ok(())
    })
}

pub fn tensor_add_hook(tensor: &Tensor, hook: Hook) -> Result<u64> {
    let mut id = 0;
    let (call, destroy) = (Some(call_hook as _), Some(drop_box::<Hook> as _));
    check(|err| unsafe { sys::distag_tensor_add_hook(tensor.get(), call, boxed(hook), destroy, &mut id, err) })?;
    Ok(id)
}

fn wrong_count(what: &str, given: usize, wanted: usize) -> Error {
    Error::new(Code::InvalidArgument, format!("{what}: {given} tensors, not {wanted}; give one for each"))
}

unsafe extern "C" fn call_forward(
    user_data: *mut c_void,
    inputs: *const *mut sys::distag_tensor,
    input_count: usize,
    out_outputs: *mut *mut sys::distag_tensor,
    output_count: usize,
    err: *mut sys::distag_error,
) -> sys::distag_status {
    let op = &*user_data.cast::<Box<dyn RawOp>>();
    report(err, || {
        let outputs = op.forward(all_lent(inputs, input_count).into_iter().flatten().collect())?;
        if outputs.len() != output_count {
            return Err(wrong_count("forward gave", outputs.len(), output_count));
        }
        for (index, each) in outputs.into_iter().enumerate() {
            *out_outputs.add(index) = each.into_raw();
        }
        Ok(())
    })
}

unsafe extern "C" fn call_backward(
    user_data: *mut c_void,
    output_gradients: *const *mut sys::distag_tensor,
    output_count: usize,
    out_input_gradients: *mut *mut sys::distag_tensor,
    input_count: usize,
    err: *mut sys::distag_error,
) -> sys::distag_status {
    let op = &*user_data.cast::<Box<dyn RawOp>>();
    report(err, || {
        let gradients = op.backward(all_lent(output_gradients, output_count))?;
        if gradients.len() != input_count {
            return Err(wrong_count("backward gave", gradients.len(), input_count));
        }
        for (index, each) in gradients.into_iter().enumerate() {
            *out_input_gradients.add(index) = each.map_or(null_mut(), Handle::into_raw);
        }
        Ok(())
    })
}

pub fn apply_custom(
    name: &CStr,
    op: Box<dyn RawOp>,
    inputs: &Handles<'_, sys::distag_tensor>,
    output_count: usize,
) -> Result<Vec<Tensor>> {
    let mut raw = sys::distag_custom_op::new();
    raw.name = name.as_ptr();
    raw.forward = Some(call_forward);
    raw.backward = Some(call_backward);
    raw.user_data = boxed(op);
    raw.destroy = Some(drop_box::<Box<dyn RawOp>>);
    let outputs = super::functions::apply_custom(&Options::of(raw), inputs, output_count)?;
    Ok(outputs.into_iter().flatten().collect())
}

// ---- objects ----

pub fn value_create_object(type_: &CStr, object: AnyObject) -> Result<Value> {
    let mut value = null_mut();
    let destroy = Some(drop_box::<AnyObject> as _);
    check(|err| unsafe { sys::distag_value_create_object(type_.as_ptr(), boxed(object), destroy, &mut value, err) })?;
    unsafe { Handle::owned(value) }.ok_or_else(Error::no_handle)
}

/// The object of a value. Its type is a text that only this crate gives, for a box of AnyObject.
pub fn value_get_object(value: &Value, type_: &CStr) -> Result<AnyObject> {
    let object = super::functions::value_get_object(value, type_)?;
    Ok(unsafe { &*object.cast::<AnyObject>() }.clone())
}

/// The object that an argument is, or refers to.
pub fn invocation_get_object(
    invocation: &Lent<'_, sys::distag_invocation>,
    index: usize,
    type_: &CStr,
) -> Result<AnyObject> {
    let object = super::functions::invocation_get_object(invocation, index, type_)?;
    Ok(unsafe { &*object.cast::<AnyObject>() }.clone())
}

// ---- workers ----

unsafe extern "C" fn call_log(user_data: *mut c_void, level: i32, message: *const c_char) {
    let hooks = &*user_data.cast::<WorkerHooks>();
    let _ = guard(|| {
        if let Some(on_log) = &hooks.on_log {
            on_log(level, &CStr::from_ptr(message).to_string_lossy());
        }
        Ok(())
    });
}

unsafe extern "C" fn call_member(
    user_data: *mut c_void,
    _worker: *mut sys::distag_worker,
    member: *const sys::distag_member,
) {
    let hooks = &*user_data.cast::<WorkerHooks>();
    let _ = guard(|| {
        if let Some(on_member) = &hooks.on_member {
            on_member(&*member);
        }
        Ok(())
    });
}

/// The texts of a worker's options by the names of their fields.
struct OptionTexts(Vec<(&'static str, CString)>);

impl OptionTexts {
    fn get(&self, name: &str) -> *const c_char {
        self.0.iter().find(|(each, _)| *each == name).map_or(null(), |(_, text)| text.as_ptr())
    }
}

fn texts_of<'a>(what: &str, texts: impl Iterator<Item = &'a String>) -> Result<Vec<CString>> {
    texts.map(|each| super::text(what, each)).collect()
}

pub fn worker_create(
    mut options: sys::distag_worker_options,
    texts: &[(&'static str, String)],
    peers: &[(String, String)],
    hooks: WorkerHooks,
) -> Result<Handle<sys::distag_worker>> {
    let texts = texts.iter().map(|(name, text)| Ok((*name, super::text(name, text)?))).collect::<Result<_>>();
    let texts = OptionTexts(texts?);
    let names = texts_of("the name of a peer", peers.iter().map(|(name, _)| name))?;
    let keys = texts_of("the key of a peer", peers.iter().map(|(_, key)| key))?;
    let (names, keys) = (Texts::new(&names), Texts::new(&keys));
    let mut security = sys::distag_security_options::new();
    security.public_key = texts.get("public_key");
    security.secret_key = texts.get("secret_key");
    security.group_key = texts.get("group_key");
    if !peers.is_empty() {
        (security.peer_names, security.peer_keys, security.peer_count) = (names.as_ptr(), keys.as_ptr(), peers.len());
    }
    options.security = &security;
    options.name = texts.get("name");
    options.rendezvous = texts.get("rendezvous");
    options.job = texts.get("job");
    options.bind = texts.get("bind");
    options.advertise = texts.get("advertise");
    if hooks.on_log.is_some() {
        options.on_log = Some(call_log);
    }
    if hooks.on_member.is_some() {
        options.on_member = Some(call_member);
    }
    options.user_data = boxed(hooks);
    options.destroy = Some(drop_box::<WorkerHooks>);
    super::functions::worker_create(Some(&Options::of(options)))
}
