//! The handles of C behind the types of this crate, for what it does not have.
use super::{functions, Handle};
use crate::{Call, Context, Future, Gradients, Mesh, Optimizer, RRef, Reply, Tensor, Value, Worker};
use distag_sys as sys;

macro_rules! raw {
    ($type:ident, $raw:ident, $make:expr) => {
        impl $type {
            /// The handle of C, lent for as long as this is there.
            #[must_use]
            pub fn as_raw(&self) -> *mut sys::$raw {
                self.handle().get()
            }

            /// Takes over a reference to a handle of C; None for NULL. Retain one first that is lent.
            ///
            /// # Safety
            /// `raw` is NULL, or a handle of this kind of which the caller gives one reference away.
            #[must_use]
            pub unsafe fn from_raw(raw: *mut sys::$raw) -> Option<Self> {
                Handle::owned(raw).map($make)
            }
        }
    };
}
raw!(Tensor, distag_tensor, Self::of_handle);
raw!(Value, distag_value, Self::of_handle);
raw!(RRef, distag_rref, Self::of_handle);
raw!(Reply, distag_reply, Self::of_handle);
raw!(Gradients, distag_gradients, Self::of_handle);
raw!(Optimizer, distag_optimizer, Self::of_handle);
raw!(Mesh, distag_mesh, Self::of_handle);
// Such a worker does not leave when it is dropped: whoever made it shuts it down.
raw!(Worker, distag_worker, Self::of_handle);
// Such a context makes no calls: a context of this crate knows its worker.
raw!(Context, distag_context, |handle| Self::of_handle(handle, None));

impl<T: crate::FromValue> Future<T> {
    /// The handle of C, lent for as long as this is there.
    #[must_use]
    pub fn as_raw(&self) -> *mut sys::distag_future {
        self.handle().get()
    }

    /// Takes over a reference to a handle of C; None for NULL. Retain one first that is lent.
    ///
    /// # Safety
    /// `raw` is NULL, or a future of which the caller gives one reference away.
    #[must_use]
    pub unsafe fn from_raw(raw: *mut sys::distag_future) -> Option<Self> {
        Handle::owned(raw).map(Self::of_handle)
    }
}

impl Call {
    /// The invocation of C, lent until the function returns.
    #[must_use]
    pub fn as_raw(&self) -> *mut sys::distag_invocation {
        self.handle().get()
    }
}

/// The name of the worker whose function an invocation calls.
pub(super) fn called_worker(invocation: &super::Lent<'_, sys::distag_invocation>) -> Option<String> {
    let worker = functions::invocation_get_worker(invocation)?;
    functions::worker_get_name(&worker).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, IntoValue};
    use std::ptr::null_mut;

    #[test]
    fn handles_come_and_go() {
        let x = Tensor::copy(&[1.0f32, 2.0]);
        let raw = x.as_raw();
        assert_eq!(unsafe { sys::distag_tensor_get_count(raw) }, 2);
        let other = unsafe {
            sys::distag_tensor_retain(raw);
            Tensor::from_raw(raw)
        };
        assert_eq!(other.as_ref(), Some(&x));
        drop(x);
        assert_eq!(*other.unwrap().view::<f32>().unwrap(), [1.0, 2.0]);
        let mut made = null_mut();
        assert_eq!(unsafe { sys::distag_value_create_int64(7, &mut made, null_mut()) }, 0);
        assert_eq!(unsafe { Value::from_raw(made) }.unwrap().to::<i64>().unwrap(), 7);
        assert!(unsafe { Tensor::from_raw(null_mut()) }.is_none());
        assert!(unsafe { Future::<()>::from_raw(null_mut()) }.is_none());
        let worker = Worker::builder().name("w").world_size(1).rendezvous("inproc://raw").build().unwrap();
        assert_eq!(unsafe { sys::distag_worker_get_rank(worker.as_raw()) }, -1);
        let context = Context::local().unwrap();
        assert_eq!(unsafe { sys::distag_context_get_id(context.as_raw()) }, context.id());
        let value = [1i64].into_value().unwrap();
        assert_eq!(unsafe { sys::distag_value_get_count(value.as_raw()) }, 1);
    }
}
