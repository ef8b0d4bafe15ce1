//! Bad days: functions that panic, errors that are odd, names taken twice, peers that die, ends with calls open.
#![forbid(unsafe_code)]

use distag::{
    ops, Backward, Call, Code, Context, CustomOp, Error, IntoValue, Mesh, Object, Result, Tensor, Value, Worker,
};
use distag_tests::{Group, SECONDS};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

fn echo(worker: &Worker) -> Result<()> {
    worker.register("echo", Ok::<Value, Error>)
}

/// Panics when it is dropped; and what it throws then does, too.
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Bomb);
    }
}

#[test]
fn a_panic_with_any_payload_fails_its_call_and_the_next_one_works() {
    let group = Group::new(|worker| {
        echo(worker)?;
        worker.register("text", || -> Result<()> { panic!("static") })?;
        worker.register("string", |n: i64| -> Result<()> { panic!("number {n}") })?;
        worker.register("number", || -> Result<()> { std::panic::panic_any(7u8) })?;
        worker.register("bomb", || -> Result<()> { std::panic::panic_any(Bomb) })
    });
    for round in 0..20 {
        for (name, wanted) in [("text", "panic: static"), ("number", "panic: "), ("bomb", "panic: ")] {
            let failure = group.a().call::<()>("b", name, ()).unwrap_err();
            assert_eq!((failure.code(), failure.origin_rank()), (Code::User(1000), Some(1)));
            assert!(failure.to_string().contains(wanted), "{failure}");
        }
        let failure = group.a().call::<()>("b", "string", (round,)).unwrap_err();
        assert!(failure.to_string().contains(&format!("panic: number {round}")), "{failure}");
        assert_eq!(group.a().call::<i64>("b", "echo", (round,)).unwrap(), round);
    }
}

/// An error that panics when it is dropped, and where it is asked to, also when it is shown.
#[derive(Debug)]
struct Grenade(bool);
impl std::fmt::Display for Grenade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        assert!(!self.0, "shown");
        f.write_str("pulled")
    }
}
impl std::error::Error for Grenade {}
impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn an_error_that_panics_when_it_is_dropped_fails_its_call_and_the_next_one_works() {
    let group = Group::new(|worker| {
        echo(worker)?;
        worker.register("grenade", |shows: bool| Err::<(), _>(Grenade(shows)))
    });
    for (shows, wanted) in [(false, "Grenade: pulled"), (true, "panic: shown")] {
        let failure = group.a().call::<()>("b", "grenade", (shows,)).unwrap_err();
        assert_eq!((failure.code(), failure.origin_rank()), (Code::User(1000), Some(1)));
        assert!(failure.to_string().contains(wanted), "{failure}");
        assert_eq!(group.a().call::<i64>("b", "echo", (3,)).unwrap(), 3);
    }
}

#[test]
fn hooks_of_a_worker_that_both_panic_when_they_are_dropped_end_nothing() {
    let (one, other) = (Bomb, Bomb);
    let builder = Worker::builder().rank(0).world_size(1).rendezvous("inproc://bombs");
    let builder = builder.on_log(distag::LogLevel::Error, move |_, _| assert_eq!(std::mem::size_of_val(&one), 0));
    drop(builder.on_member(move |_| assert_eq!(std::mem::size_of_val(&other), 0)).build().unwrap());
}

#[test]
fn the_error_of_a_deferred_answer_keeps_its_code_and_rank() {
    let group = Group::new(|worker| {
        worker.register("fail", || Err::<(), _>(Error::user(1042, "from afar")))?;
        worker.register("relay", |call: &Call| -> Result<()> {
            let (reply, worker, back) = (call.defer()?, call.worker(), call.caller().to_owned());
            std::thread::spawn(move || reply.finish(worker.call::<()>(&back, "fail", ())));
            Ok(())
        })
    });
    let failure = group.a().call::<()>("b", "relay", ()).unwrap_err();
    assert_eq!((failure.code(), failure.origin_rank()), (Code::User(1042), Some(0)), "{failure}");
    assert!(failure.may_have_run(), "{failure}");
}

