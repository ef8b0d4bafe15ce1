//! Drawings of sharded tensors.
use crate::error::Result;
use crate::ffi::{self, functions, Handle};
use crate::{Mesh, PictureFormat};
use distag_sys::{distag_mesh, distag_picture_options};

/// What a drawing may be given.
///
/// ```
/// use distag::{visualize_sharding, Picture, PictureFormat};
/// let options = Picture { format: Some(PictureFormat::Svg), label: Some("GPU"), ..Default::default() };
/// let drawn = visualize_sharding("{devices=[2,1]0,1}", Some(&[4, 2]), options)?;
/// assert!(drawn.contains("<svg") && drawn.contains("GPU 1"));
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Picture<'a> {
    /// Its format; None for text.
    pub format: Option<PictureFormat>,
    /// Text with escape codes.
    pub color: bool,
    /// The columns of text; 0 for 80.
    pub width: u32,
    /// The dims that are drawn as rows and as columns; 0 and 0 for the first two.
    pub dims: (u32, u32),
    /// Stands before the numbers of members; None for "CPU".
    pub label: Option<&'a str>,
}

/// Draws which members hold which part of a tensor, by a spec in HLO text, which names devices itself:
/// `{devices=[2,2]0,1,2,3}`. Without a shape all parts are drawn alike.
///
/// ```
/// let drawn = distag::visualize_sharding("{devices=[1,2]0,1}", None, Default::default())?;
/// assert!(drawn.contains("CPU 0") && drawn.contains("CPU 1"));
/// # Ok::<(), distag::Error>(())
/// ```
///
/// # Errors
/// A spec or a shape that does not fit.
pub fn visualize_sharding(spec: &str, shape: Option<&[i64]>, options: Picture<'_>) -> Result<String> {
    ffi::check_library()?;
    draw(None, spec, shape, options)
}

impl Mesh {
    /// Draws which members hold which part of a tensor under a spec: "('data', None)".
    ///
    /// # Errors
    /// A spec or a shape that does not fit.
    pub fn visualize(&self, spec: &str, shape: Option<&[i64]>, options: Picture<'_>) -> Result<String> {
        draw(Some(self.handle()), spec, shape, options)
    }
}

fn draw(
    mesh: Option<&Handle<distag_mesh>>,
    spec: &str,
    shape: Option<&[i64]>,
    options: Picture<'_>,
) -> Result<String> {
    let mut raw = distag_picture_options::new();
    raw.format = options.format.map_or(0, PictureFormat::to_raw);
    raw.color = u32::from(options.color);
    (raw.width, raw.row_dim, raw.column_dim) = (options.width, options.dims.0, options.dims.1);
    let (spec, label) =
        (ffi::text("the spec", spec)?, options.label.map(|each| ffi::text("the label", each)).transpose()?);
    let options = ffi::picture_options(raw, label.as_deref());
    ffi::copy_text(|buffer| functions::visualize_sharding(mesh, &spec, shape, Some(&options), buffer))
}
