//! Meshes: workers in a grid, collectives, and sharded tensors.
use crate::error::Result;
use crate::ffi::{self, functions, Handle};
use crate::{CollectiveKind, Context, Reduction, Tensor, Worker};
use distag_sys::{distag_collective_options, distag_mesh};
use std::ffi::CString;
use std::fmt;
use std::time::Duration;

/// Workers in a grid with named axes. All members run one program: the same calls in the same order.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// use distag::{Mesh, Tensor};
/// let mesh = Mesh::new(&worker, &[1], &["data"])?; // all members do the same
/// let x = Tensor::copy(&[1.0f32, 2.0]);
/// assert_eq!(*mesh.all_reduce(&x)?.view::<f32>()?, [1.0, 2.0]);
/// x.mark_sharding(&mesh, "('data',)", None)?; // from here on each has its rows
/// assert_eq!(*x.to_local()?.view::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct Mesh(Handle<distag_mesh>);

/// What a collective may be given.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// use distag::{Collective, CollectiveKind, Mesh, Reduction, Tensor};
/// let mesh = Mesh::new(&worker, &[1], &["data"])?;
/// let options = Collective { reduction: Some(Reduction::Max), ..Default::default() };
/// let largest = mesh.collective(CollectiveKind::AllReduce, &Tensor::copy(&[4.0f32]), options)?;
/// assert_eq!(largest.expect("all get it").item()?, 4.0);
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Collective<'a> {
    /// The axes in which those that take part differ; None for all.
    pub axes: Option<&'a str>,
    /// How it reduces; None for the sum.
    pub reduction: Option<Reduction>,
    /// The dim; negative from the end.
    pub dim: i64,
    /// The other dim, of an all-to-all.
    pub dim_to: i64,
    /// A position among those that take part.
    pub root: i64,
    /// The positions that a permutation moves on.
    pub shift: i64,
    /// The time it may take; None for that of the mesh.
    pub timeout: Option<Duration>,
}

impl Mesh {
    pub(crate) fn of_handle(handle: Handle<distag_mesh>) -> Self {
        Self(handle)
    }

    /// A mesh of all living members in a shape, with a name for each axis; waits until all have come.
    ///
    /// # Errors
    /// Sizes or names that do not fit; other arguments elsewhere; members that do not come.
    pub fn new(worker: &Worker, shape: &[i64], axis_names: &[&str]) -> Result<Self> {
        let names = axis_names.iter().map(|each| ffi::text("an axis", each)).collect::<Result<Vec<_>>>()?;
        let texts = ffi::Texts::new(&names);
        if texts.len() != shape.len() {
            let message = format!("{} axes and {} names: give one name for each", shape.len(), texts.len());
            return Err(crate::Error::new(crate::Code::InvalidArgument, message));
        }
        functions::mesh_create(Some(worker.handle()), None, Some(shape), Some(&texts), None).map(Self)
    }

    /// The members, row-major.
    ///
    /// # Errors
    /// No memory.
    pub fn ranks(&self) -> Result<Vec<i32>> {
        let info = functions::mesh_get_info(&self.0)?;
        Ok(ffi::items_of(info.ranks, info.count as usize))
    }

    /// Another line of the mesh, with an order of calls of its own.
    ///
    /// # Errors
    /// This worker has a line of that name open.
    pub fn open_line(&self, name: &str) -> Result<Self> {
        functions::mesh_open_line(&self.0, &ffi::text("the name of a line", name)?).map(Self)
    }

    /// A collective on a plain tensor; None where the others get the result.
    ///
    /// # Errors
    /// As the mesh; a tensor that differs where it must not.
    pub fn collective(&self, kind: CollectiveKind, x: &Tensor, options: Collective<'_>) -> Result<Option<Tensor>> {
        let mut raw = distag_collective_options::new();
        raw.reduction = options.reduction.map_or(0, Reduction::to_raw);
        (raw.dim, raw.dim_to, raw.root, raw.shift) = (options.dim, options.dim_to, options.root, options.shift);
        raw.timeout_ns = ffi::limit(options.timeout);
        let axes = options.axes.map(|each| ffi::text("the axes", each)).transpose()?;
        let options = ffi::collective_options(raw);
        let found = functions::collective(&self.0, kind.to_raw(), axes.as_deref(), x.handle(), Some(&options))?;
        Ok(found.map(Tensor::of_handle))
    }

    /// The sum of the tensors of all members, the same bits on each.
    ///
    /// # Errors
    /// As [`Mesh::collective`].
    pub fn all_reduce(&self, x: &Tensor) -> Result<Tensor> {
        let found = self.collective(CollectiveKind::AllReduce, x, Collective::default())?;
        found.ok_or_else(crate::Error::no_handle)
    }

    /// A context that all members share.
    ///
    /// # Errors
    /// As the mesh.
    pub fn context(&self) -> Result<Context> {
        functions::context_create_joint(&self.0).map(|handle| Context::of_handle(handle, None))
    }

    /// A report in JSON.
    ///
    /// # Errors
    /// The worker does not answer within a second.
    pub fn report(&self) -> Result<String> {
        ffi::copy_text(|buffer| functions::mesh_copy_report(&self.0, buffer))
    }

    pub(crate) fn handle(&self) -> &Handle<distag_mesh> {
        &self.0
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mesh of {:?}", self.ranks().unwrap_or_default())
    }
}

fn spec_text(spec: &str) -> Result<CString> {
    ffi::text("the spec", spec)
}

impl Tensor {
    /// Turns a tensor without history, in place, into a sharded one: "('data', None)". All members have all of it, or
    /// `source_rank` says whose values go to all.
    ///
    /// # Errors
    /// A spec that does not fit; a history; as the mesh.
    pub fn mark_sharding(&self, mesh: &Mesh, spec: &str, source_rank: Option<i32>) -> Result<()> {
        functions::tensor_mark_sharding(self.handle(), mesh.handle(), &spec_text(spec)?, source_rank.unwrap_or(-1))
    }

    /// The same values under another spec; recorded.
    ///
    /// # Errors
    /// It is not sharded; a spec that does not fit.
    pub fn redistribute(&self, spec: &str) -> Result<Self> {
        functions::redistribute(self.handle(), &spec_text(spec)?, 0).map(Self::of_handle)
    }

    /// The shard of this worker as a plain tensor; recorded.
    ///
    /// # Errors
    /// It is not sharded.
    pub fn to_local(&self) -> Result<Self> {
        functions::tensor_to_local(self.handle(), None).map(Self::of_handle)
    }

    /// The whole as a plain tensor, on the member of a rank (None elsewhere), or on all.
    ///
    /// # Errors
    /// As the mesh; no memory.
    pub fn gather_shards(&self, rank: Option<i32>, timeout: Duration) -> Result<Option<Self>> {
        let found = functions::tensor_gather(self.handle(), rank.unwrap_or(-1), ffi::limit(Some(timeout)))?;
        Ok(found.map(Self::of_handle))
    }
}
