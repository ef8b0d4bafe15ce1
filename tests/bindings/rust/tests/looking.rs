//! The environment, metrics, traces and pictures.
#![forbid(unsafe_code)]

use distag::{
    load_checkpoint, visualize_sharding, Call, Code, Environment, Error, IntoValue, Mesh, Picture, PictureFormat,
    Result, SocketEngine, Tensor, Trace, Value, Worker,
};
use distag_tests::json::Json;
use distag_tests::{Group, SECONDS};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// What another process of this program says of its place under these variables.
fn place_under(variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "the_environment_tells_the_place", "--nocapture", "--test-threads=1"]).env_clear();
    for name in ["LD_LIBRARY_PATH", "PATH"] {
        if let Some(value) = std::env::var_os(name) {
            child.env(name, value);
        }
    }
    let done = child.env("DISTAG_TEST_PLACE", "1").envs(variables.iter().copied()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn the_environment_tells_the_place() {
    if std::env::var_os("DISTAG_TEST_PLACE").is_some() {
        println!("{:?}", Environment::read());
        return;
    }
    let torchrun = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("GROUP_RANK", "1"),
        ("TORCHELASTIC_RESTART_COUNT", "2"),
    ];
    let found = place_under(&torchrun);
    let wanted = "Ok(Environment { rank: 3, world_size: 4, local_rank: Some(1), local_size: Some(2), node: Some(1), \
                  node_count: None, restart: 2, launcher: \"torchrun\" })";
    assert!(found.contains(wanted), "{found}");
    let found = place_under(&[("DISTAG_RANK", "-1"), ("DISTAG_WORLD_SIZE", "-1")]);
    assert!(found.contains("{ rank: -1, world_size: -1, local_rank: None") && found.contains("own"), "{found}");
    let found = place_under(&[]);
    assert!(found.contains("Err(INVALID_ARGUMENT") && found.contains("WORLD_SIZE, RANK;"), "{found}");
    let found = place_under(&[("RANK", "1x"), ("WORLD_SIZE", "2")]);
    assert!(found.contains("RANK=\"1x\" is no number"), "{found}");
}

struct Folder(std::path::PathBuf);
impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("distag-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refused<T>(result: Result<T>, code: Code, part: &str) {
    let failure = result.err().expect("nothing failed");
    assert_eq!(failure.code(), code, "{failure}");
    assert!(failure.to_string().contains(part), "{failure}");
}

#[test]
fn a_trace_has_the_spans_of_the_host() -> Result<()> {
    let folder = Folder::new("traced");
    let group = Group::new(|worker| worker.register("double", |x: i64| Ok::<_, Error>(2 * x)));
    let here = Trace { folder: Some(&folder.0), max_bytes: 1 << 20 };
    drop(group.a().trace("before")?);
    group.a().start_trace(here)?;
    let epoch = group.a().trace("epoch α")?;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _step = group.a().trace("step").unwrap();
        assert_eq!(group.a().call::<i64>("b", "double", (4,)).unwrap(), 8);
        std::panic::panic_any("in the step");
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in the step"));
    std::thread::scope(|scope| scope.spawn(move || drop(epoch)).join().unwrap());
    refused(group.a().start_trace(here), Code::InvalidState, "stop it first");
    refused(group.b().start_trace(Trace { max_bytes: 1, ..here }), Code::InvalidArgument, "max_bytes");
    let (nowhere, no_text) = (folder.0.join("none"), Path::new("a\0b"));
    refused(group.b().start_trace(Trace { folder: Some(&nowhere), max_bytes: 0 }), Code::InvalidState, "none");
    refused(group.b().start_trace(Trace { folder: Some(no_text), max_bytes: 0 }), Code::InvalidArgument, "NUL");
    refused(group.a().trace(&"x".repeat(128)), Code::InvalidArgument, "127");
    refused(group.a().trace("a\0b"), Code::InvalidArgument, "NUL");
    group.a().stop_trace()?;
    group.a().stop_trace()?;
    let events = Json::parse(&std::fs::read_to_string(folder.0.join("a.trace.json")).unwrap());
    let begun =
        events.list().iter().filter(|each| each.get("ph").as_str() == "b").map(|each| each.get("name").as_str());
    assert_eq!(begun.filter(|&name| name != "double").collect::<Vec<_>>(), ["step", "epoch α"]);
    Ok(())
}

#[test]
fn a_span_may_end_after_its_worker() -> Result<()> {
    let folder = Folder::new("late");
    let worker = Worker::builder().name("w").world_size(1).rendezvous("inproc://late").build()?;
    let here = Trace { folder: Some(&folder.0), max_bytes: 0 };
    refused(worker.start_trace(here), Code::InvalidState, "not started");
    worker.start(SECONDS)?;
    worker.start_trace(here)?;
    let span = worker.trace("late")?;
    worker.shutdown(SECONDS)?;
    refused(worker.start_trace(here), Code::InvalidState, "shut down");
    drop(worker);
    drop(span);
    assert!(folder.0.join("w.trace.json").exists());
    Ok(())
}

