//! Cases of ends: what is released, shut down twice, left open, forked; and reports.
use crate::workers::offer_square;
use crate::Case;
use distag::{Call, Code, DType, Error, Future, Optimizer, Tensor, Worker};
use distag_tests::json::Json;
use distag_tests::{fails, near, tensor_of, Group, SECONDS};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn no_handles(given: &Json) {
    assert_eq!(distag::handle_count() as i64, given.int("handles"), "before");
    {
        let x = Tensor::copy(&[1.0f32, 2.0]).with_grad().unwrap();
        x.add_hook(|gradient| Ok(Some(gradient.clone()))).unwrap();
        let group = Group::new(offer_square);
        let context = group.a().context().unwrap();
        context.backward(&[&context.call::<Tensor>("b", "square", (&x,)).unwrap().sum().unwrap()]).unwrap();
        let optimizer = Optimizer::new(group.a(), "sgd", [&x]).unwrap();
        optimizer.set("lr", 0.1).unwrap().step(&context).unwrap();
        let made = group.a().remote("b", "square", (&x,)).unwrap();
        near(&made.fetch::<Tensor>().unwrap(), &Json::parse("[0.64, 2.56]"), 1e-6, 0.0);
        let _view = x.view::<f32>().unwrap();
        let _state = optimizer.save().unwrap();
    }
    assert_eq!(distag::handle_count() as i64, given.int("handles"), "{}", distag::handle_report().unwrap());
}

/// In the place of a collector: each handle is cloned and dropped between all steps.
fn collector(given: &Json) {
    let group = Group::new(offer_square);
    let x = tensor_of(given.get("x"), DType::Float32).with_grad().unwrap();
    let x = drop_one(x.clone(), x);
    let context = group.a().context().unwrap();
    let context = drop_one(context.clone(), context);
    let y = context.call::<Tensor>("b", "square", (x.clone(),)).unwrap();
    let loss = y.sum().unwrap();
    drop(y);
    let loss = drop_one(loss.clone(), loss);
    context.backward(&[&loss]).unwrap();
    drop(loss);
    let gradients = context.gradients().unwrap();
    drop(context);
    near(&gradients.get(&x).unwrap(), given.get("gradient"), 0.0, 0.0);
}

fn drop_one<T>(kept: T, dropped: T) -> T {
    drop(dropped);
    kept
}

fn shut_down_twice(given: &Json) {
    let group = Group::new(|_| Ok(()));
    let other = group.b().shutdown_async(SECONDS).unwrap();
    for _ in 0..2 {
        let report = group.a().shutdown(SECONDS).unwrap();
        assert_eq!(report.entry("clean").unwrap().to::<bool>().unwrap(), given.flag("clean"));
    }
    other.wait().unwrap();
}

/// What is moved or dropped cannot be used: the compiler says so (tests/bindings/rust/compile_fail.sh). A worker that has
/// left can be, and answers an error.
fn use_after_close(_: &Json) {
    let group = Group::new(|_| Ok(()));
    let other = group.b().shutdown_async(SECONDS).unwrap();
    group.a().shutdown(SECONDS).unwrap();
    other.wait().unwrap();
    let failure = group.a().call::<()>("b", "square", (1,)).unwrap_err();
    assert_eq!((failure.code(), failure.class()), (Code::InvalidState, distag::Class::Usage));
    assert_eq!(group.a().context().unwrap_err_code(), Code::InvalidState);
}

trait FailureCode {
    fn unwrap_err_code(self) -> Code;
}
impl<T> FailureCode for distag::Result<T> {
    fn unwrap_err_code(self) -> Code {
        self.err().expect("a failure").code()
    }
}

fn leaving(given: &Json) {
    for _ in 0..given.int("runs") {
        let begin = Instant::now();
        let program = std::env::current_exe().unwrap();
        let calls = given.int("calls").to_string();
        let done = Command::new(program).args(["--leave", &calls]).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
        assert_eq!(done.status.code().map(i64::from), Some(given.int("exit_code")), "{:?}", done.status);
        assert!(begin.elapsed() < Duration::from_secs(given.int("seconds") as u64), "too slow");
    }
}

/// Half of the calls have a continuation; main ends while they run.
pub fn leave_with_calls_open(calls: usize) {
    static ANSWERING: AtomicUsize = AtomicUsize::new(0);
    static LEFT: Mutex<Vec<Worker>> = Mutex::new(Vec::new()); // one that is there until the end
    let group = Group::new(|worker| {
        worker.register("wait_a_little", |call: &Call| {
            ANSWERING.fetch_add(1, Ordering::SeqCst);
            for _ in 0..1000 {
                if !call.is_cancelled() {
                    std::thread::yield_now();
                }
            }
            distag::ops::zeros(&[4])
        })
    });
    let mut futures = Vec::new();
    for index in 0..calls {
        let future: Future<Tensor> = group.a().call_async("b", "wait_a_little", ()).unwrap();
        if index % 2 == 0 {
            futures.push(future.then(|answer| answer).unwrap());
        }
        futures.push(future);
    }
    while ANSWERING.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    LEFT.lock().unwrap().push(group.a().clone());
    std::mem::forget(group); // main ends without its shutdown
}

/// Rust has no fork without unsafe code, and programs that fork by `Command` only do so to exec: that works while workers
/// run, and a new process makes workers of its own.
fn fork(_: &Json) {
    let group = Group::new(offer_square);
    let done = Command::new(std::env::current_exe().unwrap()).arg("--child").output().unwrap();
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(0), ""));
    let three = Tensor::copy(&[3.0f32]);
    assert_eq!(group.a().call::<Tensor>("b", "square", (&three,)).unwrap().item().unwrap(), 9.0);
}

pub fn in_child() {
    let group = Group::new(offer_square);
    let three = Tensor::copy(&[3.0f32]);
    assert_eq!(group.a().call::<Tensor>("b", "square", (&three,)).unwrap().item().unwrap(), 9.0);
}

fn reports(given: &Json) {
    let group = Group::new(offer_square);
    let context = group.a().context().unwrap();
    context.call::<Tensor>("b", "square", (&Tensor::copy(&[3.0f32]),)).unwrap();
    let (made, served) = (group.a().stats().unwrap(), group.b().stats().unwrap());
    assert!(made.calls_made >= 1 && served.calls_served >= 1 && made.calls_open == 0);
    let report = Json::parse(&group.a().report().unwrap());
    for key in given.get("report").list() {
        assert!(report.has(key.as_str()), "{key:?}");
    }
    assert!(matches!(Json::parse(&context.report().unwrap()), Json::Map(_)));
    assert!(matches!(Json::parse(&distag::handle_report().unwrap()), Json::Map(_)));
    assert_eq!(context.info().unwrap().gradient_count, 0);
    fails(&Json::parse("{\"status\": 12}"), group.a().member(7).map_err(Error::from));
}

pub fn cases() -> Vec<Case> {
    vec![
        ("life: everything released leaves no handle", no_handles),
        ("life: a collector between all steps", collector),
        ("life: a worker shut down twice", shut_down_twice),
        ("life: use after close is an error", use_after_close),
        ("life: leaving main with calls open", leaving),
        ("life: a fork", fork),
        ("report: stats and reports parse", reports),
    ]
}