#[test]
fn a_reply_is_refused_once_its_function_has_failed() {
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let group = Group::new(move |worker| {
        let keep = keep.clone();
        worker.register("both", move |call: &Call| -> Result<()> {
            *keep.lock().unwrap() = Some(call.defer()?);
            Err(Error::user(1234, "after all"))
        })
    });
    let failure = group.a().call::<()>("b", "both", ()).unwrap_err();
    assert_eq!(failure.code(), Code::User(1234), "{failure}");
    let refused = kept.lock().unwrap().take().unwrap().finish(Ok(5i64)).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidState, "{refused}");
    assert!(refused.to_string().contains("its function failed"), "{refused}");
}

/// An error of this program, which is found again where its function ran in this process.
#[derive(Debug, PartialEq)]
struct NotToday(i64);
impl std::fmt::Display for NotToday {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not on {}{}", self.0, ".".repeat(600 * (self.0 % 2) as usize))
    }
}
impl std::error::Error for NotToday {}

fn source_of(failure: &Error) -> Option<&NotToday> {
    std::error::Error::source(failure)?.downcast_ref()
}

struct Fails;
impl CustomOp for Fails {
    fn forward(&self, _: &[Tensor]) -> Result<Vec<Tensor>> {
        Err(Error::caused_by(NotToday(4)))
    }
    fn backward(&self, _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(Vec::new())
    }
}

#[test]
fn the_source_of_an_error_is_the_one_of_a_function_that_ran_here() {
    let group = Group::new(|worker| {
        worker.register("fail", |day: i64| Err::<(), _>(NotToday(day)))?;
        worker.register("later", |call: &Call, day: i64| -> Result<()> {
            let reply = call.defer()?;
            std::thread::spawn(move || reply.finish(Err::<(), _>(Error::caused_by(NotToday(day)))));
            Ok(())
        })?;
        worker.register("pass", |call: &Call, day: i64| call.call::<()>(call.caller(), "fail", (day,)))
    });
    for (index, to) in ["a", "b"].into_iter().enumerate() {
        for name in ["fail", "later", "pass"] {
            for day in 0..3 {
                let failure = group.a().call::<()>(to, name, (day,)).unwrap_err();
                assert_eq!(source_of(&failure), Some(&NotToday(day)), "{name}: {failure}");
                let origin = if name == "pass" { 0 } else { index as i32 };
                assert_eq!((failure.code(), failure.origin_rank()), (Code::User(1000), Some(origin)), "{failure}");
                let made = group.a().remote(to, name, (day,)).unwrap();
                assert_eq!(source_of(&made.fetch::<()>().unwrap_err()), Some(&NotToday(day)));
            }
        }
    }
    let calls = (0..200).map(|day| group.a().call_async::<()>("b", "fail", (day,)).unwrap()).collect::<Vec<_>>();
    for (day, call) in calls.iter().enumerate() {
        assert_eq!(source_of(&call.another().wait().unwrap_err()), Some(&NotToday(day as i64)));
    }
    let calls = (0..2).map(|_| group.a().call_async::<()>("b", "fail", (6,)).unwrap());
    assert_eq!(source_of(&distag::wait_all(calls.collect::<Vec<_>>()).unwrap_err()), Some(&NotToday(6)));
    let x = Tensor::copy(&[3.0f32]).with_grad().unwrap();
    let failure = distag::apply_custom("fails", Fails, &[&x], 1).unwrap_err();
    assert_eq!(source_of(&failure), Some(&NotToday(4)), "{failure}");
    x.add_hook(|_| Err(Error::caused_by(NotToday(5)))).unwrap();
    let failure = Context::local().unwrap().backward(&[&(&x * &x).sum().unwrap()]).unwrap_err();
    assert_eq!(source_of(&failure), Some(&NotToday(5)), "{failure}");
}

/// Runs a task on a thread of its own, which parks while the task waits.
fn spawn(mut task: distag::Task) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    std::thread::spawn(move || {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        while task.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending() {
            std::thread::park();
        }
    });
}

async fn panics() -> Result<()> {
    panic!("in the task")
}

