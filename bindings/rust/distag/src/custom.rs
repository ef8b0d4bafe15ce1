//! Ops of your own.
use crate::causes::{self, Expected};
use crate::error::Result;
use crate::ffi;
use crate::Tensor;
use distag_sys::distag_tensor;

/// An op with a gradient of its own, for one application: what backward needs is in it.
///
/// ```
/// use distag::{CustomOp, Result, Tensor};
/// struct Floor; // whose gradient is let through
/// impl CustomOp for Floor {
///     fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         Ok(vec![inputs[0].cast(distag::DType::Int64)?.cast(inputs[0].dtype())?])
///     }
///     fn backward(&self, gradients: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
///         Ok(gradients.to_vec())
///     }
/// }
/// let x = Tensor::copy(&[1.5f32]).with_grad()?;
/// let y = distag::apply_custom("floor", Floor, &[&x], 1)?.remove(0);
/// assert_eq!(*y.view::<f32>()?, [1.0]);
/// # Ok::<(), distag::Error>(())
/// ```
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
/// ```
/// # use distag::{CustomOp, Result, Tensor};
/// struct Twice;
/// impl CustomOp for Twice {
///     fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         Ok(vec![&inputs[0] * 2.0])
///     }
///     fn backward(&self, gradients: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![gradients[0].as_ref().map(|each| each * 2.0)])
///     }
/// }
/// let x = Tensor::copy(&[3.0f32]).with_grad()?;
/// let y = distag::apply_custom("twice", Twice, &[&x], 1)?.remove(0);
/// let context = distag::Context::local()?;
/// context.backward(&[&y])?;
/// assert_eq!(context.gradient(&x)?.item()?, 2.0);
/// # Ok::<(), distag::Error>(())
/// ```
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