#[test]
fn metrics_are_those_of_the_worker() -> Result<()> {
    let group = Group::new(|worker| worker.register("double", |x: i64| Ok::<_, Error>(2 * x)));
    assert_eq!(group.a().call::<i64>("b", "double", (4,))?, 8);
    let metrics = group.a().metrics()?;
    for wanted in ["# TYPE distag_calls_made_total counter", "distag_calls_made_total{worker=\"a\"} 1"] {
        assert!(metrics.lines().any(|line| line == wanted), "{metrics}");
    }
    Ok(())
}

#[test]
fn pictures_of_each_format() -> Result<()> {
    let grid = "{devices=[2,2]0,1,2,3}";
    let text = visualize_sharding(grid, None, Picture { label: Some("TPU"), ..Picture::default() })?;
    assert!(text.contains("│ TPU 0 │ TPU 1 │\n"), "{text}");
    let svg = Picture { format: Some(PictureFormat::Svg), label: Some("<w>"), ..Picture::default() };
    let drawn = visualize_sharding(grid, Some(&[4, 6]), svg)?;
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    assert!(drawn.contains("0:2, 0:3: &lt;w&gt; 0\n"), "{drawn}");
    let json = Picture { format: Some(PictureFormat::Json), ..Picture::default() };
    let boxes = visualize_sharding("{devices=[2]0,1}", Some(&[4]), json)?;
    assert_eq!(Json::parse(&boxes).get("boxes").list().len(), 2);
    let narrow = Picture { width: 5, ..Picture::default() };
    refused(visualize_sharding(grid, None, narrow), Code::InvalidArgument, "width");
    refused(visualize_sharding(grid, None, Picture { dims: (7, 0), ..narrow }), Code::InvalidArgument, "");
    refused(visualize_sharding(grid, None, Picture { label: Some("\0"), ..narrow }), Code::InvalidArgument, "NUL");
    refused(visualize_sharding("('data',)", None, Picture::default()), Code::InvalidArgument, "");
    let worker = Worker::builder().name("w").world_size(1).rendezvous("inproc://drawn").build()?;
    worker.start(SECONDS)?;
    let mesh = Mesh::new(&worker, &[1], &["data"])?;
    let drawn = mesh.visualize("('data', None)", Some(&[2, 3]), Picture { label: None, ..svg })?;
    assert!(drawn.contains("0:2, 0:3: CPU 0\n"), "{drawn}");
    Ok(())
}

#[test]
fn handles_show_what_they_stand_for() -> Result<()> {
    let (sender, seen) = std::sync::mpsc::sync_channel(1);
    let group = Group::new(|worker| {
        let sender = sender.clone();
        worker.register("look", move |call: &Call| -> Result<()> {
            let _ = sender.send(format!("{call:?}; {:?}", call.defer()?));
            Ok(())
        })
    });
    let call = group.a().call_async::<()>("b", "look", ())?;
    assert_eq!(seen.recv().unwrap(), "Call of \"look\" by \"a\"; Reply, awaited");
    assert!(call.another().wait().is_err()); // the reply was dropped
    assert_eq!(format!("{call:?}"), "Future, complete");
    assert_eq!(format!("{:?}", group.b()), "Worker \"b\" (rank 1)");
    let context = distag::Context::local()?;
    assert_eq!(format!("{context:?}"), format!("Context {}", context.id()));
    assert_eq!(format!("{:?}", context.gradients()?), "{}");
    let builder = Worker::builder().name("w").secret_key("hidden");
    assert_eq!(format!("{builder:?}"), "WorkerBuilder of rank 0 in 0 with [\"name\", \"secret_key\"]");
    Ok(())
}

#[test]
fn values_show_what_they_are() -> Result<()> {
    let x = Tensor::copy(&[1.0f32, 2.0]);
    let value = Value::list([
        Value::null()?,
        true.into_value()?,
        (-3i64).into_value()?,
        1.5.into_value()?,
        "a\"b".into_value()?,
        distag::Bytes(vec![1, 255]).into_value()?,
        BTreeMap::from([("key", x.clone())]).into_value()?,
    ])?;
    let wanted =
        format!("[null, true, -3, 1.5, \"a\\\"b\", Bytes([1, 255]), {{\"key\": Tensor {} Float32 [2]}}]", x.id());
    assert_eq!(format!("{value:?}"), wanted);
    let worker = Worker::builder().name("w").world_size(1).rendezvous("inproc://shown").build()?;
    assert_eq!(format!("{worker:?}"), "Worker \"w\", not started");
    assert_eq!((worker.name(), worker.rank(), worker.fd()), (Some("w"), None, None));
    worker.start(SECONDS)?;
    assert_eq!(worker.rank(), Some(0));
    let shared = worker.share(5i64)?;
    assert_eq!(format!("{:?}", (&shared).into_value()?), format!("RRef {} at w", shared.id()));
    drop(shared);
    assert!(format!("{:?}", worker.stats()?).contains("calls_made: 0"));
    let report = worker.shutdown(SECONDS)?;
    assert_eq!(format!("{report:?}"), "{\"clean\": true, \"leaked_rrefs\": [], \"missing\": [], \"open_calls\": 0}");
    assert_eq!(x.spec(), None);
    Ok(())
}