#[test]
fn async_functions_are_run_by_a_spawner_and_their_panics_fail_the_call() {
    use std::future::Future;
    type Boxed = std::pin::Pin<Box<dyn Future<Output = Result<i64>> + Send>>;
    let group = Group::new(|worker| {
        echo(worker)?;
        let own = worker.clone();
        let far = move |call: &Call, x: i64| -> Boxed {
            let answer = own.call_async::<i64>(call.caller(), "echo", (x,));
            Box::pin(async move { Ok(2 * answer?.await?) })
        };
        worker.register_async("far", far, spawn)?;
        worker.register_async("fail", |x: i64| async move { Err::<(), _>(NotToday(x)) }, spawn)?;
        let bomb = || {
            let bomb = Bomb;
            async move { Ok::<_, Error>(std::mem::size_of_val(&bomb) as i64) }
        };
        worker.register_async("panic", panics, spawn)?;
        worker.register_async("bomb", bomb, drop)?;
        worker.register_async("lost", || async { Ok::<_, Error>(()) }, |_| panic!("no executor"))
    });
    for x in 0..20 {
        assert_eq!(group.a().call::<i64>("b", "far", (x,)).unwrap(), 2 * x);
        let failure = group.a().call::<()>("b", "fail", (x,)).unwrap_err();
        assert_eq!((source_of(&failure), failure.origin_rank()), (Some(&NotToday(x)), Some(1)));
        for (name, wanted) in [("panic", "panic: in the task"), ("bomb", ""), ("lost", "panic: no executor")] {
            let failure = group.a().call::<()>("b", name, ()).unwrap_err();
            assert!(failure.to_string().contains(wanted), "{name}: {failure}");
        }
        let failure = group.a().call::<i64>("b", "far", ("x",)).unwrap_err();
        assert!(failure.to_string().contains("far: args[0]"), "{failure}");
    }
}

#[test]
fn windows_have_two_numbers() {
    let (x, weight) = (ops::zeros(&[1, 1, 4, 4]).unwrap(), ops::ones(&[1, 1, 2, 2]).unwrap());
    for given in [&[1][..], &[1, 1, 1]] {
        let of_conv = |options| ops::conv2d_with(&x, &weight, None, options).unwrap_err();
        let of_pool = |kernel, options| ops::max_pool2d_with(&x, kernel, options).unwrap_err();
        for (name, failure) in [
            ("stride", of_conv(ops::Conv2d { stride: given, ..Default::default() })),
            ("padding", of_conv(ops::Conv2d { padding: given, ..Default::default() })),
            ("kernel", of_pool(given, ops::MaxPool2d { stride: Some(&[1, 1]), ..Default::default() })),
            ("stride", of_pool(&[2, 2], ops::MaxPool2d { stride: Some(given), ..Default::default() })),
            ("padding", of_pool(&[2, 2], ops::MaxPool2d { padding: given, ..Default::default() })),
        ] {
            assert_eq!(failure.code(), Code::InvalidArgument, "{name} {given:?}: {failure}");
            assert!(failure.to_string().contains(name), "{name} {given:?}: {failure}");
        }
    }
}

#[test]
fn axes_have_one_name_each() {
    let group = Group::new(|_| Ok(()));
    for names in [&["x"][..], &["x", "y", "z"], &[]] {
        let failure = Mesh::new(group.a(), &[1, 2], names).unwrap_err();
        assert_eq!(failure.code(), Code::InvalidArgument);
        assert!(failure.to_string().contains("give one name for each"), "{failure}");
    }
}

#[test]
fn seeds_are_as_many_as_roots_or_none_at_all() {
    let group = Group::new(|_| Ok(()));
    let x = Tensor::copy(&[3.0f32]).with_grad().unwrap();
    let seed = Tensor::copy(&[5.0f32]);
    for context in [Context::local().unwrap(), group.a().context().unwrap()] {
        let roots = [&(&x * 2.0), &(&x * 3.0), &(&x * 4.0)];
        for seeds in [&[Some(&seed)][..], &[Some(&seed); 4]] {
            let options = Backward { seeds, ..Backward::default() };
            let failure = context.backward_with(&roots, options).unwrap_err();
            assert_eq!(failure.code(), Code::InvalidArgument);
            assert!(failure.to_string().contains("seeds for 3 roots"), "{failure}");
            assert_eq!(context.backward_async(&roots, options).unwrap_err().code(), Code::InvalidArgument);
        }
        let seeds = &[Some(&seed), None, Some(&seed)][..];
        context.backward_with(&roots, Backward { seeds, ..Backward::default() }).unwrap();
        assert_eq!(*context.gradient(&x).unwrap().view::<f32>().unwrap(), [5.0 * 2.0 + 3.0 + 5.0 * 4.0]);
    }
}

