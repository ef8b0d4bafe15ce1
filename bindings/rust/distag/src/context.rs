//! Contexts and backward passes.
use crate::causes::{self, Expected};
use crate::error::Result;
use crate::ffi::{self, functions, Handle, Handles};
use crate::{FromValue, Future, IntoArgs, RRef, Request, Tensor, Worker};
use distag_sys::{
    distag_backward_options, distag_context, distag_context_info, distag_gradients, distag_rref, distag_tensor,
};
use std::fmt;
use std::time::Duration;

/// One forward and its backward passes. It ends, here and everywhere it reached, with its creator's last reference.
///
/// ```
/// use distag::{Context, Tensor};
/// let x = Tensor::copy(&[3.0f32]).with_grad()?;
/// let context = Context::local()?; // Worker::context makes one for calls
/// context.backward(&[&(&x * &x).sum()?])?;
/// assert_eq!(*context.gradient(&x)?.view::<f32>()?, [6.0]);
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    handle: Handle<distag_context>,
    worker: Option<Worker>,
}

/// How a pass runs.
///
/// ```
/// use distag::{Backward, Context, Tensor};
/// let x = Tensor::copy(&[1.0f32, 2.0]).with_grad()?;
/// let seed = Tensor::copy(&[10.0f32, 100.0]);
/// let context = Context::local()?;
/// context.backward_with(&[&(2.0 * &x)], Backward { seeds: &[Some(&seed)], ..Default::default() })?;
/// assert_eq!(*context.gradient(&x)?.view::<f32>()?, [20.0, 200.0]);
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Backward<'a> {
    /// A gradient for each root, None for one that is a scalar; or no item at all.
    pub seeds: &'a [Option<&'a Tensor>],
    /// Scalar roots that live on other workers.
    pub remote_roots: &'a [&'a RRef],
    /// Keeps the graph for another pass.
    pub retain_graph: bool,
    /// Gives gradients a history, for a pass through them; retains the graph.
    pub create_graph: bool,
    /// Expects that the roots depend on every recorded call.
    pub fast: bool,
    /// The time after which it fails; None for no limit.
    pub timeout: Option<Duration>,
}

impl Context {
    pub(crate) fn of_handle(handle: Handle<distag_context>, worker: Option<Worker>) -> Self {
        Self { handle, worker }
    }
    pub(crate) fn handle(&self) -> &Handle<distag_context> {
        &self.handle
    }

    /// A context for training within this process, without a worker.
    ///
    /// # Errors
    /// No memory; an older library.
    pub fn local() -> Result<Self> {
        ffi::check_library()?;
        functions::context_create(None).map(|handle| Self::of_handle(handle, None))
    }