#[test]
fn the_engine_of_sockets_is_as_asked_for() -> Result<()> {
    for (engine, name) in [(SocketEngine::Zmq, "zmq"), (SocketEngine::Zmtp, "zmtp")] {
        let folder = Folder::new(name);
        let place = format!("file://{}", folder.0.display());
        let worker = Worker::builder().world_size(1).rendezvous(place).socket_engine(engine).build()?;
        worker.start(SECONDS)?;
        assert!(worker.report()?.contains(&format!("\"engine\": \"{name}\"")));
        worker.shutdown(SECONDS)?;
    }
    Ok(())
}

#[test]
fn arrays_and_maps_are_values() -> Result<()> {
    let group = Group::new(|worker| worker.register("echo", Ok::<Value, Error>));
    let echo = |value: Value| group.a().call::<Value>("b", "echo", (value,));
    assert_eq!(echo([1i64, 2, 3].into_value()?)?.to::<[i64; 3]>()?, [1, 2, 3]);
    assert_eq!(echo((&[1.5, 2.5]).into_value()?)?.to::<Vec<f64>>()?, [1.5, 2.5]);
    assert_eq!(echo((&vec!["a", "b"]).into_value()?)?.to::<[String; 2]>()?, ["a", "b"]);
    assert_eq!(echo([[1u8, 2], [3, 4]].into_value()?)?.to::<[[u8; 2]; 2]>()?, [[1, 2], [3, 4]]);
    let failure = echo([1i64, 2].into_value()?)?.to::<[i64; 3]>().unwrap_err();
    assert!(failure.to_string().contains("a list of 3 is wanted, and one of 2 is there"), "{failure}");
    let map = HashMap::from([("one", 1i64), ("two", 2)]);
    assert_eq!(echo((&map).into_value()?)?.to::<BTreeMap<String, i64>>()?.len(), 2);
    assert_eq!(echo(map.into_value()?)?.to::<HashMap<String, i64>>()?["two"], 2);
    let nested = BTreeMap::from([("layers".to_owned(), [BTreeMap::from([("bias", 0.5)])])]);
    let back = echo((&nested).into_value()?)?.to::<BTreeMap<String, [BTreeMap<String, f64>; 1]>>()?;
    assert_eq!(back["layers"][0]["bias"], 0.5);
    Ok(())
}

#[test]
fn checkpoints_are_saved_and_loaded() -> Result<()> {
    let folder = Folder::new("saved");
    let group = Group::new(|_| Ok(()));
    std::thread::scope(|scope| {
        for worker in &group.0 {
            let folder = &folder.0;
            scope.spawn(move || {
                let mesh = Mesh::new(worker, &[2], &["data"]).unwrap();
                let x = Tensor::copy(&[1.0f32, 2.0, 3.0, 4.0]);
                let state = |x: &Tensor| {
                    BTreeMap::from([("x", x.into_value().unwrap()), ("step", Value::list([7i64]).unwrap())])
                };
                mesh.save_checkpoint(folder.join("model"), state(&x), None).unwrap();
                mesh.save_checkpoint_async(folder.join("other"), state(&x), None).unwrap().wait().unwrap();
                let other = Tensor::copy(&[0.0f32; 4]);
                let into = state(&other).into_value().unwrap();
                let saved = mesh.load_checkpoint(folder.join("model"), Some(&into), Some(SECONDS)).unwrap();
                assert_eq!(*other.view::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
                assert_eq!(saved.entry("step").unwrap().to::<[i64; 1]>().unwrap(), [7]);
            });
        }
    });
    for name in ["model", "other"] {
        let saved = load_checkpoint(folder.0.join(name), None)?;
        assert_eq!(saved.entry("x").unwrap().to::<Tensor>()?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    }
    refused(load_checkpoint(folder.0.join("none"), None), Code::NotFound, "none");
    refused(load_checkpoint("a\0b", None), Code::InvalidArgument, "NUL");
    let other = BTreeMap::from([("x", Tensor::copy(&[0.0f32; 3]))]).into_value()?;
    refused(load_checkpoint(folder.0.join("model"), Some(&other)), Code::InvalidArgument, "x");
    Ok(())
}