/// No time at all is not the time that is meant where none is given.
#[test]
fn a_timeout_of_zero_is_over_at_once_everywhere() {
    let is_over = Arc::new(AtomicBool::new(false));
    let wait = |worker: &Worker| {
        let is_over = Arc::clone(&is_over);
        worker.register("wait", move |call: &Call| {
            while !call.is_cancelled() && !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, Error>(Tensor::copy(&[1.0f32]))
        })
    };
    let group = Group::new(wait);
    let zero = Some(Duration::ZERO);
    let late = |failure: Error| assert_eq!(failure.code(), Code::Deadline, "{failure}");
    late(group.a().request("b", "wait").unwrap().timeout(zero).call::<Tensor>(()).unwrap_err());
    let made = group.a().request("b", "wait").unwrap().timeout(None).remote(()).unwrap();
    late(made.fetch_async::<Tensor>(zero).unwrap().wait().unwrap_err());
    let context = group.a().context().unwrap();
    let options = Backward { remote_roots: &[&made], timeout: zero, ..Backward::default() };
    late(context.backward_with(&[], options).unwrap_err());
    let builder = Worker::builder().rank(0).world_size(1).rendezvous("inproc://zero");
    let alone = builder.call_timeout(Duration::ZERO).build().unwrap();
    wait(&alone).unwrap();
    alone.start(SECONDS).unwrap();
    late(alone.call::<Tensor>("worker0", "wait", ()).unwrap_err());
    is_over.store(true, Ordering::SeqCst);
}

/// The longest time is for ever, not the shortest one.
#[test]
fn a_timeout_beyond_nanoseconds_never_ends() {
    let builder = Worker::builder().rank(0).world_size(1).rendezvous("inproc://longest");
    let alone = builder.call_timeout(Duration::from_nanos(1)).lease(Duration::MAX).build().unwrap();
    echo(&alone).unwrap();
    alone.start(Duration::MAX).unwrap();
    let found = alone.request("worker0", "echo").unwrap().timeout(Duration::MAX).call::<i64>((5,));
    assert_eq!(found.unwrap(), 5);
    alone.shutdown(Duration::MAX).unwrap();
}

struct Counted(Arc<AtomicUsize>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_closure_is_dropped_exactly_once_on_every_path() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let offer = |worker: &Worker, name: &str| {
        let kept = Counted(Arc::clone(&dropped));
        worker.register(name, move || Ok::<_, Error>(kept.0.load(Ordering::SeqCst)))
    };
    {
        let group = Group::new(|worker| offer(worker, "f"));
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        assert_eq!(offer(group.a(), "f").unwrap_err().code(), Code::InvalidState);
        assert_eq!(dropped.load(Ordering::SeqCst), 1, "of a name that is taken");
        assert_eq!(offer(group.a(), "distag.f").unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(dropped.load(Ordering::SeqCst), 2, "of a name that is none");
        group.a().unregister("f", SECONDS).unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 3, "of a function that is withdrawn");
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 4, "with its worker");
}

#[test]
fn a_closure_that_panics_when_it_is_dropped_ends_nothing() {
    let group = Group::new(echo);
    let bomb = Bomb;
    group.a().register("bomb", move || Ok::<_, Error>(std::mem::size_of_val(&bomb) as i64)).unwrap();
    group.a().unregister("bomb", SECONDS).unwrap();
    assert_eq!(group.b().call::<i64>("a", "echo", (5,)).unwrap(), 5);
}

#[test]
fn wrong_arguments_are_named_and_answers_too() {
    let group = Group::new(|worker| {
        worker.register("scale", |x: Tensor, by: Vec<i64>| x.mul_scalar(by[0] as f64))?;
        worker.register("itself", Ok::<Option<Value>, Error>)
    });
    let failure = group.a().call::<Tensor>("b", "scale", (1, vec![2i64])).unwrap_err();
    assert!(failure.to_string().contains("argument 0"), "{failure}");
    let x = Tensor::copy(&[1.0f32]);
    let failure = group.a().call::<Tensor>("b", "scale", (&x, vec!["two"])).unwrap_err();
    assert!(failure.to_string().contains("scale: args[1]"), "{failure}");
    let failure = group.a().call::<Tensor>("b", "scale", (&x,)).unwrap_err();
    assert!(failure.to_string().contains("scale takes 2 arguments, and 1 came"), "{failure}");
    let failure = group.a().call::<i64>("b", "scale", (&x, vec![2i64])).unwrap_err();
    assert!(failure.to_string().starts_with("answer"), "{failure}");
    assert_eq!(group.a().call::<Option<i64>>("b", "itself", (None::<i64>,)).unwrap(), None);
}