    /// A call that is recorded in this context.
    ///
    /// # Errors
    /// A name with a NUL character; a context without a worker.
    pub fn request(&self, to: &str, function: &str) -> Result<Request<'static>> {
        let worker = self.worker.clone().ok_or_else(|| {
            crate::Error::new(crate::Code::InvalidState, "the context has no worker: make it by Worker::context")
        })?;
        Request::new(worker, to, function, Some(self.clone()), None)
    }

    /// Calls a function and records the call in this context.
    ///
    /// # Errors
    /// As [`Worker::call`].
    pub fn call<T: FromValue>(&self, to: &str, function: &str, args: impl IntoArgs) -> Result<T> {
        self.request(to, function)?.call(args)
    }

    /// Runs a backward pass from scalars through every worker they depend on.
    ///
    /// # Errors
    /// A root that needs no gradient; a worker that is lost; a failure in an op of a user. All leaves get their
    /// gradients, or none does.
    pub fn backward(&self, roots: &[&Tensor]) -> Result<()> {
        self.backward_with(roots, Backward::default())
    }

    /// As [`Context::backward`], with what it may be given.
    ///
    /// # Errors
    /// As [`Context::backward`].
    pub fn backward_with(&self, roots: &[&Tensor], options: Backward<'_>) -> Result<()> {
        let (seeds, remote_roots) = Self::arrays(roots.len(), &options)?;
        let options = Self::options(options, &seeds, &remote_roots);
        let expected = Expected::of(causes::OPS);
        let done = functions::backward(&self.handle, &Tensor::handles(roots), Some(&options));
        done.map_err(|failure| expected.find(failure))
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// A context without a worker; a wrong root.
    pub fn backward_async(&self, roots: &[&Tensor], options: Backward<'_>) -> Result<Future<()>> {
        let (seeds, remote_roots) = Self::arrays(roots.len(), &options)?;
        let options = Self::options(options, &seeds, &remote_roots);
        let expected = Expected::of(causes::OPS);
        let handle = functions::backward_async(&self.handle, &Tensor::handles(roots), Some(&options))?;
        Ok(Future::of_call(handle, expected))
    }

    /// C reads as many seeds as there are roots.
    fn arrays<'a>(
        roots: usize,
        options: &Backward<'a>,
    ) -> Result<(Handles<'a, distag_tensor>, Handles<'a, distag_rref>)> {
        let seeds = options.seeds;
        if !seeds.is_empty() && seeds.len() != roots {
            let message = format!("{} seeds for {roots} roots: give one, or None, for each, or no seed", seeds.len());
            return Err(crate::Error::new(crate::Code::InvalidArgument, message));
        }
        let seeds = Handles::of_options(seeds.iter().map(|each| each.map(Tensor::handle)));
        Ok((seeds, Handles::new(options.remote_roots.iter().map(|each| each.handle()))))
    }

    fn options<'a>(
        options: Backward<'_>,
        seeds: &'a Handles<'_, distag_tensor>,
        remote_roots: &'a Handles<'_, distag_rref>,
    ) -> ffi::Options<'a, distag_backward_options> {
        let mut raw = distag_backward_options::new();
        raw.mode = if options.fast { distag_sys::DISTAG_BACKWARD_FAST } else { distag_sys::DISTAG_BACKWARD_SMART };
        raw.retain_graph = u32::from(options.retain_graph);
        raw.create_graph = u32::from(options.create_graph);
        raw.timeout_ns = ffi::limit(options.timeout);
        ffi::backward_options(raw, seeds, remote_roots)
    }

    /// The gradients that leaves of this worker have in the context, summed over its passes.
    ///
    /// # Errors
    /// The context has ended; a pass that ran here has no verdict yet.
    pub fn gradients(&self) -> Result<Gradients> {
        functions::get_gradients(&self.handle).map(Gradients)
    }

    /// The gradient of one leaf.
    ///
    /// # Errors
    /// As [`Context::gradients`]; no pass has reached it.
    pub fn gradient(&self, leaf: &Tensor) -> Result<Tensor> {
        self.gradients()?.get(leaf).ok_or_else(|| {
            let reason = "no pass has reached it, or a custom op gave None for it";
            let message = format!("tensor {} has no gradient in this context: {reason}", leaf.id());
            crate::Error::new(crate::Code::NotFound, message)
        })
    }

    /// Completes when the passes that have run here have their verdicts.
    ///
    /// # Errors
    /// A context without a worker.
    pub fn settle_async(&self) -> Result<Future<()>> {
        functions::context_settle_async(&self.handle).map(Future::of_handle)
    }

    /// Its content on this worker.
    ///
    /// # Errors
    /// The context has ended.
    pub fn info(&self) -> Result<distag_context_info> {
        functions::context_get_info(&self.handle)
    }

    /// A report in JSON, for people and tools.
    ///
    /// # Errors
    /// The context has ended.
    pub fn report(&self) -> Result<String> {
        ffi::copy_text(|buffer| functions::context_copy_report(&self.handle, buffer))
    }

    /// The worker that it was made with, or that was called in it.
    #[must_use]
    pub fn worker(&self) -> Option<&Worker> {
        self.worker.as_ref()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context {}", self.id())
    }
}

/// The gradients of one moment; they outlive their context.
///
/// ```
/// let (x, y) = (distag::Tensor::copy(&[2.0f32]).with_grad()?, distag::Tensor::copy(&[5.0f32]).with_grad()?);
/// let context = distag::Context::local()?;
/// context.backward(&[&(&x * &y).sum()?])?;
/// let gradients = context.gradients()?;
/// assert_eq!((gradients.len(), gradients.get(&x).expect("a gradient").item()?), (2, 5.0));
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct Gradients(Handle<distag_gradients>);

impl Gradients {
    pub(crate) fn of_handle(handle: Handle<distag_gradients>) -> Self {
        Self(handle)
    }
    pub(crate) fn handle(&self) -> &Handle<distag_gradients> {
        &self.0
    }

    /// The number of leaves that have one.
    #[must_use]
    pub fn len(&self) -> usize {
        functions::gradients_get_count(&self.0)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The gradient of a leaf; None when no pass has reached it.
    #[must_use]
    pub fn get(&self, leaf: &Tensor) -> Option<Tensor> {
        functions::gradients_find(&self.0, leaf.handle()).map(Tensor::of_handle)
    }

    /// Each leaf with its gradient.
    pub fn iter(&self) -> impl Iterator<Item = (Tensor, Tensor)> + '_ {
        (0..self.len()).filter_map(move |index| {
            let leaf = functions::gradients_get_tensor(&self.0, index)?;
            let gradient = functions::gradients_get_gradient(&self.0, index)?;
            Some((Tensor::of_handle(leaf), Tensor::of_handle(gradient)))
        })
    }
}

impl fmt::Debug for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
