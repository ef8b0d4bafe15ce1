//! Ops of your own.
use crate::causes::{self, Expected};
use crate::error::Result;
use crate::ffi;
use crate::Tensor;
use distag_sys::distag_tensor;

/// An op with a gradient of its own, for one application: what backward needs is in it.
pub trait CustomOp: Send + Sync + 'static {
    /// Computes the outputs; the inputs come without history.
    ///
    /// # Errors
    /// Fails the application.
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Computes the gradient of each input (None is zero) from that of each output (None: none reached it).
    ///
    /// # Errors
    /// Fails the pass, naming the op.
    fn backward(&self, gradients: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>;
}

struct Raw<C>(C);

impl<C: CustomOp> ffi::RawOp for Raw<C> {
    fn forward(&self, inputs: Vec<ffi::Handle<distag_tensor>>) -> Result<Vec<ffi::Handle<distag_tensor>>> {
        let inputs = inputs.into_iter().map(Tensor::of_handle).collect::<Vec<_>>();
        Ok(self.0.forward(&inputs)?.into_iter().map(Tensor::into_handle).collect())
    }
    fn backward(
        &self,
        gradients: Vec<Option<ffi::Handle<distag_tensor>>>,
    ) -> Result<Vec<Option<ffi::Handle<distag_tensor>>>> {
        let gradients = gradients.into_iter().map(|each| each.map(Tensor::of_handle)).collect::<Vec<_>>();
        Ok(self.0.backward(&gradients)?.into_iter().map(|each| each.map(Tensor::into_handle)).collect())
    }
}

/// Applies an op of your own: runs forward at once, and records backward if an input requires grad. The name shows in
/// errors and graphs.
///
/// # Errors
/// As forward.
pub fn apply_custom(name: &str, op: impl CustomOp, inputs: &[&Tensor], outputs: usize) -> Result<Vec<Tensor>> {
    ffi::check_library()?;
    let name = ffi::text("the name of an op", name)?;
    let expected = Expected::of(causes::OPS);
    let found = ffi::apply_custom(&name, Box::new(Raw(op)), &Tensor::handles(inputs), outputs);
    Ok(found.map_err(|failure| expected.find(failure))?.into_iter().map(Tensor::of_handle).collect())
}