#[test]
fn bad_input_is_refused_by_its_place() {
    let group = Group::new(|worker| {
        worker.register("int", Ok::<i8, Error>)?;
        worker.register("layers", |x: BTreeMap<String, Vec<Tensor>>| Ok::<_, Error>(x.len() as i64))?;
        worker.register("nothing", || Ok::<_, Error>(()))?;
        worker.register("large", || Ok::<_, Error>(300i64))?;
        worker.register("huge", || Ok::<_, Error>([1.0, 1e300]))?;
        worker.register("integers", |x: BTreeMap<String, Vec<i64>>| Ok::<_, Error>(x.len() as i64))?;
        worker.register("floats", |x: BTreeMap<String, Vec<f64>>| Ok::<_, Error>(x.len() as i64))?;
        worker.register("make", || Ok::<_, Error>(Object::new(5i32)))?;
        worker.register("use", |x: Object<String>| Ok::<_, Error>(x.len() as i64))
    });
    let a = group.a();
    let mixed = || vec![1i64.into_value().unwrap(), "text".into_value().unwrap()];
    let cases = [
        ("matmul: inner sizes 3", ops::zeros(&[2, 3]).and_then(|x| x.matmul(&ops::zeros(&[4, 5])?)).map(|_| ())),
        ("float32[3] needs 12", Tensor::try_copy(&[1.0f32, 2.0], &[3]).map(|_| ())),
        ("is Float32, not Float64", Tensor::copy(&[1.0f32, 2.0]).view::<f64>().map(|_| ())),
        ("args[1].layers[0]: a text", a.call("b", "int", (1i64, BTreeMap::from([("layers", ["a\0b"])])))),
        ("args[0].layers[0]: 18446744073709551615", a.call("b", "int", (BTreeMap::from([("layers", [u64::MAX])]),))),
        ("the name of a function", a.call("b", "ec\0ho", ())),
        ("int: args[0]: 300 does not fit", a.call("b", "int", (300i64,))),
        ("int: args[0]: distag_value_get_int64: the value is a text", a.call("b", "int", ("300",))),
        ("answer[1]: 1e300 does not fit", a.call::<Vec<f32>>("b", "huge", ()).map(|_| ())),
        ("integers: args[0].layers[1]: dis", a.call("b", "integers", (BTreeMap::from([("layers", mixed())]),))),
        ("floats: args[0].layers[1]: dis", a.call("b", "floats", (BTreeMap::from([("layers", mixed())]),))),
        ("answer: 300 does not fit", a.call::<i8>("b", "large", ()).map(|_| ())),
        ("layers: args[0].conv[0]", a.call("b", "layers", (BTreeMap::from([("conv", [1i64])]),))),
        ("answer: distag_value_get_int64: the value is null", a.call::<i64>("b", "nothing", ()).map(|_| ())),
        ("\"Rust i32\" cannot travel", a.call("b", "make", ())),
        ("\"Rust i32\", not \"Rust alloc::string::String\"", {
            a.remote("b", "make", ()).and_then(|made| a.call("b", "use", (&made,)))
        }),
    ];
    for (part, found) in cases {
        let refused: Error = found.expect_err(part);
        assert!(refused.code() == Code::InvalidArgument && refused.to_string().contains(part), "{part}: {refused}");
    }
    assert_eq!(a.call::<i8>("b", "int", (5i64,)).unwrap(), 5);
}

