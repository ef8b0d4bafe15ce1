//! Optimizers, which step parameters at their owners.
use crate::error::Result;
use crate::ffi::{self, functions, Handle, Handles};
use crate::{Context, Future, IntoValue, Value, Worker};
use distag_sys::distag_optimizer;
use std::fmt;

/// An update rule and its state, with the rules and defaults of PyTorch: "sgd", "adagrad", "adam", "adamw", "adadelta",
/// "rmsprop", "adamax" or "rprop".
///
/// ```
/// use distag::{Context, Optimizer, Tensor};
/// let weight = Tensor::copy(&[1.0f32, 2.0]).with_grad()?;
/// let context = Context::local()?;
/// context.backward(&[&(&weight * 3.0).sum()?])?;
/// Optimizer::local("sgd", [&weight])?.set("lr", 0.5)?.step(&context)?;
/// assert_eq!(*weight.view::<f32>()?, [-0.5, 0.5]);
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct Optimizer(Handle<distag_optimizer>);

impl Optimizer {
    /// Of tensors of this process, or references to tensors or lists of them, anywhere.
    ///
    /// # Errors
    /// No such kind; a value that can be no parameter.
    pub fn new<P: IntoValue>(worker: &Worker, kind: &str, parameters: impl IntoIterator<Item = P>) -> Result<Self> {
        Self::create(Some(worker), kind, parameters)
    }

    /// Of tensors of this process, without a worker.
    ///
    /// # Errors
    /// As [`Optimizer::new`].
    pub fn local<P: IntoValue>(kind: &str, parameters: impl IntoIterator<Item = P>) -> Result<Self> {
        Self::create(None, kind, parameters)
    }

    fn create<P: IntoValue>(
        worker: Option<&Worker>,
        kind: &str,
        parameters: impl IntoIterator<Item = P>,
    ) -> Result<Self> {
        ffi::check_library()?;
        let values = parameters.into_iter().map(P::into_value).collect::<Result<Vec<_>>>()?;
        let parameters = Handles::new(values.iter().map(Value::handle));
        let kind = ffi::text("the kind of an optimizer", kind)?;
        functions::optimizer_create(worker.map(Worker::handle), &kind, &parameters).map(Self)
    }

    pub(crate) fn of_handle(handle: Handle<distag_optimizer>) -> Self {
        Self(handle)
    }
    pub(crate) fn handle(&self) -> &Handle<distag_optimizer> {
        &self.0
    }

    /// Changes a setting from the next step on: "lr", "momentum", "weight_decay" ...; 0 and 1 stand for no and yes.
    ///
    /// # Errors
    /// No such setting: the message lists them; a value out of range.
    pub fn set(&self, setting: &str, value: f64) -> Result<&Self> {
        functions::optimizer_set(self.handle(), &ffi::text("the setting", setting)?, value)?;
        Ok(self)
    }

    /// Updates each parameter with its gradient in the context, at all owners side by side.
    ///
    /// # Errors
    /// An owner is lost: the message names those that did not apply it, or may not have.
    pub fn step(&self, context: &Context) -> Result<()> {
        functions::optimizer_step(&self.0, context.handle(), None)
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// An optimizer without a worker.
    pub fn step_async(&self, context: &Context) -> Result<Future<()>> {
        functions::optimizer_step_async(&self.0, context.handle(), None).map(Future::of_handle)
    }

    /// The ranks of the owners that applied the last step.
    ///
    /// # Errors
    /// No memory.
    pub fn stepped_ranks(&self) -> Result<Vec<i32>> {
        ffi::copy_items(|buffer| functions::optimizer_copy_stepped_ranks(&self.0, buffer))
    }

    /// Scales the gradients so that their joint 2-norm is at most that; gives the norm that it found.
    ///
    /// # Errors
    /// The norm is not finite; else as [`Optimizer::step`].
    pub fn clip(&self, context: &Context, max_norm: f64) -> Result<f64> {
        functions::optimizer_clip(&self.0, context.handle(), max_norm, None)
    }

    /// The state at all owners, and the settings, as a map with tensors.
    ///
    /// # Errors
    /// An owner is lost.
    pub fn save(&self) -> Result<Value> {
        functions::optimizer_save(&self.0, None).map(Value::of_handle)
    }

    /// Puts a saved state back.
    ///
    /// # Errors
    /// It does not fit.
    pub fn load(&self, state: &Value) -> Result<()> {
        functions::optimizer_load(&self.0, state.handle(), None)
    }
}

impl fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Optimizer")
    }
}
