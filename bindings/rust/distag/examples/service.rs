//! A server that answers calls until a call of "stop" asks it to end.
//!
//!     target/debug/examples/service file:///tmp/group       # serves as "service"
//!     target/debug/examples/service file:///tmp/group ask   # joins the group, calls it, and asks it to stop
#![forbid(unsafe_code)]

use distag::{Error, Result, Tensor, Worker};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

fn serve(rendezvous: &str) -> Result<()> {
    let (stop, stopped) = sync_channel(1);
    let worker = Worker::builder().name("service").rank(0).world_size(-1).rendezvous(rendezvous).build()?;
    worker.register("mean", |x: Tensor| x.mean())?;
    worker.register("stop", move || {
        let _ = stop.try_send(()); // a second one changes nothing
        Ok::<_, Error>("stopping")
    })?;
    worker.start(TIMEOUT)?;
    println!("{} serves", worker.name().unwrap_or_default());
    let _ = stopped.recv(); // the function holds the other end as long as the worker is there
    println!("served {} calls", worker.stats()?.calls_served);
    worker.shutdown(TIMEOUT)?;
    Ok(())
}

fn ask(rendezvous: &str) -> Result<()> {
    let worker = Worker::builder().name("client").rank(-1).world_size(-1).rendezvous(rendezvous).build()?;
    worker.start(TIMEOUT)?;
    let mean: Tensor = worker.call("service", "mean", (Tensor::copy(&[1.0f32, 2.0, 6.0]),))?;
    println!("mean {:.1}", mean.item()?);
    println!("{}", worker.call::<String>("service", "stop", ())?);
    worker.shutdown(TIMEOUT)?;
    Ok(())
}

fn main() -> Result<()> {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [rendezvous] => serve(rendezvous),
        [rendezvous, "ask"] => ask(rendezvous),
        _ => Err(Error::user(1000, "usage: service RENDEZVOUS [ask]")),
    }
}