#[test]
fn integers_keep_all_digits_as_floats_or_are_refused() {
    let group = Group::new(|worker| {
        worker.register("float", Ok::<f64, Error>)?;
        worker.register("floats", Ok::<Vec<f64>, Error>)
    });
    let (odd, exact) = ((1i64 << 53) + 1, 1i64 << 53);
    for number in [exact, -exact, exact + 2, i64::MIN] {
        let value = number.into_value().unwrap();
        assert_eq!(value.to::<f64>().unwrap() as i128, i128::from(number));
        let list = vec![1, number].into_value().unwrap();
        assert_eq!(list.to::<Vec<f64>>().unwrap(), [1.0, number as f64]);
    }
    for number in [odd, -odd, i64::MAX] {
        let value = number.into_value().unwrap();
        let failures = [
            value.to::<f64>().map(|_| ()),
            value.to::<Option<f64>>().map(|_| ()),
            value.to::<f32>().map(|_| ()),
            vec![1, number].into_value().unwrap().to::<Vec<f64>>().map(|_| ()),
            vec![1, number].into_value().unwrap().to::<[f32; 2]>().map(|_| ()),
            group.a().call::<f64>("b", "float", (number,)).map(|_| ()),
            group.a().call::<Vec<f64>>("b", "floats", (vec![1, number],)).map(|_| ()),
        ];
        for failure in failures.map(|each| each.expect_err("digits are lost")) {
            assert_eq!(failure.code(), Code::InvalidArgument);
            assert!(failure.to_string().contains(&format!("{number} would lose digits as f")), "{failure}");
        }
    }
    let failure = group.a().call::<()>("b", "floats", (vec![1, odd],)).unwrap_err();
    assert!(failure.to_string().contains("floats: args[0][1]: 9007199254740993 would"), "{failure}");
    assert_eq!(16_777_216i64.into_value().unwrap().to::<f32>().unwrap(), 16_777_216.0);
    assert!(16_777_217i64.into_value().unwrap().to::<f32>().is_err());
    let large = vec![1e300, f64::NEG_INFINITY, 9_007_199_254_740_994.0];
    assert_eq!(large.clone().into_value().unwrap().to::<Vec<f64>>().unwrap(), large);
}

#[test]
fn recursion_back_to_the_caller_and_threads_of_a_function_work() {
    let group = Group::new(|worker| {
        worker.register("sum", |call: &Call, n: i64| -> Result<i64> {
            match n {
                0 => Ok(0),
                n => Ok(n + call.call::<i64>(call.caller(), "sum", (n - 1,))?),
            }
        })?;
        worker.register("threads", |n: i64| {
            let part = std::thread::spawn(move || n * 2);
            let other = std::thread::spawn(move || n * 4);
            Ok::<_, Error>(part.join().unwrap_or(-1) + other.join().unwrap_or(-1))
        })
    });
    assert_eq!(group.a().call::<i64>("b", "sum", (20,)).unwrap(), 210);
    assert_eq!(group.a().call::<i64>("b", "threads", (2,)).unwrap(), 12);
}

struct Short;
impl CustomOp for Short {
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(inputs.iter().map(|x| x * 1.0).collect())
    }
    fn backward(&self, _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(Vec::new())
    }
}

#[test]
fn an_op_that_gives_too_few_tensors_is_an_error() {
    let x = Tensor::copy(&[1.0f32]).with_grad().unwrap();
    let failure = distag::apply_custom("short", Short, &[&x], 2).unwrap_err();
    assert!(failure.to_string().contains("1 tensors, not 2"), "{failure}");
    let y = distag::apply_custom("short", Short, &[&x], 1).unwrap().remove(0);
    let failure = distag::Context::local().unwrap().backward(&[&y]).unwrap_err();
    assert!(failure.to_string().contains("0 tensors, not 1"), "{failure}");
}

#[test]
fn a_wait_ends_with_a_cancellation_from_another_thread() {
    let group = Group::new(|worker| {
        worker.register("wait", |call: &Call| {
            while !call.is_cancelled() {
                std::thread::yield_now();
            }
            Ok::<_, Error>(())
        })
    });
    let future = group.a().call_async::<()>("b", "wait", ()).unwrap();
    let other = future.another();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::park_timeout(Duration::from_millis(30)); // so that the wait has begun; it may have not
            other.cancel();
        });
        assert_eq!(future.wait().unwrap_err().code(), Code::Cancelled);
    });
}

#[test]
fn ten_thousand_calls_at_once_from_one_thread() {
    let group = Group::new(|worker| worker.register("double", |x: i64| Ok::<_, Error>(2 * x)));
    let calls = (0..10_000).map(|i| group.a().call_async::<i64>("b", "double", (i,))).collect::<Result<Vec<_>>>();
    let answers = distag::wait_all(calls.unwrap()).unwrap();
    assert!(answers.iter().enumerate().all(|(i, &answer)| answer == 2 * i as i64));
}

