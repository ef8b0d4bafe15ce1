//! Cases with workers: calls, values, backward passes through several workers, objects.
use crate::Case;
use distag::{
    Bytes, Call, Code, Context, CustomOp, DType, Error, Object, RRef, Result, Tensor, Value, ValueKind, Worker,
};
use distag::{IntoValue, Reply};
use distag_tests::json::Json;
use distag_tests::{fails, near, tensor_of, Group, SECONDS};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn offer_double(worker: &Worker) -> Result<()> {
    worker.register("double", |x: i64| Ok::<_, Error>(x * 2))
}
fn offer_echo(worker: &Worker) -> Result<()> {
    worker.register("echo", Ok::<Value, Error>)
}
pub fn offer_square(worker: &Worker) -> Result<()> {
    worker.register("square", |x: Tensor| x.mul(&x))
}

fn call_each_other(given: &Json) {
    let group = Group::new(offer_double);
    for (caller, to) in [(group.a(), "b"), (group.b(), "a")] {
        assert_eq!(caller.call::<i64>(to, "double", (given.int("argument"),)).unwrap(), given.int("answer"));
    }
}

fn async_call(given: &Json) {
    let group = Group::new(offer_double);
    let arguments = given.ints("arguments");
    let calls = arguments.iter().map(|&each| group.a().call_async::<i64>("b", "double", (each,)).unwrap());
    assert_eq!(distag::wait_all(calls).unwrap(), given.ints("answers"));
    let future = group.a().call_async::<i64>("b", "double", (3,)).unwrap();
    assert_eq!(block_on(future).unwrap(), 6);
    let next = group.a().call_async::<i64>("b", "double", (3,)).unwrap().then(|answer| Ok(answer? + 1)).unwrap();
    assert_eq!(next.wait_timeout(SECONDS).unwrap(), 7);
}

