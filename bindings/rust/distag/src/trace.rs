//! Traces, which <https://ui.perfetto.dev> shows.
use crate::error::Result;
use crate::ffi::{self, functions, Handle};
use crate::Worker;
use distag_sys::{distag_trace_options, distag_worker};
use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a trace may be given.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// use distag::Trace;
/// let folder = std::env::temp_dir().join(format!("distag-doc-{}", std::process::id()));
/// std::fs::create_dir(&folder)?;
/// worker.start_trace(Trace { folder: Some(&folder), ..Default::default() })?;
/// worker.stop_trace()?;
/// assert!(folder.join("w.trace.json").exists());
/// std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace<'a> {
    /// Where the file is made; it has to be there. None: what `DISTAG_TRACE` names.
    pub folder: Option<&'a Path>,
    /// The size of the file, 65,536 or more; 0 for 256 MiB.
    pub max_bytes: u64,
}

/// A span in the trace of a worker: it ends when it is dropped, on any thread.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// {
///     let _span = worker.trace("step")?; // until the end of the block; seen where a trace is under way
/// }
/// # Ok::<(), distag::Error>(())
/// ```
#[must_use = "the span ends when it is dropped: let _span = ..."]
pub struct Span {
    worker: Handle<distag_worker>,
    span: u64,
}

impl Drop for Span {
    fn drop(&mut self) {
        functions::trace_end(&self.worker, self.span);
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span {}", self.span)
    }
}

impl Worker {
    /// Writes what the worker does from now on to `FOLDER/NAME.trace.json`.
    ///
    /// # Errors
    /// It is traced already, or not started; no folder, or none where the file can be made.
    pub fn start_trace(&self, options: Trace<'_>) -> Result<()> {
        let mut raw = distag_trace_options::new();
        raw.max_bytes = options.max_bytes;
        let folder = options.folder.map(folder_text).transpose()?;
        functions::worker_start_trace(self.handle(), Some(&ffi::trace_options(raw, folder.as_deref())))
    }

    /// Ends the trace, if there is one, and closes its file, as the shutdown does.
    ///
    /// # Errors
    /// `Deadline` where the disk needs more than 10 s.
    pub fn stop_trace(&self) -> Result<()> {
        functions::worker_stop_trace(self.handle())
    }

    /// Begins a span: `let _span = worker.trace("step")?;`. Nothing is written where nothing is traced.
    ///
    /// # Errors
    /// A label of more than 127 bytes, or with a NUL character.
    pub fn trace(&self, label: &str) -> Result<Span> {
        let span = functions::trace_begin(self.handle(), &ffi::text("the label", label)?)?;
        Ok(Span { worker: self.handle().clone(), span })
    }
}

fn folder_text(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        let message = format!("the folder {path:?} has a NUL character inside; leave it out");
        crate::Error::new(crate::Code::InvalidArgument, message)
    })
}