#[test]
fn tensors_that_are_dropped_keep_the_process_small() {
    for i in 0..2000 {
        let x = distag::ops::full(f64::from(i), &[1 << 18]).unwrap();
        assert_eq!(x.view::<f32>().unwrap()[7], i as f32);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes = peak.split_whitespace().next().unwrap().parse::<u64>().unwrap();
    assert!(kilobytes < 300 << 10, "{kilobytes} kB");
}

#[test]
fn keys_of_two_workers_meet_and_a_third_is_denied() {
    let folder = Folder::new("keys");
    let keys = (0..3).map(|_| distag::create_keys().unwrap()).collect::<Vec<_>>();
    let make = |rank: usize| {
        let builder = Worker::builder().name(format!("w{rank}")).rank(rank as i32).world_size(2);
        let builder = builder.rendezvous(format!("file://{}", folder.0)).secret_key(&keys[rank].1);
        (0..2).fold(builder, |builder, peer| builder.peer(format!("w{peer}"), &keys[peer].0)).build().unwrap()
    };
    let workers = [make(0), make(1)];
    echo(&workers[1]).unwrap();
    distag::wait_all(workers.iter().map(|each| each.start_async(SECONDS).unwrap())).unwrap();
    assert_eq!(workers[0].call::<i64>("w1", "echo", (3,)).unwrap(), 3);
    let builder = Worker::builder().name("w1").rank(1).world_size(2).rendezvous(format!("file://{}", folder.0));
    let stranger = builder.secret_key(&keys[2].1).peer("w0", &keys[0].0).peer("w1", &keys[2].0).build().unwrap();
    let failure = stranger.start(SECONDS).unwrap_err();
    assert!(matches!(failure.code(), Code::Denied | Code::InvalidState), "{failure:?}");
    assert_eq!(workers[0].call::<i64>("w1", "echo", (4,)).unwrap(), 4);
    distag::wait_all(workers.iter().map(|each| each.shutdown_async(SECONDS).unwrap())).unwrap();
}

#[test]
fn a_mesh_of_two_members_sums_and_cuts() {
    let group = Group::new(|_| Ok(()));
    let results = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for (rank, worker) in group.0.iter().enumerate() {
            let results = Arc::clone(&results);
            scope.spawn(move || {
                let mesh = distag::Mesh::new(worker, &[2], &["data"]).unwrap();
                let sum = mesh.all_reduce(&Tensor::copy(&[1.0f32 + rank as f32, 10.0])).unwrap();
                // One linear, whose input is cut over the members: the gradient of the weight is that of the whole.
                let x = Tensor::try_copy(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
                let weight = Tensor::try_copy(&[1.0f32, 1.0], &[1, 2]).unwrap();
                x.mark_sharding(&mesh, "('data', None)", None).unwrap();
                weight.mark_sharding(&mesh, "(None, None)", None).unwrap();
                weight.set_requires_grad(true).unwrap();
                let context = mesh.context().unwrap();
                let loss = x.linear(&weight, None).unwrap().sum().unwrap();
                context.backward(&[&loss]).unwrap();
                let gradient = context.gradient(&weight).unwrap().gather_shards(None, SECONDS).unwrap().unwrap();
                results.lock().unwrap().push((sum.to_vec::<f32>().unwrap(), gradient.to_vec::<f32>().unwrap()));
            });
        }
    });
    assert_eq!(*results.lock().unwrap(), vec![(vec![3.0, 20.0], vec![4.0, 6.0]); 2]);
}