/// The smallest executor there is: it parks the thread.
fn block_on<F: std::future::Future + Unpin>(mut future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match std::pin::Pin::new(&mut future).poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

fn stays(given: &Json) {
    let group = Group::new(offer_echo);
    let made = group.a().remote("b", "echo", (given.ints("made"),)).unwrap();
    assert_eq!((made.owner(), made.is_owner()), ("b", false));
    assert_eq!(made.fetch::<Vec<i64>>().unwrap(), given.ints("fetched"));
    assert_eq!(made.fetch_async::<Vec<i64>>(Some(SECONDS)).unwrap().wait().unwrap(), given.ints("fetched"));
}

fn nested(given: &Json) {
    let group = Group::new(|worker| {
        offer_double(worker)?;
        worker.register("ask_back", |call: &Call, x: i64| {
            call.call::<i64>(call.caller(), "double", (x,)).map(|y| y + 1)
        })
    });
    assert_eq!(group.a().call::<i64>("b", "ask_back", (given.int("argument"),)).unwrap(), given.int("answer"));
}

fn at_once(given: &Json) {
    let group = Group::new(offer_double);
    let (next, sum) = (AtomicI64::new(0), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..given.int("callers") {
            scope.spawn(|| loop {
                let each = next.fetch_add(1, Ordering::Relaxed);
                if each >= given.int("calls") {
                    return;
                }
                let answer = group.a().call::<i64>("b", "double", (each,)).unwrap();
                sum.fetch_add(answer, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(sum.into_inner(), given.int("sum"));
}

fn raises(given: &Json) {
    let group = Group::new(|worker| {
        worker.register("find", || std::fs::File::open("/no such user").map(|_| ()).map_err(|_| "no such user"))?;
        worker.register("panics", |text: String| -> Result<()> { panic!("{text}") })?;
        worker.register("parse", |text: String| text.parse::<i64>())
    });
    fails(given, group.a().call::<()>("b", "find", ()));
    let failure = group.a().call::<()>("b", "panics", ("no such user",)).unwrap_err();
    assert!(failure.to_string().contains("panic: no such user"), "{failure}");
    assert_eq!(failure.code(), Code::User(1000));
    let failure = group.a().call::<i64>("b", "parse", ("x",)).unwrap_err();
    assert!(failure.to_string().contains("ParseIntError: invalid digit"), "{failure}");
    assert_eq!(group.a().call::<i64>("b", "parse", ("7",)).unwrap(), 7);
}

fn own_status(given: &Json) {
    let code = i32::try_from(given.int("status")).unwrap();
    let group = Group::new(move |worker| {
        worker.register("refuse", move || Err::<(), _>(Error::user(code, "not today")))?;
        worker.register("pass_on", |call: &Call| call.call::<()>("b", "refuse", ()))
    });
    let failure = fails(given, group.a().call::<()>("b", "refuse", ()));
    assert_eq!(failure.class(), distag::Class::User);
    fails(given, group.a().call::<()>("a", "pass_on", ()));
}

fn unknown(given: &Json) {
    let group = Group::new(|_| Ok(()));
    fails(given, group.a().call::<()>("b", &given.text("function"), ()));
}

fn deadline(given: &Json) {
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let group = Group::new(|worker| {
        let released = Arc::clone(&released);
        worker.register("wait", move || {
            let _ = released.lock().unwrap().recv_timeout(SECONDS);
            Ok::<_, Error>(())
        })
    });
    let timeout = Duration::from_millis(given.int("timeout_ms") as u64);
    let failure = fails(given, group.a().request("b", "wait").unwrap().timeout(timeout).call::<()>(()));
    assert_eq!(failure.class(), distag::Class::GaveUp);
    release.send(()).unwrap();
}

fn cancellation(given: &Json) {
    let (began, begun) = channel();
    let (heard, hears) = channel();
    let (began, heard) = (Mutex::new(began), Mutex::new(heard));
    let both = Arc::new((began, heard));
    let group = Group::new(|worker| {
        let both = Arc::clone(&both);
        worker.register("wait", move |call: &Call| {
            both.0.lock().unwrap().send(()).unwrap();
            while !call.is_cancelled() {
                std::thread::yield_now();
            }
            both.1.lock().unwrap().send(()).unwrap();
            Ok::<_, Error>(())
        })
    });
    let future = group.a().call_async::<()>("b", "wait", ()).unwrap();
    begun.recv_timeout(SECONDS).expect("it did not begin");
    future.cancel();
    fails(given, future.wait());
    hears.recv_timeout(SECONDS).expect("the callee did not hear");
    // Dropping a future that was polled does the same.
    let mut dropped = group.a().call_async::<()>("b", "wait", ()).unwrap();
    let waker = futures_waker();
    let pending =
        std::future::Future::poll(std::pin::Pin::new(&mut dropped), &mut std::task::Context::from_waker(&waker));
    assert!(pending.is_pending());
    begun.recv_timeout(SECONDS).expect("it did not begin");
    drop(dropped);
    hears.recv_timeout(SECONDS).expect("the callee did not hear of the drop");
}

fn futures_waker() -> std::task::Waker {
    struct Nothing;
    impl std::task::Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    Arc::new(Nothing).into()
}

fn deferred(given: &Json) {
    let (give, given_replies) = channel::<Reply>();
    let give = Mutex::new(give);
    let give = Arc::new(give);
    let group = Group::new(|worker| {
        let give = Arc::clone(&give);
        worker.register("later", move |call: &Call| -> Result<()> {
            give.lock().unwrap().send(call.defer()?).unwrap();
            Ok(())
        })
    });
    let answer = given.text("answer");
    let thread = std::thread::spawn(move || {
        let reply = given_replies.recv_timeout(SECONDS).unwrap();
        reply.finish(Ok(answer)).unwrap();
        given_replies.recv_timeout(SECONDS).unwrap().finish::<()>(Err(Error::user(1042, "late"))).unwrap();
    });
    assert_eq!(group.a().call::<String>("b", "later", ()).unwrap(), given.text("answer"));
    assert_eq!(group.a().call::<String>("b", "later", ()).unwrap_err().code(), Code::User(1042));
    thread.join().unwrap();
}

fn another_job(given: &Json) {
    let (group, other) = (Group::new(offer_double), Group::named(&["c", "d"], offer_double));
    assert_eq!(other.a().call::<i64>("d", "double", (2,)).unwrap(), 4);
    fails(given, group.a().call::<i64>("c", "double", (1,)));
}

/// JSON as a value, and back.
struct Any(Json);

impl IntoValue for Any {
    fn into_value(self) -> Result<Value> {
        match self.0 {
            Json::Null => ().into_value(),
            Json::Bool(flag) => flag.into_value(),
            Json::Int(number) => number.into_value(),
            Json::Float(number) => number.into_value(),
            Json::Text(text) => text.into_value(),
            Json::List(items) => Value::list(items.into_iter().map(Any)),
            Json::Map(entries) => Value::map(entries.into_iter().map(|(key, each)| (key, Any(each)))),
        }
    }
}

fn json_of(value: &Value) -> Json {
    match value.kind() {
        ValueKind::Null => Json::Null,
        ValueKind::Bool => Json::Bool(value.to().unwrap()),
        ValueKind::Int64 => Json::Int(value.to().unwrap()),
        ValueKind::Float64 => Json::Float(value.to().unwrap()),
        ValueKind::Text => Json::Text(value.to().unwrap()),
        ValueKind::List => Json::List((0..value.count()).map(|index| json_of(&value.item(index).unwrap())).collect()),
        _ => {
            let entry = |index| (value.key(index).unwrap().to_owned(), json_of(&value.item(index).unwrap()));
            Json::Map((0..value.count()).map(entry).collect())
        }
    }
}

fn every_kind(given: &Json) {
    let group = Group::new(offer_echo);
    for each in given.get("values").list() {
        let found = group.a().call::<Value>("b", "echo", (Any(each.clone()),)).unwrap();
        assert_eq!(json_of(&found), *each);
    }
    assert!(group.a().call::<f64>("b", "echo", (-0.0,)).unwrap().is_sign_negative());
    for digits in given.get("bytes_hex").list() {
        let digits = digits.as_str();
        let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let bytes = Bytes((0..digits.len()).step_by(2).map(pair).collect());
        assert_eq!(group.a().call::<Bytes>("b", "echo", (bytes.clone(),)).unwrap(), bytes);
    }
    let tensor = tensor_of(given.get("tensor"), DType::Float32);
    near(&group.a().call::<Tensor>("b", "echo", (&tensor,)).unwrap(), given.get("tensor"), 0.0, 0.0);
    let kept = BTreeMap::from([("kept".to_owned(), 1i64)]);
    let shared = group.a().share(kept.clone()).unwrap();
    let back = group.a().call::<Vec<RRef>>("b", "echo", (vec![shared.clone()],)).unwrap();
    assert_eq!(back[0], shared);
    assert_eq!(back[0].local::<BTreeMap<String, i64>>().unwrap(), kept);
    let options = vec![Some(1.5), None];
    assert_eq!(group.a().call::<Vec<Option<f64>>>("b", "echo", (options.clone(),)).unwrap(), options);
}

fn depth(given: &Json) {
    let deep = |depth| (0..depth).fold(Json::Text("leaf".to_owned()), |inner, _| Json::List(vec![inner]));
    let group = Group::new(offer_echo);
    let deepest = deep(given.int("depth"));
    assert_eq!(json_of(&group.a().call::<Value>("b", "echo", (Any(deepest.clone()),)).unwrap()), deepest);
    fails(given, group.a().call::<Value>("b", "echo", (Any(deep(given.int("depth") + 1)),)));
}

fn big_integer(given: &Json) {
    let number = given.int("value");
    let group = Group::new(offer_echo);
    assert_eq!(group.a().call::<i64>("b", "echo", (number,)).unwrap(), number);
    assert_eq!(group.a().call::<Vec<i64>>("b", "echo", (vec![number],)).unwrap(), [number]);
    assert_eq!(group.a().call::<i32>("b", "echo", (number,)).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(group.a().call::<()>("b", "echo", (1u64 << 63,)).unwrap_err().code(), Code::InvalidArgument);
}

fn not_a_number(_: &Json) {
    let group = Group::new(offer_echo);
    assert!(group.a().call::<f64>("b", "echo", (f64::NAN,)).unwrap().is_nan());
}

fn nul(given: &Json) {
    let group = Group::new(offer_echo);
    let failure = fails(given, group.a().call::<Value>("b", "echo", ("a\0b",)));
    assert!(failure.to_string().starts_with("args[0]: "), "{failure}");
    fails(given, group.a().call::<Value>("b\0", "echo", ()));
    fails(given, group.a().call::<Value>("b", "ec\0ho", ()));
    fails(given, group.a().register("a\0", || Ok::<_, Error>(())));
    fails(given, Worker::builder().name("a\0").build());
    fails(given, Value::map([("a\0", 1)]));
}

fn many_bytes(given: &Json) {
    let bytes = Bytes((0..given.int("size")).map(|each| (each % 256) as u8).collect());
    let group = Group::new(offer_echo);
    assert_eq!(group.a().call::<Bytes>("b", "echo", (bytes.clone(),)).unwrap(), bytes);
}

struct Layer;

fn path(given: &Json) {
    let group = Group::new(offer_echo);
    let layers = HashMap::from([("layers".to_owned(), vec![Object::new(Layer)])]);
    let failure = fails(given, group.a().call::<Value>("b", "echo", (1, layers)));
    assert!(failure.to_string().contains(&given.text("path")), "{failure}");
}

fn two_workers(given: &Json) {
    let x = tensor_of(given.get("x"), DType::Float32).with_grad().unwrap();
    let group = Group::new(offer_square);
    let context = group.a().context().unwrap();
    let loss = context.call::<Tensor>("b", "square", (&x,)).unwrap().sum().unwrap();
    assert_eq!(loss.item().unwrap(), given.float("loss"));
    context.backward(&[&loss]).unwrap();
    near(&context.gradient(&x).unwrap(), given.get("gradient"), 0.0, 0.0);
}

fn there_and_back(given: &Json) {
    let x = tensor_of(given.get("x"), DType::Float32).with_grad().unwrap();
    let group = Group::new(|worker| {
        offer_square(worker)?;
        worker.register("twice_square", |call: &Call, x: Tensor| {
            call.call::<Tensor>("a", "square", (x,))?.mul_scalar(2.0)
        })
    });
    let context = group.a().context().unwrap();
    let loss = context.call::<Tensor>("b", "twice_square", (&x,)).unwrap().sum().unwrap();
    assert_eq!(loss.item().unwrap(), given.float("loss"));
    context.backward(&[&loss]).unwrap();
    near(&context.gradient(&x).unwrap(), given.get("gradient"), 0.0, 0.0);
}

fn both_sides(given: &Json) {
    let weight = tensor_of(given.get("weight"), DType::Float32).with_grad().unwrap();
    let x = tensor_of(given.get("x"), DType::Float32).with_grad().unwrap();
    let kept = Arc::new(Mutex::new(None::<Context>));
    let group = Group::new(|worker| {
        let (used, place) = (weight.clone(), Arc::clone(&kept));
        worker.register("scale", move |call: &Call, x: Tensor| {
            *place.lock().unwrap() = call.context();
            x.mul(&used)
        })?;
        let (used, place) = (weight.clone(), Arc::clone(&kept));
        worker.register("gradient", move || place.lock().unwrap().as_ref().unwrap().gradient(&used))
    });
    let context = group.a().context().unwrap();
    context.backward(&[&context.call::<Tensor>("b", "scale", (&x,)).unwrap().sum().unwrap()]).unwrap();
    near(&context.gradient(&x).unwrap(), given.get("gradient_of_x"), 0.0, 0.0);
    let found = group.a().call::<Tensor>("b", "gradient", ()).unwrap();
    near(&found, given.get("gradient_of_weight"), 0.0, 0.0);
    *kept.lock().unwrap() = None;
}

struct Broken;

impl CustomOp for Broken {
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].mul_scalar(1.0)?])
    }
    fn backward(&self, _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        panic!("out of luck")
    }
}

fn failing_op(given: &Json) {
    let x = Tensor::copy(&[1.0f32]).with_grad().unwrap();
    let name = given.text("op");
    let group = Group::new(|worker| {
        let name = name.clone();
        worker.register("run", move |x: Tensor| {
            Ok::<_, Error>(distag::apply_custom(&name, Broken, &[&x], 1)?.remove(0))
        })
    });
    let context = group.a().context().unwrap();
    let loss = context.call::<Tensor>("b", "run", (&x,)).unwrap().sum().unwrap();
    fails(given, context.backward(&[&loss]));
}

struct Counter {
    number: AtomicI64,
    freed: Arc<AtomicI64>,
}
impl Drop for Counter {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::SeqCst);
    }
}

fn objects(given: &Json) {
    let freed = Arc::new(AtomicI64::new(0));
    {
        let group = Group::new(|worker| {
            let freed = Arc::clone(&freed);
            worker.register("make", move || {
                Ok::<_, Error>(Object::new(Counter { number: AtomicI64::new(0), freed: Arc::clone(&freed) }))
            })?;
            worker.register("count", |used: Object<Counter>| {
                Ok::<_, Error>(used.number.fetch_add(1, Ordering::SeqCst) + 1)
            })?;
            worker.register("other", |_: Object<Layer>| Ok::<_, Error>(()))
        });
        let made = group.a().remote("b", "make", ()).unwrap();
        for answer in given.ints("answers") {
            assert_eq!(group.a().call::<i64>("b", "count", (&made,)).unwrap(), answer);
        }
        let failure = group.a().call::<()>("b", "other", (&made,)).unwrap_err();
        assert_eq!(failure.code(), Code::InvalidArgument, "{failure}");
        assert_eq!(freed.load(Ordering::SeqCst), 0);
    }
    assert_eq!(freed.load(Ordering::SeqCst), given.int("freed"));
}

pub fn cases() -> Vec<Case> {
    vec![
        ("workers: two in one process call each other", call_each_other),
        ("workers: an async call", async_call),
        ("workers: a value that stays is made and fetched", stays),
        ("workers: a nested call back to the caller", nested),
        ("workers: 100 calls at once from 8 threads or tasks", at_once),
        ("workers: a function that raises", raises),
        ("workers: status 1042 is kept with its rank", own_status),
        ("workers: an unknown function", unknown),
        ("workers: a deadline", deadline),
        ("workers: a cancellation reaches the callee", cancellation),
        ("workers: a deferred reply from another thread", deferred),
        ("workers: a second worker of another job", another_job),
        ("values: every kind there and back", every_kind),
        ("values: 16 deep travels, 17 deep is refused", depth),
        ("values: 2^53 + 1 keeps its value", big_integer),
        ("values: not a number stays one", not_a_number),
        ("values: a text with NUL is refused", nul),
        ("values: 1 MiB of bytes", many_bytes),
        ("values: an error names the path", path),
        ("backward: through two workers", two_workers),
        ("backward: through A, B and A again", there_and_back),
        ("backward: gradients are read on both sides", both_sides),
        ("backward: a failure in a remote custom op names it", failing_op),
        ("objects: behind a reference, used by a function, freed once", objects),
    ]
}
