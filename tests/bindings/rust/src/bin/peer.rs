//! A peer of the tests, to be killed: echoes, or hangs. usage: peer FOLDER
#![forbid(unsafe_code)]

use distag::{Error, Result, Value, Worker};
use std::time::Duration;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_default();
    let builder = Worker::builder().name("peer").rank(1).world_size(-1).rendezvous(format!("file://{folder}"));
    let worker = builder.build()?;
    worker.register("echo", Ok::<Value, Error>)?;
    worker.register("hang", || -> Result<()> {
        loop {
            std::thread::park();
        }
    })?;
    worker.start(Duration::from_secs(120))?;
    println!("serves");
    loop {
        std::thread::park(); // until it is killed
    }
}