// Rows of a cut batch are counted unread, unless the target to ignore is given; what is refused ends the mesh.
#[test]
fn a_target_to_ignore_is_given_where_rows_are_cut() {
    let group = Group::new(|_| Ok(()));
    let cross_entropy = |logs: &Tensor, targets: &Tensor, ignore_index| {
        logs.cross_entropy_with(targets, ops::CrossEntropy { ignore_index, ..Default::default() })
    };
    let nll_loss = |logs: &Tensor, targets: &Tensor, ignore_index| {
        logs.nll_loss_with(targets, ops::NllLoss { ignore_index, ..Default::default() })
    };
    type Loss<'a> = &'a (dyn Fn(&Tensor, &Tensor, Option<i64>) -> distag::Result<Tensor> + Sync);
    let losses: [(&str, Loss<'_>); 2] = [("cross_entropy", &cross_entropy), ("nll_loss", &nll_loss)];
    for (name, loss) in losses {
        let gathered = (Mutex::new(0), Condvar::new()); // a Barrier would wait for a member that has failed
        let one = |worker| {
            let mesh = distag::Mesh::new(worker, &[2], &["data"]).unwrap();
            let rows = Tensor::try_copy(&[1.0f64, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0], &[4, 2]).unwrap();
            let (logs, targets) = (rows.log_softmax().unwrap(), Tensor::copy(&[-100i64, 1, -100, 1]));
            logs.mark_sharding(&mesh, "('data', None)", None).unwrap();
            targets.mark_sharding(&mesh, "('data',)", None).unwrap();
            let found = loss(&logs, &targets, Some(-100)).unwrap().gather_shards(None, SECONDS).unwrap().unwrap();
            assert!((found.item().unwrap() - (-1.0f64).exp().ln_1p()).abs() < 1e-12, "{name}: {found:?}");
            *gathered.0.lock().unwrap() += 1;
            gathered.1.notify_all();
            let waited = gathered.1.wait_timeout_while(gathered.0.lock().unwrap(), SECONDS, |count| *count < 2);
            assert!(!waited.unwrap().1.timed_out(), "{name}: the other member has not come");
            let refused = loss(&logs, &targets, None).unwrap_err().to_string();
            assert!(refused.contains(&format!("{name}: target -100")), "{refused}");
        };
        std::thread::scope(|scope| group.0.iter().for_each(|worker| drop(scope.spawn(|| one(worker)))));
    }
}

struct Folder(String);
impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("distag-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path.to_str().unwrap().to_owned())
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Killed(Child);
impl Killed {
    fn start(folder: &Folder) -> Self {
        let program = env!("CARGO_BIN_EXE_peer");
        let mut child = Command::new(program).arg(&folder.0).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "serves\n");
        Self(child)
    }
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_peer_that_is_killed_in_a_call_is_named_and_works_when_it_is_back() {
    let folder = Folder::new("peer");
    let builder = Worker::builder().name("own").rank(0).world_size(-1).rendezvous(format!("file://{}", folder.0));
    let worker = builder.build().unwrap();
    worker.start(SECONDS).unwrap();
    let mut peer = Killed::start(&folder);
    let made = worker.remote("peer", "echo", (5,)).unwrap();
    assert_eq!(made.fetch::<i64>().unwrap(), 5);
    let call = worker.call_async::<()>("peer", "hang", ()).unwrap();
    assert_eq!(worker.call::<i64>("peer", "echo", (1,)).unwrap(), 1);
    peer.kill();
    let begin = Instant::now();
    let failure = call.wait().unwrap_err();
    assert_eq!((failure.code(), failure.class()), (Code::Disconnected, distag::Class::Reconnect), "{failure}");
    assert!(failure.to_string().contains("peer") && failure.may_have_run(), "{failure}");
    assert!(begin.elapsed() < Duration::from_secs(60));
    let _again = Killed::start(&folder);
    assert_eq!(worker.call::<i64>("peer", "echo", (2,)).unwrap(), 2);
    assert_eq!(made.fetch::<i64>().unwrap_err().code(), Code::PeerRestarted);
}

#[test]
fn an_object_of_another_type_is_refused() {
    let group = Group::new(|worker| {
        worker.register("make", || Ok::<_, Error>(distag::Object::new(1u8)))?;
        worker.register("use", |_: distag::Object<u16>| Ok::<_, Error>(()))
    });
    let made = group.a().remote("b", "make", ()).unwrap();
    let failure = group.a().call::<()>("b", "use", (&made,)).unwrap_err();
    assert!(failure.to_string().contains("u16"), "{failure}");
    assert_eq!(made.fetch::<Value>().unwrap_err().code(), Code::Unsupported);
}

#[test]
fn every_code_of_the_header_has_a_name_and_a_class_and_unknown_ones_pass() {
    for number in (10..=13).chain([20, 30, 31, 40, 41, 50, 51]).chain(60..=65) {
        let code = Code::from_raw(number);
        assert_eq!(code.to_raw(), number);
        assert!(!matches!(code, Code::Other(_) | Code::User(_)), "{number}");
        assert_ne!(code.name(), "UNKNOWN");
    }
    assert_eq!((Code::from_raw(1042), Code::from_raw(99)), (Code::User(1042), Code::Other(99)));
    assert_eq!(Code::from_raw(99).class(), distag::Class::Other);
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let group = Group::new(|worker| worker.register("long", || Err::<(), _>(Error::user(1001, "ü".repeat(400)))));
    let failure = group.a().call::<()>("b", "long", ()).unwrap_err();
    assert_eq!(failure.code(), Code::User(1001));
    assert!(!failure.to_string().contains('\u{fffd}'), "{failure}");
    assert!(failure.to_string().ends_with('ü') && failure.to_string().len() <= 495);
}
