//! What the test programs share: JSON, groups of workers in this process, comparisons.
#![forbid(unsafe_code)]

pub mod json;

use distag::{DType, Error, Result, Tensor, Worker};
use json::Json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub const SECONDS: Duration = Duration::from_secs(120);

/// Workers of one group in this process, started, and shut down side by side.
pub struct Group(pub Vec<Worker>);

impl Group {
    pub fn new(offer: impl Fn(&Worker) -> Result<()>) -> Self {
        Self::named(&["a", "b"], offer)
    }

    pub fn named(names: &[&str], offer: impl Fn(&Worker) -> Result<()>) -> Self {
        Self::made(names, offer).expect("a group")
    }

    fn made(names: &[&str], offer: impl Fn(&Worker) -> Result<()>) -> Result<Self> {
        static JOBS: AtomicUsize = AtomicUsize::new(0);
        let job = format!("job{}", JOBS.fetch_add(1, Ordering::Relaxed));
        let mut workers = Vec::new();
        for (rank, name) in names.iter().enumerate() {
            let builder = Worker::builder().name(*name).rank(rank as i32).world_size(names.len() as i32);
            let worker = builder.rendezvous(format!("inproc://{job}")).job(&job).build()?;
            offer(&worker)?;
            workers.push(worker);
        }
        let starts = workers.iter().map(|each| each.start_async(SECONDS)).collect::<Result<Vec<_>>>()?;
        distag::wait_all(starts)?;
        Ok(Self(workers))
    }

    pub fn a(&self) -> &Worker {
        &self.0[0]
    }
    pub fn b(&self) -> &Worker {
        &self.0[1]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let ends = self.0.iter().map(|each| each.shutdown_async(SECONDS)).collect::<Result<Vec<_>>>();
        if let Err(failure) = ends.and_then(distag::wait_all) {
            eprintln!("shutdown: {failure}");
        }
    }
}

pub fn near_all(found: &[f64], expected: &[f64], absolute: f64, relative: f64) {
    assert_eq!(found.len(), expected.len(), "count");
    for (one, other) in found.iter().zip(expected) {
        let is_near = (one - other).abs() <= absolute.max(relative * other.abs()) || one == other;
        assert!(is_near, "{one} is not {other}");
    }
}

/// Asserts that a tensor has the numbers of nested lists.
pub fn near(found: &Tensor, expected: &Json, absolute: f64, relative: f64) {
    near_all(&numbers(found), &expected.flat(), absolute, relative);
}

pub fn numbers(x: &Tensor) -> Vec<f64> {
    x.cast(DType::Float64).and_then(|each| each.to_vec()).expect("numbers")
}

/// A tensor of nested lists.
pub fn tensor_of(given: &Json, dtype: DType) -> Tensor {
    Tensor::try_copy(&given.flat(), &given.shape()).and_then(|each| each.cast(dtype)).expect("a tensor")
}

/// A tensor of `{"dtype", "shape", "data"}`, or none of null.
pub fn described(given: &Json) -> Option<Tensor> {
    if *given == Json::Null {
        return None;
    }
    let made = Tensor::try_copy(&given.get("data").flat(), &given.ints("shape")).expect("a tensor");
    Some(made.cast(given.dtype("dtype")).expect("a tensor"))
}

/// Asserts that something failed as the case says.
pub fn fails<T>(given: &Json, result: Result<T>) -> Error {
    let failure = match result {
        Ok(_) => panic!("nothing failed"),
        Err(failure) => failure,
    };
    assert_eq!(i64::from(failure.code().to_raw()), given.int("status"), "{failure}");
    if given.has("message_has") {
        for part in given.get("message_has").list() {
            assert!(failure.to_string().contains(part.as_str()), "{failure}");
        }
    }
    if given.has("origin_rank") {
        assert_eq!(failure.origin_rank().map(i64::from), Some(given.int("origin_rank")), "{failure}");
    }
    if given.has("may_have_run") {
        assert_eq!(failure.may_have_run(), given.flag("may_have_run"), "{failure}");
    }
    failure
}
