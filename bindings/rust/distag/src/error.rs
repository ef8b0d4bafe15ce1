//! Errors: a code, the rank where they arose, and a message.
use crate::causes::Source;
use crate::ffi;
use std::fmt;

pub use crate::enums::Code;

/// What the functions of this crate answer.
///
/// ```
/// fn half(x: &distag::Tensor) -> distag::Result<distag::Tensor> {
///     x.mul_scalar(0.5)
/// }
/// assert_eq!(half(&distag::Tensor::copy(&[3.0f32]))?.item()?, 1.5);
/// # Ok::<(), distag::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How to go on after an error: the tens of its code.
///
/// ```
/// use distag::{Class, Code};
/// assert_eq!((Code::Overloaded.class(), Code::Disconnected.class()), (Class::Retry, Class::Reconnect));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// 1x: mend the call.
    Usage,
    /// 2x: use another way.
    Unsupported,
    /// 3x: wait and retry.
    Retry,
    /// 4x: reconnect.
    Reconnect,
    /// 5x: give up.
    GaveUp,
    /// 6x and all else: read the message.
    Other,
    /// 1000 and above: of a function.
    User,
}

impl Code {
    /// How to go on.
    #[must_use]
    pub const fn class(self) -> Class {
        match self.to_raw() {
            10..=19 => Class::Usage,
            20..=29 => Class::Unsupported,
            30..=39 => Class::Retry,
            40..=49 => Class::Reconnect,
            50..=59 => Class::GaveUp,
            1000.. => Class::User,
            _ => Class::Other,
        }
    }
}

/// A failure, as distag or a function of a user tells it.
///
/// ```
/// let failure = distag::ops::zeros(&[2, 3])?.matmul(&distag::ops::zeros(&[4, 5])?).unwrap_err();
/// assert_eq!(failure.code(), distag::Code::InvalidArgument);
/// assert_eq!(failure.class(), distag::Class::Usage);
/// assert!(failure.to_string().contains("[4, 5]"));
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct Error(Box<Parts>);

#[derive(Clone)]
struct Parts {
    code: Code,
    origin_rank: i32,
    may_have_run: bool,
    path: String,
    message: String,
    source: Option<Source>,
}

impl Error {
    /// An error of a function of yours: its code, 1000 or above, travels unchanged to the caller.
    #[must_use]
    pub fn user(code: i32, message: impl Into<String>) -> Self {
        Self::new(Code::from_raw(if code == 0 { 1000 } else { code }), message)
    }

    /// An error of yours, for hooks, ops and deferred answers: status 1000, "Type: message". It is the `source()` where
    /// the caller is in this process.
    #[must_use]
    pub fn caused_by<E: std::error::Error + Send + Sync + 'static>(failure: E) -> Self {
        Self::of_function(Box::new(failure), std::any::type_name::<E>())
    }

    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self::from_parts(code, -1, false, message.into())
    }

    pub(crate) fn from_parts(code: Code, origin_rank: i32, may_have_run: bool, message: String) -> Self {
        Self(Box::new(Parts { code, origin_rank, may_have_run, path: String::new(), message, source: None }))
    }

    /// A handle that C did not give although it said so.
    pub(crate) fn no_handle() -> Self {
        Self::new(Code::Internal, "libdistag gave no handle: report this as a defect")
    }

    /// The error of a function of a user: status 1000, "Type: message", or the distag error that it passes on.
    pub(crate) fn of_function(failure: Box<dyn std::error::Error + Send + Sync>, type_name: &str) -> Self {
        let failure = match failure.downcast::<Self>() {
            Ok(own) => return *own,
            Err(other) => other,
        };
        let name = type_name.split('<').next().unwrap_or_default().rsplit("::").next().unwrap_or_default();
        // Were it dropped while a panic of its Display unwinds, a panic of its Drop would end the process.
        let message = ffi::guard(|| match name {
            "Box" | "String" | "&str" => Ok(failure.to_string()),
            name => Ok(format!("{name}: {failure}")),
        });
        let message = message.unwrap_or_else(|panicked| panicked.to_string());
        let mut error = Self::new(Code::User(1000), message);
        error.0.source = Some(Source::of(failure));
        error
    }

    /// The same, at an item of an argument.
    pub(crate) fn at(mut self, part: &str) -> Self {
        self.0.path.insert_str(0, part);
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// The error of a user that is behind this one.
    pub(crate) fn source_here(&self) -> Option<&Source> {
        self.0.source.as_ref()
    }

    pub(crate) fn with_source(mut self, source: Source) -> Self {
        self.0.source.get_or_insert(source);
        self
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// How to go on.
    #[must_use]
    pub fn class(&self) -> Class {
        self.0.code.class()
    }

    /// The rank of the worker on which it arose; None for this process.
    #[must_use]
    pub fn origin_rank(&self) -> Option<i32> {
        Some(self.0.origin_rank).filter(|&rank| rank >= 0)
    }

    /// Whether the called function ran or may have run; otherwise it did not.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        self.0.may_have_run
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            write!(f, "{}: ", self.0.path)?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {self}", self.0.code.name(), self.0.code.to_raw())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().and_then(Source::get)
    }
}
